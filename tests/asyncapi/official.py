"""The parser that AsyncAPI itself publishes, run by Node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.installation import Unavailable

PARSER = "@asyncapi/parser@3.6.3"
SCRIPT = """
const { Parser } = require("@asyncapi/parser");
const text = require("fs").readFileSync(0, "utf8");
new Parser().parse(text).then(({ document, diagnostics }) => {
  const bad = diagnostics.filter((each) => each.severity < 2);
  console.log(JSON.stringify([Boolean(document), bad.map((each) => each.message)]));
});
"""


def problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with a document. Without Node there is nobody to ask: the test is skipped."""
    answer = subprocess.run(
        ["node", "-e", SCRIPT],
        cwd=_installed(),
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=True,
    )
    valid, found = json.loads(answer.stdout)
    return [*found, *([] if valid else ["not a document"])]


@cache
def _installed() -> Path:
    try:
        return install()
    except Unavailable as reason:
        pytest.skip(f"AsyncAPI's own parser: {reason}")


def install() -> Path:
    """Where it is. The first time it takes as long as the registry does."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unavailable("it needs Node: apt install nodejs npm")
    cached = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(cached, "queuecraft", "asyncapi", PARSER.rpartition("@")[2])
    done = place / "done"
    if not done.exists():
        place.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(place), "--no-audit", "--no-fund", PARSER]
        told = subprocess.run(command, capture_output=True, text=True)
        if told.returncode:
            raise Unavailable(f"it cannot be installed: {told.stderr[-300:]}")
        done.touch()
    return place
