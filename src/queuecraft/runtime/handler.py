"""A user's function, looked at once and compiled into the shortest way to call it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias, cast, get_args, get_origin

from queuecraft.codec import Codec
from queuecraft.model.envelope import Delivery
from queuecraft.model.errors import ConfigError, PayloadError
from queuecraft.model.message import Control, Message
from queuecraft.model.metadata import ConsumeMetadata, ParamMetadata
from queuecraft.model.outcome import UnreadablePayload
from queuecraft.runtime.depends import (
    Depends,
    Function,
    Overrides,
    Provider,
    check_default,
    depends_in,
    resolve,
)
from queuecraft.runtime.keeper import Keeper
from queuecraft.runtime.provision import Provision
from queuecraft.runtime.signature import code_of, is_async, message_in, signature_of
from queuecraft.runtime.threads import Threads

Call: TypeAlias = Callable[[Delivery], Awaitable[object]]
"""A compiled handler: decodes and runs it for one delivery."""

Handle: TypeAlias = Callable[[Message[Any]], Awaitable[object]]
"""What middleware wraps."""

Read: TypeAlias = Callable[[Delivery], Message[Any]]
"""Makes the message of a delivery; fails if its payload is needed and cannot be read."""

RunMany: TypeAlias = Callable[[Sequence[Message[Any]]], Awaitable[object]]
"""A compiled handler of lists: runs it for many messages."""

Middleware: TypeAlias = Callable[[Handle], Handle]
"""Takes the handling of a message and gives back another that does more.

>>> def counted(handle: Handle) -> Handle:
...     async def counting(message):
...         print("handling", message.id)
...         return await handle(message)
...     return counting
"""


def checked(middleware: Iterable[Middleware]) -> tuple[Middleware, ...]:
    """The same middleware, if all of it can be called.

    >>> checked([None])
    Traceback (most recent call last):
    queuecraft.ConfigError: middleware None is not a function
    """
    given = tuple(middleware)
    for each in given:
        if not callable(each):
            raise ConfigError(f"middleware {each!r} is not a function")
    return given


class Handler:
    """A handler and what its parameters ask for, by annotation: the payload, the `Message`,
    dependencies.

    >>> def charge(order: dict, message: Message) -> None: ...
    >>> [param.source for param in Handler("order.placed", charge).metadata.params]
    ['payload', 'message']
    """

    def __init__(
        self,
        pattern: str,
        function: Callable[..., Any],
        payload_type: Any = None,
        *,
        batch_size: int | None = None,
        batch_wait: float | None = None,
        lists: bool = False,
    ) -> None:
        if not callable(function):
            raise ConfigError(f"a handler of {pattern!r} must be a function, not {function!r}")
        self.pattern = pattern
        self.function = function
        self.name = getattr(function, "__qualname__", repr(function))
        code = code_of(function)
        if inspect.isasyncgenfunction(code) or inspect.isgeneratorfunction(code):
            raise ConfigError(f"handler {self.name} of {pattern!r} yields; a handler returns")
        where = f"handler {self.name} of {pattern!r}"
        signature, hints = signature_of(where, function)
        self._where = where
        self._asked: dict[str, Depends] = {}
        for name, param in signature.parameters.items():
            if param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD):
                continue
            if (asked_for := depends_in(where, name, hints.get(name, Any))) is not None:
                self._asked[name] = asked_for
        others = (name for name in signature.parameters if name not in self._asked)
        first = next((hints.get(name, Any) for name in others), Any)
        asked = (batch_size or 1) > 1 or batch_wait is not None
        self.in_batches = takes_batches(first, payload_type, said=asked or lists)
        if asked and not self.in_batches:
            raise ConfigError(_no_batches(where, first, payload_type))
        self.batch_size = batch_size
        self.batch_wait = batch_wait
        params, self._arguments = _params(
            where, signature, hints, self._asked, lists=self.in_batches
        )
        self._named = [
            name
            for name in self._asked
            if signature.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        ]
        self.providers({})  # what nobody can make is told now
        if payload_type in (None, Any):
            payload_type = _payload_type(params, lists=self.in_batches)
        self.metadata = ConsumeMetadata(pattern, payload_type, function, params, self.in_batches)
        self.sync = not is_async(function)

    def providers(self, overrides: Mapping[Function, Function]) -> Mapping[str, Provider]:
        """Who makes its dependencies, given what stands in for what; `ConfigError` if nobody."""
        return resolve(self._where, self._asked, overrides, lists=self.in_batches)

    def compile(
        self,
        codec: Codec,
        control: Control,
        threads: Threads,
        middleware: Sequence[Middleware],
        keeper: Keeper | None = None,
    ) -> Call:
        """The way from a delivery to the running function."""
        decoder = codec.decoder(self.metadata.payload_type)
        function: Callable[..., Any] = self.function

        invoke = self._invoker(threads, keeper)
        handle: Handle = invoke
        for wrap in reversed(middleware):
            wrapped: object = wrap(handle)
            if inspect.iscoroutine(wrapped):
                wrapped.close()
                raise ConfigError(f"middleware {wrap!r} is async; only what it returns should be")
            if not callable(wrapped):
                raise ConfigError(f"middleware {wrap!r} returned {wrapped!r}, not a function")
            handle = wrapped
        chain = handle

        plain = not self.sync and not self._asked and self._arguments == (PAYLOAD,)
        if chain is invoke and plain:

            def call_with_payload(delivery: Delivery) -> Awaitable[object]:
                sent = delivery.sent
                try:
                    payload = decoder(sent.body, sent.content_type, sent.content_encoding)
                except PayloadError as error:
                    raise UnreadablePayload(str(error)) from error
                awaitable: Awaitable[object] = function(payload)
                return awaitable

            return call_with_payload
        return lambda delivery: chain(Message(delivery, decoder, control))

    def check(self, middleware: Sequence[Middleware]) -> None:
        """Raise `ConfigError` if the middleware cannot be around it. Around a handler of lists is
        what has a method `many`, which takes a `RunMany` and gives back another."""
        if self.in_batches and not all(hasattr(each, "many") for each in middleware):
            raise ConfigError(
                f"handler {self.name} of {self.pattern!r} takes batches, and middleware wraps the "
                "handling of one message; give it a worker, and a QueueCraft, without middleware"
            )

    def compile_batch(
        self,
        codec: Codec,
        control: Control,
        threads: Threads,
        middleware: Sequence[Middleware],
        keeper: Keeper | None = None,
    ) -> tuple[Read, RunMany]:
        """The same for a handler of lists, in two steps: one message may fail the first."""
        self.check(middleware)
        decoder = codec.decoder(self.metadata.payload_type)
        given = self._arguments
        function = self._function(threads)
        provision = self._provision(threads, keeper) if self._asked else None

        def run(messages: Sequence[Message[Any]]) -> Awaitable[object]:
            return function(*[each.fill_many(messages) for each in given])

        reads = PAYLOAD in given

        def read(delivery: Delivery) -> Message[Any]:
            message: Message[Any] = Message(delivery, decoder, control)
            if reads:
                message.payload  # noqa: B018  one that cannot be read is not given to the handler
            return message

        handle: RunMany = provision or run
        for wrap in reversed(middleware):
            handle = cast("Any", wrap).many(handle)
        return read, handle

    def _function(self, threads: Threads) -> Callable[..., Awaitable[object]]:
        """The function, to be awaited, in a thread if it is sync."""
        name = self.name

        async def in_thread(*arguments: Any) -> object:
            result = await threads.run(self.function, *arguments)
            if inspect.isgenerator(result) or inspect.isasyncgen(result):
                raise TypeError(f"handler {name} gave a generator, so nothing of it has run")
            # A lambda around an async function gives its coroutine: that is the work.
            return await result if inspect.isawaitable(result) else result

        return in_thread if self.sync else self.function

    def _provision(self, threads: Threads, keeper: Keeper | None) -> Provision:
        """The function, called with what it depends on."""
        many, given, named = self.in_batches, self._arguments, self._named
        if keeper is None:
            keeper = Keeper(self.name, threads, Overrides(), logging.getLogger("queuecraft"))

        def arguments(to: Any, made: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
            positional = [
                made[each.name]
                if each.name is not None
                else each.fill_many(to)
                if many
                else each.fill(to)
                for each in given
            ]
            return positional, {name: made[name] for name in named}

        provision = Provision(
            self.function, self.name, self.providers, arguments, keeper, sync=self.sync
        )
        keeper.serve(provision)
        return provision

    def _invoker(self, threads: Threads, keeper: Keeper | None) -> Handle:
        given = self._arguments
        if self._asked:
            provision, reads = self._provision(threads, keeper), PAYLOAD in given

            def invoke(message: Message[Any]) -> Awaitable[object]:
                if reads:
                    message.payload  # noqa: B018  nothing is made for what cannot be read
                return provision(message)

            return invoke
        function = self._function(threads)
        if given == (PAYLOAD,):
            return lambda message: function(message.payload)
        if given == (PAYLOAD, MESSAGE):
            return lambda message: function(message.payload, message)
        if given == (MESSAGE,):
            return lambda message: function(message)
        return lambda message: function(*[each.fill(message) for each in given])


@dataclass(frozen=True, slots=True)
class Argument:
    """What is passed for one parameter."""

    fill: Callable[[Message[Any]], Any]
    default: bool = False  # the same for every message
    name: str | None = None  # of the parameter, if a dependency is passed for it

    def fill_many(self, messages: Sequence[Message[Any]]) -> Any:
        """What is passed for the parameter of a handler of lists."""
        return self.fill(messages[0]) if self.default else [self.fill(each) for each in messages]


PAYLOAD = Argument(lambda message: message.payload)
MESSAGE = Argument(lambda message: message)


def _params(
    where: str,
    signature: inspect.Signature,
    hints: Mapping[str, Any],
    asked: Mapping[str, Depends],
    *,
    lists: bool,
) -> tuple[tuple[ParamMetadata, ...], tuple[Argument, ...]]:
    """The parameters, and what to pass for them, by position."""
    found: list[ParamMetadata] = []
    arguments: list[Argument] = []
    passed = 0  # defaults after the last argument of ours are left to the function
    for param in signature.parameters.values():
        annotation = hints.get(param.name, Any)
        taken = {each.source for each in found}
        if param.kind is param.VAR_KEYWORD or (param.kind is param.VAR_POSITIONAL and taken):
            continue
        if param.name in asked:
            found.append(ParamMetadata(param.name, "dependency", annotation))
            if param.kind is not param.KEYWORD_ONLY:
                arguments.append(Argument(partial(_same, None), name=param.name))
                passed = len(arguments)
            continue
        check_default(where, param)
        if param.kind is param.KEYWORD_ONLY and param.default is not param.empty:
            found.append(ParamMetadata(param.name, "default", annotation))
        elif param.kind is param.KEYWORD_ONLY:
            raise ConfigError(f"{where}: {param.name!r} is keyword-only; make it positional")
        elif lists and message_in(annotation) is not None:
            raise ConfigError(
                f"{where} takes a batch, so {param.name!r} is many messages; annotate it "
                "list[Message]"
            )
        elif message_in(element_of(annotation) if lists else annotation) is not None:
            if "message" in taken:
                raise ConfigError(f"{where} asks for the message twice")
            found.append(ParamMetadata(param.name, "message", annotation))
            arguments.append(MESSAGE)
            passed = len(arguments)
        elif "payload" not in taken:
            found.append(ParamMetadata(param.name, "payload", annotation))
            arguments.append(PAYLOAD)
            passed = len(arguments)
        elif param.default is not param.empty:
            found.append(ParamMetadata(param.name, "default", annotation))
            arguments.append(Argument(partial(_same, param.default), default=True))
        else:
            raise ConfigError(
                f"{where}: nothing fills parameter {param.name!r}; a handler takes a payload and "
                "a Message (annotate it so), or a list of each, and further parameters need "
                "Annotated[…, Depends(function)], or defaults"
            )
    return tuple(found), tuple(arguments[:passed])


def _same(value: Any, message: Message[Any]) -> Any:
    return value


def _payload_type(params: Sequence[ParamMetadata], *, lists: bool) -> Any:
    """What the handler's annotations say of the payload: `order: Order`, `m: Message[Order]`."""
    said = [
        (param.source, element_of(param.annotation) if lists else param.annotation)
        for param in params
    ]
    for source, annotation in said:
        if source == "payload":
            return annotation
    for source, annotation in said:
        if source == "message" and (arguments := get_args(message_in(annotation))):
            return arguments[0]
    return Any


def element_of(annotation: Any) -> Any:
    """What a list holds, by its annotation; None for what is no list.

    >>> element_of(list[int]), element_of(list), element_of(int)
    (<class 'int'>, typing.Any, None)
    """
    if get_origin(annotation) is Annotated:
        return element_of(get_args(annotation)[0])
    if (get_origin(annotation) or annotation) not in (list, Sequence):
        return None
    return (get_args(annotation) or (Any,))[0]


def takes_batches(first: Any, payload_type: Any, *, said: bool) -> bool:
    """Whether a handler takes lists of payloads, by the annotation of its first parameter. Where
    the payload's type is not known, a list is a payload unless a batch size was `said`.

    >>> takes_batches(list[int], int, said=False), takes_batches(list[int], list[int], said=True)
    (True, False)
    """
    element = element_of(first)
    if element is None:
        return False
    if message_in(element) is not None:
        return True
    if payload_type in (None, Any):
        return said
    # A list of lists is a batch of payloads that are lists themselves.
    return element_of(payload_type) is None or element_of(element) is not None


def _no_batches(where: str, first: Any, payload_type: Any) -> str:
    if element_of(payload_type) is not None and element_of(first) is not None:
        return (
            f"{where}: batch_size with a payload that is a list itself; to get many payloads at "
            f"once, annotate the first parameter as a list of those: list[{_named(payload_type)}]"
        )
    kind = "Order" if payload_type in (None, Any) else _named(payload_type)
    return (
        f"{where} takes one message at a time; to get batches, annotate its first parameter as "
        f"list[{kind}], or leave out batch_size and batch_wait"
    )


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else repr(kind)
