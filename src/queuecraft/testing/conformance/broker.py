"""A broker under test: names of its own, and the steps that tests are made of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from queuecraft.drivers.base import (
    ACCEPTED,
    Binding,
    Delivery,
    Driver,
    Exchange,
    Outgoing,
    Queue,
    QueueInfo,
    Receipt,
    Rejected,
    Subscription,
)
from queuecraft.model.errors import QueueError, Unroutable
from queuecraft.model.queue import DeadLetterTarget, ExchangeType

V = TypeVar("V")


class Broker:
    """A driver, and short words for what tests do with it.

    >>> from queuecraft.drivers.local.memory import MemoryDriver
    >>> async def main():
    ...     driver = MemoryDriver()
    ...     await driver.open()
    ...     broker = Broker(driver, unique=str)
    ...     billing = await broker.queue("billing", "order.placed")
    ...     ids = await broker.publish("order.placed")
    ...     await broker.holds(billing, ids)
    >>> asyncio.run(main())
    """

    def __init__(
        self,
        driver: Driver,
        *,
        unique: Callable[[str], str],
        patience: float = 10.0,
        quiet: float = 0.1,
    ) -> None:
        self.driver = driver
        self.traits = driver.traits
        self._unique = unique
        self._patience = patience
        self._quiet = quiet
        self._names: dict[str, str] = {}
        self._queues: dict[str, None] = {}
        self._subscriptions: list[Subscription] = []
        self._sent = 0

    # -- what applies --------------------------------------------------------------------------

    def needs(self, trait: str, value: object = True) -> None:
        """Skip the test where the driver declares the trait otherwise."""
        declared = getattr(self.traits, trait)
        if declared != value:
            pytest.skip(f"declared trait of {self.traits.name}: {trait}={declared!r}")

    def needs_exchange(self, *types: ExchangeType) -> None:
        """Skip the test where the driver declares no such exchanges."""
        if not self.traits.exchange_types.issuperset(types):
            declared = ", ".join(sorted(self.traits.exchange_types))
            pytest.skip(f"declared trait of {self.traits.name}: exchange_types={declared}")

    # -- what exists ---------------------------------------------------------------------------

    def name(self, name: str) -> str:
        """A name no other test uses; the same one each time within this test."""
        return self._names.setdefault(name, self._unique(name))

    def exchange(
        self, name: str = "events", type: ExchangeType = "topic", **options: Any
    ) -> Exchange:
        """An exchange under a name of this test."""
        return Exchange(self.name(name), type, **options)

    def describe(
        self,
        name: str,
        *patterns: str,
        exchange: Exchange | None = None,
        dead_letters: bool = False,
        **options: Any,
    ) -> Queue:
        """A queue under a name of this test, not declared yet."""
        exchange = exchange or self.exchange()
        queue = self.name(name)
        target = None
        if dead_letters:
            dlq = self.name(f"{name}.dlq")
            target = DeadLetterTarget(self.name("events.dlx"), queue=dlq, routing_key=dlq)
            self._queues[dlq] = None
        self._queues[queue] = None
        return Queue(
            queue,
            bindings=options.pop("bindings", ())
            + tuple(Binding(exchange, pattern) for pattern in patterns),
            dead_letters=target,
            **options,
        )

    async def queue(self, name: str, *patterns: str, **options: Any) -> Queue:
        """Declare a queue bound to these patterns."""
        queue = self.describe(name, *patterns, **options)
        await self.driver.declare(queue)
        return queue

    # -- what is sent --------------------------------------------------------------------------

    def message(self, routing_key: str = "", **fields: Any) -> Outgoing:
        """A message with an id of its own: to the exchange, or with `queue=` straight to one."""
        self._sent += 1
        fields.setdefault("id", f"m-{self._sent}")
        fields.setdefault("body", b"{}")
        if fields.get("queue") is None:
            fields.setdefault("exchange", self.name("events"))
        return Outgoing(routing_key=routing_key, **fields)

    async def publish(self, *routing_keys: str, **fields: Any) -> list[str]:
        """Publish one message to each routing key; all must be accepted. Their ids."""
        return await self.accepted([self.message(each, **fields) for each in routing_keys])

    async def send(self, queue: Queue | str, count: int = 1, **fields: Any) -> list[str]:
        """Send messages straight to a queue; all must be accepted. Their ids."""
        name = queue if isinstance(queue, str) else queue.name
        return await self.accepted([self.message(queue=name, **fields) for _ in range(count)])

    async def accepted(self, messages: Sequence[Outgoing]) -> list[str]:
        """Send messages, all of which must be accepted. Their ids."""
        receipts = await self.driver.send(messages)
        refused = [
            (message.id, receipt)
            for message, receipt in zip(messages, receipts, strict=True)
            if receipt is not ACCEPTED
        ]
        assert not refused, f"not accepted: {refused}"
        return [message.id for message in messages]

    def unroutable(self, receipt: Receipt, message: Outgoing | None = None) -> None:
        """No queue is bound to the message: refused, or kept where the driver says so."""
        if self.traits.keeps_unrouted:
            assert receipt is ACCEPTED
            return
        assert isinstance(receipt, Rejected)
        assert isinstance(receipt.error, Unroutable)
        assert message is None or receipt.error.message_id == message.id

    # -- what is received ----------------------------------------------------------------------

    async def consumer(
        self, queue: Queue, *, prefetch: int = 100, driver: Driver | None = None
    ) -> Subscription:
        """Subscribe; closed when the test ends."""
        subscription = await (driver or self.driver).subscribe(queue, prefetch=prefetch)
        self._subscriptions.append(subscription)
        return subscription

    async def receive(self, subscription: Subscription, count: int = 1) -> list[Delivery]:
        """So many deliveries, however long they take; not fewer."""
        received: list[Delivery] = []
        try:
            async with asyncio.timeout(self._patience):
                while len(received) < count:
                    # Longer than we wait: the end of its own wait must not hide a lost wake-up.
                    received += await subscription.receive(
                        count - len(received), self._patience * 10
                    )
        except TimeoutError:
            pytest.fail(
                f"expected {count} deliveries within {self._patience:g} s, "
                f"got {len(received)}: {ids(received)}"
            )
        return received

    async def nothing(self, subscription: Subscription) -> None:
        """Nothing comes, as long as we watch."""
        stray = await subscription.receive(10, self._quiet)
        assert not stray, f"expected nothing, got {ids(stray)}"

    async def holds_again(self, queue: Queue | str, expected: Sequence[str]) -> list[Delivery]:
        """As `holds`, after a consumer was lost: in this order only where all came back to its
        place. The deliveries are in this order either way."""
        if self.traits.returns_to == "place":
            return await self.holds(queue, expected)
        deliveries = await self.holds(queue, expected, in_order=False)
        return sorted(deliveries, key=lambda each: expected.index(each.sent.id))

    async def holds(
        self, queue: Queue | str, expected: Sequence[str], *, in_order: bool = True
    ) -> list[Delivery]:
        """The queue has these messages ready, in this order, and no others; takes them."""
        described = Queue(queue) if isinstance(queue, str) else queue
        subscription = await self.driver.subscribe(described, prefetch=len(expected) + 10)
        try:
            deliveries = await self.receive(subscription, len(expected))
            if in_order and not self.traits.partitioned:
                assert ids(deliveries) == list(expected)
            else:
                assert sorted(ids(deliveries)) == sorted(expected)
            for key in {each.sent.key for each in deliveries} - {None} if in_order else ():
                one = [each.sent.id for each in deliveries if each.sent.key == key]
                assert one == [each for each in expected if each in one]
            await self.nothing(subscription)
            assert not await subscription.ack(deliveries)
        finally:
            await subscription.close()
        return deliveries

    # -- what the broker says ------------------------------------------------------------------

    async def info(self, queue: Queue | str) -> QueueInfo | None:
        """What `inspect` tells of one queue."""
        name = queue if isinstance(queue, str) else queue.name
        found = await self.driver.inspect([name])
        assert [each.name for each in found] in ([name], [])
        return found[0] if found else None

    async def counts(self, queue: Queue | str, **expected: int) -> None:
        """`inspect` comes to tell these numbers, or None where the broker cannot."""

        async def told() -> dict[str, int]:
            info = await self.info(queue)
            assert info is not None, f"inspect does not know {queue}"
            numbers: dict[str, int | None] = {name: getattr(info, name) for name in expected}
            return {
                name: expected[name] if number is None else number
                for name, number in numbers.items()
            }

        await self.eventually(told, {**expected})

    async def eventually(self, probe: Callable[[], Awaitable[V]], expected: V) -> None:
        """The probe comes to tell this."""
        deadline = time.monotonic() + self._patience
        while (told := await probe()) != expected:
            assert time.monotonic() < deadline, f"expected {expected!r}, still {told!r}"
            await asyncio.sleep(0.01)

    async def clean_up(self) -> None:
        """Close what was opened and delete what was declared, as far as that is possible."""
        for subscription in self._subscriptions:
            with suppress(QueueError):
                await subscription.close()
        with suppress(QueueError):
            known = {each.name for each in await self.driver.inspect(list(self._queues))}
            for queue in known:
                with suppress(QueueError):
                    await self.driver.delete(queue)


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    """The ids of deliveries, in order.

    >>> ids([Delivery(Outgoing(b"", "m-1"), "billing")])
    ['m-1']
    """
    return [delivery.sent.id for delivery in deliveries]
