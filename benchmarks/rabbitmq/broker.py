"""The RabbitMQ that all contenders share, and an empty virtual host on it for every run."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from benchmarks.order import WrongCount
from queuecraft import QueueCraft
from tests.brokers.rabbitmq import RabbitMQ

_running: ContextVar[RabbitMQ] = ContextVar("the broker of the benchmarks")


@contextmanager
def serving() -> Generator[None]:
    """Start it, or take the one that the environment names; stopped in the end, if it is ours.

    Raises `Unavailable` if there is none to be had here.
    """
    with RabbitMQ.from_environment(lasting=True) as broker, sharing(broker):
        yield


@contextmanager
def sharing(broker: RabbitMQ) -> Generator[None]:
    """Use this one, which somebody else starts and stops."""
    token = _running.set(broker)
    try:
        yield
    finally:
        _running.reset(token)


@contextmanager
def place() -> Generator[str]:
    """A URL into a virtual host that is there for one run."""
    with _running.get().vhost() as url:
        yield url


async def verify_depth(url: str, queue: str, expected: int) -> None:
    """Refuse the run if not so many messages are ready: call when every client has left, because
    what was delivered to one and not acknowledged is back in the queue by then."""
    async with QueueCraft(f"{url}?management=no") as qc:
        found = (await qc.admin.inspect(queue)).ready
    if found != expected:
        raise WrongCount(f"{queue!r} holds {found} messages, not {expected}")
