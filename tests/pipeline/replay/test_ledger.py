"""The files of a replay, and what is told when they cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from queuecraft import QueueError
from queuecraft.pipeline.replay.ledger import Ledger

READS: dict[str, Callable[[Ledger], object]] = {
    "plan.json": Ledger.plan,
    "broker.json": Ledger.destination,
    "paused.json": Ledger.paused,
    "ledger/000000.json": Ledger.done,
}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"id":"\xff"}'], ids=ascii)
@pytest.mark.parametrize("name", READS)
def test_a_file_that_is_damaged_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(QueueError, match=rf"{name} cannot be read: .*; plan the replay anew"):
        READS[name](Ledger(tmp_path))
