"""The notebook on the lake: kept clean, and every cell of it runs."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.brokers.fixtures import NOT_TESTED
from tests.examples.notebook import cells_of
from tests.examples.programs import ROOT, Program

NOTEBOOK = ROOT / "examples" / "lake.ipynb"


def test_the_cells_compile_in_an_order_that_tells_the_story() -> None:
    cells = cells_of(NOTEBOOK)
    for cell in cells:
        cell.compiled()
    story = ["imports", "load", "ingest", "rows", "lifecycle", "plot", "triage", "replay", "stop"]
    assert [cell.name for cell in cells] == story


def test_it_is_kept_without_outputs_and_without_paths_of_a_machine() -> None:
    for cell in cells_of(NOTEBOOK):
        assert cell.raw["outputs"] == [], f"clear the output of {cell.name}"
        assert cell.raw["execution_count"] is None, f"clear the number of {cell.name}"
    paths = re.findall(r"""["'`\s](/[a-z]\w*/\S*)""", NOTEBOOK.read_text(encoding="utf-8"))
    assert paths == []


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_every_cell_runs(tmp_path: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip(f"{NOT_TESTED}the notebook: pip install matplotlib")
    output = tmp_path / "told"
    arguments = ("tests.examples.notebook", str(NOTEBOOK))
    settings = {"MPLBACKEND": "agg"}
    with Program(*arguments, output=output, folder=tmp_path, settings=settings) as notebook:
        assert notebook.wait(220) == 0, notebook.output
    shown = json.loads(notebook.output.splitlines()[-1])
    assert "quarantined=0" in shown["ingest"]
    globes = re.search(r"KeyError: 'globe'\s+(\d+)", shown["triage"])
    assert globes is not None, shown["triage"]
    assert shown["replay"] == globes[1]
    assert "4000 1234" not in shown["triage"]
    assert "***" in shown["triage"]
