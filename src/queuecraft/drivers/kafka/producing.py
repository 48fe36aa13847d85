"""Records on their way to Kafka: given to librdkafka in batches, answered for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Any, Final, TypeAlias

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from queuecraft.drivers.kafka.envelope import Header

Record: TypeAlias = tuple[str, bytes | None, bytes | None, list[Header]]
"""Topic, value, key and headers."""

SLICE: Final = 0.1  # seconds after which the thread looks whether it is still wanted


class Flight:
    """Some records that were given to librdkafka together.

    Answers are counted in the thread in which they come; the loop learns of the last one. One that
    was refused at once is not counted at all.
    """

    __slots__ = ("_expected", "_landed", "_loop", "done", "errors")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.errors: dict[int, KafkaError] = {}
        self.done: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._landed = 0
        self._expected: int | None = None

    @property
    def answered(self) -> bool:
        """Whether all have landed."""
        return self._expected is not None and self._landed >= self._expected

    def landed(self) -> None:
        """One more; in the thread."""
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


class Passenger(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One record of a flight, called with its answer. There are as many as records in the air, and
    the garbage collector would look at each again and again."""

    flight: Flight
    at: int

    def __call__(self, error: KafkaError | None, record: Message) -> None:
        if error is not None:
            self.flight.errors[self.at] = error
        self.flight.landed()


class Producing:
    """One producer, idempotent, and the thread in which its answers come.

    librdkafka gives each answer by itself, and for each the thread needs the interpreter, which the
    loop lets go of whenever it gives a record away: they would take turns record by record. So the
    thread asks for answers only when a whole flight is off, while the loop waits for it anyway.
    """

    def __init__(self, settings: dict[str, Any], on_lost: Callable[[KafkaError], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._wanted = True
        self._aloft: set[Flight] = set()
        self._off = Event()  # something is aloft
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
        try:
            flight.off(await self._give(flight, records))
            self._await(flight)
            await flight.done
        finally:
            self._aloft.discard(flight)
        return flight.errors

    async def _give(self, flight: Flight, records: Sequence[Record]) -> int:
        """Let librdkafka have them; how many it took."""
        produce = self._producer.produce
        taken = 0
        for at, (topic, value, key, headers) in enumerate(records):
            passenger = Passenger(flight, at)
            while True:
                try:
                    produce(topic, value, key, headers=headers, on_delivery=passenger)
                    taken += 1
                except BufferError:  # librdkafka holds all it may: some have to land first
                    self._await(flight)
                    await asyncio.sleep(0.005)
                    continue
                except KafkaException as error:
                    flight.errors[at] = error.args[0]
                break
        return taken

    def _await(self, flight: Flight) -> None:
        self._aloft.add(flight)
        self._off.set()

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
            self._off.set()
            self._thread.join()

    def _serve(self) -> None:
        while self._wanted:
            self._off.wait(SLICE)
            self._off.clear()
            self._producer.poll(0)  # it may have something to say to those who wait for nothing
            while self._expecting():
                self._producer.poll(SLICE)

    def _expecting(self) -> bool:
        return self._wanted and not all(each.answered for each in tuple(self._aloft))

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            self._loop.call_soon_threadsafe(self._on_lost, error)
