"""Listening for replies, at an address of one's own."""

from __future__ import annotations

from queuecraft.drivers.base import ACCEPTED, Driver, Outgoing, Subscription
from queuecraft.model.ids import new_id
from queuecraft.model.naming import REPLIES
from queuecraft.testing.conformance.broker import Broker
from queuecraft.testing.conformance.suite import Suite


class ListeningConformance(Suite):
    """What reaches who waits for replies.

    >>> issubclass(ListeningConformance, Suite)
    True
    """

    async def test_a_reply_reaches_who_listens_and_nobody_else(self, broker: Broker) -> None:
        one, other = REPLIES + new_id(), REPLIES + new_id()
        ours = await broker.driver.listen(one, prefetch=10)
        await _replied(broker.driver, one, "r-1", correlation_id="c-1", headers={"x-error": "no"})
        await _replied(broker.driver, one, "r-2")
        got = await self._heard(ours, 2)
        assert [each.id for each in got] == ["r-1", "r-2"]
        assert (got[0].correlation_id, got[0].headers["x-error"]) == ("c-1", "no")
        theirs = await broker.driver.listen(other, prefetch=10)
        await _replied(broker.driver, other, "r-3")
        assert [each.id for each in await self._heard(theirs, 1)] == ["r-3"]
        await ours.close()
        await theirs.close()

    async def test_who_comes_back_listens_at_the_same_address(self, broker: Broker) -> None:
        address = REPLIES + new_id()
        for id in ("r-1", "r-2"):
            subscription = await broker.driver.listen(address, prefetch=10)
            await _replied(broker.driver, address, id)
            assert [each.id for each in await self._heard(subscription, 1)] == [id]
            await broker.driver.close()
            await broker.driver.open()

    async def _heard(self, subscription: Subscription, count: int) -> list[Outgoing]:
        heard: list[Outgoing] = []
        while len(heard) < count:
            got = await subscription.receive(count - len(heard), self.patience)
            assert got, f"{count} replies were sent, and only {len(heard)} came"
            await subscription.ack(got)
            heard += [each.sent for each in got]
        return heard


async def _replied(
    driver: Driver,
    address: str,
    id: str,
    *,
    correlation_id: str | None = None,
    headers: dict[str, str] | None = None,
) -> None:
    reply = Outgoing(
        b"{}",
        id,
        key=address,
        queue=address,
        headers=headers or {},
        persistent=False,
        correlation_id=correlation_id,
    )
    assert list(await driver.send([reply])) == [ACCEPTED]
