"""Where delayed messages wait: beside the queues they are for, or in a place of their own."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from queuecraft.drivers.base import Driver
from queuecraft.model.errors import ConfigError, ConnectionLost
from queuecraft.runtime.connection import Connection
from queuecraft.stores.base import DelayedStore


class Place(ABC):
    """Gives the store, open; opened again after it was lost."""

    @asynccontextmanager
    async def store(self, *, patient: bool = False) -> AsyncGenerator[DelayedStore]:
        """The store while the block runs. Waits for a broker that is away if `patient`."""
        store = await self.ready(patient=patient)
        try:
            yield store
        except ConnectionLost as error:
            await self.lost(store, error)
            raise

    def check(self) -> None:
        """Raise `ConfigError` if there is none, before anything is connected."""
        return

    @abstractmethod
    async def ready(self, *, patient: bool) -> DelayedStore:
        """The store, open. Raises `ConnectionLost` when it cannot be had, `ConfigError` when it
        has to be named first."""

    @abstractmethod
    async def lost(self, store: DelayedStore, error: ConnectionLost) -> None:
        """It broke under somebody."""

    async def close(self) -> None:
        """Let go of it."""
        return


class Beside(Place):
    """In the broker itself: its connection is ours, and is found again by whoever supervises it."""

    def __init__(
        self, connection: Connection, made: Callable[[Driver], Awaitable[DelayedStore]]
    ) -> None:
        self._connection = connection
        self._made = made
        self._store: DelayedStore | None = None
        self._driver: Driver | None = None
        self._generation = -1
        self._opening = asyncio.Lock()

    async def ready(self, *, patient: bool) -> DelayedStore:
        driver = await self._connection.ready(patient=patient)
        async with self._opening:
            generation = self._connection.generation
            if self._store is None or (driver, generation) != (self._driver, self._generation):
                await self.close()
                try:
                    store = await self._made(driver)
                    await store.open()
                except ConnectionLost as error:
                    self._connection.lost(driver, error)
                    raise
                self._store, self._driver, self._generation = store, driver, generation
            return self._store

    async def lost(self, store: DelayedStore, error: ConnectionLost) -> None:
        if store is self._store and self._driver is not None:
            driver, generation = self._driver, self._generation
            await self.close()
            if self._connection.generation == generation:
                self._connection.lost(driver, error)

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()


class Apart(Place):
    """In a place of its own, opened when first needed."""

    def __init__(self, made: Callable[[], Awaitable[DelayedStore]]) -> None:
        self._made = made
        self._store: DelayedStore | None = None
        self._opening = asyncio.Lock()

    async def ready(self, *, patient: bool) -> DelayedStore:
        async with self._opening:
            if self._store is not None and self._store.is_lost:
                await self.close()
            if self._store is None:
                store = await self._made()
                await store.open()
                self._store = store
            return self._store

    async def lost(self, store: DelayedStore, error: ConnectionLost) -> None:
        if store is self._store:
            await self.close()

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()


class Nowhere(Place):
    """A broker that has no room for them, and nothing else is set."""

    def __init__(self, broker: str) -> None:
        self._broker = broker

    def check(self) -> None:
        raise ConfigError(
            f"{self._broker} has no place for delayed messages that can be listed and cancelled; "
            "set delayed.store to a redis:// URL or to the path of a file, or use "
            "publish(delay=…)",
            operation="delayed",
        )

    async def ready(self, *, patient: bool) -> DelayedStore:
        self.check()
        raise AssertionError  # it has raised

    async def lost(self, store: DelayedStore, error: ConnectionLost) -> None:
        return
