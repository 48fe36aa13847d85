"""What every test may ask for."""

from __future__ import annotations

import signal

import pytest

from tests.brokers.fixtures import rabbitmq, rabbitmq_url, redis, redis_url

__all__ = ["rabbitmq", "rabbitmq_url", "redis", "redis_url"]

# A run in the background, or under nohup, ignores these, and so would every process that a test
# starts and then interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)  # the plugin looks at the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several processes (`-n`), a file's tests stay together, and so do those that need Spark:
    what they share is made once."""
    for item in items:
        shared = "spark" if "spark" in getattr(item, "fixturenames", ()) else item.nodeid
        item.add_marker(pytest.mark.xdist_group(shared.partition("::")[0]))
