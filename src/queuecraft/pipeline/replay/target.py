"""Where a replay goes to, as the broker tells: what is there, what waits, what has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from queuecraft.admin import UnknownQueue
from queuecraft.drivers.base import Driver, QueueInfo, Topology
from queuecraft.model.errors import ConfigError
from queuecraft.model.routing import topic_matches
from queuecraft.model.settings import Settings
from queuecraft.pipeline.connections import connected
from queuecraft.pipeline.replay.plan import Line, Plan

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look:
    """The target queues at one moment.

    >>> now = Look((QueueInfo(name="billing", ready=3, in_flight=1, dead=2, consumers=0),))
    >>> now.backlog, now.dead, now.unattended
    (4, 2, ('billing',))
    """

    queues: tuple[QueueInfo, ...]

    @property
    def dead(self) -> int | None:
        """Dead letters; None if the broker tells of none of the queues."""
        known = [info.dead for info in self.queues if info.dead is not None]
        return sum(known) if known else None

    @property
    def backlog(self) -> int:
        """Messages that are not settled."""
        return sum(map(backlog, self.queues))

    @property
    def unattended(self) -> tuple[str, ...]:
        """Queues that nobody consumes."""
        return tuple(info.name for info in self.queues if info.consumers == 0)

    @property
    def attended(self) -> Look:
        """The queues that somebody consumes, or may."""
        return Look(tuple(info for info in self.queues if info.consumers != 0))

    def died_since(self, before: Look) -> int:
        """Dead letters that have come since; some may have gone meanwhile."""
        known = {info.name: info.dead for info in before.queues}
        return sum(max(0, (info.dead or 0) - (known.get(info.name) or 0)) for info in self.queues)


def backlog(info: QueueInfo) -> int:
    """Messages of one queue that are not settled, as far as the broker tells.

    >>> backlog(QueueInfo(name="billing", ready=3, delayed=2))
    5
    """
    return (info.ready or 0) + (info.in_flight or 0) + (info.delayed or 0)


class Target:
    """The queues that the messages of a plan end in. Each look is a connection of its own: hours
    may lie between two of them."""

    def __init__(
        self, settings: Settings, queues: Iterable[str], events: Iterable[Line] = ()
    ) -> None:
        self._settings = settings
        self._queues = sorted(set(queues))
        self._events = tuple(events)
        self._names: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings, plan: Plan) -> Target:
        """That of a plan."""
        queues = [line.queue for line in plan.lines if line.queue is not None]
        return cls(settings, queues, [line for line in plan.lines if line.queue is None])

    def check(self) -> None:
        """See that every queue and exchange is there. The archive is made of what anybody may have
        sent, so nothing is made just because it is named there."""
        self._names = self._run(self._check)

    def look(self) -> Look:
        """How the queues are now."""

        async def work(driver: Driver) -> Look:
            return Look(tuple(await driver.inspect(self._names)) if self._names else ())

        return self._run(work)

    async def _check(self, driver: Driver) -> tuple[str, ...]:
        names = list(self._queues)
        known = {info.name for info in await driver.inspect(names)} if names else set[str]()
        for name in names:
            if name not in known:
                others = [info.name for info in await driver.inspect()]
                raise UnknownQueue.among(
                    name, others, operation="replay", broker=driver.traits.name
                )
        if self._events:
            default = self._settings.default_exchange
            await driver.prepare([default])  # as every publisher does
            topology = await driver.topology()
            for line in self._events:
                names += _bound(topology, line, default.name)
        return tuple(dict.fromkeys(names))

    def _run(self, work: Callable[[Driver], Awaitable[T]]) -> T:
        async def main() -> T:
            async with connected(self._settings) as connection:
                return await work(await connection.ready(patient=False))

        # In a thread: a notebook has a running loop already.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, main()).result()


def _bound(topology: Topology, line: Line, default: str) -> Sequence[str]:
    """The queues that get an event, as far as the broker tells."""
    name = line.exchange or default
    types = {each.name: each.type for each in topology.exchanges}
    if name not in types and name != default:
        raise ConfigError(
            f"event {line.event!r} came by the exchange {name!r}, and there is none on this "
            "broker; say where to: to a queue, or set exchange"
        )
    kind = types.get(name)
    return [
        queue
        for binding, queue in topology.bindings
        if binding.exchange.name == name
        and (
            kind in ("fanout", "headers")
            or binding.pattern == line.event
            or (kind == "topic" and topic_matches(binding.pattern, line.event or ""))
        )
    ]
