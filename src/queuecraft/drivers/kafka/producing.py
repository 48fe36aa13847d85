"""Records on their way to Kafka: given to librdkafka in batches, answered for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.kafka.envelope import Record

SLICE: Final = 0.1  # seconds after which the thread looks whether it is still wanted


class Passenger(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One record on its way, called if it was not stored. There are as many as records in the air,
    and the garbage collector would look at each again and again."""

    errors: dict[int, KafkaError]
    at: int

    def __call__(self, error: KafkaError | None, record: Message) -> None:
        if error is not None:
            self.errors[self.at] = error


class Producing:
    """One producer, idempotent, and the thread that waits for its answers.

    An answer for each record would cost more than the record: librdkafka gives them one by one, and
    for each the thread needs the interpreter. So we hear only of what was not stored, and of the
    rest that nothing is under way any more. That says it of a flight as long as flights take turns.
    """

    def __init__(self, settings: dict[str, Any], on_lost: Callable[[KafkaError], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._wanted = True
        self._turn = asyncio.Lock()
        self._landed: asyncio.Future[bool] | None = None  # once nothing is under way
        self._off = Event()  # something is
        self._ending = Lock()
        self._producer = Producer(
            {
                **settings,
                "enable.idempotence": True,
                "delivery.report.only.error": True,
                "linger.ms": 2,  # should the thread be kept from its `flush`, which ends it
                "sticky.partitioning.linger.ms": 10,  # what has no key is for whoever has time
                "message.max.bytes": 1_000_000_000,  # the topic decides
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1_048_576,
                "error_cb": self._on_error,
            }
        )
        self._thread = Thread(target=self._serve, name="queuecraft-kafka-producer", daemon=True)
        self._thread.start()

    async def send(self, records: Iterable[Record]) -> dict[int, KafkaError]:
        """Store the records, in order; what was not stored, by its place, and why."""
        errors: dict[int, KafkaError] = {}
        async with self._turn:
            if not self._wanted:
                raise ConnectionLost("the connection is closed", broker="kafka")
            produce, count = self._producer.produce, 0
            for at, (topic, value, key, headers) in enumerate(records):
                count += 1
                passenger = Passenger(errors, at)
                try:
                    produce(topic, value, key, headers=headers, on_delivery=passenger)
                except BufferError:  # librdkafka holds all it may: the others have to land first
                    await self._land()
                    produce(topic, value, key, headers=headers, on_delivery=passenger)
                except KafkaException as error:
                    errors[at] = error.args[0]
            if not await self._land():
                unknown = KafkaError(KafkaError._PURGE_INFLIGHT)
                errors = dict.fromkeys(range(count), unknown) | errors
        return errors

    async def _land(self) -> bool:
        """Wait until nothing is under way; False if it was closed before, and nobody knows."""
        if not self._wanted:
            return False
        self._landed = self._loop.create_future()
        self._off.set()
        return await self._landed

    def give_up(self) -> None:
        """Answer for all that is under way: nobody knows what becomes of it."""
        if self._wanted:
            self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    async def close(self) -> None:
        """Wait a little for what is under way, then end."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._ending:
            if not self._wanted:
                return
            self._producer.flush(1.0)
            self.give_up()
            self._producer.flush(1.0)
            self._wanted = False
            self._off.set()
            self._thread.join()
            under_way = len(self._producer)  # also what was given to it meanwhile
            # It knows us by its callbacks: until the garbage collector saw that, its threads and
            # connections would stay.
            del self._producer
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._tell, not under_way)

    def _tell(self, landed: bool) -> None:
        if self._landed is not None:
            _finish(self._landed, landed)

    def _serve(self) -> None:
        while self._wanted:
            self._off.wait(SLICE)
            self._off.clear()
            landed = self._landed  # looked at first: what it stands for was given away before it
            self._producer.poll(0)  # it may have something to say to those who wait for nothing
            while under_way := len(self._producer):
                if not self._wanted:
                    break
                self._producer.flush(SLICE)
            if landed is not None and not landed.done() and not under_way:
                self._loop.call_soon_threadsafe(_finish, landed, True)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            self._loop.call_soon_threadsafe(self._on_lost, error)


def _finish(landed: asyncio.Future[bool], well: bool) -> None:
    if not landed.done():
        landed.set_result(well)
