"""Records on their way to Kafka: given to librdkafka in batches, answered for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from queuecraft.drivers.kafka.envelope import Header

Record: TypeAlias = tuple[str, bytes | None, bytes | None, list[Header]]
"""Topic, value, key and headers."""

SLICE: Final = 0.1  # seconds after which the thread looks whether it is still wanted


class Flight:
    """Some records that were given to librdkafka together.

    Answers come in librdkafka's thread, and only there they are counted; the loop learns of the
    last one. One that was refused at once is not counted at all.
    """

    __slots__ = ("_expected", "_landed", "_loop", "done", "errors")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.errors: dict[int, KafkaError] = {}
        self.done: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._landed = 0
        self._expected: int | None = None

    def landed(self, at: int, error: KafkaError | None, record: Message | None) -> None:
        """The answer for one; in librdkafka's thread."""
        if error is not None:
            self.errors[at] = error
        self._landed += 1
        if self._landed == self._expected:
            self._loop.call_soon_threadsafe(self._finish)

    def off(self, expected: int) -> None:
        """All were given away, so many of them in the end."""
        self._expected = expected
        if self._landed >= expected:
            self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Producing:
    """One producer, idempotent, and the thread in which its answers come."""

    def __init__(self, settings: dict[str, Any], on_lost: Callable[[KafkaError], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._wanted = True
        self._producer = Producer(
            {
                **settings,
                "enable.idempotence": True,
                "linger.ms": 0,
                "sticky.partitioning.linger.ms": 0,  # what has no key is for whoever has time
                "message.max.bytes": 1_000_000_000,  # the topic decides
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1_048_576,
                "error_cb": self._on_error,
            }
        )
        self._thread = Thread(target=self._serve, name="queuecraft-kafka-producer", daemon=True)
        self._thread.start()

    async def send(self, records: Sequence[Record]) -> dict[int, KafkaError]:
        """Store the records, in order; what was not stored, by its place, and why."""
        flight = Flight(self._loop)
        produce = self._producer.produce
        refused = 0
        for at, (topic, value, key, headers) in enumerate(records):
            landed = partial(flight.landed, at)
            while True:
                try:
                    produce(topic, value, key, headers=headers, on_delivery=landed)
                except BufferError:  # librdkafka holds all it may: some have to land first
                    await asyncio.sleep(0.005)
                    continue
                except KafkaException as error:
                    flight.errors[at] = error.args[0]
                    refused += 1
                break
        flight.off(len(records) - refused)
        await flight.done
        return flight.errors

    def give_up(self) -> None:
        """Answer for all that is under way: nobody knows what becomes of it."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    async def close(self) -> None:
        """Wait a little for what is under way, then end."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if self._wanted:
            self._producer.flush(1.0)
            self.give_up()
            self._producer.flush(1.0)
            self._wanted = False
            self._thread.join()

    def _serve(self) -> None:
        while self._wanted:
            self._producer.poll(SLICE)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            self._loop.call_soon_threadsafe(self._on_lost, error)
