"""Brokers as pytest fixtures; `tests/conftest.py` gives them to all tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.brokers.installation import KCAT, Unavailable, ensure, in_ci
from tests.brokers.kafka import VARIABLE as KAFKA_VARIABLE
from tests.brokers.kafka import Kafka
from tests.brokers.kcat import Kcat
from tests.brokers.rabbitmq import VARIABLE, RabbitMQ
from tests.brokers.redis import VARIABLE as REDIS_VARIABLE
from tests.brokers.redis import Redis

NOT_TESTED = "NOT TESTED, "


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """One RabbitMQ for all tests of a run, started by the first that asks.

    A test that kills it may leave it so: `rabbitmq_url` starts it again.
    """
    try:
        broker = RabbitMQ.from_environment().__enter__()
    except Unavailable as reason:
        do_without(f"RabbitMQ: {reason}, or name a server in {VARIABLE}")
    with broker:
        yield broker


@pytest.fixture
def rabbitmq_url(rabbitmq: RabbitMQ) -> Iterator[str]:
    """A URL into an empty virtual host on it, which is this test's alone."""
    rabbitmq.start()
    with rabbitmq.vhost() as url:
        yield url


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """One Redis for all tests of a run, started by the first that asks.

    A test that kills it may leave it so: `redis_url` starts it again.
    """
    try:
        server = Redis.from_environment().__enter__()
    except Unavailable as reason:
        do_without(f"Redis: {reason}, or name a server in {REDIS_VARIABLE}")
    with server:
        yield server


@pytest.fixture
def redis_url(redis: Redis) -> Iterator[str]:
    """A URL with a prefix that is this test's alone; add `&mode=list` or another."""
    redis.start()
    with redis.prefix() as url:
        yield url


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One Kafka for all tests of a run, started by the first that asks.

    A test that kills it may leave it so: `kafka_url` starts it again.
    """
    try:
        broker = Kafka.from_environment().__enter__()
    except Unavailable as reason:
        do_without(f"Kafka: {reason}, or name a server in {KAFKA_VARIABLE}")
    with broker:
        yield broker


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
    """Say at the end, where nobody can miss it, which brokers were not tested at all."""
    told = Counter(
        str(report.longrepr[2])
        for report in terminalreporter.getreports("skipped")
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in told.items():
        if NOT_TESTED in reason:
            text = f"{reason.removeprefix('Skipped: ')} ({count} tests were skipped)"
            terminalreporter.write_line(text, red=True, bold=True)


def do_without(reason: str) -> NoReturn:
    """Skip what needs a broker that cannot be had, aloud; where nothing may be left out, fail."""
    if in_ci():
        pytest.fail(f"{NOT_TESTED}{reason}", pytrace=False)
    pytest.skip(f"{NOT_TESTED}{reason}")
