"""A broker for the time of the measurements, and an empty place on it for each of them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw

from tests.brokers.distribution import VERSION
from tests.brokers.kafka import Kafka
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.redis import Redis

BROKERS = ("memory", "file", "rabbitmq", "redis-lists", "redis-streams", "kafka")


@dataclass(frozen=True, slots=True)
class Site:
    """A broker that runs."""

    place: Callable[[], AbstractContextManager[str]]
    """A URL at which there is nothing yet; all of it is gone when the block is left."""
    memory: Callable[[], int] | None = None
    """Bytes that the broker uses by its own account; None if it cannot tell. What its process has
    is no measure: it keeps what was freed, so that whoever comes first pays for the others."""
    version: str = ""
    """Of a broker that is ours."""


@contextmanager
def site(broker: str) -> Generator[Site]:
    """Start it, or take the one that the environment names; stopped in the end, if it is ours.

    Raises `Unavailable` if there is none to be had here.
    """
    match broker:
        case "memory":
            yield Site(in_memory)
        case "file":
            yield Site(in_a_file, version=f"SQLite {apsw.sqlite_lib_version()}")
        case "rabbitmq":
            with RabbitMQ.from_environment(lasting=True) as rabbitmq:
                if rabbitmq.private:
                    told = rabbitmq.ctl("version").split()[-1]
                    yield Site(rabbitmq.vhost, partial(of_rabbitmq, rabbitmq), f"RabbitMQ {told}")
                else:
                    yield Site(rabbitmq.vhost)
        case "redis-lists" | "redis-streams":
            with Redis.from_environment() as redis:
                told = redis.call("INFO", "server").decode()
                version = told.partition("redis_version:")[2].split()[0]
                place = partial(under_a_prefix, redis, broker)
                yield Site(place, partial(of_redis, redis), f"Redis {version}")
        case "kafka":
            with Kafka.from_environment(lasting=True) as kafka:
                if kafka.private:
                    yield Site(kafka.prefix, version=f"Kafka {VERSION}")
                else:
                    yield Site(kafka.prefix)
        case _:
            raise ValueError(f"no broker {broker!r}; there is {', '.join(BROKERS)}")


def of_rabbitmq(broker: RabbitMQ) -> int:
    return int(broker.ctl("eval", "erlang:memory(total).").split()[-1])


def of_redis(server: Redis) -> int:
    told: str = server.call("INFO", "memory").decode()
    return int(told.partition("used_memory:")[2].split()[0])


@contextmanager
def under_a_prefix(redis: Redis, broker: str) -> Generator[str]:
    """With the mode that the name of the broker says."""
    with redis.prefix() as url:
        yield f"{url}&mode={broker.removeprefix('redis-').removesuffix('s')}"


@contextmanager
def in_memory() -> Generator[str]:
    yield "local://"


@contextmanager
def in_a_file() -> Generator[str]:
    """In the temporary folder of the system: `TMPDIR` puts it on the disk you care for."""
    with TemporaryDirectory(prefix="queuecraft-benchmark-") as folder:
        yield f"local://{Path(folder, 'queue.db')}"
