"""Kafka, as a driver: a topic for each event, a group for each queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

from confluent_kafka import KafkaError

from queuecraft.drivers.base import (
    ACCEPTED,
    Binding,
    ConnectionLost,
    Delivery,
    Driver,
    Exchange,
    Gauge,
    Outgoing,
    Queue,
    QueueInfo,
    Receipt,
    Rejected,
    Rewound,
    Subscription,
    Topology,
    Traits,
)
from queuecraft.drivers.kafka.address import Address
from queuecraft.drivers.kafka.cluster import Cluster, Spot
from queuecraft.drivers.kafka.declarations import Declarations
from queuecraft.drivers.kafka.envelope import Way, record_of
from queuecraft.drivers.kafka.forwarding import Forwarder
from queuecraft.drivers.kafka.glance import Glance
from queuecraft.drivers.kafka.inspection import Inspection
from queuecraft.drivers.kafka.names import (
    FORWARDERS,
    MAX_TOPIC,
    TIERS,
    Names,
    tier_for,
)
from queuecraft.drivers.kafka.presence import Noticeboard
from queuecraft.drivers.kafka.producing import Producing
from queuecraft.drivers.kafka.refusals import receipt, told
from queuecraft.drivers.kafka.replies import ReplySubscription, make_topic
from queuecraft.drivers.kafka.statistics import Statistics
from queuecraft.drivers.kafka.subscription import KafkaSubscription
from queuecraft.drivers.kafka.topology import Reach
from queuecraft.drivers.target import Target
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import PublishError, QueueError

log: Final = logging.getLogger("queuecraft")
_UNKNOWN: Final = (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)


class KafkaDriver(Driver):
    """One cluster, of which librdkafka keeps the connections."""

    traits: ClassVar[Traits] = Traits(
        name="kafka",
        durable=True,
        key_order="group",
        replay=True,
        keeps_unrouted=True,
        partitioned=True,
        tells_held=False,
        delays_apart=True,
        exchange_types=frozenset({"topic", "direct", "fanout"}),
        max_name=MAX_TOPIC - len(".retry.0"),
    )

    def __init__(self, target: Target, address: Address) -> None:
        self.clock = target.clock
        self.names = Names(address.prefix, target.settings.exchange)
        self.lost: ConnectionLost | None = None
        self._target = target
        self._address = address
        self._settings: dict[str, Any] = {}
        self._there: Cluster | None = None
        self._publishing: Producing | None = None
        self._passing_on: Producing | None = None
        self._written: Declarations | None = None
        self._glance: Glance | None = None
        self._statistics = Statistics(address.statistics)
        self._subscriptions: dict[KafkaSubscription, Queue] = {}
        self._replies: ReplySubscription | None = None
        self._replies_read: dict[str, dict[int, int]] = {}  # by address, how far
        self._forwarder: Forwarder | None = None
        self._board: Noticeboard | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.close()
        self.lost = None
        settings, address = self._target.settings, self._address
        self._settings = address.client(await self._target.credentials(), settings.timeout)
        self._there = Cluster(self._settings, address.partitions, address.replication)
        try:
            await self._there.open()
        except QueueError:
            await self.close()
            raise
        self._publishing = self._producing(**self._statistics.settings())
        self._written = Declarations(self._settings, self.names, self._there, self._publishing)
        self._glance = Glance(self._settings)
        topic = self.names.presence
        self._board = Noticeboard(self._settings, self._there, topic, self.clock.now)
        await self._written.read("open")

    async def close(self) -> None:
        """Whoever stops waiting, it is done to the end: a client of librdkafka that is not closed
        stays in its group, and when the garbage collector finds it, its threads may never end."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._end_all()
        finally:
            self._closing = None

    async def _end_all(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        forwarder, self._forwarder = self._forwarder, None
        members = [*self._subscriptions, *(() if forwarder is None else (forwarder,))]
        await asyncio.gather(*(each.close() for each in members), return_exceptions=True)
        self._subscriptions.clear()
        replies, self._replies = self._replies, None
        if replies is not None:
            await replies.close()
        for producing in (self._passing_on, self._publishing):
            if producing is not None:
                await producing.close()
        self._passing_on = self._publishing = None
        board, self._board = self._board, None
        if board is not None:
            await board.close()
        written, self._written = self._written, None
        if written is not None:
            await written.close()
        glance, self._glance = self._glance, None
        if glance is not None:
            await asyncio.to_thread(glance.close)
        there, self._there = self._there, None
        if there is not None:
            await there.close()

    def lose(self, error: KafkaError) -> None:
        """No broker can be reached: whoever waits is told, and may open this again."""
        if self.lost is None and self._there is not None:
            self.lost = self._there.lost = ConnectionLost(
                told(error), broker="kafka", operation="connection"
            )
            for producing in (self._passing_on, self._publishing):
                if producing is not None:
                    producing.give_up()

    # -- what is declared ----------------------------------------------------------------------

    async def prepare(self, exchanges: Sequence[Exchange]) -> None:
        await self._declared.prepare(exchanges)

    async def declare(self, queue: Queue) -> None:
        await self._declared.declare(queue)
        await self._follow()

    async def bind(self, queue: str, bindings: Sequence[Binding]) -> None:
        await self._declared.bind(queue, bindings)
        await self._follow()

    async def unbind(self, queue: str, bindings: Sequence[Binding]) -> None:
        await self._declared.unbind(queue, bindings)
        await self._follow()

    async def delete(self, queue: str) -> None:
        await self._declared.delete(queue)
        await self._follow()

    async def topology(self) -> Topology:
        return await self._declared.topology()

    # -- messages ------------------------------------------------------------------------------

    async def send(
        self, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        return await self._store(messages, self._publishing)

    async def pass_on(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        """Send what was received, beside what is published: neither waits for the other while a
        partition has no leader."""
        if self._passing_on is None and self._publishing is not None:
            self._passing_on = self._producing()
        return await self._store(messages, self._passing_on)

    async def _store(
        self, messages: Sequence[Outgoing], producing: Producing | None
    ) -> Sequence[Receipt]:
        if self.lost is not None:
            raise self.lost.with_traceback(None)
        if producing is None:
            raise _closed()
        receipts: list[Receipt] = [ACCEPTED] * len(messages)
        ways: list[Way] = []
        places: list[int] = []
        topics, now = self._cluster.topics, self.clock.now()
        registry = self._declared.registry
        dead = registry.dead
        events: dict[tuple[str, str], Way] = {}
        for at, message in enumerate(messages):
            event = message.exchange, message.routing_key
            queue = dead.get(event) if message.queue is None else message.queue
            if message.due_at is not None and message.due_at > now:
                way = self._waiting_place(message, queue, message.due_at - now)
            elif queue is not None:
                way = self.names.inbox(queue), None
            elif event in events:
                way = events[event]
            else:
                way = events[event] = self.names.event(*event), None
            # A topic is still told of for a while after its queue was deleted.
            gone = queue is not None and queue not in registry.queues
            if gone or way[0] not in topics:
                problem = await self._missing(way[0], message, queue)
                topics, registry = self._cluster.topics, self._declared.registry
                if problem is not None:
                    receipts[at] = Rejected(problem)
                    continue
            ways.append(way)
            places.append(at)
        failpoint("send.before_commit")
        sent = messages if len(places) == len(messages) else [messages[at] for at in places]
        errors = await producing.send(map(record_of, sent, ways)) if sent else {}
        failpoint("send.after_commit")
        for at, error in errors.items():
            receipts[places[at]] = receipt(error, messages[places[at]])
            if error.code() in _UNKNOWN:
                topics.pop(ways[at][0], None)
        return receipts

    def _waiting_place(self, message: Outgoing, queue: str | None, seconds: float) -> Way:
        """The topic where a delayed message waits, and where it goes from there."""
        tier = tier_for(seconds)
        if queue is not None:
            return self.names.retry(queue, tier), f"q:{queue}"
        return self.names.delay(tier), f"e:{message.exchange}"

    async def _missing(
        self, topic: str, message: Outgoing, queue: str | None
    ) -> PublishError | None:
        """See to a topic that we do not know; why there can be none."""
        try:
            if topic == self.names.replies:
                await make_topic(self._cluster, topic)
                return None
            if queue is not None:
                await self._declared.known(queue, "send")
            await self._cluster.make(topic)
            await self._follow()
        except ConnectionLost:
            raise
        except QueueError as error:
            return PublishError(error.message, broker="kafka", queue=queue, message_id=message.id)
        return None

    async def subscribe(self, queue: Queue, *, prefetch: int) -> KafkaSubscription:
        await self._declared.known(queue.name, "subscribe")
        await self._cluster.look("subscribe")
        subscription = self._join(queue.name, queue.name, prefetch)
        self._subscriptions[subscription] = queue
        try:
            if self._forwarder is None:
                self._forwarder = Forwarder(self)
            await self._follow()
        except BaseException:
            await subscription.close()
            raise
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return subscription

    async def listen(self, address: str, *, prefetch: int) -> Subscription:
        topic, cluster = self.names.replies, self._cluster
        await make_topic(cluster, topic)
        if address not in self._replies_read:
            ends = (await cluster.ends([topic])).get(topic, [])
            self._replies_read[address] = dict(enumerate(ends))
        places = self._replies_read[address]
        self._replies = ReplySubscription(self, self._settings, topic, address, places)
        return self._replies

    async def inspect(self, queues: Sequence[str] | None = None) -> Sequence[QueueInfo]:
        return await (await self._inspection("inspect", queues)).infos(queues)

    async def peek(self, queue: str, limit: int) -> Sequence[Delivery]:
        if self._glance is None:
            raise _closed()
        await self._declared.known(queue, "peek")
        return await (await self._inspection("peek", [queue])).peek(queue, limit, self._glance)

    async def purge(self, queue: str) -> int:
        await self._declared.known(queue, "purge")
        return await (await self._inspection("purge")).purge(queue)

    async def rewind(self, queue: str, to: datetime, *, dry_run: bool) -> Sequence[Rewound]:
        """Let the group go on from what was stored then."""
        await self._declared.known(queue, "rewind")
        return await (await self._inspection("rewind")).rewind(queue, to, dry_run=dry_run)

    async def announce(self, name: str, note: bytes, *, ttl: float) -> None:
        await self._notices.put(name, note, ttl)

    async def announced(self) -> Mapping[str, bytes] | None:
        return await self._notices.up()

    def gauges(self) -> Sequence[Gauge]:
        return self._statistics.gauges()

    # -- what subscriptions call ---------------------------------------------------------------

    def forget(self, subscription: KafkaSubscription) -> None:
        """A subscription is closed."""
        self._subscriptions.pop(subscription, None)

    def event_of(self, exchange: str, topic: str) -> str:
        """The event that the records of a topic are of, unless they say otherwise."""
        return (self.names.routing_key(exchange, topic) or "") if exchange else ""

    def ends_soon(self, spots: Iterable[Spot], within: float) -> Mapping[Spot, int]:
        """Where these partitions end, as far as they tell in time. Blocks: not for the loop."""
        return {} if self._there is None else self._there.ends_soon(spots, within)

    def lows_soon(self, spots: Iterable[Spot], within: float) -> Mapping[Spot, int]:
        """The same of where they begin."""
        return {} if self._there is None else self._there.lows_soon(spots, within)

    async def renew(self, queue: str, topics: Collection[str]) -> None:
        """These topics of a queue were deleted and made again: what is bound is all of them."""
        await self._declared.renew(queue, topics)
        await self._follow()

    async def wait_on_tiers(self, prefetch: int) -> KafkaSubscription:
        """Become one of those who move on what has waited."""
        tiers = self._tiers()
        subscription = self._join("delayed messages", FORWARDERS, prefetch, counting=False)
        await subscription.follow(tiers)
        return subscription

    # -- inside --------------------------------------------------------------------------------

    def _producing(self, **measured: Any) -> Producing:
        deadline = {"message.timeout.ms": round(1000 * self._target.settings.publish_timeout)}
        return Producing({**self._settings, **deadline, **measured}, self.lose)

    def _join(
        self, queue: str, group: str, prefetch: int, *, counting: bool = True
    ) -> KafkaSubscription:
        chosen = {**self._address.member(), **self._statistics.settings(queue)}
        chosen["group.id"] = self.names.group(group)
        drain = self._address.drain_timeout
        chosen = {**self._settings, **chosen}
        return KafkaSubscription(self, queue, prefetch, chosen, drain, counting=counting)

    def _tiers(self) -> dict[str, Reach]:
        """The topics of delayed messages that are ours to move on."""
        queues = {queue.name for queue in self._subscriptions.values()}
        names = [
            name
            for tier in range(len(TIERS))
            for name in (self.names.delay(tier), *(self.names.retry(each, tier) for each in queues))
        ]
        return {name: Reach() for name in names if name in self._cluster.topics}

    async def _follow(self) -> None:
        """Tell every subscription which topics there are now."""
        if not self._subscriptions:
            return
        registry = await self._declared.read("subscribe")
        for subscription, queue in tuple(self._subscriptions.items()):
            if queue.name in registry.queues:
                await subscription.follow(registry.topics(queue.name, self._cluster.topics))
            else:
                subscription.end("the queue was deleted under its consumer")
        if self._forwarder is not None:
            await self._forwarder.follow(self._tiers())

    async def _watch(self) -> None:
        """Notice topics and bindings that others make."""
        while self.lost is None:
            await asyncio.sleep(self._address.refresh)
            try:
                await self._cluster.look("refresh")
                await self._follow()
            except QueueError as error:
                log.debug("kafka: no news of topics: %s", error)
            except Exception:
                log.exception("kafka: no news of topics")

    async def _inspection(self, operation: str, queues: Sequence[str] | None = None) -> Inspection:
        """A look at some queues, or at all."""
        registry = await self._declared.read(operation)
        named = None if queues is None else registry.topics_by_name(queues)
        if named is None:
            await self._cluster.look(operation)
        else:
            await self._cluster.look_for(named, operation)
        return Inspection(self._cluster, self.names, registry)

    @property
    def _notices(self) -> Noticeboard:
        if self._board is None:
            raise _closed()
        return self._board

    @property
    def _declared(self) -> Declarations:
        if self._written is None:
            raise _closed()
        return self._written

    @property
    def _cluster(self) -> Cluster:
        if self._there is None:
            raise _closed()
        return self._there


def _closed() -> ConnectionLost:
    return ConnectionLost("the connection is closed", broker="kafka", operation="connection")
