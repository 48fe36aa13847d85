"""Where it is written down what was handled and published: in memory, in a file, or in Redis."""

from __future__ import annotations

from hashlib import blake2b
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from queuecraft.clock import Clock
from queuecraft.drivers.target import Target
from queuecraft.model.address import TYPES
from queuecraft.model.credentials import Source
from queuecraft.model.errors import ConfigError
from queuecraft.model.masking import masked
from queuecraft.model.policy import is_whole
from queuecraft.model.settings import Settings
from queuecraft.model.types import HeaderValue
from queuecraft.stores.claims.base import ClaimStore
from queuecraft.stores.claims.claims import Claims
from queuecraft.stores.claims.memory import MemoryClaimStore

MAX_KEY: Final = 200  # characters; of what is longer, a digest is kept


class MemoryClaims(Claims):
    """Claims in memory: for one process, forgotten with it. At most `limit` keys are remembered
    as done; then those that are over the soonest go first.

    >>> MemoryClaims(limit=100_000)
    MemoryClaims(limit=100000)
    """

    def __init__(self, *, limit: int = 1_000_000, clock: Clock | None = None) -> None:
        if not is_whole(limit) or limit < 1:
            raise ConfigError(f"MemoryClaims(limit={limit!r}): expected a whole number from 1 on")
        self._limit = limit
        store = MemoryClaimStore(clock, limit)

        async def opened() -> ClaimStore:
            return store

        super().__init__(opened, clock=clock)

    def __repr__(self) -> str:
        return f"MemoryClaims(limit={self._limit})"


class SqliteClaims(Claims):
    """Claims in a SQLite file, made if it is not there: for all processes of one machine. It may
    be the file of a `local://` queue.

    >>> SqliteClaims("claims.db")
    SqliteClaims('claims.db')
    """

    def __init__(self, path: str | PathLike[str], *, clock: Clock | None = None) -> None:
        self._path = Path(path).expanduser()
        now = (clock or Clock()).now

        async def opened() -> ClaimStore:
            from queuecraft.runtime.claims.file import FileClaimStore  # loads SQLite

            return FileClaimStore(self._path, now)

        super().__init__(opened, clock=clock)

    def __repr__(self) -> str:
        return f"SqliteClaims({fspath(self._path)!r})"


class RedisClaims(Claims):
    """Claims in a Redis, on a connection of their own: for all who reach the server. The URL is
    one as for queues; `credentials` may be given beside it, as for a QueueCraft.

    >>> RedisClaims("redis://:secret@cache.example/1?prefix=shop")
    RedisClaims('redis://:***@cache.example/1?prefix=shop')
    """

    def __init__(
        self, url: str, *, credentials: Source | None = None, timeout: float = 10.0
    ) -> None:
        if url.partition("://")[0].lower() not in TYPES["redis"].schemes:
            raise ConfigError(f"{masked(url)!r} leads to no Redis; expected redis:// or rediss://")
        self._url = url
        target = Target(url, Clock(), Settings(url=url, credentials=credentials, timeout=timeout))

        async def opened() -> ClaimStore:
            from queuecraft.runtime.claims.server import open_claims  # loads the client

            return await open_claims(target)

        super().__init__(opened)

    def __repr__(self) -> str:
        return f"RedisClaims({masked(self._url)!r})"


def short(key: str) -> str:
    """A key that every store can keep: what is long or odd is replaced by a digest.

    >>> short("handled:billing:id:m-1"), len(short("x" * 5000))
    ('handled:billing:id:m-1', 64)
    """
    if len(key) <= MAX_KEY and key.isascii() and "\0" not in key:
        return key
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()


def text_of(header: HeaderValue) -> str:
    """A header as part of a key; empty if it is left out.

    >>> text_of("o-1"), text_of(b"o-1"), text_of(None)
    ('o-1', '6f2d31', '')
    """
    if header is None:
        return ""
    return header.hex() if isinstance(header, bytes) else str(header)
