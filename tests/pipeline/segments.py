"""What the tests of segments, spools and captures share: looking into a lake, dying on the way."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from queuecraft.observers.journal.row import Row
from queuecraft.pipeline.lake import Lake
from queuecraft.testing.failpoints import to_be_killed_at

ROOT = Path(__file__).parents[2]


def files(lake: Lake) -> list[Path]:
    """The segments, in the order of their names."""
    return sorted(lake.segments.glob("date=*/[!.]*"))


def rows(lake: Lake) -> list[dict[str, Any]]:
    """All rows of all segments."""
    return [row for path in files(lake) for row in pq.ParquetFile(path).read().to_pylist()]


def ids(lake: Lake) -> list[str]:
    """The ids of all rows, as they lie there."""
    return [row["message_id"] for row in rows(lake)]


def line(id: str, **fields: Any) -> bytes:
    """A line of the journal."""
    given: dict[str, Any] = {"kind": "published", "at": 1_700_000_000.0, **fields}
    row = Row(message_id=id, **given)
    return msgspec.json.encode(row) + b"\n"


def spool(lake: Lake, name: str, *lines: bytes) -> Path:
    """A spool with these lines."""
    lake.spool.mkdir(parents=True, exist_ok=True)
    path = lake.spool / name
    path.write_bytes(b"".join(lines))
    return path


def dies(point: str, program: str, *arguments: str) -> None:
    """Run a program that is killed when it comes to the named place."""
    child = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env=to_be_killed_at(point),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, (point, child.returncode, child.stderr)
