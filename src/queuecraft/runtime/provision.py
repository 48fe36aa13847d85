"""Giving a handler what it asks for: made before it runs, cleaned up before its message ends."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from queuecraft.model.batch import BatchFailed
from queuecraft.runtime.depends import Function, Provider
from queuecraft.runtime.threads import NoThread, Threads

if TYPE_CHECKING:
    from queuecraft.runtime.keeper import Keeper

Exit: TypeAlias = Callable[[BaseException | None], Awaitable[object]]
"""Cleans up, told what went wrong, if anything did."""

Needs: TypeAlias = Callable[[Mapping[Function, Function]], Mapping[str, Provider]]
"""Who makes what a handler asks for, by parameter, given what stands in for what."""

Arguments: TypeAlias = Callable[[Any, Mapping[str, Any]], tuple[Sequence[Any], Mapping[str, Any]]]
"""What a handler is called with, given its message, or messages, and its dependencies."""


@dataclass(frozen=True, slots=True)
class Steps:
    """In which order to make what a handler needs. A value is known by its place in a list: the
    message, what the worker keeps, what is made for the message."""

    kept: tuple[Provider, ...]
    made: tuple[tuple[Provider, Mapping[str, int]], ...]
    asked: Mapping[str, int]
    anywhere: bool
    """Whether all that is made may be made in the thread of a sync handler."""

    @classmethod
    def of(cls, needs: Mapping[str, Provider]) -> Steps:
        """The steps that lead to what is needed."""
        kept: dict[Provider, None] = {}
        made: dict[Provider, None] = {}

        def visit(provider: Provider) -> None:
            if provider.scope == "worker":
                kept[provider] = None
            elif provider not in made:
                for each in provider.arguments.values():
                    if each is not None:
                        visit(each)
                made[provider] = None

        for provider in needs.values():
            visit(provider)
        places: dict[Provider | None, int] = {None: 0}
        for provider in (*kept, *made):
            places[provider] = len(places)
        return cls(
            tuple(kept),
            tuple(
                (provider, {name: places[each] for name, each in provider.arguments.items()})
                for provider in made
            ),
            {name: places[provider] for name, provider in needs.items()},
            all(provider.anywhere for provider in made),
        )


class Provision:
    """A handler with its dependencies, to be called with a message, or with a list of them."""

    def __init__(
        self,
        function: Function,
        name: str,
        needs: Needs,
        arguments: Arguments,
        keeper: Keeper,
        *,
        sync: bool,
    ) -> None:
        self._function = function
        self._name = name
        self._needs = needs
        self._arguments = arguments
        self._keeper = keeper
        self._overrides = keeper.overrides
        self._threads = keeper.threads
        self._sync = sync
        self._version = -1
        self._steps = Steps((), (), {}, anywhere=False)
        self._kept: list[Any] = []

    async def prepare(self) -> None:
        """Have the worker make what it keeps, and see what stands in for what by now."""
        version = self._overrides.version
        steps = Steps.of(self._needs(self._overrides.current))
        kept = [await self._keeper.get(provider) for provider in steps.kept]
        self._version, self._steps, self._kept = version, steps, kept

    async def __call__(self, given: Any) -> object:
        """Make what is needed, run the handler, clean up."""
        if self._version != self._overrides.version:
            await self.prepare()
        steps = self._steps
        values = [given, *self._kept]
        if not (self._sync and steps.anywhere):
            return await self._run(steps, values, self._threads)
        # One call in one thread for all of it: some things must not be used in another than the
        # one that has made them, and a change of threads costs more than most of them do.
        work = self._run(steps, values, None)
        try:
            ending = self._threads.run(_finished, work)
        except NoThread:
            work.close()
            raise
        return await ending

    async def _run(self, steps: Steps, values: list[Any], threads: Threads | None) -> object:
        exits: list[Exit] = []
        try:
            for provider, places in steps.made:
                arguments = {name: values[place] for name, place in places.items()}
                values.append(await enter(provider, arguments, exits, threads))
            named = {name: values[place] for name, place in steps.asked.items()}
            result = await self._call(*self._arguments(values[0], named), threads)
        except GeneratorExit:  # nobody can wait any more: the loop is gone
            raise
        except BaseException as error:
            await leave(exits, error)
            raise
        await leave(exits, None)
        return result

    async def _call(
        self, positional: Sequence[Any], named: Mapping[str, Any], threads: Threads | None
    ) -> object:
        function = partial(self._function, *positional, **named)
        if not self._sync:
            return await function()
        result = function() if threads is None else await patiently(threads.run(function))
        return await _plain(f"handler {self._name}", result, here=threads is None)


async def enter(
    provider: Provider,
    arguments: Mapping[str, Any],
    exits: list[Exit],
    threads: Threads | None,
) -> Any:
    """Make a value, and note how to clean up after it. Without threads, this is one."""
    here = provider.inline
    function = partial(provider.function, **arguments)
    if not provider.closes:
        if provider.awaited:
            return await function()
        made = function() if threads is None or here else await patiently(threads.run(function))
        return await _plain(provider.name, made, here=threads is None)
    manager = _managed(function())
    if provider.awaited:
        value = await manager.__aenter__()
        exits.append(partial(_leave_async, manager))
    elif threads is None or here:
        value = manager.__enter__()
        exits.append(partial(_leave_here, manager))
    else:
        entering = threads.run(manager.__enter__)
        try:
            value = await patiently(entering)
        finally:
            # Cancelled or not, what was opened in the meantime is closed again.
            if entering.done() and not entering.cancelled() and entering.exception() is None:
                exits.append(partial(_leave_in_thread, manager, threads))
    return value


async def leave(exits: list[Exit], error: BaseException | None) -> None:
    """Clean up, the last first. Each hears of what went wrong, and whatever goes wrong now fails
    the message; that one of them is content with an error does not undo it."""
    # Part of a batch failed; the rest is done and will be acknowledged, so it must be kept.
    thrown = None if isinstance(error, BatchFailed) else error
    while exits:
        try:
            await exits.pop()(thrown)
        except BaseException as raised:
            thrown = raised
    if thrown is not None and thrown is not error:
        raise thrown


async def patiently(work: asyncio.Future[Any]) -> Any:
    """Wait for a thread, once cancelled too: what it uses is not to be closed under its hands. A
    second cancellation leaves it alone."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if work.cancelled():
            raise
        try:
            await asyncio.wait([work])
        finally:
            if not work.done():
                work.cancel()
        work.exception()  # nobody else will ask
        raise


async def _plain(what: str, made: Any, *, here: bool) -> Any:
    """A value of a function that looked sync; a wrapper around an async one gives a coroutine."""
    if inspect.isgenerator(made) or inspect.isasyncgen(made):
        raise TypeError(f"{what} gave a generator, so nothing of it has run")
    if not inspect.iscoroutine(made):
        return made
    if here:
        made.close()
        raise TypeError(f"{what} gave a coroutine; make it an async def")
    return await made


def _managed(made: Any) -> Any:
    """A context manager; a decorator that is none may have given the generator itself."""
    given: Callable[[], Any] = lambda: made  # noqa: E731
    if inspect.isasyncgen(made):
        return asynccontextmanager(given)()
    return contextmanager(given)() if inspect.isgenerator(made) else made


async def _leave_async(manager: Any, error: BaseException | None) -> None:
    await manager.__aexit__(*_told(error))


async def _leave_here(manager: Any, error: BaseException | None) -> None:
    manager.__exit__(*_told(error))


async def _leave_in_thread(manager: Any, threads: Threads, error: BaseException | None) -> None:
    await patiently(threads.clean_up(manager.__exit__, *_told(error)))


def _told(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _finished(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise AssertionError("it waits for something")
