"""What others put into our queues is handled or kept as a dead letter, and never ends a worker."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pytest

from queuecraft import Message, QueueCraft, Retry
from queuecraft.drivers.redis.envelope import AGAIN, OURS, encode
from queuecraft.model.envelope import Outgoing
from tests.brokers.redis import Redis
from tests.faults.rabbitmq.handlers import Seen, at_work
from tests.faults.rabbitmq.test_foreign import ODD_HEADERS, settled
from tests.faults.scene import Broker

BODIES: Final = (b'{"id": 1}', bytes(range(256)), b"", b"hello", b"[" * 5000, b"\xff" * 70_000)

SPOILT: Final = 300  # messages of ours with a byte or two that are not


def odd_values(chance: random.Random) -> list[bytes]:
    """Whatever may lie in a list."""
    sound = [
        encode(Outgoing(b'{"id": 1}', f"m-{n}", "events", "order.placed", headers=dict(headers)))
        for n, headers in enumerate(ODD_HEADERS.values())
    ]
    values = [*BODIES, *sound]
    values += [OURS, OURS + b"\xc1", OURS + b"\x90", OURS + msgspec.msgpack.encode({"id": 5})]
    values += [AGAIN, AGAIN + b"zzzzzzzz00", AGAIN + b"0000000105ab", AGAIN + b"ffffffff00" + OURS]
    values += [AGAIN + b"0000000100" + each for each in values]
    for _ in range(SPOILT):
        value = bytearray(chance.choice(sound))
        for _ in range(chance.randint(1, 3)):
            value[chance.randrange(len(value))] = chance.randrange(256)
        values.append(bytes(value[: chance.randint(1, len(value))]))
    return values


def commands(mode: str, base: str, values: Sequence[bytes]) -> list[tuple[str | bytes, ...]]:
    """Each value put into the queue; into a stream also among fields of any kind."""
    if mode == "list":
        return [("RPUSH", f"{base}queue:billing", each) for each in values]
    key = f"{base}stream:billing"
    entries: list[tuple[str | bytes, ...]] = [("XADD", key, "*", "m", each) for each in values]
    entries += [("XADD", key, "*", each[:50], "a", "b", each) for each in values[:60]]
    return entries


@pytest.mark.parametrize("handles", ["dict", "bytes"])
async def test_whatever_strangers_put_there_is_handled_or_kept_and_the_worker_goes_on(
    broker: Broker, redis: Redis, mode: str, handles: str, chance: random.Random
) -> None:
    found = re.search("prefix=([^&]+)", broker.url)
    assert found is not None
    put = commands(mode, f"{{{found[1]}}}:", odd_values(chance))
    seen = Seen()

    async def of_dict(payload: dict[str, Any], message: Message) -> None:
        await seen(payload, message)

    async def of_bytes(payload: bytes, message: Message) -> None:
        await seen(payload, message)

    async with QueueCraft(broker.url) as qc:
        retry = Retry(max_retries=1, initial_delay=0.05)
        worker = qc.worker("billing", retry=retry, concurrency=4, prefetch=20)
        worker.on("order.*", of_dict if handles == "dict" else of_bytes)
        await worker.declare()
        for command in put:
            redis.call(*command)
        async with at_work(worker):
            await qc.publish("order.placed", {"id": 99})
            await settled(qc, seen, len(put) + 1)
            assert worker.state == "running"
        left = await qc.admin.inspect("billing")
        kept = await qc.dead_letters.list("billing", limit=10_000)

    assert len(seen.messages) + len(kept) == len(put) + 1
    assert (left.ready, left.in_flight, left.delayed) == (0, 0, 0)
    # What was made of a message of ours by chance may say anything, that it is over as well.
    reasons = {"invalid-payload", "crash-loop", "no-handler", "expired"}
    assert {each.reason for each in kept} <= reasons
