"""Delayed messages in Redis: sorted sets of ids beside a hash of messages, changed by scripts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from queuecraft.failpoints import failpoint
from queuecraft.model.envelope import Outgoing
from queuecraft.model.errors import QueueError
from queuecraft.stores import scripts
from queuecraft.stores.base import (
    NEVER,
    Added,
    Census,
    Cursor,
    DelayedStore,
    Moved,
    Notes,
    OneStepStore,
    Waiting,
    Which,
    pause,
)
from queuecraft.stores.record import decode, encode

Argument: TypeAlias = bytes | str | int


class Server(Protocol):
    """A Redis that runs scripts."""

    async def run(self, script: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """What a script returns, texts as bytes."""
        ...

    async def close(self) -> None:
        """Let go of a connection that is ours alone."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone."""
        ...


class QueueServer(Server, Protocol):
    """A Redis with queues in it: a script of ours can put messages into them."""

    @property
    def sending(self) -> str:
        """What has to come before such a script; it needs one more key, as the first."""
        ...

    @property
    def base(self) -> str:
        """That key."""
        ...

    def packed(self, message: Outgoing) -> Sequence[Argument]:
        """A message as the script gives it on: where to, level, due, headers, and itself."""
        ...

    def answered(self, message: Outgoing, letter: str, fault: str) -> QueueError | None:
        """What the letter that a script answers with means."""
        ...

    def wants_headers(self, message: Outgoing) -> None:
        """It turned out that headers decide where the message goes: pack them from now on."""
        ...


class RedisDelayedStore(DelayedStore):
    """Messages under one prefix, which is also the hash tag of every key."""

    def __init__(self, server: Server, prefix: str) -> None:
        self._server = server
        self._keys = [f"{{{prefix}}}:shelf:{name}" for name in scripts.NAMES]

    @property
    def is_lost(self) -> bool:
        return self._server.is_lost

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        await self._server.close()

    async def add(self, waiting: Waiting, limit: int) -> Added:
        accepted, size = await self._run(
            scripts.ADD, waiting.message.id, repr(waiting.due), limit, encode(waiting)
        )
        return Added(bool(accepted), size)

    async def take(self, which: Which, hold: str, until: float) -> Sequence[Waiting]:
        return _read(await self._run(scripts.TAKE, *_chosen(which), hold, repr(until)))

    async def renew(self, taken: Sequence[Waiting], until: float) -> Sequence[Waiting]:
        ours = await self._run(scripts.RENEW, repr(until), *_holds(taken))
        return [each for each, held in zip(taken, ours, strict=True) if held]

    async def forget(self, taken: Sequence[Waiting]) -> int:
        return int(await self._run(scripts.FORGET, *_holds(taken)))

    async def put_back(self, taken: Sequence[Waiting], *, now: float, failed: bool) -> None:
        arguments: list[Argument] = []
        for each in taken:
            failures = each.failures + failed
            again = now + pause(failures) if failed else now
            arguments += (each.message.id, each.hold, failures, repr(again))
        await self._run(scripts.PUT_BACK, *arguments)

    async def cancel(self, id: str, now: float) -> bool:
        return bool(await self._run(scripts.CANCEL, id, repr(now)))

    async def page(self, limit: int, after: Cursor) -> Sequence[Waiting]:
        due, id = after
        # Of those due at the very same time, how many come before; only then are there any.
        tied: list[bytes] = [] if due == -NEVER else await self._run(scripts.TIED, repr(due))
        skipped = bisect_right(tied, id.encode())
        return _read(await self._run(scripts.PAGE, repr(due), skipped, limit))

    async def census(self, overdue_by: float) -> Census:
        size, most, overdue, oldest, next_at = await self._run(scripts.CENSUS, repr(overdue_by))
        return Census(
            size=size,
            max_size=int(most),
            overdue=overdue,
            oldest_due=float(oldest) if oldest else None,
            next_at=float(next_at) if next_at else NEVER,
        )

    async def note(self, notes: Notes) -> None:
        arguments: list[Argument] = []
        for name, value in notes.put.items():
            arguments += ("put", name, value)
        for name, count in notes.add.items():
            arguments += ("add", name, count)
        for name in notes.remove:
            arguments += ("remove", name, "")
        await self._run(scripts.NOTE, *arguments)

    async def notes(self) -> Mapping[str, str]:
        flat = [each.decode(errors="replace") for each in await self._run(scripts.NOTED)]
        return {
            name: value
            for name, value in zip(flat[::2], flat[1::2], strict=True)
            if name != "max_size"
        }

    async def exchange(self, name: str, value: str) -> str | None:
        before: bytes | None = await self._run(scripts.EXCHANGE, name, value)
        return None if before is None else before.decode(errors="replace")

    async def _run(self, script: str, *arguments: Argument) -> Any:
        return await self._server.run(script, self._keys, arguments)


class RedisQueueStore(RedisDelayedStore, OneStepStore):
    """The same in the Redis of the queues: one script puts a message into them and forgets it."""

    def __init__(self, server: QueueServer, prefix: str) -> None:
        super().__init__(server, prefix)
        self._queues = server
        self._move = f"{server.sending}\n{scripts.MOVE}"

    async def move(self, which: Which) -> Sequence[Moved]:
        while found := _read(await self._run(scripts.LOOK, *_chosen(which))):
            failpoint("delayed.between")
            moved, by_headers = await self._moved(found, which.now)
            if by_headers:
                for each in by_headers:
                    self._queues.wants_headers(each.message)
                moved += (await self._moved(by_headers, which.now))[0]
            failpoint("delayed.after_move")
            if moved or by_headers:
                return moved
            # Another mover was faster with all of them: there may be more.
        return ()

    async def _moved(
        self, found: Sequence[Waiting], now: float
    ) -> tuple[list[Moved], list[Waiting]]:
        """What became of each; and those that were left alone, since their headers are needed."""
        arguments: list[Argument] = [repr(now)]
        for each in found:
            failures = each.failures + 1
            again = repr(now + pause(failures))
            arguments += (each.message.id, repr(each.due), failures, again)
            arguments += self._queues.packed(each.message)
        keys = [self._queues.base, *self._keys]
        letters, fault = await self._server.run(self._move, keys, arguments)
        moved: list[Moved] = []
        by_headers: list[Waiting] = []
        for each, letter in zip(found, letters.decode(), strict=True):
            if letter == "h":
                by_headers.append(each)
            elif letter != "g":
                why = self._queues.answered(each.message, letter, fault.decode(errors="replace"))
                moved.append(Moved(each, why))
        return moved, by_headers


def _chosen(which: Which) -> tuple[Argument, ...]:
    """What to take, as scripts are told."""
    due_by = "" if which.due_by is None else repr(which.due_by)
    due, id = which.after
    return repr(which.now), which.limit, due_by, repr(due), id


def _holds(taken: Sequence[Waiting]) -> list[Argument]:
    """Messages and who holds them, as scripts are told."""
    return [text for each in taken for text in (each.message.id, each.hold)]


def _read(rows: Iterable[Any]) -> list[Waiting]:
    """Messages as a script tells of them, the first due in front."""
    found = [
        decode(data, id.decode(errors="replace"), float(due), int(failures), hold.decode())
        for id, due, data, failures, hold in rows
    ]
    return sorted(found, key=lambda each: each.cursor)
