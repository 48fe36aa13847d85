"""Redis without a mode: whoever did not choose is told so, by every command."""

from __future__ import annotations

import logging

import pytest

from queuecraft import QueueCraft
from tests.cli.shell import Shell

SAID = "no mode is set, so events go by pub/sub"


async def test_it_is_told_to_the_log_once_and_when_the_broker_is_reached(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.warns(DeprecationWarning, match=SAID):
        qc = QueueCraft(redis_url)
    assert caplog.records == []  # whoever is imported first has no log yet
    with caplog.at_level(logging.WARNING, "queuecraft"):
        async with qc:
            pass
        async with QueueCraft(f"{redis_url}&mode=pubsub"):
            pass
    assert [each.getMessage().partition(": ")[2][: len(SAID)] for each in caplog.records] == [SAID]


def test_commands_tell_it_and_say_why_an_event_went_nowhere(shell: Shell, redis_url: str) -> None:
    made = shell("declare", "billing", "order.placed", "--url", redis_url)
    assert (made.exit_code, made.stderr.startswith(f"note: redis: {SAID}")) == (0, True)
    result = shell("publish", "order.placed", "1", "--url", redis_url)
    assert result.exit_code == 1
    assert "queue 'billing' is bound to event 'order.placed', but nobody listens" in result.stderr
    assert "did you mean" not in result.stderr
    assert SAID not in shell("queues", "--url", f"{redis_url}&mode=list").stderr
