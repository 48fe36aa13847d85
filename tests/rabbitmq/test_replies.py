"""Queues of replies on RabbitMQ: gone by themselves, and made however queues are declared."""

from __future__ import annotations

import pytest

from queuecraft import QueueCraft
from queuecraft.drivers.base import Outgoing, Rejected
from queuecraft.drivers.rabbitmq import RabbitDriver, drivers
from queuecraft.drivers.rabbitmq.driver import LISTENED
from queuecraft.drivers.target import Target
from tests.rabbitmq.place import Order, order_placed, running, until


async def test_a_queue_of_replies_goes_a_while_after_nobody_listens(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LISTENED, "x-expires", 300)
    driver = drivers(Target(rabbitmq_url))[0]
    assert isinstance(driver, RabbitDriver)
    await driver.open()
    try:
        await (await driver.listen("qc.reply.a", prefetch=10)).close()
        reply = Outgoing(b"{}", "r-1", queue="qc.reply.a")
        await until(lambda: driver.send([reply]), lambda got: isinstance(got[0], Rejected))
    finally:
        await driver.close()


@pytest.mark.parametrize("declare", ["check", "skip"])
async def test_requests_need_nothing_declared_beforehand(rabbitmq_url: str, declare: str) -> None:
    qc = QueueCraft(rabbitmq_url)
    billing = qc.worker("billing")

    @billing.on(order_placed)
    async def total(order: Order) -> float:
        return order.total

    async with qc, running(billing), QueueCraft(f"{rabbitmq_url}?declare={declare}") as caller:
        assert await caller.request(order_placed, Order("o-1", 4.5), float) == 4.5
