"""Brokers with very many queues and dead letters, and what they pay for being looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from queuecraft import QueueCraft
from queuecraft.clock import Clock
from queuecraft.drivers.base import Driver, Outgoing
from queuecraft.drivers.registry import Drivers
from queuecraft.drivers.target import Target
from tests.brokers.kafka import Kafka
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.redis import Redis

Broker: TypeAlias = Literal[
    "file", "redis", "redis-streams", "rabbitmq", "rabbitmq-without-management", "kafka"
]

BATCH = 1000
KINDS = 100
HOLDERS = 50  # queues that the other half of the dead letters is in
PATIENCE = 120.0  # seconds for the dead letters of each half
TICKS = os.sysconf("SC_CLK_TCK")
TRACEBACK = "".join(
    f'  File "/app/shop/module_{n}.py", line {n}, in function_{n}\n    call_{n}(order)\n'
    for n in range(20)
)


@dataclass(frozen=True, slots=True)
class Crowd:
    """A broker, and what can be known of what it does."""

    url: str
    pid: int | None = None
    """Of its process; None for one that has none, or that is not ours."""
    requests: Callable[[], int] | None = None
    """How many it has answered, if it tells."""
    forgetful: bool = False
    """Whether it tells only of queues that were declared on the same connection."""

    def cpu(self) -> float:
        """Seconds that its process has used so far."""
        if self.pid is None:
            return 0.0
        told = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
        return sum(map(int, told.split()[11:13])) / TICKS


@contextmanager
def crowd(broker: Broker, file: Path | None = None) -> Generator[Crowd]:
    """Start it, or take the one that the environment names; stopped in the end, if it is ours."""
    match broker:
        case "file":
            with TemporaryDirectory() as folder:
                yield Crowd(f"local://{file or Path(folder) / 'queue.db'}")
        case "redis" | "redis-streams":
            mode = "stream" if broker == "redis-streams" else "list"
            with Redis.from_environment() as redis, redis.prefix() as url:

                def answered() -> int:
                    lines = redis.call("INFO", "commandstats").decode().split()
                    told = [each for each in lines if each.startswith("cmdstat_")]
                    asked = [e for e in told if not e.startswith("cmdstat_info")]
                    return sum(int(e.partition("calls=")[2].partition(",")[0]) for e in asked)

                yield Crowd(f"{url}&mode={mode}", redis.pid if redis.private else None, answered)
        case "kafka":
            with Kafka.from_environment(lasting=True) as kafka, kafka.prefix() as url:
                yield Crowd(url, kafka.pid if kafka.private else None)
        case _:
            bare = broker == "rabbitmq-without-management"
            with RabbitMQ.from_environment(lasting=True) as rabbit, rabbit.vhost() as url:
                parts = urlsplit(rabbit.management_url)
                there = "no" if bare else f"{parts.scheme}://{parts.hostname}:{parts.port}"
                pid = rabbit.pid if rabbit.private else None
                yield Crowd(f"{url}?management={there}", pid, forgetful=bare)


async def declare(qc: QueueCraft, queues: int) -> None:
    """Make the queues, each with its dead-letter queue."""
    exchange = qc.settings.default_exchange  # given, it is not looked for each time
    for n in range(queues):
        await qc.admin.declare(f"queue-{n:03}", f"event.{n}", exchange=exchange)


async def fill(url: str, queues: int, letters: int) -> tuple[int, int]:
    """Make the queues and their dead letters: so many in one queue, and as many in fifty others;
    fewer if that takes too long. Says how many there are in each half."""
    async with QueueCraft(url) as qc:
        began = perf_counter()
        await declare(qc, queues)
        print(f"{queues} queues declared in {perf_counter() - began:.0f} s", flush=True)
        for n in range(0, queues, 10):
            await qc.publish(f"event.{n}", {"n": n})
        (driver,) = Drivers().create(Target(url, Clock(), qc.settings))
        await driver.open()
        try:
            one = await _put(driver, ["queue-000"], letters)
            return one, await _put(
                driver, [f"queue-{n:03}" for n in range(1, HOLDERS + 1)], letters
            )
        finally:
            await driver.close()


async def _put(driver: Driver, queues: list[str], letters: int) -> int:
    began = perf_counter()
    put = 0
    batch = min(BATCH, max(1, letters // len(queues)))
    while put + batch <= letters and perf_counter() - began < PATIENCE:
        queue = queues[put // batch % len(queues)]
        start = put // (batch * len(queues)) * batch
        await driver.send([letter(queue, n) for n in range(start, start + batch)])
        put += batch
    print(f"{put:,} dead letters in {len(queues)}: {perf_counter() - began:.0f} s", flush=True)
    return put


def letter(queue: str, n: int) -> Outgoing:
    """A dead letter, with a traceback of the usual length."""
    return Outgoing(
        b'{"id": "o-%d", "total": 9.5, "lines": [{"sku": "a-1", "count": 2}]}' % n,
        f"letter-{n}",
        queue=f"{queue}.dlq",
        content_type="application/json",
        headers={
            "x-original-queue": queue,
            "x-original-routing-key": "order.placed",
            "x-reason": "handler-error",
            "x-retry-count": 3,
            "x-failed-at": 1_700_000_000_000 + n,
            "x-error": f"no money of kind {'abcdefghij'[n % 10]} for order {n}: kind {n % KINDS}",
            "x-error-type": f"shop.Error{n % KINDS}",
            "x-traceback": TRACEBACK,
        },
    )
