"""The move every driver starts with: send, then ack what was accepted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from queuecraft.drivers.base import (
    ACCEPTED,
    Delivery,
    Move,
    Outgoing,
    Receipt,
    Rejected,
    Subscription,
    Unknown,
)
from queuecraft.model.errors import QueueError
from queuecraft.testing import failing
from queuecraft.testing.failpoints import Failed

ERROR = QueueError("no")


class Scripted(Subscription):
    """Answers sends as it is told, and notes what is acked."""

    def __init__(self, *receipts: Receipt) -> None:
        self.receipts = receipts
        self.log: list[tuple[str, list[str]]] = []

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        return ()

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        self.log.append(("ack", [each.sent.id for each in deliveries]))
        return ()

    async def release(self, deliveries: Sequence[Delivery]) -> None: ...

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        self.log.append(("send", [each.id for each in messages]))
        return self.receipts

    async def close(self) -> None: ...


def moves(*ids: str) -> list[Move]:
    return [
        Move(Delivery(Outgoing(b"", id), "here"), Outgoing(b"", id, queue="there")) for id in ids
    ]


async def test_what_was_accepted_is_acked_after_it_was_sent() -> None:
    subscription = Scripted(ACCEPTED, ACCEPTED)
    assert list(await subscription.move(moves("m-1", "m-2"))) == [ACCEPTED, ACCEPTED]
    assert subscription.log == [("send", ["m-1", "m-2"]), ("ack", ["m-1", "m-2"])]


async def test_what_was_not_accepted_is_not_acked() -> None:
    receipts = (Rejected(ERROR), ACCEPTED, Unknown(ERROR))
    subscription = Scripted(*receipts)
    assert tuple(await subscription.move(moves("m-1", "m-2", "m-3"))) == receipts
    assert subscription.log[1:] == [("ack", ["m-2"])]


async def test_when_nothing_was_accepted_nothing_is_acked() -> None:
    subscription = Scripted(Rejected(ERROR))
    await subscription.move(moves("m-1"))
    assert [name for name, _ in subscription.log] == ["send"]


@pytest.fixture(params=["move.after_send", "move.after_ack"])
async def cut(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    name: str = request.param
    with failing(name):
        yield name


async def test_a_cut_may_duplicate_and_never_loses(cut: str) -> None:
    subscription = Scripted(ACCEPTED)
    with pytest.raises(Failed):
        await subscription.move(moves("m-1"))
    done = [name for name, _ in subscription.log]
    assert done == (["send"] if cut == "move.after_send" else ["send", "ack"])
