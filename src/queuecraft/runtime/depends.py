"""What a handler asks for besides its message: `Annotated[Session, Depends(session)]`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from queuecraft.model.errors import ConfigError
from queuecraft.runtime.signature import alternatives, code_of, is_async, message_in, signature_of

Scope: TypeAlias = Literal["message", "worker"]
Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Depends:
    """Says in an annotation which function makes the value of a parameter.

    The function may be a `def`, an `async def`, a class, or either kind of generator, whose rest
    after the `yield` cleans up; it may ask for the `Message` and for other dependencies. Its value
    is made for each message and shared by all who ask for it there, or, with `scope="worker"`,
    once when the worker starts. A `def` runs in a thread, as a handler does; `inline=True` calls
    it in the event loop, for one that cannot block.

    >>> import asyncio
    >>> from typing import Annotated
    >>> from queuecraft import Depends
    >>> from queuecraft.testing import MockQueueCraft
    >>> async def session():
    ...     print("begin")
    ...     yield "a session"
    ...     print("commit")
    >>> async def main() -> None:
    ...     async with MockQueueCraft() as mock:
    ...         billing = mock.worker("billing")
    ...
    ...         @billing.on("order.placed")
    ...         async def charge(order: dict, session: Annotated[str, Depends(session)]) -> None:
    ...             print("charge with", session)
    ...
    ...         await mock.deliver(billing, {"id": "o-1"})
    >>> asyncio.run(main())
    begin
    charge with a session
    commit
    """

    function: Function
    scope: Scope = field(default="message", kw_only=True)
    inline: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"Depends({self.function!r}): expected a function")
        if self.scope not in ("message", "worker"):
            raise ConfigError(f"Depends(scope={self.scope!r}): expected 'message' or 'worker'")
        _check_hash(self.function)


@dataclass(frozen=True, slots=True, eq=False)
class Provider:
    """A function that makes a value, and where it gets its own arguments from."""

    function: Function
    name: str
    scope: Scope
    awaited: bool
    """Whether it has to be awaited: an async function, or an async generator."""
    closes: bool
    """Whether it gives a context manager, to be entered and left."""
    inline: bool
    anywhere: bool
    """Whether it may run in the thread of the handler."""
    arguments: Mapping[str, Provider | None]
    """By parameter; None stands for the message."""
    key: Hashable
    """The same for another that is made the same way, all the way down."""


class Overrides:
    """Functions that stand in for others, as tests want it.

    >>> overrides = Overrides()
    >>> with overrides.replacing(print, repr):
    ...     overrides.current == {print: repr}
    True
    >>> overrides.current
    {}
    """

    def __init__(self) -> None:
        self.current: Mapping[Function, Function] = {}
        self.version = 0
        self._entries: list[tuple[Function, Function]] = []

    def with_one_more(self, function: Function, replacement: Function) -> Mapping[Any, Function]:
        """What would stand in for what."""
        for each in (function, replacement):
            if not callable(each):
                raise ConfigError(f"override({each!r}): expected a function")
            _check_hash(each)
        return {**self.current, function: replacement}

    @contextmanager
    def replacing(self, function: Function, replacement: Function) -> Generator[None]:
        """While the block runs, the last one begun that has not ended counts."""
        self.with_one_more(function, replacement)
        entry = (function, replacement)
        self._entries.append(entry)
        self._changed()
        try:
            yield
        finally:
            last = max(at for at, each in enumerate(self._entries) if each is entry)
            del self._entries[last]
            self._changed()

    def _changed(self) -> None:
        self.current = dict(self._entries)
        self.version += 1


def depends_in(where: str, name: str, annotation: Any) -> Depends | None:
    """The dependency that a parameter asks for by its annotation, if it does.

    >>> depends_in("handler charge", "now", Annotated[float, Depends(print)])
    Depends(function=<built-in function print>, scope='message', inline=False)
    """
    if get_origin(annotation) is not Annotated:
        inner = (depends_in(where, name, each) for each in alternatives(annotation))
        return next(filter(None, inner), None)
    said = get_args(annotation)[1:]
    marks = [each for each in said if isinstance(each, Depends)]
    if len(marks) > 1:
        raise ConfigError(f"{where}: parameter {name!r} has {len(marks)} Depends; one makes it")
    if marks:
        return marks[0]
    for each in said:
        if each is Depends or type(each).__name__ == "Depends":
            home = type(each).__module__.partition(".")[0]
            what = "Depends without a function" if each is Depends else f"the Depends of {home}"
            raise ConfigError(
                f"{where}: parameter {name!r} has {what}; write "
                "Annotated[…, Depends(function)] with the Depends of queuecraft"
            )
    return depends_in(where, name, get_args(annotation)[0])


def check_default(where: str, param: inspect.Parameter) -> None:
    """Raise `ConfigError` for what would be handed to the function as it is."""
    if isinstance(param.default, Depends) or type(param.default).__name__ == "Depends":
        raise ConfigError(
            f"{where}: {param.name!r} has Depends as its default; write it as the annotation: "
            f"{param.name}: Annotated[…, Depends(function)]"
        )


def resolve(
    where: str,
    asked: Mapping[str, Depends],
    overrides: Mapping[Function, Function],
    *,
    lists: bool = False,
) -> dict[str, Provider]:
    """Who makes what is asked for, by parameter; `ConfigError` for what nobody can make.

    >>> def engine(): ...
    >>> def session(engine: Annotated[object, Depends(engine)]): ...
    >>> found = resolve("handler charge", {"session": Depends(session)}, {})
    >>> found["session"].arguments["engine"].name
    'engine'
    """
    graph = _Graph(where, overrides, lists=lists)
    return {name: graph.provider(each, (), frozenset()) for name, each in asked.items()}


class _Graph:
    """What one handler needs, all the way down."""

    def __init__(self, where: str, overrides: Mapping[Function, Function], *, lists: bool) -> None:
        self._where = where
        self._overrides = overrides
        self._lists = lists
        self._asked: dict[Function, Depends] = {}
        self._known: dict[Hashable, Provider] = {}

    def provider(
        self, asked: Depends, chain: tuple[Function, ...], wrapped: frozenset[Function]
    ) -> Provider:
        """Who makes a value; `chain` are those that wait for it, `wrapped` those whose replacement
        is among them, and gets the real one."""
        function = asked.function
        if self._asked.setdefault(function, asked) != asked:
            raise ConfigError(
                f"{self._where} asks for {_name(function)} in two ways, {_said(asked)} and "
                f"{_said(self._asked[function])}; ask for it the same way everywhere"
            )
        if function in self._overrides and function not in wrapped:
            wrapped |= {function}
            function = self._overrides[function]
        path = (*chain, function)
        if function in chain:
            raise ConfigError(f"{self._located(path)}: it goes round in a circle")
        arguments = self._arguments(asked, path, wrapped)
        needed = tuple((name, each and each.key) for name, each in arguments.items())
        key = (function, asked.scope, needed)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _provider(function, asked, arguments, key)
        return found

    def _arguments(
        self, asked: Depends, path: tuple[Function, ...], wrapped: frozenset[Function]
    ) -> dict[str, Provider | None]:
        where = self._located(path)
        function = path[-1]
        if inspect.isclass(function) and function.__init__ is object.__init__:
            return {}
        signature, hints = signature_of(where, function)
        arguments: dict[str, Provider | None] = {}
        for param in signature.parameters.values():
            if param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD):
                continue
            annotation = hints.get(param.name, Any)
            inner = depends_in(where, param.name, annotation)
            if inner is None and message_in(annotation) is None:
                check_default(where, param)
                if param.default is param.empty:
                    raise ConfigError(
                        f"{where}: nothing fills parameter {param.name!r}; a dependency takes the "
                        "Message and other dependencies (annotate it so), and further parameters "
                        "need defaults"
                    )
                continue
            if param.kind is param.POSITIONAL_ONLY:
                raise ConfigError(f"{where}: {param.name!r} is positional-only; leave out the '/'")
            if inner is None:
                self._check_message(where, asked, param.name)
                arguments[param.name] = None
                continue
            made = arguments[param.name] = self.provider(inner, path, wrapped)
            if asked.scope == "worker" and made.scope != "worker":
                raise ConfigError(
                    f"{where} is made once for the worker, and cannot have {made.name}, which is "
                    "made for each message; give both the same scope"
                )
        return arguments

    def _check_message(self, where: str, asked: Depends, name: str) -> None:
        if asked.scope == "worker":
            raise ConfigError(
                f"{where} is made once for the worker, so there is no Message for {name!r}"
            )
        if self._lists:
            raise ConfigError(
                f"{where} is made once for a batch, so there is no one Message for {name!r}"
            )

    def _located(self, path: tuple[Function, ...]) -> str:
        return f"{self._where}: " + " → ".join(map(_name, path))


def _provider(
    function: Function, asked: Depends, arguments: Mapping[str, Provider | None], key: Hashable
) -> Provider:
    is_class = inspect.isclass(function)
    code = code_of(function)
    inner = inspect.unwrap(code)
    call, closes, awaited = function, False, not is_class and is_async(function)
    if is_class:
        pass
    elif inspect.isasyncgenfunction(code):
        call, closes, awaited = asynccontextmanager(function), True, True
    elif inspect.isgeneratorfunction(code):
        call, closes = contextmanager(function), True
    elif inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        # A generator with a decorator, which is @contextmanager or @asynccontextmanager.
        closes, awaited = True, inspect.isasyncgenfunction(inner)
    return Provider(
        call,
        _name(function),
        asked.scope,
        awaited,
        closes,
        # To make an object is not work that needs a thread.
        inline=asked.inline or is_class,
        anywhere=not awaited and not asked.inline,
        arguments=arguments,
        key=key,
    )


def _name(function: Function) -> str:
    inner = getattr(function, "func", function)  # of a partial
    return str(getattr(inner, "__qualname__", None) or repr(inner)).rpartition("<locals>.")[2]


def _said(asked: Depends) -> str:
    return f"scope={asked.scope!r}, inline={asked.inline}"


def _check_hash(function: Function) -> None:
    try:
        hash(function)
    except TypeError:
        raise ConfigError(
            f"{function!r} makes a dependency and has no hash, so it cannot be told apart; wrap it "
            "in a function"
        ) from None
