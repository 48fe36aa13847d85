"""Fixtures of the tests of replays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.replay.scene import Broker


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A queue in a file, which the settings of the environment name."""
    monkeypatch.chdir(tmp_path)
    found = Broker(f"local://{tmp_path / 'queue.db'}")
    monkeypatch.setenv("QUEUECRAFT_URL", found.url)
    return found
