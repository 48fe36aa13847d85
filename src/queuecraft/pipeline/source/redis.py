"""A Redis queue in stream mode, read by the ids of its entries."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from queuecraft.drivers.base import ConnectionLost, Delivery
from queuecraft.drivers.redis.address import addresses
from queuecraft.drivers.redis.client import Argument, Client, RedisError, Script
from queuecraft.drivers.redis.envelope import decode
from queuecraft.drivers.redis.login import log_in
from queuecraft.drivers.redis.refusals import no_queue, refusal
from queuecraft.drivers.target import Target
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.pipeline.source.log import EARLIEST, LATEST, Log, Offset

BATCH: Final = 2_000  # entries asked for at once
FIRST: Final = "0-0"
_ID: Final = re.compile(r"(\d+)(?:-(\d+))?")

# The id of the last of so many entries; the entries themselves stay on the server.
_LAST: Final = Script(
    "local found = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])\n"
    "return #found > 0 and found[#found][1] or false"
)


@dataclass(frozen=True, slots=True)
class _State:
    """Of a stream: the last id that was given, and the highest that was deleted."""

    last: str = FIRST
    deleted: str = FIRST


class RedisLog(Log):
    """Entries of a stream are read with XRANGE: the group that works on it does not notice. What
    is handled is deleted beyond `retain=` of the workers' URL; what was deleted before it was read
    is told, from Redis 7 on.

    An offset is the `id` of the last entry that was read, and the highest that was `deleted` by
    then: of those nothing is missed.
    """

    _client: Client | None = None

    async def open(self) -> None:
        await self.close()
        target = Target(self.settings.url, settings=self.settings)
        self._key = ""
        refused: QueueError | None = None
        for address in addresses(target.url):
            try:
                self._client = await log_in(
                    address,
                    await target.credentials(),
                    timeout=self.settings.timeout,
                    heartbeat=self.settings.heartbeat,
                )
            except ConnectionLost as error:
                refused = error
                continue
            base = "{" + address.prefix + "}:"
            self._key = f"{base}stream:{self.name}"
            await self._check(await self._call("HGET", f"{base}queues", self.name))
            return
        assert refused is not None
        raise refused

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def at(self, where: str) -> Offset:
        state = await self._state()
        if where == LATEST:
            return {"id": state.last, "deleted": state.deleted}
        if where == EARLIEST:
            return {"id": FIRST, "deleted": state.deleted}
        if not _ID.fullmatch(where):
            raise ConfigError(
                f"{where!r} is no place in a Redis stream; expected {EARLIEST!r}, {LATEST!r} or "
                "the id of an entry, such as '1767225600000-0', after which to begin"
            )
        return {"id": where if "-" in where else f"{where}-0", "deleted": state.deleted}

    async def after(self, start: Offset, rows: int | None, until: Offset | None) -> Offset:
        state = await self._state()
        self._check_loss(start["id"], start, state)
        end = state.last
        if until is not None and _order(until["id"]) < _order(end):
            end = until["id"]
        if _order(end) <= _order(start["id"]):
            return start
        if rows is not None:
            arguments: list[Argument] = [start["id"], end, rows]
            found = await self._eval(_LAST, arguments)
            end = end if found is None else _text(found)
        return {"id": end, "deleted": state.deleted}

    def ranges(self, start: Offset, end: Offset) -> Sequence[tuple[Offset, Offset]]:
        """One: how many entries lie between two ids is known to nobody who does not count them."""
        return [] if _order(end["id"]) <= _order(start["id"]) else [(start, end)]

    async def read(self, start: Offset, end: Offset) -> AsyncGenerator[Sequence[Delivery]]:
        at: str = start["id"]
        while True:
            try:
                state, entries = await self._entries(at, end["id"])
            except ConnectionLost:
                await self.open()
                state, entries = await self._entries(at, end["id"])
            self._check_loss(at, start, state)
            if entries:
                yield [self._delivery(_text(id), fields) for id, fields in entries]
            if len(entries) < BATCH:
                return
            at = _text(entries[-1][0])

    def moment(self, delivery: Delivery) -> float:
        return _order(delivery.token)[0] / 1000

    # -- inside --------------------------------------------------------------------------------

    async def _check(self, registered: Any) -> None:
        if registered is None:
            raise no_queue(self.name, "read")
        if not registered.startswith(b"s"):
            raise ConfigError(
                "the queue is no stream, so what was handled is gone; declare it with mode=stream "
                "in the URL, or read what waits in it: .option('queue', …) without streaming",
                broker="redis",
                queue=self.name,
            )

    async def _state(self) -> _State:
        (told,) = await self._open().calls([("XINFO", "STREAM", self._key)])
        return self._told(told)

    async def _entries(self, after: str, until: str) -> tuple[_State, Sequence[Any]]:
        """Some entries, and the state of the stream at the very same moment."""
        replies = await self._open().calls(
            [
                ("MULTI",),
                ("XINFO", "STREAM", self._key),
                ("XRANGE", self._key, f"({after}", until, "COUNT", BATCH),
                ("EXEC",),
            ]
        )
        done = replies[-1]
        if isinstance(done, RedisError):
            raise refusal(done, "read", self.name)
        told, entries = done
        if isinstance(entries, RedisError):
            raise refusal(entries, "read", self.name)
        return self._told(told), entries

    def _told(self, told: Any) -> _State:
        if isinstance(told, RedisError):
            if "no such key" in told.message:  # nothing was ever put into it
                return _State()
            raise refusal(told, "read", self.name)
        named = {_text(told[at]): told[at + 1] for at in range(0, len(told), 2)}
        last = _text(named.get("last-generated-id", FIRST))
        return _State(last, _text(named.get("max-deleted-entry-id", FIRST)))

    def _check_loss(self, read: str, start: Offset, state: _State) -> None:
        """Raise if an entry was deleted that has not been read: nobody can read it any more."""
        gone = _order(state.deleted)
        if not self.strict or gone <= _order(read) or gone <= _order(start["deleted"]):
            return
        raise QueueError(
            f"entries up to {state.deleted} were deleted, and only those up to {read} had been "
            "read; keep more of them (retain= in the URL of the workers) or read more often; "
            ".option('fail_on_data_loss', 'false') goes on with what is left",
            broker="redis",
            operation="read",
            queue=self.name,
        )

    def _delivery(self, id: str, fields: Sequence[bytes]) -> Delivery:
        if len(fields) == 2:
            value = fields[1]
        else:  # somebody else's: as the worker would be given it
            texts = [each.decode(errors="replace") for each in fields]
            value = msgspec.json.encode(dict(zip(texts[::2], texts[1::2], strict=False)))
        message, again = decode(value, f"stream-{id}")
        return Delivery(message, self.name, again, id)

    async def _call(self, *command: Argument) -> Any:
        try:
            return await self._open().call(*command)
        except RedisError as error:
            raise refusal(error, "read", self.name) from None

    async def _eval(self, script: Script, arguments: Sequence[Argument]) -> Any:
        try:
            return await self._open().eval(script, [self._key], arguments)
        except RedisError as error:
            raise refusal(error, "read", self.name) from None

    def _open(self) -> Client:
        if self._client is None:
            raise ConnectionLost("the connection is closed; open it first", broker="redis")
        return self._client


def _order(id: str) -> tuple[int, int]:
    time, _, number = id.partition("-")
    return int(time), int(number or 0)


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode()
