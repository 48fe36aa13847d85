"""What RabbitMQ dead-letters by itself, and what comes round by somebody else's retries."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import DeadMessage, Filter, Message, NoRetry, Queue, QueueCraft
from queuecraft.codec.headers import strip_broker_owned
from queuecraft.drivers.rabbitmq.deaths import retold
from queuecraft.testing import Ledger
from tests.brokers.management import quoted, vhost_of
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.place import Order, order_placed, running, until_ready


async def test_what_does_not_fit_into_a_queue_any_more_is_a_dead_letter_with_a_story(
    rabbitmq_url: str,
) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare(Queue("billing", arguments={"x-max-length": 1}), "order.*")
        first = await qc.publish(order_placed, Order("o-1"), headers={"shop": "eu"})
        await qc.publish(order_placed, Order("o-2"))
        await until_ready(qc, "billing.dlq", 1)
        (letter,) = await qc.dead_letters.list("billing")
    assert (letter.id, letter.queue, letter.event) == (first, "billing", "order.placed")
    assert (letter.reason, letter.headers) == ("queue-full", {"shop": "eu"})
    assert letter.failed_at is not None


async def test_what_was_delayed_and_then_expired_tells_its_event_and_nothing_of_the_delay(
    rabbitmq_url: str,
) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare(Queue("billing", arguments={"x-message-ttl": 10}), "order.*")
        await qc.publish(order_placed, Order("o-1"), delay=0.3)
        await until_ready(qc, "billing.dlq", 1)
        (letter,) = await qc.dead_letters.list("billing")
    assert (letter.queue, letter.event, letter.reason) == ("billing", "order.placed", "expired")
    assert letter.headers == {}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_what_came_without_an_id_and_expired_is_deleted_when_it_was_counted(
    kind: str, rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    path = f"exchanges/{quoted(vhost_of(rabbitmq_url))}/amq.default/publish"
    foreign = {"properties": {}, "payload": "{}", "payload_encoding": "string"}
    chosen: list[DeadMessage] = []
    async with QueueCraft(rabbitmq_url) as qc:
        arguments = {"x-queue-type": kind}
        await qc.admin.declare(Queue("billing.dlq", arguments=arguments), dead_letters=False)
        ttl = {"x-message-ttl": 10, "x-dead-letter-exchange": ""}
        back = {**ttl, "x-dead-letter-routing-key": "billing.dlq"}
        await qc.admin.declare(Queue("billing", arguments=back), dead_letters=False)
        for _ in range(2):
            rabbitmq.management.call("POST", path, {**foreign, "routing_key": "billing"})
        await until_ready(qc, "billing.dlq", 2)
        engine = qc.dead_letters
        where = Filter(reason="expired")
        plan = await engine.delete("billing", where=where, dry_run=True, on_chosen=chosen.append)
        await until_ready(qc, "billing.dlq", 2)
        counted = Filter(deaths=frozenset(each.death for each in chosen))
        done = await engine.delete("billing", where=counted, limit=plan.moved)
    assert (plan.moved, done.moved, done.stopped) == (2, 2, None)


async def test_a_handler_sees_nothing_of_the_levels_of_delay(rabbitmq_url: str) -> None:
    seen = Ledger()
    got: list[dict[str, Any]] = []
    qc = QueueCraft(rabbitmq_url)
    billing = qc.worker("billing")

    @billing.on(order_placed)
    async def charge(order: Order, message: Message[Order]) -> None:
        got.append(dict(message.headers))
        seen.record("billing", message)

    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-1"), delay=0.3, headers={"shop": "eu"})
        await seen.wait_for(billing=1)
    assert got == [{"shop": "eu"}]


async def test_what_comes_round_by_a_retry_of_somebody_else_counts_its_rejections(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    """A usual arrangement: rejected messages wait in a queue with a time to live, and come back."""
    seen = Ledger()
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.wait"}
    wait = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "billing",
        "x-message-ttl": 10,
    }
    async with QueueCraft(rabbitmq_url, retry=NoRetry()) as qc:
        await qc.admin.declare(Queue("billing", arguments=back), dead_letters=False)
        await qc.admin.declare(Queue("billing.wait", arguments=wait), dead_letters=False)
        await qc.send("billing", {"id": "o-1"})
        for _ in range(2):
            await until_ready(qc, "billing", 1)
            asked = {"count": 1, "ackmode": "reject_requeue_false", "encoding": "auto"}
            path = f"queues/{quoted(vhost_of(rabbitmq_url))}/billing/get"
            rabbitmq.management.call("POST", path, asked)
        await until_ready(qc, "billing", 1)
    async with QueueCraft(f"{rabbitmq_url}?declare=skip") as qc:
        billing = qc.worker("billing").on("#", seen.recording("billing"))
        async with running(billing):
            await seen.wait_for(billing=1)
    assert seen.attempts("billing") == [3]


# -- anyone may have written it --------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)
note = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.sampled_from(["billing", "other", "qc.delay.01"]) | anything,
        "reason": st.sampled_from(["expired", "rejected", "maxlen"]) | anything,
        "count": anything,
        "time": anything,
        "routing-keys": anything,
    },
)


@given(deaths=st.lists(note, max_size=4) | anything, queue=st.sampled_from(["billing", "dead"]))
def test_whatever_is_written_there_the_rest_of_the_headers_stays(deaths: Any, queue: str) -> None:
    told = retold({"x-death": deaths, "tenant": "t1", "x-first-death-queue": "q"}, queue)
    assert told["tenant"] == "t1"
    ours = {name: value for name, value in strip_broker_owned(told).items() if name != "tenant"}
    for name, value in ours.items():
        assert isinstance(value, str | int), name
    assert 0 <= ours.get("x-retry-count", 0) <= 1_000_000


@pytest.mark.parametrize("when", [-1, 2**62, "now", None, True])
def test_a_time_that_cannot_be_is_left_out(when: object) -> None:
    death = {"queue": "billing", "reason": "expired", "time": when}
    assert retold({"x-death": [death]}, "dead").get("x-failed-at", 0) in (0, 1000)


def test_what_a_worker_wrote_goes_before_what_the_broker_notes() -> None:
    death = {"queue": "parked", "reason": "expired", "time": int(time.time())}
    told = retold({"x-death": [death], "x-original-queue": "billing"}, "dead")
    assert told == {"x-original-queue": "billing"}
