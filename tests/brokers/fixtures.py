"""Brokers as pytest fixtures; `tests/conftest.py` gives them to all tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

import pytest

from tests.brokers.broker import Broker
from tests.brokers.installation import KCAT, Unavailable, ensure, in_ci
from tests.brokers.kafka import Kafka
from tests.brokers.kcat import Kcat
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.redis import Redis

NOT_TESTED = "NOT TESTED, "
PEER_MISSING = "PEER MISSING: "
"""Another library, which `make bench` installs: no reason to fail, nor to pass it over."""

B = TypeVar("B", bound=Broker[Any])


def for_a_run(kind: type[B]) -> Iterator[B]:
    """One broker for all tests of a run, started by the first that asks.

    A test that kills it may leave it so: a fixture that gives its URL starts it again.
    """
    try:
        broker = kind.from_environment().__enter__()
    except Unavailable as reason:
        do_without(f"{kind.__name__}: {reason}, or name a server in {kind.variable}")
    with broker:
        yield broker


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """The RabbitMQ of this run."""
    yield from for_a_run(RabbitMQ)


@pytest.fixture
def rabbitmq_url(rabbitmq: RabbitMQ) -> Iterator[str]:
    """A URL into an empty virtual host on it, which is this test's alone."""
    rabbitmq.start()
    with rabbitmq.vhost() as url:
        yield url


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """The Redis of this run."""
    yield from for_a_run(Redis)


@pytest.fixture
def redis_url(redis: Redis) -> Iterator[str]:
    """A URL with a prefix that is this test's alone; add `&mode=list` or another."""
    redis.start()
    with redis.prefix() as url:
        yield url


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """The Kafka of this run."""
    yield from for_a_run(Kafka)


@pytest.fixture
def kafka_url(kafka: Kafka) -> Iterator[str]:
    """A URL with a prefix, for topics and groups, that is this test's alone."""
    kafka.start()
    with kafka.prefix() as url:
        yield url


@pytest.fixture(scope="session")
def kcat() -> Kcat:
    """A client of Kafka that is not ours."""
    try:
        ensure([KCAT])
    except Unavailable as reason:
        do_without(f"kcat: {reason}")
    return Kcat()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end, where nobody can miss it, what was not tested at all."""
    told = Counter(
        str(report.longrepr[2])
        for report in terminalreporter.getreports("skipped")
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in told.items():
        if NOT_TESTED in reason or PEER_MISSING in reason:
            text = f"{reason.removeprefix('Skipped: ')} ({count} tests were skipped)"
            terminalreporter.write_line(text, red=True, bold=True)


def do_without(reason: str) -> NoReturn:
    """Skip what needs something that cannot be had, aloud; where nothing may be left out, fail."""
    if in_ci():
        pytest.fail(f"{NOT_TESTED}{reason}", pytrace=False)
    pytest.skip(f"{NOT_TESTED}{reason}")
