"""Where private brokers keep their data while the tests run."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

PLENTY: Final = 4 * 2**30  # bytes that have to be free


def room(broker: str) -> Path:
    """A new folder for one of them: in the one that the environment names, if that has room, else
    where temporary things are. `make test` names one in memory: three brokers at once that write
    to one disk wait for it, and so does every test. What a killed process leaves is the same in
    both; what a disk does is measured by the benchmarks and by the tests of full disks."""
    wanted = os.environ.get("QUEUECRAFT_BROKER_ROOM") or None
    if wanted is not None and shutil.disk_usage(wanted).free < PLENTY:
        wanted = None
    return Path(tempfile.mkdtemp(prefix=f"queuecraft-{broker}-", dir=wanted)).resolve()
