"""A few dead letters sent back ahead of the rest, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from queuecraft.clock import Clock
from queuecraft.codec.headers import REPLAY_ID, trim
from queuecraft.drivers.base import Driver, Move, QueueInfo
from queuecraft.model.envelope import Delivery
from queuecraft.runtime.dead_message import DeadMessage

PAUSE = 0.25  # seconds between two looks at the broker
SHARE = 5  # a look that took long is followed by a pause so many times as long
LOOK = 10_000  # messages of a work queue looked through for those of the canary
LONGEST = 200  # bytes of an error in the sentence that tells of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What the queues that a canary went to hold. What the broker cannot tell is None."""

    ours: int | None = None
    """Messages of the canary that are seen waiting."""
    ready: int | None = 0
    in_flight: int | None = 0
    delayed: int | None = 0
    consumers: int | None = None

    @classmethod
    def of(cls, infos: Iterable[QueueInfo], ours: int | None = None) -> Traces:
        """Those of several queues together."""
        infos = list(infos)
        return cls(
            ours=ours,
            ready=_sum(info.ready for info in infos),
            in_flight=_sum(info.in_flight for info in infos),
            delayed=_sum(info.delayed for info in infos),
            consumers=_sum(info.consumers for info in infos),
        )

    def gone(self, *, tells_held: bool = True) -> bool:
        """Whether nothing of the canary can be under way any more.

        >>> Traces(ready=0, in_flight=0, delayed=0).gone()
        True
        >>> Traces(ready=9, ours=0, in_flight=0, delayed=0).gone()  # those are others
        True
        >>> Traces(ready=0, in_flight=1, delayed=0).gone()
        False
        >>> Traces(ready=0, in_flight=0, delayed=None).gone()  # who knows what waits to be retried
        False
        """
        if not tells_held and self.in_flight is None:
            return self.ready == 0 and self.delayed == 0
        return 0 in (self.ready, self.ours) and self.in_flight == 0 and self.delayed == 0

    def calm(self, before: Traces) -> bool:
        """Whether there is no sign that something of the canary is under way, as far as that can
        be told from other messages in the same queues, which were there before.

        >>> before = Traces(ready=0, in_flight=8, delayed=2)
        >>> Traces(ready=0, in_flight=8, delayed=1).calm(before)
        True
        >>> Traces(ready=0, in_flight=8, delayed=3).calm(before)
        False
        """
        waiting = (self.ours, 0) if self.ours is not None else (self.ready, before.ready)
        pairs = (waiting, (self.in_flight, before.in_flight), (self.delayed, before.delayed))
        return all(now is None or now <= (then or 0) for now, then in pairs)


class Canary:
    """Messages of a redrive that went ahead: handled, dead again, or still under way.

    `before` is what the queues held before, and `graves` says where the dead letters of a queue
    end up, of those that exist.
    """

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        *,
        before: Mapping[str, QueueInfo],
        source: str,
        graves: Callable[[str], str | None],
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._before = before
        self._source = source
        self._graves = graves
        self._since = clock.now()
        self._sent: dict[str, set[str]] = {}
        self._left = 0  # of the queue the canary was taken from
        self._counts: dict[str, int | None] = {}

    def note(self, move: Move) -> None:
        """One more is on its way."""
        self._sent.setdefault(move.to.queue or "", set()).add(move.to.id)
        self._left += 1

    async def verdict(self, id: str, patience: float) -> str | None:
        """Wait until nothing of it is under way: why the rest must not follow, None if it may."""
        clock = self._clock
        began = clock.monotonic()
        before = Traces.of(each for name, each in self._before.items() if name in self._sent)
        tells_held = self._driver.traits.tells_held
        self._counts = {name: self._expected(name) for name in self._places()}
        calm = False
        while True:
            asked = clock.monotonic()
            now = await self._traces(id)
            if now is None:
                return f"the queue of what was sent ahead exists no more: {self._names}"
            # In this order: what leaves its queue dead was a dead letter before that.
            if dead := await self._dead_again(id):
                return _died(dead, self._size)
            if now.gone(tells_held=tells_held):
                return await self._last_word(id)
            calm = calm or now.calm(before)
            spent = clock.monotonic()
            left = patience - (spent - began)
            if left <= 0:
                return await self._last_word(id) if calm else self._undecided(now, patience)
            await clock.sleep(min(left, max(PAUSE, SHARE * (spent - asked))))

    # -- inside --------------------------------------------------------------------------------

    async def _last_word(self, id: str) -> str | None:
        """Before the rest follows, counts are not enough: where one has died, somebody may have
        taken another out."""
        dead: list[DeadMessage] = []
        for info in await self._driver.inspect(list(self._counts)):
            if info.ready == 0:
                continue
            peeked = await self._driver.peek(info.name, LOOK if info.ready is None else info.ready)
            named = (each for each in peeked if each.sent.headers.get(REPLAY_ID) == id)
            dead += map(DeadMessage.of, named)
        return _died(dead, self._size) if dead else None

    @property
    def _size(self) -> int:
        return sum(map(len, self._sent.values()))

    @property
    def _names(self) -> str:
        return " and ".join(map(repr, sorted(self._sent)))

    def _places(self) -> set[str]:
        """Where those that die again are kept."""
        return {self._source, *filter(None, map(self._graves, self._sent))}

    def _expected(self, place: str) -> int | None:
        """What a dead-letter queue holds if nothing has died since."""
        info = self._before.get(place)
        ready = None if info is None else info.ready
        return ready - self._left if ready is not None and place == self._source else ready

    async def _traces(self, id: str) -> Traces | None:
        """None if one of the queues is gone: whatever was in it has been handled by nobody."""
        infos = await self._driver.inspect(list(self._sent))
        if len(infos) < len(self._sent):
            return None
        ours: int | None = None
        if self._driver.traits.peek == "clean":
            waiting = [info for info in infos if info.ready]
            if all(info.ready is not None and info.ready <= LOOK for info in infos):
                ours = 0
                for info in waiting:
                    peeked = await self._driver.peek(info.name, LOOK)
                    ours += sum(each.sent.headers.get(REPLAY_ID) == id for each in peeked)
        return Traces.of(infos, ours)

    async def _dead_again(self, id: str) -> list[DeadMessage]:
        found: list[DeadMessage] = []
        for info in await self._driver.inspect(list(self._counts)):
            if info.ready is not None and info.ready == self._counts[info.name]:
                continue
            self._counts[info.name] = info.ready
            peeked = await self._driver.peek(info.name, LOOK if info.ready is None else info.ready)
            found += [DeadMessage.of(each) for each in peeked if self._is_ours(each, id)]
        return found

    def _is_ours(self, delivery: Delivery, id: str) -> bool:
        if delivery.sent.headers.get(REPLAY_ID) == id:
            return True
        if not any(delivery.sent.id in ids for ids in self._sent.values()):
            return False
        # Somebody may have dead-lettered it who keeps no headers; it must be a death since then.
        failed_at = DeadMessage.of(delivery).failed_at
        return failed_at is not None and failed_at.timestamp() >= self._since

    def _undecided(self, now: Traces, patience: float) -> str:
        what = f"the {self._size:,} sent ahead" if self._size > 1 else "the one sent ahead"
        why = f"perhaps still under way in {self._names}"
        if now.ours:
            why = f"{now.ours:,} still waiting in {self._names}"
        if now.consumers == 0:
            why += ", which nobody consumes"
        return f"after {patience:g} s it is not known what became of {what}: {why}"


def _died(dead: list[DeadMessage], size: int) -> str:
    of = f"{len(dead):,} of the {size:,} sent ahead" if size > 1 else "the one sent ahead"
    last = dead[-1]
    kind = last.error_type.rpartition(".")[2]
    why = ": ".join(filter(None, (kind, " ".join(last.error.split())))) or last.reason
    return f"{of} died again: {trim(why, LONGEST)}" if why else f"{of} died again"


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
