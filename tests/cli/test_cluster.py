"""Starting Spark from a command."""

from __future__ import annotations

import os
import signal

import pytest

from queuecraft.cli.cluster import session
from queuecraft.pipeline import session as sessions


def test_ctrl_c_while_spark_starts_waits_until_it_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []

    def start(**_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("started")

    monkeypatch.setattr(sessions, "spark_session", start)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        session(None, None)
    assert steps == ["started"]
    assert signal.getsignal(signal.SIGINT) is before
