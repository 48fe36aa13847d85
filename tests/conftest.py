"""What every test may ask for."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

from tests.brokers.fixtures import (
    kafka,
    kafka_url,
    kcat,
    pytest_terminal_summary,
    rabbitmq,
    rabbitmq_url,
    redis,
    redis_url,
)

__all__ = [
    "kafka",
    "kafka_url",
    "kcat",
    "pytest_terminal_summary",
    "rabbitmq",
    "rabbitmq_url",
    "redis",
    "redis_url",
]

# Whoever shares a machine with others is slow now and then.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

# The programs that tests start are not measured: it would slow them down, and many are killed.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)

# A run in the background, or under nohup, ignores these, and so would every process that a test
# starts and then interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where processes share the tests, those of a file stay together, and all that need Spark are
    for one process: it takes long to start, and longer to warm up. What takes longest begins, so
    that nobody has to wait for it in the end."""
    if hasattr(config, "workerinput"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(_group(item)))
        items.sort(key=lambda item: (_group(item) != "spark", "soak" not in item.nodeid))


def pytest_collection_finish(session: pytest.Session) -> None:
    """A pytest whose tests xdist cannot group would be slow, and say nothing."""
    if getattr(session.config.option, "loadgroup", False) and session.items:
        assert "@" in session.items[0].nodeid, "xdist has grouped nothing; see pyproject.toml"


def _group(item: pytest.Item) -> str:
    needed = "spark" in getattr(item, "fixturenames", ())
    return "spark" if needed else item.nodeid.partition("::")[0]
