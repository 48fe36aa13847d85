"""`queuecraft asyncapi`: an application's document on paper."""

from __future__ import annotations

import json

import yaml

from tests.cli.shell import Shell

SHOP = '''
"""Sells things."""
from dataclasses import dataclass
from queuecraft import Event, QueueCraft

@dataclass
class Order:
    id: str

placed = Event("order.placed", Order)
shipped = Event("order.shipped", Order)
qc = QueueCraft("amqp://user:secret@nowhere")

@qc.worker("billing").on(placed)
async def charge(order: Order) -> None: ...
'''


def test_every_event_of_the_module_and_every_handler_is_told_of(shell: Shell) -> None:
    (shell.folder / "shop.py").write_text(SHOP)
    code, printed, _ = shell.finished("asyncapi", "shop:qc", "--version", "2.0")
    made = json.loads(printed)
    assert code == 0
    assert made["info"] == {"title": "shop", "version": "2.0", "description": "Sells things."}
    assert set(made["operations"]) == {
        "publish.order.placed",
        "publish.order.shipped",
        "billing.charge",
    }
    assert "secret" not in printed


def test_a_file_is_written_as_it_is_called(shell: Shell) -> None:
    (shell.folder / "shop.py").write_text(SHOP)
    assert shell.finished("asyncapi", "shop:qc", "--output", "api.yaml") == (0, "", "")
    _, as_json, _ = shell.finished("asyncapi", "shop:qc")
    _, as_yaml, _ = shell.finished("asyncapi", "shop:qc", "--format", "yaml")
    assert (shell.folder / "api.yaml").read_text() == as_yaml
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_mistakes_are_explained(shell: Shell) -> None:
    (shell.folder / "shop.py").write_text(SHOP)
    for given, told in (
        (("nowhere:qc",), "there is no module nowhere"),
        (("shop:q",), "did you mean shop:qc?"),
        (("shop:placed",), "expected a QueueCraft"),
        (("shop:qc", "--output", "no/such/file"), "no/such/file cannot be written: No such file"),
    ):
        code, printed, complaint = shell.finished("asyncapi", *given)
        assert (code, printed) == (2, "")
        assert told in complaint
