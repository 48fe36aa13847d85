"""Where private brokers keep their data."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.brokers import room as module
from tests.brokers.room import room


def test_it_is_in_the_folder_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECRAFT_BROKER_ROOM", str(tmp_path))
    monkeypatch.setattr(module, "PLENTY", 0)
    assert room("redis").parent == tmp_path.resolve()


@pytest.mark.parametrize("named", [True, False])
def test_it_is_elsewhere_if_there_is_no_room_or_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setenv("QUEUECRAFT_BROKER_ROOM", str(tmp_path) if named else "")
    monkeypatch.setattr(module, "PLENTY", 2**62)
    found = room("redis")
    found.rmdir()
    assert found.parent == Path(tempfile.gettempdir()).resolve()
