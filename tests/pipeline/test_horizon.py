"""How far back a lake reaches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from queuecraft.pipeline.horizon import UNKNOWN, horizon, move_horizon
from queuecraft.pipeline.lake import Lake

NOW = datetime(2026, 4, 1, 12, 30, 15, 250_000, tzinfo=UTC)
DAY = timedelta(days=1)


def test_the_latest_horizon_holds(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    assert horizon(lake) is None
    for days, holds in ((30, 30), (90, 30), (30, 30), (7, 7)):
        move_horizon(lake, NOW - days * DAY, NOW)
        assert horizon(lake) == NOW - holds * DAY
    assert [path.name for path in tmp_path.iterdir()] == ["horizon.json"]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"before":"\xff"}', b'{"before":"2026-01-01T00:00:00"}'], ids=ascii
)
def test_where_it_cannot_be_read_it_may_be_anywhere_up_to_now(
    tmp_path: Path, content: bytes
) -> None:
    lake = Lake.at(tmp_path)
    lake.horizon.write_bytes(content)
    assert horizon(lake) == UNKNOWN
    move_horizon(lake, NOW - DAY, NOW)
    assert horizon(lake) == NOW


def test_what_is_no_file_cannot_be_read(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    lake.horizon.mkdir()
    assert horizon(lake) == UNKNOWN
