"""What a user's function takes: its parameters and their annotations, read once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from queuecraft.model.errors import ConfigError
from queuecraft.model.message import Message


def signature_of(
    where: str, function: Callable[..., Any]
) -> tuple[inspect.Signature, dict[str, Any]]:
    """The parameters of a function, and their annotations; one that names something out of reach
    counts for nothing.

    >>> def charge(order: dict, message: "Message") -> None: ...
    >>> signature, hints = signature_of("handler charge", charge)
    >>> [(name, hints[name].__name__) for name in signature.parameters]
    [('order', 'dict'), ('message', 'Message')]
    """
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        raise ConfigError(f"{where} has a signature that cannot be read: {error}") from error
    except TypeError:  # early 3.11 stumbles over an AsyncMock: it takes whatever it is given
        signature = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
    hints = _annotations(where, function)
    if isinstance(function, partial):  # what it was given, it does not ask for
        hints = {name: hint for name, hint in hints.items() if name not in function.keywords}
    return signature, hints


def code_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind partials, or the `__call__` of an object that has one, or the
    `__init__` of a class."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isclass(function):
        initialiser: Callable[..., Any] = function.__init__
        return initialiser
    return function if inspect.isroutine(function) else type(function).__call__


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine.

    >>> async def charge(order: dict) -> None: ...
    >>> is_async(charge), is_async(partial(charge, {})), is_async(print)
    (True, True, False)
    """
    return inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(
        code_of(function)
    )


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """What an annotation may stand for: the members of a union, what an alias names."""
    origin = get_origin(annotation)
    if origin is Union or origin is UnionType:
        return get_args(annotation)
    if type(annotation).__name__ == "TypeAliasType":
        return (annotation.__value__,)
    return ()


def message_in(annotation: Any) -> Any:
    """The `Message` or `Message[T]` that an annotation asks for, if it does.

    >>> message_in(Message[int] | None), message_in(int)
    (queuecraft.model.message.Message[int], None)
    """
    origin = get_origin(annotation)
    inner = get_args(annotation)[:1] if origin is Annotated else alternatives(annotation)
    if inner:
        return next(filter(None, map(message_in, inner)), None)
    kind = origin or annotation
    return annotation if isinstance(kind, type) and issubclass(kind, Message) else None


def _annotations(where: str, function: Callable[..., Any]) -> dict[str, Any]:
    code = code_of(function)
    try:
        fields = get_type_hints(function, include_extras=True) if inspect.isclass(function) else {}
        return {**fields, **get_type_hints(code, include_extras=True)}
    except Exception:  # whatever evaluating them may raise; each by itself may still be read
        inner = inspect.unwrap(code)
        names: dict[str, Any] = getattr(inner, "__globals__", {})
        raw: dict[str, Any] = getattr(inner, "__annotations__", {})
        _check_dependencies(where, raw, names)
        return {name: _resolved(annotation, names) for name, annotation in raw.items()}


def _check_dependencies(where: str, raw: dict[str, Any], names: dict[str, Any]) -> None:
    """A type out of reach may be left to the codec; what makes a dependency has to be known."""
    for name, annotation in raw.items():
        if not isinstance(annotation, str) or not re.search(r"\bDepends\(", annotation):
            continue
        try:
            get_type_hints(SimpleNamespace(__annotations__={name: annotation}), names)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"{where}: parameter {name!r} asks for a dependency, and its annotation cannot be "
                f"read: {error}; every name in it has to be one of the module, imported for more "
                "than type checkers"
            ) from error


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    whole = _looked_up(annotation, names)
    if whole is not None:
        return whole
    listed = re.fullmatch(r"(?:[\w.]+\.)?(?:list|List|Sequence)\[(.*)\]", annotation.strip())
    if listed is not None:  # of what is out of reach, but a list all the same
        return list[_resolved(listed[1], names)]  # type: ignore[misc]
    # `Message[Local]`: of what is out of reach, but a message all the same.
    for name in re.findall(r"[A-Za-z_][\w.]*", annotation):
        part = _looked_up(name, names)
        if message_in(part) or (part is None and name.split(".")[-1] == Message.__name__):
            return Message
    return Any


def _looked_up(text: str, names: dict[str, Any]) -> Any:
    holder = SimpleNamespace(__annotations__={"it": text})
    try:
        found = get_type_hints(holder, names, include_extras=True)
    except Exception:
        return None
    return found["it"]
