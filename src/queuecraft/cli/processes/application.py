"""The application behind `module:attribute`: imported, checked, and every mistake explained."""

from __future__ import annotations

import inspect
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import queuecraft
from queuecraft.app import QueueCraft
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.runtime.worker import Worker

_HOUSE = Path(queuecraft.__file__).parent
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class ApplicationError(Exception):
    """What was asked for cannot be run. `story` is the stack that leads to the mistake, if it
    lies in the application's own code."""

    def __init__(self, message: str, story: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.story = story


@dataclass(frozen=True, slots=True)
class Reference:
    """`module:attribute`, taken apart.

    >>> Reference.parse("shop.app:qc")
    Reference(module='shop.app', attribute='qc')
    >>> Reference.parse("shop/app.py")
    Traceback (most recent call last):
    queuecraft.cli.processes.application.ApplicationError: 'shop/app.py' is no module:attribute; \
did you mean shop.app:qc?
    """

    module: str
    attribute: str

    @classmethod
    def parse(cls, text: str) -> Reference:
        """The reference a person typed."""
        module, _, attribute = text.partition(":")
        if not (_DOTTED.fullmatch(module) and _DOTTED.fullmatch(attribute)) or _is_file(module):
            path = os.path.relpath(module) if os.path.isabs(module) else os.path.normpath(module)
            likely = path.removesuffix(".py").replace(os.sep, ".")
            name = attribute if _DOTTED.fullmatch(attribute) else "qc"
            hint = "expected one such as shop:qc"
            if _DOTTED.fullmatch(likely):
                hint = f"did you mean {likely}:{name}?"
            raise ApplicationError(f"{text!r} is no module:attribute; {hint}")
        return cls(module, attribute)

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


@dataclass(frozen=True, slots=True)
class Application:
    """A QueueCraft and those of its workers that are to run here."""

    qc: QueueCraft
    workers: Sequence[Worker]

    @classmethod
    def load(cls, text: str, names: Sequence[str] = (), processes: int = 1) -> Application:
        """Import it, choose its workers by name, and check that so many processes may run them.

        Raises `ApplicationError` for every mistake.
        """
        reference = Reference.parse(text)
        qc = loaded(reference)
        if not qc.workers:
            raise ApplicationError(
                f"{reference} has no workers; give it one with qc.worker('billing')"
            )
        try:
            for worker in qc.workers:
                worker.build()
            workers = _chosen(reference, qc.workers, names)
            for worker in workers:
                _check_processes(reference, worker, processes, alone=len(workers) == 1)
        except ConfigError as error:
            raise ApplicationError(f"{reference} cannot run: {error}") from error
        return cls(qc, workers)


def loaded(reference: Reference) -> QueueCraft:
    """The QueueCraft that a reference leads to. Raises `ApplicationError` for every mistake."""
    return _queuecraft(reference, _found(_module(reference.module), reference))


def _check_processes(reference: Reference, worker: Worker, processes: int, *, alone: bool) -> None:
    try:
        worker.check_processes(processes)
    except ConfigError as error:
        if alone or "ordering='key'" not in error.message:
            raise
        raise ConfigError(
            f"{error.message}; or give it a run of its own: "
            f"queuecraft run {reference} --worker {worker.queue_name}"
        ) from error


def _is_file(module: str) -> bool:
    return module.endswith(".py")


def _module(name: str) -> ModuleType:
    """Import a module as a program started in this directory would."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise ApplicationError(_missing(name, missing, here)) from None
        raise _explained(f"{name} cannot be imported", error) from error
    except (Exception, SystemExit) as error:
        raise _explained(f"{name} cannot be imported", error) from error


def _missing(name: str, missing: str, here: str) -> str:
    parent, _, last = missing.rpartition(".")
    places: Sequence[str] | None = [here]
    if parent:
        places = getattr(sys.modules.get(parent), "__path__", None)
        if places is None:
            return f"there is no module {name}: {parent} is a module, not a package"
    near = get_close_matches(last, [each.name for each in pkgutil.iter_modules(places)], 1)
    whole = ".".join(filter(None, (parent, *near)))
    hint = f"did you mean {whole}?" if near else f"looked in {here} and in the installed packages"
    return f"there is no module {missing}; {hint}"


def _found(module: ModuleType, reference: Reference) -> Any:
    found: Any = module
    for name in reference.attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ApplicationError(_no_attribute(module, name, found)) from None
    return found


def _no_attribute(module: ModuleType, name: str, owner: object) -> str:
    where = module.__name__ if owner is module else f"{module.__name__}:{type(owner).__name__}"
    apps = [key for key, value in vars(module).items() if isinstance(value, QueueCraft)]
    near = get_close_matches(name, [*apps, *dir(owner)], 1) or apps[:1]
    hint = f"; did you mean {module.__name__}:{near[0]}?" if near and owner is module else ""
    return f"{where} has no {name!r}{hint}"


def _queuecraft(reference: Reference, found: Any) -> QueueCraft:
    if isinstance(found, QueueCraft):
        return found
    if callable(found):
        found = _made(reference, found)
        if isinstance(found, QueueCraft):
            return found
        raise ApplicationError(f"{reference}() returned {_kind(found)}; expected a QueueCraft")
    raise ApplicationError(
        f"{reference} is {_kind(found)}; expected a QueueCraft or a function that returns one"
    )


def _made(reference: Reference, function: Callable[..., Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        raise ApplicationError(f"{reference} is an async function; expected a plain one")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise ApplicationError(f"{reference} is called without arguments: {error}") from None
    except ValueError:
        pass  # written in C; it will say itself
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise _explained(f"{reference}() failed", error) from error


def _kind(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _chosen(
    reference: Reference, workers: Sequence[Worker], names: Sequence[str]
) -> Sequence[Worker]:
    known = [worker.queue_name for worker in workers]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(set(known)))}"
            )
            raise ApplicationError(f"{reference} has no worker {name!r}; {hint}")
    return [worker for worker in workers if not names or worker.queue_name in names]


# -- where in the application's own code it happened ----------------------------------------------


def _explained(what: str, error: BaseException) -> ApplicationError:
    if isinstance(error, QueueError):  # our own words say enough; only where it was is missing
        frames = [each for each in traceback.extract_tb(error.__traceback__) if not _ours(each)]
        return ApplicationError(f"{what}: {error}", "".join(traceback.format_list(frames)).rstrip())
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
    stack = _own_part(error.__traceback__)
    story = "".join(traceback.format_exception(type(error), error, stack))
    return ApplicationError(f"{what}: {reason}", story.rstrip())


def _own_part(stack: TracebackType | None) -> TracebackType | None:
    """Without our own frames and those of the import system at the beginning."""
    while stack is not None and _ours(traceback.extract_tb(stack, 1)[0]):
        stack = stack.tb_next
    return stack


def _ours(frame: traceback.FrameSummary) -> bool:
    return "importlib" in frame.filename or Path(frame.filename).is_relative_to(_HOUSE)
