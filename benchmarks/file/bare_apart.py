"""The bare loop over `sqlite3`, its two halves: inserting, and claiming what waits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import msgspec

from benchmarks.file.bare_table import TABLES, claim, connect, delete, insert
from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.stretch import Stretch

BATCH = 500

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Order).decode


def publish(messages: int, *, batch: int) -> Measurement:
    payloads = orders(Order, messages)
    with TemporaryDirectory(prefix="queuecraft-benchmark-") as folder:
        connection = connect(Path(folder, "queue.db"), "FULL")
        connection.executescript(TABLES)
        started = perf_counter()
        for start in range(0, messages, batch):
            insert(connection, start, [encode(each) for each in payloads[start : start + batch]])
        seconds = perf_counter() - started
        connection.close()
    return Measurement(messages, seconds)


def consume(messages: int) -> Measurement:
    stretch = Stretch(messages)
    with TemporaryDirectory(prefix="queuecraft-benchmark-") as folder:
        connection = connect(Path(folder, "queue.db"), "NORMAL")
        connection.executescript(TABLES)
        insert(connection, 0, [encode(order) for order in orders(Order, messages)])
        while found := claim(connection, BATCH):
            for _, body in found:
                stretch.add(decode(body))
            delete(connection, found)
        connection.close()
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Measurement]) -> Case:
    return Case(name=name, group="file", contender="sqlite3", run=run)


CASES = (
    case("publish, batches of 500", partial(publish, batch=BATCH)),
    case("publish, one at a time", partial(publish, batch=1)),
    case("consume, batches of 500", consume),
)
