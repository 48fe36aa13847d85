"""The files of a replay, and what is told when they cannot be read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from queuecraft import QueueError
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.replay.ledger import Ledger, new_id, sweep
from queuecraft.pipeline.segments import ABANDONED

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


def test_what_plannings_that_died_have_left_is_removed_after_a_day(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    names = (*(new_id() for _ in range(4)), "by-hand")
    made = [Ledger(lake.replays / name) for name in names]
    stale, fresh, under_way, planned, _ = made
    for each in made:
        (each.folder / "chosen").mkdir(parents=True)
    (planned.folder / "plan.json").touch()
    with under_way.locked():
        long_ago = time.time() - ABANDONED - 1
        for each in made:
            if each is not fresh:
                os.utime(each.folder, (long_ago, long_ago))
        sweep(lake)
    assert [each for each in made if not each.folder.exists()] == [stale]
