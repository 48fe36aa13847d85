"""A trace goes through every broker."""

from __future__ import annotations

from itertools import pairwise

from queuecraft import Event, Message, QueueCraft, Retry
from tests.features.life import running, until
from tests.observers.otel.recorded import Recorded, context_of, labels_of, parent_of, trace_of

placed, paid = Event("order.placed", int), Event("order.paid", int)


async def test_publish_and_handler_and_what_that_publishes_are_one_trace(url: str) -> None:
    recorded = Recorded()
    async with QueueCraft(url) as qc:
        recorded.telemetry.attach(qc)
        billing = qc.worker("billing", retry=Retry(max_retries=1, initial_delay=0.01))
        shipping = qc.worker("shipping")

        @billing.on(placed)
        async def charge(n: int, message: Message[int]) -> None:
            if message.attempt == 1:
                raise ValueError("no money")
            await qc.publish(paid, n)

        shipping.on(paid, lambda n: None)
        async with running(billing, shipping):
            await qc.publish(placed, 1)
            await until(lambda: recorded.named("process shipping"))

    first, second = recorded.named("process billing")
    chain = [recorded.named("send order.placed")[0], second]
    chain += recorded.named("send order.paid") + recorded.named("process shipping")
    for before, after in pairwise(chain):
        assert parent_of(after) == context_of(before).span_id, after.name
    assert parent_of(first) == parent_of(second)
    assert "retry" in [event.name for event in first.events]
    assert {trace_of(each) for each in recorded.spans} == {trace_of(first)}
    systems = {"local": "queuecraft", "amqp": "rabbitmq"}
    scheme = url.partition(":")[0]
    assert labels_of(first)["messaging.system"] == systems.get(scheme, scheme)
    assert ("server.address" in labels_of(first)) is not url.startswith("local")
