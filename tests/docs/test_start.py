"""The five-minute start, gone through as a newcomer would, command by command."""

from __future__ import annotations

import json
import re
import shlex
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.port import Port
from tests.cli.running import Running
from tests.test_house import ROOT, blocks_of

PAGE = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
SHELL = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
(VARIABLES,) = re.findall(r"^echo '(.*)' > \.env$", SHELL, re.MULTILINE)
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for line in SHELL.splitlines()
    if line.startswith("queuecraft ")
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".env").write_text(f"{VARIABLES}\n", encoding="utf-8")
    (tmp_path / "shop.py").write_text(blocks_of(PAGE)[0].code, encoding="utf-8")
    return tmp_path


@pytest.fixture
def steps() -> Iterator[Iterator[list[str]]]:
    """The commands of the page, one after the other; all of them have to be gone through."""
    left = iter(COMMANDS)
    yield left
    assert list(left) == []


def said(words: list[str], folder: Path) -> str:
    """What a command prints that ends well."""
    with Running(*words, folder=folder) as command:
        assert command.ends() == 0, command.output
        return command.output


@pytest.mark.timeout(180)  # a dozen programs, one after the other
def test_it_leads_from_nothing_to_a_redriven_dead_letter_and_a_dashboard(
    folder: Path, steps: Iterator[list[str]]
) -> None:
    with Running(*next(steps), folder=folder) as worker:
        worker.until("worker billing started")
        said(next(steps), folder)
        worker.until(r"charged o-1: 9\.00 \(attempt 1\)")

        said(next(steps), folder)
        worker.until("comes again in 1 s")
        worker.until("comes again in 2 s")
        worker.until("dead-lettered")
        assert "KeyError" in said(next(steps), folder)  # dlq groups
        assert "KeyError" in said(next(steps), folder)  # dlq list
        letter = json.loads(said(next(steps), folder))  # dlq list --json
        assert letter["payload"] == {"id": "o-2", "article": "coffee", "pieces": 1}
        assert "PRICES[order.article]" in letter["traceback"]

        shop = folder / "shop.py"
        before, after = 'PRICES = {"tea": 4.5}\n', blocks_of(PAGE)[1].code
        shop.write_text(shop.read_text().replace(before, after), encoding="utf-8")
        assert after in shop.read_text()
        worker.until("worker billing started", times=2)
        said(next(steps), folder)  # dlq redrive
        worker.until(r"charged o-2: 3\.00 \(attempt 1\)")

        with Port() as port:
            serve = [*next(steps), f"--port={port.number}"]
            with Running(*serve, folder=folder) as service:
                (url,) = service.until(r"answering at (http://\S+)")
                with urllib.request.urlopen(url, timeout=30) as page:
                    assert b"QueueCraft" in page.read()
                service.send(signal.SIGTERM)
                assert service.ends() == 0
        worker.send(signal.SIGINT)
        assert worker.ends() == 0
