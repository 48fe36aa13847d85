"""Signs of life and pauses on RabbitMQ: what the broker hears of them, and what it does not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from queuecraft import QueueCraft
from queuecraft.drivers.rabbitmq import RabbitDriver, drivers
from queuecraft.drivers.target import Target
from queuecraft.model.naming import PAUSES
from tests.brokers.management import quoted, vhost_of
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.place import Order, order_placed, running
from tests.rabbitmq.test_declaring import guest_of, names

__all__ = ["guest_of"]


async def nothing(order: Order) -> None: ...


async def opened(url: str) -> RabbitDriver:
    (driver,) = drivers(Target(url))
    await driver.open()
    assert isinstance(driver, RabbitDriver)
    return driver


async def test_an_exchange_that_was_deleted_is_made_again(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    one, other = await opened(rabbitmq_url), await opened(rabbitmq_url)
    try:
        for _ in range(2):
            async with asyncio.timeout(10):
                await other.announced()
                while not (notes := await other.announced() or {}):
                    await one.announce("a1", b"here", ttl=5)
                    await asyncio.sleep(0.02)
            assert notes == {"a1": b"here"}
            await one.announce("a1", b"", ttl=5)
            async with asyncio.timeout(10):
                while await other.announced():  # noqa: ASYNC110  the broker sets no event
                    await asyncio.sleep(0.02)
            await other.close()
            vhost = quoted(vhost_of(rabbitmq_url))
            rabbitmq.management.call("DELETE", f"exchanges/{vhost}/queuecraft.presence")
            await other.open()
    finally:
        await one.close()
        await other.close()


async def test_who_listens_leaves_nothing_behind(rabbitmq: RabbitMQ, rabbitmq_url: str) -> None:
    driver = await opened(rabbitmq_url)
    assert await driver.announced() == {}
    assert [each for each in names(rabbitmq, rabbitmq_url)[1] if each.startswith("amq.gen")]
    await driver.close()
    async with asyncio.timeout(10):
        while names(rabbitmq, rabbitmq_url)[1]:  # noqa: ASYNC110  the broker sets no event
            await asyncio.sleep(0.05)


async def test_who_may_make_nothing_works_unseen_and_is_told_that_pauses_are_not_seen(
    rabbitmq_url: str, guest_of: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.worker("billing").on(order_placed, nothing).declare()
    caplog.set_level(logging.DEBUG, "queuecraft")
    qc = QueueCraft(f"{guest_of}?declare=check", presence=0.05)
    async with qc, running(qc.worker("billing").on(order_placed, nothing)):
        await qc.publish(order_placed, Order("o-1"))
        await asyncio.sleep(0.3)  # several signs of life, of which none is given
        assert qc.get_metrics().messages_succeeded == 1
        assert qc.connection_state == "connected"
    told = [each for each in caplog.records if "pauses are not seen here" in each.getMessage()]
    assert [each.levelname for each in told] == ["WARNING"]
    unseen = [each for each in caplog.records if "no sign of life" in each.getMessage()]
    assert len(unseen) == 1


async def test_pauses_are_no_queue_that_anybody_sees(rabbitmq_url: str) -> None:
    qc = QueueCraft(rabbitmq_url)
    async with qc, running(qc.worker("billing").on(order_placed, nothing)):
        await qc.admin.pause("billing")
        known = {each.name for each in await qc.admin.queues()}
        told = await qc.admin.topology()
    assert known == {"billing", "billing.dlq"}
    assert PAUSES not in told.queues
    assert "queuecraft.presence" not in {each.name for each in told.exchanges}
