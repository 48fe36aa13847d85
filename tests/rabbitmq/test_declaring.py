"""What is made on the broker, what is only looked for, and what is said when it is not so."""

from __future__ import annotations

from collections.abc import Iterator
from secrets import token_hex
from urllib.parse import urlsplit

import pytest

from queuecraft import (
    DeadLetter,
    Exchange,
    NoRetry,
    Queue,
    QueueCraft,
    QueueError,
    Retry,
    TopologyMismatch,
    Worker,
)
from queuecraft.drivers.rabbitmq import RabbitDriver, drivers
from queuecraft.drivers.target import Target
from queuecraft.facts import Disconnected
from queuecraft.testing import Ledger
from tests.brokers.management import quoted, vhost_of
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.place import AT_ONCE, Order, order_placed, running, until, until_ready


def names(rabbitmq: RabbitMQ, url: str) -> tuple[set[str], set[str]]:
    """The exchanges and the queues there are."""
    management = rabbitmq.management
    return (
        {each["name"] for each in management.exchanges(url)},
        {each["name"] for each in management.queues(url)},
    )


async def handles(qc: QueueCraft) -> None:
    """Publish one order, and see it handled after a retry."""
    seen = Ledger()
    billing = qc.worker("billing", retry=AT_ONCE)
    billing.on(order_placed, seen.failing("billing", times=1))
    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(billing=2)


# -- assert ----------------------------------------------------------------------------------------


async def test_what_is_made_by_hand_without_dead_letters_or_for_them_lets_nothing_expire(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    async with QueueCraft(rabbitmq_url, ttl=3600) as qc:
        billing = qc.worker("billing", dead_letter=DeadLetter(queue="graveyard"))
        billing.on(order_placed, Ledger().recording("billing"))
        await qc.admin.declare("tap", "order.*", dead_letters=False)
        await qc.admin.declare("graveyard")
        async with running(billing):
            pass
    for name in ("tap", "graveyard"):
        assert "x-message-ttl" not in rabbitmq.management.queue(rabbitmq_url, name)["arguments"]


async def test_a_queue_made_by_hand_suits_a_worker_with_the_same_settings(
    rabbitmq_url: str,
) -> None:
    async with QueueCraft(rabbitmq_url, ttl=3600) as qc:
        await qc.admin.declare("billing", "order.placed")
    await handles(QueueCraft(rabbitmq_url, ttl=3600))


async def test_a_worker_makes_all_it_needs(rabbitmq: RabbitMQ, rabbitmq_url: str) -> None:
    await handles(QueueCraft(rabbitmq_url, ttl=3600))
    exchanges, queues = names(rabbitmq, rabbitmq_url)
    delays = {"qc.delay.due", "qc.delay.00", "qc.undelivered"}
    assert exchanges == {"events", "events.dlx", "queuecraft.presence"} | delays
    ours = {"qc.delay.00", "qc.undelivered.dlq", "queuecraft.pauses"}
    assert queues == {"billing", "billing.dlq"} | ours
    billing = rabbitmq.management.queue(rabbitmq_url, "billing")
    assert billing["durable"]
    assert billing["arguments"] == {
        "x-dead-letter-exchange": "events.dlx",
        "x-dead-letter-routing-key": "billing.dlq",
        "x-message-ttl": 3_600_000,
    }
    found = rabbitmq.management.bindings(rabbitmq_url)
    bound = {(each["source"], each["routing_key"], each["destination"]) for each in found}
    assert ("events", "order.placed", "billing") in bound
    assert ("events.dlx", "billing.dlq", "billing.dlq") in bound


@pytest.mark.parametrize(
    ("made", "wanted", "told"),
    [
        (
            Queue("billing", arguments={"x-message-ttl": 60000}),
            Queue("billing"),
            "queue 'billing' exists with x-message-ttl='60000', and none was asked for",
        ),
        (
            Queue("billing"),
            Queue("billing", max_priority=5),
            "queue 'billing' exists with x-max-priority=none, and '5' was asked for",
        ),
        (
            Queue("billing", durable=False),
            Queue("billing"),
            "queue 'billing' exists with durable='false', and 'true' was asked for",
        ),
        (
            Queue("it's", arguments={"x-queue-type": "quorum"}),
            Queue("it's"),
            """queue 'it's' exists with x-queue-type='quorum', and none was asked for""",
        ),
    ],
)
async def test_a_queue_that_is_otherwise_is_told_with_both_values_and_what_to_do(
    rabbitmq_url: str, made: Queue, wanted: Queue, told: str
) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare(made, dead_letters=False)
        with pytest.raises(TopologyMismatch) as caught:
            await qc.admin.declare(wanted, dead_letters=False)
        assert told in str(caught.value)
        assert "ask for the same, or delete it on the broker" in str(caught.value)
        assert caught.value.queue == made.name
        assert qc.connection_state == "connected"


async def test_an_exchange_that_is_otherwise_is_told_the_same_way(rabbitmq_url: str) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare_exchange(Exchange("events", "direct"))
        with pytest.raises(TopologyMismatch, match="exists with type='direct', and 'topic' was"):
            await qc.publish(order_placed, Order("o-1"))
        assert qc.connection_state == "connected"


async def test_what_no_broker_can_make_is_told_in_its_words(rabbitmq_url: str) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        odd = Queue("billing", arguments={"x-queue-type": "nonsense"})
        with pytest.raises(TopologyMismatch, match="unsupported queue type 'nonsense'"):
            await qc.admin.declare(odd)
        assert qc.connection_state == "connected"


# -- check -----------------------------------------------------------------------------------------


async def test_check_works_with_what_is_there_and_changes_nothing(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    await handles(QueueCraft(rabbitmq_url))
    before = rabbitmq.management.bindings(rabbitmq_url)
    await handles(QueueCraft(f"{rabbitmq_url}?declare=check"))
    assert rabbitmq.management.bindings(rabbitmq_url) == before


async def test_check_makes_nothing_and_says_what_is_missing(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    qc = QueueCraft(f"{rabbitmq_url}?declare=check")
    qc.worker("billing").on("order.*", Ledger().recording("billing"))
    with pytest.raises(
        TopologyMismatch, match=r"no exchange .*; make it first, or .*declare=assert"
    ):
        async with qc:
            raise AssertionError("there is nothing")
    assert names(rabbitmq, rabbitmq_url) == (set(), set())


async def test_check_names_a_queue_that_is_missing(rabbitmq_url: str) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare("audit", "order.*")
    async with QueueCraft(f"{rabbitmq_url}?declare=check") as qc:
        with pytest.raises(TopologyMismatch, match="no queue 'billing'") as caught:
            await qc.admin.declare("billing", "order.*", dead_letters=False)
        assert caught.value.queue == "billing"
        assert qc.connection_state == "connected"


async def test_check_says_which_level_of_delay_is_missing(rabbitmq_url: str) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare("billing", "order.*")
    async with QueueCraft(f"{rabbitmq_url}?declare=check") as qc:
        await qc.publish(order_placed, Order("o-1"))
        with pytest.raises(QueueError, match=r"no exchange 'qc\.undelivered'"):
            await qc.publish(order_placed, Order("o-2"), delay=0.5)
        await qc.publish(order_placed, Order("o-3"))
        assert (await qc.admin.inspect("billing")).ready == 2


async def test_a_retry_that_has_no_level_of_delay_to_wait_in_becomes_a_dead_letter(
    rabbitmq_url: str,
) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url)
    async with qc, running(qc.worker("billing").on(order_placed, seen.recording("billing"))):
        pass
    lost: list[Disconnected] = []
    qc = QueueCraft(f"{rabbitmq_url}?declare=check")
    qc.observe(Disconnected, lost.append)
    worker = qc.worker("billing", retry=Retry(max_retries=3, initial_delay=1, jitter=0))
    worker.on(order_placed, seen.failing("billing"))
    async with qc, running(worker):
        await qc.publish(order_placed, Order("o-1"))
        await until_ready(qc, "billing.dlq", 1)
        (letter,) = await qc.dead_letters.list("billing")
        assert (letter.reason, letter.error_type) == ("handler-error", "RuntimeError")
    assert seen.payloads() == [Order("o-1")]
    assert lost == []


# -- skip ------------------------------------------------------------------------------------------


async def test_skip_trusts_that_everything_is_there(rabbitmq_url: str) -> None:
    await handles(QueueCraft(rabbitmq_url))
    await handles(QueueCraft(f"{rabbitmq_url}?declare=skip"))


async def test_skip_makes_nothing_and_a_publish_to_nowhere_fails(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    async with QueueCraft(f"{rabbitmq_url}?declare=skip", publish_timeout=1) as qc:
        with pytest.raises(QueueError, match="events"):
            await qc.publish(order_placed, Order("o-1"))
    assert names(rabbitmq, rabbitmq_url) == (set(), set())


# -- permissions -----------------------------------------------------------------------------------


@pytest.fixture
def guest_of(rabbitmq: RabbitMQ, rabbitmq_url: str) -> Iterator[str]:
    """A URL for a user who may read and write everything, and make nothing."""
    name = f"reader-{token_hex(4)}"
    rabbitmq.management.call("PUT", f"users/{name}", {"password": "secret", "tags": ""})
    rights = {"configure": "^$", "write": ".*", "read": ".*"}
    vhost = quoted(vhost_of(rabbitmq_url))
    rabbitmq.management.call("PUT", f"permissions/{vhost}/{name}", rights)
    parts = urlsplit(rabbitmq_url)
    yield f"amqp://{name}:secret@{parts.hostname}:{parts.port}{parts.path}"
    rabbitmq.management.call("DELETE", f"users/{name}")


async def test_who_may_not_make_a_queue_is_told_so_and_stays_connected(guest_of: str) -> None:
    async with QueueCraft(guest_of) as qc:
        with pytest.raises(QueueError, match=r"refused for user 'reader-.*; give the user that"):
            await qc.admin.declare("billing", "order.*")
        assert qc.connection_state == "connected"


async def test_who_may_make_nothing_works_with_what_others_made(
    rabbitmq_url: str, guest_of: str
) -> None:
    await handles(QueueCraft(rabbitmq_url))
    await handles(QueueCraft(f"{guest_of}?declare=check"))


async def test_who_may_not_delete_a_queue_is_told_so_and_stays_connected(
    rabbitmq_url: str, guest_of: str
) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare("billing")
    async with QueueCraft(f"{guest_of}?declare=check") as qc:
        with pytest.raises(QueueError, match="access to queue 'billing'"):
            await qc.admin.delete("billing")
        assert qc.connection_state == "connected"


# -- what is another's -----------------------------------------------------------------------------


async def test_a_queue_that_is_another_connections_own_is_seen_and_not_touched(
    rabbitmq_url: str,
) -> None:
    private = Queue("private", durable=False, exclusive=True)
    async with QueueCraft(rabbitmq_url) as one, QueueCraft(rabbitmq_url) as other:
        await one.admin.declare(private, dead_letters=False)
        assert (await other.admin.inspect("private")).ready is None
        with pytest.raises(QueueError, match="another connection's own"):
            await other.admin.purge("private")
        with pytest.raises(TopologyMismatch, match="another connection's own"):
            await other.admin.declare(private, dead_letters=False)
        assert other.connection_state == "connected"
        assert (await one.admin.inspect("private")).ready == 0


async def test_a_binding_asked_for_by_hand_is_made_even_where_nothing_is_declared(
    rabbitmq_url: str,
) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare("billing", "order.paid")
    async with QueueCraft(f"{rabbitmq_url}?declare=check") as qc:
        await qc.admin.bind("billing", "order.placed")
        await qc.publish(order_placed, Order("o-1"))
        await until_ready(qc, "billing", 1)


async def test_a_failed_declaration_leaves_no_channel_behind(rabbitmq_url: str) -> None:
    (driver,) = drivers(Target(rabbitmq_url))
    assert isinstance(driver, RabbitDriver)
    await driver.open()
    try:
        await driver.declare(Queue("billing"))
        for _ in range(50):
            with pytest.raises(TopologyMismatch):
                await driver.declare(Queue("billing", max_priority=3))
        assert driver._consuming is not None
        assert not driver._consuming._channels
    finally:
        await driver.close()


async def test_a_dead_letter_without_retry_needs_no_level_of_delay(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url, retry=NoRetry())
    billing = qc.worker("billing").on(order_placed, seen.failing("billing", times=None))
    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-1"))
        await until_ready(qc, "billing.dlq", 1)
    assert "qc.delay.00" not in names(rabbitmq, rabbitmq_url)[1]


# -- queues of dead letters ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("ttl", [None, 3600])
@pytest.mark.parametrize("name", ["billing.dlq", "graveyard"])
@pytest.mark.parametrize("dead_first", [True, False])
async def test_a_queue_of_dead_letters_has_a_worker_and_dead_letters_of_its_own(
    rabbitmq: RabbitMQ, rabbitmq_url: str, dead_first: bool, name: str, ttl: float | None, kind: str
) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url, retry=NoRetry(), ttl=ttl)

    def billing() -> Worker:
        queue = Queue("billing", arguments={"x-queue-type": kind})
        worker = qc.worker(queue, dead_letter=DeadLetter(queue=name))
        return worker.on(order_placed, seen.failing("billing", times=None))

    def undertaker() -> Worker:
        return qc.worker(name).on(order_placed, seen.failing("undertaker", times=None))

    workers = [make() for make in (undertaker, billing)[:: 1 if dead_first else -1]]
    async with qc, running(*workers):
        id = await qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(billing=1, undertaker=1)
        await until(lambda: qc.admin.inspect(name), lambda info: info.dead == 1)
        (letter,) = await qc.dead_letters.list(f"{name}.dlq")
        assert (letter.id, letter.queue, letter.event) == (id, name, "order.placed")
    assert rabbitmq.management.queue(rabbitmq_url, name)["arguments"] == {}
    assert rabbitmq.management.queue(rabbitmq_url, "billing")["arguments"].keys() == {
        *("x-queue-type", "x-dead-letter-exchange", "x-dead-letter-routing-key"),
        *(["x-message-ttl"] if ttl else []),
    }


@pytest.mark.parametrize("undertaker_first", [True, False])
async def test_dead_letters_are_handled_in_a_process_of_their_own(
    rabbitmq_url: str, undertaker_first: bool
) -> None:
    seen = Ledger()
    one = QueueCraft(rabbitmq_url, retry=NoRetry(), ttl=3600)
    other = QueueCraft(rabbitmq_url, retry=NoRetry(), ttl=3600)
    billing = one.worker("billing").on(order_placed, seen.failing("billing", times=None))
    undertaker = other.worker("billing.dlq").on(order_placed, seen.recording("undertaker"))
    first, second = (other, one) if undertaker_first else (one, other)
    async with first, second, running(billing, undertaker):
        await one.publish(order_placed, Order("o-1"))
        await seen.wait_for(billing=1, undertaker=1)
