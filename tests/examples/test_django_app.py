"""The Django example: an order and its message are one transaction, and a worker handles it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.examples.programs import Program


def told(folder: Path, url: str, *arguments: str) -> Any:
    """What the test client tells of the application on this broker."""
    settings = {"QUEUECRAFT_URL": url, "SHOP_DATABASE": str(folder / "shop.sqlite3")}
    program = Program(
        "tests.examples.django_client", *arguments, output=folder / "told", settings=settings
    )
    with program:
        assert program.wait(50) == 0, program.output
    return json.loads(program.output.splitlines()[-1])


def test_an_order_is_placed_relayed_and_paid(tmp_path: Path) -> None:
    seen = told(tmp_path, f"local://{tmp_path}/queue.db")
    assert seen["placed"] == [202, {"id": "o-1"}]
    assert seen["again"] == [409, {"error": "there is an order o-1 already"}]
    assert seen["nonsense"] == [400, {"error": "say how many cents"}]
    assert seen["missing"][0] == 404
    assert seen["waiting"] == 1  # of the order that was refused, nobody will hear
    assert seen["before"] == [200, {"id": "o-1", "cents": 950, "paid": False}]
    assert seen["after"] == [200, {"id": "o-1", "cents": 950, "paid": True}]
    assert seen["left"] == 0


def test_an_order_is_placed_while_the_broker_is_away(tmp_path: Path) -> None:
    seen = told(tmp_path, "redis://127.0.0.1:1", "away")
    assert seen["placed"] == [202, {"id": "o-1"}]
    assert seen["waiting"] == 1
