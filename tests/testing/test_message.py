"""Messages for tests of a single handler."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from queuecraft.model.errors import AlreadySettled
from queuecraft.model.message import Message
from queuecraft.testing import message_of


@dataclass
class Order:
    id: str


async def test_a_handler_can_be_called_without_a_broker() -> None:
    async def charge(order: Order, message: Message[Order]) -> None:
        if message.attempt == 2:
            await message.retry(delay=60)

    first, second = message_of(Order("o-1")), message_of(Order("o-1"), attempt=2)
    for message in (first, second):
        await charge(message.payload, message)
    assert first.settled is None
    assert second.settled == "retry"


def test_everything_about_it_can_be_said() -> None:
    message = message_of(
        Order("o-1"),
        routing_key="order.placed",
        headers={"tenant": "acme"},
        attempt=3,
        redeliveries=2,
        queue="billing",
        id="m-7",
        key="k",
    )
    assert message.payload == Order("o-1")
    assert message.routing_key == "order.placed"
    assert message.headers == {"tenant": "acme"}
    assert (message.attempt, message.redeliveries) == (3, 2)
    assert (message.queue, message.id, message.key) == ("billing", "m-7", "k")


@pytest.mark.parametrize(
    ("settle", "name", "arguments"),
    [
        (lambda m: m.ack(), "ack", {}),
        (lambda m: m.nack(), "nack", {"requeue": True, "reason": "nack"}),
        (lambda m: m.requeue(), "requeue", {}),
        (lambda m: m.retry(), "retry", {"delay": None}),
        (lambda m: m.dead_letter("why"), "dead_letter", {"reason": "why"}),
    ],
)
async def test_each_way_of_settling_is_remembered_and_works_once(
    settle, name: str, arguments: dict[str, object]
) -> None:
    message = message_of(None)
    message.extend(5)
    await settle(message)
    assert message.settled == name
    assert message.calls == [("extend", {"seconds": 5}), (name, arguments)]
    with pytest.raises(AlreadySettled, match="m-1"):
        await message.ack()


def test_settling_takes_effect_without_being_awaited() -> None:
    message = message_of(None)
    _ = message.ack()
    assert message.settled == "ack"
