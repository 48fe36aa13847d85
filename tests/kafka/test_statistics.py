"""What librdkafka measures on a real Kafka, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import re

from queuecraft import Message, QueueCraft
from queuecraft.observers.prometheus import PrometheusObserver
from tests.kafka.place import Order, order_placed, running, topic, until


async def test_round_trips_the_producer_and_lag_are_shown_while_somebody_asked(url: str) -> None:
    gate = asyncio.Event()
    gate.set()
    qc = QueueCraft(f"{url}&statistics=0.2&partitions=1")
    metrics = PrometheusObserver()
    metrics.attach(qc)
    billing = qc.worker("billing", concurrency=1)

    @billing.on(order_placed)
    async def hold(order: Order, message: Message[Order]) -> None:
        await gate.wait()

    async def shown() -> str:
        return metrics.text().decode()

    lag = (
        f'kafka_consumer_lag{{partition="0",queue="billing",topic="{topic(url, "order.placed")}"}}'
    )
    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-0"))
        text = await until(shown, lambda text: f"{lag} 0.0" in text)
        assert "queuecraft_kafka_producer_queue_messages 0.0" in text
        gate.clear()

        async def more() -> str:
            await qc.publish(order_placed, Order("o-1"))
            return await shown()

        await until(more, lambda text: 'kafka_round_trip_seconds{broker="127.0.0.1:' in text)
        waiting = re.compile(rf"{re.escape(lag)} [1-9]")
        await until(shown, waiting.search)
        gate.set()
        await until(shown, lambda text: f"{lag} 0.0" in text)


async def test_nothing_is_measured_unless_the_url_says_so(url: str) -> None:
    async with QueueCraft(url) as qc:
        await qc.publish(order_placed, Order("o-1"))
        assert list(qc.get_broker_gauges()) == []
