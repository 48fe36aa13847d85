"""The Redis that all contenders share, and a prefix on it for every run."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from benchmarks.order import WrongCount
from benchmarks.rabbitmq.stretch import QUEUE
from tests.brokers.redis import Redis, call

_running: ContextVar[Redis] = ContextVar("the server of the benchmarks")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run has its keys; they are gone when it ends."""

    server: str
    prefix: str

    def url(self, mode: str) -> str:
        """For QueueCraft."""
        return f"{self.server}?prefix={self.prefix}&mode={mode}"

    def key(self, name: str = QUEUE) -> str:
        """For everybody else."""
        return f"{{{self.prefix}}}:{name}"

    def call(self, command: str, name: str, *arguments: str | int) -> Any:
        """What the server answers to a command on a key."""
        return call(self.server, command, self.key(name), *arguments)

    def verify_count(self, command: str, name: str, expected: int) -> None:
        """Refuse the run if `LLEN`, `HLEN` or `XLEN` is another number. Call when every client has
        left."""
        verify(self.call(command, name), expected)

    def verify_acked(self, name: str, group: str, messages: int) -> None:
        """Refuse the run if the group has not read and acknowledged all of a stream."""
        verify(self.call("XLEN", name), messages)
        ((*told,),) = call(self.server, "XINFO", "GROUPS", self.key(name))
        facts = dict(zip(told[::2], told[1::2], strict=True))
        if facts[b"name"].decode() != group:
            raise WrongCount(f"{name!r} has no group {group!r}")
        verify(facts[b"entries-read"], messages)
        verify(facts[b"pending"], 0)


def verify(found: int, expected: int) -> None:
    if found != expected:
        raise WrongCount(f"the server holds {found} messages, not {expected}")


@contextmanager
def serving() -> Generator[None]:
    """Start it, or take the one that the environment names; stopped in the end, if it is ours.

    Raises `Unavailable` if there is none to be had here.
    """
    with Redis.from_environment() as server, sharing(server):
        yield


@contextmanager
def sharing(server: Redis) -> Generator[None]:
    """Use this one, which somebody else starts and stops."""
    token = _running.set(server)
    try:
        yield
    finally:
        _running.reset(token)


@contextmanager
def place() -> Generator[Place]:
    """A prefix that is there for one run."""
    with _running.get().prefix() as url:
        server, _, prefix = url.partition("?prefix=")
        yield Place(server, prefix)
