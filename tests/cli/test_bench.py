"""`queuecraft bench` and `queuecraft doctor`: what they leave behind, whatever the broker does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queuecraft import ConnectionLost, QueueCraft
from queuecraft.cli import leftover
from queuecraft.cli.bench import Bench, _measured
from queuecraft.cli.doctor.broker import broker
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.testing import FaultyDriver
from tests.cli.shell import Shell


def leaving(monkeypatch: pytest.MonkeyPatch) -> QueueCraft:
    """A broker that takes one message, and is never seen again."""
    driver = FaultyDriver(MemoryDriver(), inline=False)
    send = driver.send

    async def once(*given: Any, **more: Any) -> Any:
        try:
            return await send(*given, **more)
        finally:
            driver.refuse(opens=1_000_000)
            await driver.drop()

    monkeypatch.setattr(driver, "send", once)
    monkeypatch.setattr(leftover, "PATIENCE", 0.2)
    return QueueCraft(drivers=[driver])


def test_each_step_is_a_line_and_nothing_is_left(shell: Shell) -> None:
    shell.declare("billing")
    steps = shell.json("bench", "--messages", "100")
    assert [each["messages"] for each in steps] == [10, 90, 100, 200]
    assert all(each["per_second"] > 0 for each in steps)
    assert [each["name"] for each in shell.json("queues")] == ["billing", "billing.dlq"]


async def test_a_broker_that_goes_away_is_not_measured_nor_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    qc = leaving(monkeypatch)
    plan = Bench(qc, 100, "x", 10, 10)
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionLost):
            await _measured(plan, 0.5)
    assert f"queuecraft delete {plan.queue.name} --yes" in capsys.readouterr().err


async def test_a_doctor_whose_broker_goes_away_says_what_may_be_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    qc = leaving(monkeypatch)
    async with asyncio.timeout(20):
        found = {each.about: each async for each in broker(qc, 0.5, writes=True)}
    assert "rights" not in found or found["rights"].verdict == "failed"
    (left,) = (each for each in found.values() if each.about == "left behind")
    assert left.verdict == "failed"
    assert left.todo.startswith("when the broker is back: queuecraft delete queuecraft.doctor.")
