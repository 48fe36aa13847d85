"""The recipes of the guide, with a worker that `queuecraft run` runs beside them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_house import ROOT, blocks_of

PAGE = ROOT / "docs" / "sync.md"
RECIPES = {
    framework: block.code
    for framework in ("django", "flask")
    for block in blocks_of(PAGE.read_text(encoding="utf-8"))
    if f"from {framework}" in block.code
}


@pytest.mark.parametrize("framework", ["django", "flask"])
def test_a_web_app_publishes_and_a_worker_handles(framework: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(RECIPES[framework], encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("QUEUECRAFT_")}

    def start(*command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    with start("shop.py", "o-7") as web:
        told, _ = web.communicate(timeout=30)
    assert web.returncode == 0, told
    assert "o-7" in told

    with start("-m", "queuecraft", "run", "shop:workers") as worker:
        try:
            assert worker.stdout is not None
            lines: list[str] = []
            for line in worker.stdout:
                lines.append(line)
                if line == "paid o-7\n":
                    worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0, "".join(lines)
            assert "paid o-7\n" in lines
        finally:
            worker.kill()
