"""What failed alike in all queues, kept up to date bit by bit, so that a broker hardly notices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from queuecraft.drivers.base import Driver
from queuecraft.model.errors import ConnectionLost, QueueError
from queuecraft.runtime.dead_message import DeadMessage
from queuecraft.runtime.failure_groups import FailureGroup, grouped

QUEUES = 10  # looked into in one round
LETTERS = 2_000  # looked at in one queue
MARKED = 200  # the same, where that marks them
IN_ALL = 4_000  # looked at in one round
AGAIN = 10.0  # seconds until a queue is looked into again
REST = 5.0  # seconds from one round to the next
CATCHING_UP = 1.0  # the same, while there are queues that nobody has looked into
ANSWER = 3.0  # seconds to wait for one queue
TRY_AGAIN = -1  # no queue has so many: it is taken for changed

log = logging.getLogger("queuecraft")


@dataclass(slots=True)
class Known:
    """What was found in a dead-letter queue."""

    count: int
    """How many there were."""
    time: float
    looked_at: int
    groups: list[FailureGroup]


class FailureGroups:
    """The groups of all dead-letter queues, as of the last time each was looked into."""

    def __init__(self, ready: Callable[[], Awaitable[Driver]]) -> None:
        self._ready = ready
        self._counts: dict[str, int] = {}
        self._grown: dict[str, float] = {}
        self._known: dict[str, Known] = {}
        self._deaths: dict[str, int] = {}
        self._round: asyncio.Task[None] | None = None
        self._next = float("-inf")

    @property
    def groups(self) -> tuple[FailureGroup, ...]:
        """The largest first."""
        every = (group for known in self._known.values() for group in known.groups)
        return tuple(sorted(every, key=lambda group: (-group.count, group.queue)))

    @property
    def looked_at(self) -> int:
        """Dead letters that the groups are made of."""
        return sum(known.looked_at for known in self._known.values())

    def note(
        self, counts: Mapping[str, int], time: float, deaths: Mapping[str, int] | None = None
    ) -> None:
        """How many dead letters there are in each queue now; what is empty has no groups. `deaths`
        says how many workers have put there: what was sent back may have died again, of something
        else, and the count is the same."""
        for name, count in counts.items():
            if count > self._counts.get(name, 0):
                self._grown[name] = time
        deaths = deaths or {}
        for name in self._known.keys() & deaths.keys():
            if deaths[name] > self._deaths.get(name, deaths[name]):
                self._known[name].count = TRY_AGAIN
        self._deaths = dict(deaths)
        self._counts = {name: count for name, count in counts.items() if count}
        for gone in self._known.keys() - self._counts.keys():
            del self._known[gone]
        self._grown = {name: at for name, at in self._grown.items() if name in self._counts}

    def due(self, time: float) -> list[str]:
        """Which queues to look into next: changed since, and not just looked into; those that
        grew last come first, and among them the largest."""
        wanted = [
            name
            for name, count in self._counts.items()
            if (known := self._known.get(name)) is None
            or (known.count != count and time - known.time >= AGAIN)
        ]
        wanted.sort(key=lambda name: (-self._grown.get(name, 0.0), -self._counts[name], name))
        return wanted[:QUEUES]

    def start(self, clock: Callable[[], float]) -> asyncio.Task[None] | None:
        """Begin a round, if it is time for one; the round under way, if there is one."""
        if self._round is not None and not self._round.done():
            return self._round
        time = clock()
        if time < self._next or not (names := self.due(time)):
            return None
        self._round = asyncio.get_running_loop().create_task(self._look(names, clock))
        return self._round

    async def close(self) -> None:
        """End the round under way."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.wait([self._round])

    async def _look(self, names: list[str], clock: Callable[[], float]) -> None:
        left = IN_ALL
        try:
            driver = await self._ready()
            most = LETTERS if driver.traits.peek == "clean" else MARKED
            for name in names:
                if left <= 0:
                    break
                left -= await self._look_into(driver, name, min(most, left), clock())
        except (ConnectionLost, TimeoutError):
            pass  # whoever asks about the queues tells of it
        except Exception:
            log.exception("the dead letters could not be looked into")
        finally:
            catching_up = self._counts.keys() - self._known.keys()
            self._next = clock() + (CATCHING_UP if catching_up else REST)

    async def _look_into(self, driver: Driver, name: str, most: int, time: float) -> int:
        count = self._counts.get(name, 0)
        try:
            async with asyncio.timeout(ANSWER):
                peeked = await driver.peek(name, most)
        except ConnectionLost:
            raise
        except TimeoutError:  # the others come first in the next round
            known = self._known.get(name)
            found = (0, []) if known is None else (known.looked_at, known.groups)
            self._known[name] = Known(TRY_AGAIN, time, *found)
            raise
        except QueueError:  # it is gone, or is not to be looked into
            self._known[name] = Known(count, time, 0, [])
            return 0
        groups = await grouped(map(DeadMessage.of, peeked), name)
        if name in self._counts:
            self._known[name] = Known(count, time, len(peeked), groups)
        return len(peeked)
