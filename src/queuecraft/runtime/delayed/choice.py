"""Which place delayed messages get: the one that is set, or one that fits the broker."""

from __future__ import annotations

import os
from pathlib import Path

from queuecraft.clock import Clock
from queuecraft.drivers.base import Driver
from queuecraft.drivers.local import path_of
from queuecraft.drivers.target import Target
from queuecraft.model.address import TYPES
from queuecraft.model.settings import Settings
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.delayed.place import Apart, Beside, Nowhere, Place
from queuecraft.stores.base import DelayedStore
from queuecraft.stores.memory import MemoryDelayedStore


def place_for(settings: Settings, connection: Connection, clock: Clock) -> Place:
    """Where delayed messages wait. Nothing is opened yet."""
    own, given = settings.url, settings.delayed.store
    if given is not None and "://" not in given:
        return _file(Path(given).expanduser(), own, connection)
    url = own if given is None else given
    match _scheme(url):
        case "local":
            path = path_of(url)
            return _memory() if path is None else _file(path, own, connection)
        case scheme if scheme in TYPES["redis"].schemes:
            return _redis(url, settings, clock)
        case _:
            return Nowhere(connection.traits.name)


def _memory() -> Place:
    store = MemoryDelayedStore()  # one for all: what is in it must not go with a lost connection

    async def made() -> DelayedStore:
        return store

    return Apart(made)


def _file(path: Path, url: str, connection: Connection) -> Place:
    async def own(_: Driver | None = None) -> DelayedStore:
        from queuecraft.runtime.delayed.file import OwnFileStore  # loads SQLite

        return OwnFileStore(path)

    async def shared(driver: Driver) -> DelayedStore:
        from queuecraft.stores.sqlite import QueueFile, SqliteQueueStore

        file: object = getattr(driver, "file", None)
        return SqliteQueueStore(file) if isinstance(file, QueueFile) else await own()

    queues = path_of(url) if _scheme(url) == "local" else None
    if queues is not None and os.path.realpath(queues) == os.path.realpath(path):
        return Beside(connection, shared)
    return Apart(own)


def _redis(url: str, settings: Settings, clock: Clock) -> Place:
    async def made() -> DelayedStore:
        from queuecraft.runtime.delayed.server import open_store, same_server  # loads its client

        ours = _scheme(settings.url) in TYPES["redis"].schemes and same_server(url, settings.url)
        named = settings if url == settings.url else Settings(url=url)
        return await open_store(Target(url, clock, named), with_queues=ours)

    return Apart(made)


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower()
