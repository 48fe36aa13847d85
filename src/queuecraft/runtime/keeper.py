"""What a worker makes once, and closes when it stops: connections, pools, clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from typing import Any, TypeAlias

from queuecraft.runtime.depends import Overrides, Provider
from queuecraft.runtime.provision import Exit, Provision, enter
from queuecraft.runtime.threads import Threads

LAST_WORDS = 1.0  # seconds that clean-ups get once they were cancelled

_Wish: TypeAlias = tuple[Provider, asyncio.Future[Any]]


class Keeper:
    """The dependencies of a worker, with `scope="worker"`.

    One task makes and closes them all: task groups, timeouts and the like may be left only where
    they were entered. A worker whose handlers ask for none has no such task.
    """

    def __init__(
        self, name: str, threads: Threads, overrides: Overrides, log: logging.Logger
    ) -> None:
        self.threads = threads
        self.overrides = overrides
        self._name = name
        self._log = log
        self._provisions: list[Provision] = []
        self._values: dict[Hashable, Any] = {}
        self._exits: list[tuple[str, Exit]] = []
        self._wishes: asyncio.Queue[_Wish | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._hurried = asyncio.Event()

    def serve(self, provision: Provision) -> None:
        """Keep what this handler needs, too."""
        self._provisions.append(provision)

    async def open(self) -> None:
        """Make everything; if something cannot be made, nothing is left of the rest."""
        try:
            for provision in self._provisions:
                await provision.prepare()
        except BaseException:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task], timeout=LAST_WORDS)
            self.threads.close()
            raise

    async def get(self, provider: Provider) -> Any:
        """What a function has made for this worker; it is called if it was not yet."""
        if provider.key in self._values:
            return self._values[provider.key]
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name=f"{self._name}-dependencies")
        elif self._task.done():
            raise RuntimeError(f"worker {self._name!r} has stopped, and {provider.name} with it")
        wish: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._wishes.put_nowait((provider, wish))
        try:
            await asyncio.wait([wish, self._task], return_when=asyncio.FIRST_COMPLETED)
            if wish.done():
                return wish.result()
        finally:
            wish.cancel()
        raise RuntimeError(f"worker {self._name!r} has stopped, and {provider.name} with it")

    async def close(self, timeout: float) -> None:
        """Close everything, the last first. What goes wrong is logged: the worker has stopped."""
        if self._task is not None:
            self._wishes.put_nowait(None)
            hurried = asyncio.ensure_future(self._hurried.wait())
            await asyncio.wait(
                (self._task, hurried),
                timeout=max(LAST_WORDS, timeout),
                return_when=asyncio.FIRST_COMPLETED,
            )
            hurried.cancel()
            if not self._task.done():
                self._log.error("%s: its dependencies do not close, and are left", self._name)
                self._task.cancel()
                await asyncio.wait([self._task], timeout=LAST_WORDS)

    def hurry(self) -> None:
        """Cut closing short."""
        self._hurried.set()

    async def _keep(self) -> None:
        try:
            while (wanted := await self._wishes.get()) is not None:
                provider, wish = wanted
                try:
                    value = await self._make(provider)
                except Exception as error:
                    if not wish.done():
                        wish.set_exception(error)
                else:
                    if not wish.done():
                        wish.set_result(value)
        finally:
            await self._close_all()

    async def _close_all(self) -> None:
        cancelled: asyncio.CancelledError | None = None
        while self._exits:
            name, leave = self._exits.pop()
            try:
                await leave(None)
            except asyncio.CancelledError as error:  # it took too long; the others may still close
                cancelled = error
            except Exception:
                self._log.exception("%s: closing %s failed", self._name, name)
        if cancelled is not None:
            raise cancelled

    async def _make(self, provider: Provider) -> Any:
        if provider.key in self._values:
            return self._values[provider.key]
        arguments = {
            name: await self._make(each)
            for name, each in provider.arguments.items()
            if each is not None
        }
        exits: list[Exit] = []
        try:
            value = await enter(provider, arguments, exits, self.threads)
        finally:
            self._exits += [(provider.name, each) for each in exits]
        self._values[provider.key] = value
        return value
