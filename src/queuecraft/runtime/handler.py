"""A user's function, looked at once and compiled into the shortest way to call it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

from queuecraft.codec import Codec
from queuecraft.model.envelope import Delivery
from queuecraft.model.errors import ConfigError, PayloadError
from queuecraft.model.message import Control, Message
from queuecraft.model.metadata import ConsumeMetadata, ParamMetadata
from queuecraft.model.outcome import UnreadablePayload
from queuecraft.runtime.threads import Threads

Call: TypeAlias = Callable[[Delivery], Awaitable[object]]
"""A compiled handler: decodes and runs it for one delivery."""

Handle: TypeAlias = Callable[[Message[Any]], Awaitable[object]]
"""What middleware wraps."""

Middleware: TypeAlias = Callable[[Handle], Handle]
"""Takes the handling of a message and gives back another that does more.

>>> def counted(handle: Handle) -> Handle:
...     async def counting(message):
...         print("handling", message.id)
...         return await handle(message)
...     return counting
"""


class Handler:
    """A handler and what its parameters ask for, by annotation: the payload, the `Message`.

    >>> def charge(order: dict, message: Message) -> None: ...
    >>> [param.source for param in Handler("order.placed", charge).metadata.params]
    ['payload', 'message']
    """

    def __init__(
        self, pattern: str, function: Callable[..., Any], payload_type: Any = None
    ) -> None:
        if not callable(function):
            raise ConfigError(f"a handler of {pattern!r} must be a function, not {function!r}")
        self.pattern = pattern
        self.function = function
        self.name = getattr(function, "__qualname__", repr(function))
        params = _params(pattern, self.name, function)
        if payload_type in (None, Any):
            payload_type = _payload_type(params)
        self.metadata = ConsumeMetadata(pattern, payload_type, function, params)
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise ConfigError(f"handler {self.name} of {pattern!r} yields; a handler returns")
        self.sync = not (
            inspect.iscoroutinefunction(inspect.unwrap(function))
            or inspect.iscoroutinefunction(_code_of(function))
        )

    def compile(
        self, codec: Codec, control: Control, threads: Threads, middleware: Sequence[Middleware]
    ) -> Call:
        """The way from a delivery to the running function."""
        decoder = codec.decoder(self.metadata.payload_type)
        function: Callable[..., Any] = self.function
        sources = tuple(p.source for p in self.metadata.params if p.source != "default")

        if not self.sync and not middleware and sources == ("payload",):

            def call_with_payload(delivery: Delivery) -> Awaitable[object]:
                sent = delivery.sent
                try:
                    payload = decoder(sent.body, sent.content_type, sent.content_encoding)
                except PayloadError as error:
                    raise UnreadablePayload(str(error)) from error
                awaitable: Awaitable[object] = function(payload)
                return awaitable

            return call_with_payload

        invoke = self._invoker(threads)
        if not middleware:
            return lambda delivery: invoke(Message(delivery, decoder, control))

        handle: Handle = invoke
        for wrap in reversed(middleware):
            handle = wrap(handle)
            if not callable(handle):
                raise ConfigError(f"middleware {wrap!r} returned {handle!r}, not a function")
        chain = handle
        return lambda delivery: chain(Message(delivery, decoder, control))

    def _invoker(self, threads: Threads) -> Handle:
        sources = tuple(p.source for p in self.metadata.params if p.source != "default")

        async def in_thread(*arguments: Any) -> object:
            result = await threads.run(self.function, *arguments)
            # A lambda around an async function gives its coroutine: that is the work.
            return await result if inspect.isawaitable(result) else result

        function: Callable[..., Awaitable[object]] = in_thread if self.sync else self.function
        if sources == ("payload",):
            return lambda message: function(message.payload)
        if sources == ("payload", "message"):
            return lambda message: function(message.payload, message)
        if sources == ("message", "payload"):
            return lambda message: function(message, message.payload)
        if sources == ("message",):
            return lambda message: function(message)
        return lambda message: function()


def _params(pattern: str, name: str, function: Callable[..., Any]) -> tuple[ParamMetadata, ...]:
    where = f"handler {name} of {pattern!r}"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where} has a signature that cannot be read: {error}") from error
    hints = _annotations(function)
    found: list[ParamMetadata] = []
    for param in signature.parameters.values():
        annotation = hints.get(param.name, Any)
        taken = {each.source for each in found}
        origin = get_origin(annotation) or annotation
        if param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD):
            continue
        if param.kind is param.KEYWORD_ONLY and param.default is not param.empty:
            found.append(ParamMetadata(param.name, "default", annotation))
        elif param.kind is param.KEYWORD_ONLY:
            raise ConfigError(f"{where}: {param.name!r} is keyword-only; make it positional")
        elif isinstance(origin, type) and issubclass(origin, Message):
            if "message" in taken:
                raise ConfigError(f"{where} asks for the message twice")
            found.append(ParamMetadata(param.name, "message", annotation))
        elif "payload" not in taken:
            found.append(ParamMetadata(param.name, "payload", annotation))
        elif param.default is not param.empty:
            found.append(ParamMetadata(param.name, "default", annotation))
        else:
            raise ConfigError(
                f"{where}: nothing fills parameter {param.name!r}; a handler takes a payload and "
                "a Message (annotate it so), and further parameters need defaults"
            )
    return tuple(found)


def _code_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, or the `__call__` of an object that has one."""
    if inspect.isroutine(function) or isinstance(function, functools.partial):
        return function
    return type(function).__call__


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters' annotations; one that names something out of reach is left as text."""
    target = _code_of(function)
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        raw: dict[str, Any] = getattr(inspect.unwrap(target), "__annotations__", {})
        known = {**getattr(inspect.unwrap(target), "__globals__", {}), "Message": Message}
        hints: dict[str, Any] = {}
        for name, annotation in raw.items():
            text = annotation if isinstance(annotation, str) else ""
            if not text:
                hints[name] = annotation
            elif text.split("[")[0].split(".")[-1] == "Message":
                hints[name] = Message
            else:
                hints[name] = known.get(text, Any)
        return hints


def _payload_type(params: Sequence[ParamMetadata]) -> Any:
    """What the handler's annotations say of the payload: `order: Order`, `m: Message[Order]`."""
    for param in params:
        if param.source == "payload":
            return param.annotation
    for param in params:
        if param.source == "message" and (arguments := get_args(param.annotation)):
            return arguments[0]
    return Any
