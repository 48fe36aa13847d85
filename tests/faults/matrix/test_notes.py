"""What processes have written down is not taken for another's."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.faults.matrix.cell import Notes
from tests.faults.page import Page


def test_a_process_is_not_ready_because_one_before_it_with_its_process_id_was(
    tmp_path: Path,
) -> None:
    page, notes = Page(tmp_path), Notes(tmp_path)
    former: Any = SimpleNamespace(pid=page._pid, born=time.monotonic_ns())
    page.write("ready")
    notes.look()
    assert notes.is_ready(former)
    process: Any = SimpleNamespace(pid=page._pid, born=time.monotonic_ns())
    assert not notes.is_ready(process)
    page.write("ready")
    notes.look()
    assert notes.is_ready(process)
    page.close()
