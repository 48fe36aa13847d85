"""Delayed events whose exchange cannot be made: they wait alone, all others go on."""

from __future__ import annotations

from typing import Any

import pytest

from queuecraft import Event, Exchange, QueueCraft
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.facts import DelayedRefused
from queuecraft.testing import FakeClock
from tests.runtime.delayed.conftest import Make
from tests.runtime.delayed.looking import ids, noted, waiting

order_placed = Event("order.placed", dict)
mistaken = Event("order.placed", dict, exchange=Exchange("events", "fanout"))
strange = Event("order.placed", dict, exchange=Exchange("odd", arguments={"x": 2**63}))

pytestmark = pytest.mark.parametrize("url", ["memory"], indirect=True)  # in two steps


@pytest.fixture
def prepares(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The exchanges that were asked for; one whose arguments are strange cannot be made."""
    asked: list[str] = []
    prepare = MemoryDriver.prepare

    async def preparing(self: MemoryDriver, exchanges: Any) -> None:
        asked.extend(each.name for each in exchanges)
        if any(each.arguments for each in exchanges):
            raise OverflowError("int too big to convert")
        await prepare(self, exchanges)

    monkeypatch.setattr(MemoryDriver, "prepare", preparing)
    return asked


async def fill(qc: QueueCraft, bad: Event[Any]) -> None:
    await qc.delayed.add(order_placed, {}, delay=1, message_id="m-1")
    await qc.delayed.add(bad, {}, delay=1, message_id="m-2")
    await qc.delayed.add(order_placed, {}, delay=1, message_id="m-3")


@pytest.mark.parametrize(
    ("bad", "why"), [(mistaken, "exchange 'events'"), (strange, "OverflowError")]
)
async def test_an_exchange_that_cannot_be_made_fails_its_messages_alone(
    qc: QueueCraft, clock: FakeClock, prepares: list[str], bad: Event[Any], why: str
) -> None:
    refused = noted(qc, DelayedRefused)
    await fill(qc, bad)
    async with qc.delayed.running():
        await clock.advance(1)
        assert await ids(qc) == ["m-1", "m-3"]
        (found,) = await qc.delayed.list()
        assert (found.id, found.failures) == ("m-2", 1)
        assert [each.count for each in refused] == [1]
        assert why in refused[0].error

        await clock.advance(30)
        assert len(refused) == 5  # after 1, 2, 4, 8 and 16 seconds


async def test_a_cleanup_delivers_all_but_those_whose_exchange_cannot_be_made(
    qc: QueueCraft, clock: FakeClock
) -> None:
    await fill(qc, mistaken)
    await clock.advance(100)
    result = await qc.delayed.cleanup()
    assert (result.cleaned, result.refused, await waiting(qc)) == (2, 1, ["m-2"])


async def test_dead_letters_need_no_exchange(
    make: Make, clock: FakeClock, prepares: list[str]
) -> None:
    qc = await make(policy="dead_letter")
    await fill(qc, strange)
    await clock.advance(100)
    assert (await qc.delayed.cleanup()).cleaned == 3
    assert "odd" not in prepares
    assert await waiting(qc) == []
