"""Every command that a guide shows is one that the command line takes, with options it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.commands import ours, parsed
from tests.docs.test_links import FENCE, ROOT, pages

SHELLS = ("sh", "bash", "shell", "console")


def shown(page: Path) -> list[list[str]]:
    """The calls of ours in the blocks of a page."""
    blocks = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [
        words
        for block in blocks
        if block["kind"] in SHELLS
        for words in ours(block["code"].replace(f"\n{block['indent']}", "\n"))
        if words and not words[0].startswith("-")  # to read --install-completion is to do it
    ]


SHOWN = {str(page.relative_to(ROOT)): calls for page in pages(ROOT) if (calls := shown(page))}


@pytest.mark.parametrize("page", SHOWN)
def test_every_command_is_one_that_queuecraft_takes(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused: list[str] = []
    for words in SHOWN[page]:
        try:
            parsed(words)
        except Exception as error:
            refused.append(f"queuecraft {' '.join(words)}: {error}")
    assert refused == []


def test_there_are_many() -> None:
    assert sum(map(len, SHOWN.values())) > 100
    assert {"README.md", "docs/start.md", "docs/command-line.md"} <= SHOWN.keys()


def test_one_that_it_does_not_take_is_noticed() -> None:
    with pytest.raises(Exception, match="there is no option --proceses"):
        parsed(["run", "shop:qc", "--proceses", "4"])
