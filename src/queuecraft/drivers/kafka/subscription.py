"""A consumer of a queue: what it is asked for in the loop, and the thread it asks in turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from queuecraft.drivers.base import (
    ConnectionLost,
    Delivery,
    Move,
    Outgoing,
    Receipt,
    Rejected,
    Subscription,
    stale,
)
from queuecraft.drivers.kafka.commits import AGAIN
from queuecraft.drivers.kafka.holding import Holding
from queuecraft.drivers.kafka.member import JOINED_WITHIN, SLICE, Member
from queuecraft.drivers.kafka.origin import traced
from queuecraft.drivers.kafka.refusals import failure
from queuecraft.drivers.kafka.topology import Reach
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import QueueError

if TYPE_CHECKING:
    from queuecraft.drivers.kafka.driver import KafkaDriver

IDLE: Final = 0.5  # seconds without a poll after which we tell Kafka that we are still here
AHEAD: Final = 1000  # records that wait here to be wanted, about
SOON: Final = 0.002  # seconds
LEFT_WITHIN: Final = 9.0  # seconds: less than a reconnect has, more than it takes to be missed
log: Final = logging.getLogger("queuecraft")


class KafkaSubscription(Subscription):
    """One member of a group, in its thread, and the records that were got from it."""

    def __init__(
        self,
        driver: KafkaDriver,
        queue: str,
        prefetch: int,
        settings: Mapping[str, Any],
        drain_timeout: float,
        *,
        counting: bool,
    ) -> None:
        self.queue = queue
        self._driver = driver
        self._prefetch = prefetch
        self._loop = asyncio.get_running_loop()
        self._holding = Holding()
        most = prefetch if counting else None
        self._member = Member(
            driver,
            queue,
            settings,
            drain_timeout,
            self._holding,
            most,
            self._tell_leaving,
            self._tell_left,
        )
        self._commits = self._member.commits
        self._ready: list[Delivery] = []
        self._polling = ThreadPoolExecutor(1, "queuecraft-kafka-poll")
        self._fetching: asyncio.Future[None] | None = None
        self._commit: asyncio.Task[None] | None = None
        self._keeping: asyncio.TimerHandle | None = None
        self._heard = monotonic()  # when Kafka could last tell us something
        self._exact = False  # Kafka was told just what is in hand, for some of that is suspected
        self._parting = asyncio.Event()  # partitions wait to be given up until all is finished
        self._closing = False

    async def follow(self, reaches: Mapping[str, Reach]) -> None:
        """Be given these topics from now on."""
        if self._closing:
            return
        self._member.follow(reaches)
        if self._keeping is None:
            self._keep_alive()

    def end(self, reason: str) -> None:
        """Let whoever receives begin again with another."""
        self._member.failed = QueueError(
            reason, broker="kafka", operation="receive", queue=self.queue
        )

    @property
    def topics(self) -> Collection[str]:
        """Those it follows."""
        return self._member.topics

    def spare(self, topics: Collection[str]) -> None:
        """Want nothing of these for now; a little may come still."""
        self._member.spared = frozenset(topics)

    @property
    def given_up(self) -> int:
        """How often partitions went to others."""
        return self._member.given_up

    def lay_aside(self, deliveries: Sequence[Delivery]) -> None:
        """Work on these only after `take_up`: while they wait, others may get their partitions."""
        self._holding.lay_aside(deliveries)

    def take_up(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Work on these now; on those that others have not got meanwhile."""
        return self._holding.take_up(deliveries)

    # -- the seam ------------------------------------------------------------------------------

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        deadline = self._loop.time() + wait
        patience = self._loop.time() + (JOINED_WITHIN if wait > 0 else 0)
        while True:
            self._check()
            if self._ready and (taken := await self._hand_over(limit)):
                plenty = self._member.plenty and len(self._ready) < AHEAD // 2
                if plenty and self._fetching is None:
                    self._fetch(AHEAD, 0)  # while these are handled; who waits commits late
                return taken
            left = deadline - self._loop.time()
            if self._room(limit) <= 0:
                if left <= 0:
                    return []
                await self._make_room(min(left, SLICE / 10))
                continue
            joining = self._member.joining
            if self._fetching is None:
                self._fetch(AHEAD, max(0.0, min(left, SLICE) if self._exact else left))
            if self._fetching is not None:
                await asyncio.wait([self._fetching], timeout=max(0.001, left))
            if joining and self._loop.time() < patience:
                # Until the group has given us our share, nothing says that there is nothing.
                deadline = self._loop.time() + wait
            if self._loop.time() >= deadline and not self._ready:
                self._check()
                return []

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        failpoint("ack.before")
        self._check_lost()
        stale = self._holding.finish(deliveries)
        if len(stale) < len(deliveries):
            if self._exact:
                await self._announce_less()
            else:
                self._start_commit()
            failpoint("ack.after")
        return stale

    async def committed(self, *, but: int) -> None:
        """Wait until Kafka knows of all that is acked, but so many."""
        while self._uncommitted > but:
            self._check()
            await self._make_room(SLICE / 10)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        self._ready[:0] = self._holding.give_back(deliveries)
        if self._exact:
            await self._announce_less()

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        return await self._driver.pass_on(messages)

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        """What others have by now is not sent on: they will see to it."""
        ours = [each for each in moves if not each.delivery.token[0].gone]
        receipts = await super().move([traced(each) for each in ours])
        if len(ours) == len(moves):
            return receipts
        answers = dict(zip((each.delivery for each in ours), receipts, strict=True))
        return [
            answers.get(each.delivery, Rejected(stale(each.delivery, "kafka"))) for each in moves
        ]

    async def close(self) -> None:
        if self._closing:
            return
        self._driver.forget(self)
        self._closing = self._member.closing = True
        with self._holding.changed:
            self._holding.changed.notify_all()
        if self._keeping is not None:
            self._keeping.cancel()
        try:
            if self._fetching is not None:
                await asyncio.wait([self._fetching])
            if self._commit is not None:
                await asyncio.wait([self._commit])
        finally:  # whoever stops waiting: a consumer that is not closed stays in its group
            leaving = self._loop.run_in_executor(self._polling, self._member.leave)
            self._polling.shutdown(wait=False)
            self._holding.held.clear()
            self._holding.coming.clear()
            self._ready.clear()
        # It is not called off, even if its thread is still busy. But librdkafka may never come to
        # an end with a member that its group has thrown out.
        await asyncio.wait([leaving], timeout=LEFT_WITHIN)
        if leaving.done():
            leaving.result()
        else:
            log.warning("kafka: %s: librdkafka is not done with leaving its group", self.queue)

    # -- handing over --------------------------------------------------------------------------

    def _room(self, limit: int) -> int:
        """How many may be handed over now. What is acked and not committed comes again if we die,
        and counts like what is held: no more than `prefetch` are ever handled twice."""
        held = len(self._holding.held) + len(self._holding.coming)
        return max(0, min(limit, self._prefetch - held - self._uncommitted))

    @property
    def _uncommitted(self) -> int:
        """How many are acked of which Kafka does not know."""
        return self._holding.acked - self._holding.told if self._commits.behind else 0

    async def _make_room(self, seconds: float) -> None:
        if self._commits.refused:
            # What it takes to be heard again may have to be heard first: that the group is shared
            # out anew, or that it has gone on without us.
            self._rest()
            await asyncio.sleep(seconds)
            return
        self._start_commit()
        busy = [each for each in (self._commit, self._fetching) if each is not None]
        if busy:
            await asyncio.wait(busy, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(seconds)

    async def _hand_over(self, limit: int) -> list[Delivery]:
        member, holding = self._member, self._holding
        telling = bool(member.silent or member.suspecting or self._exact)
        taken = self._take(limit, holding.expect if telling else holding.hand_over)
        if not (taken and telling):
            return taken
        exactly = any(each.redeliveries for each in (*holding.held, *holding.coming))
        try:
            heard = await self._announce(exactly=exactly)
        except BaseException:
            self._ready[:0] = holding.keep_back(taken)
            raise
        self._exact = exactly or not heard  # while it is not heard, a death may blame others
        return holding.take_up(taken)

    async def _announce(self, *, exactly: bool) -> bool:
        """Let Kafka know what is in hand; whether it has heard."""
        if self._closing:
            return False
        announce = partial(self._member.announce, exactly=exactly)
        return await self._loop.run_in_executor(self._polling, announce)

    async def _announce_less(self) -> None:
        """Let Kafka know that less is in hand. While partitions wait for what is held, that waits
        for them in turn, and must not keep the rest from being finished: until then Kafka takes
        more for suspected than is, but nothing that it knows to be finished."""
        if self._closing:
            return
        announcing = asyncio.ensure_future(self._announce(exactly=True))
        parting = asyncio.ensure_future(self._parting.wait())
        try:
            await asyncio.wait([announcing, parting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            parting.cancel()
        if announcing.done():
            announcing.result()

    def _take(self, limit: int, give: Callable[[Sequence[Delivery]], None]) -> list[Delivery]:
        with self._holding.changed:
            if self._member.thinned:
                self._member.thinned = False
                self._ready[:] = [each for each in self._ready if not each.token[0].leaving]
            room = self._room(limit)
            taken = self._ready[:room]
            del self._ready[:room]
            give(taken)
        return taken

    def _check(self) -> None:
        if self._closing:
            raise ConnectionLost(
                "the subscription is closed", broker="kafka", operation="receive", queue=self.queue
            )
        self._check_lost()
        if (failed := self._member.failed) is not None:
            raise failed.with_traceback(None)

    def _check_lost(self) -> None:
        if (lost := self._driver.lost) is not None:
            raise lost.with_traceback(None)

    # -- what others are given -----------------------------------------------------------------

    def _tell_leaving(self) -> None:
        self._parting.set()
        if self.on_leaving is not None and (leaving := self._holding.leaving()):
            self.on_leaving(leaving)

    def _tell_left(self) -> None:
        """Others begin on it now: whoever still has it waiting here must not."""
        if not (left := self._holding.left()):
            return
        what = f"{len(left):,} messages went to another process before they were handled"
        if self.on_left is None:
            self.end(what)
            return
        log.warning(
            "kafka: %s: %s; what runs here is handled twice. Set drain_timeout above the time that "
            "handlers take",
            self.queue,
            what,
        )
        self.on_left(left)

    # -- what the thread is asked for ----------------------------------------------------------

    def _fetch(self, limit: int, wait: float) -> None:
        work = self._loop.run_in_executor(self._polling, self._member.poll, limit, wait)
        self._fetching = asyncio.ensure_future(self._fetched(work))

    async def _fetched(self, work: asyncio.Future[list[Delivery]]) -> None:
        try:
            taken = await work
            self._ready += taken
        except KafkaException as error:
            self._member.failed = failure(error.args[0], "receive", self.queue)
        except Exception as error:
            self._member.failed = error
        finally:
            self._fetching = None
            self._parting.clear()
            self._heard = monotonic()
            if self._commits.behind:
                self._loop.call_later(SOON, self._start_commit)  # unless more is fetched then

    def _keep_alive(self) -> None:
        """While handlers are busy with what they have, or there is enough for them here, Kafka must
        still hear from us, and we that others want a share."""
        if self._closing:
            return
        if monotonic() - self._heard > IDLE:
            self._rest()
        self._keeping = self._loop.call_later(IDLE / 2, self._keep_alive)

    def _rest(self) -> None:
        """Take nothing, and let Kafka speak."""
        if self._fetching is None:
            work = self._loop.run_in_executor(self._polling, self._member.idle)
            self._fetching = asyncio.ensure_future(self._fetched(work))

    def _start_commit(self) -> None:
        """Whoever fetches commits as well, and if nobody does, somebody has to."""
        if self._commit is None and self._fetching is None and not self._closing:
            self._commit = self._loop.create_task(self._commit_all())

    async def _commit_all(self) -> None:
        """See that it is done, also while nobody wants records."""
        commits = self._commits
        try:
            while commits.behind and self._driver.lost is None and not self._closing:
                await self._loop.run_in_executor(self._polling, commits.flush)
                if commits.refused:
                    await asyncio.sleep(AGAIN)
        finally:
            self._commit = None
