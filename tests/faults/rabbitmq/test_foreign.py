"""What others put into our queues is handled or kept as a dead letter, and never ends a worker."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pytest

from queuecraft import Message, QueueCraft, Retry
from queuecraft.drivers.rabbitmq.confirms import TAKEN, Parcel, Publishing
from queuecraft.drivers.rabbitmq.frames import Properties, pack
from queuecraft.drivers.rabbitmq.login import log_in
from queuecraft.model.credentials import Credentials
from tests.brokers.fixtures import do_without
from tests.brokers.installation import Program, Unavailable, ensure
from tests.brokers.management import vhost_of
from tests.faults.rabbitmq.handlers import Seen, at_work, until

AMQP_PUBLISH: Final = Program("amqp-publish", "amqp-tools")

ODD_HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "counters that are none": {"x-retry-count": "many", "x-redeliveries": -5},
    "counters of the wrong type": {"x-retry-count": [1], "x-redeliveries": {"a": 1}},
    "counters without end": {"x-retry-count": 2**62, "x-redeliveries": 2**62},
    "times that are none": {"x-due-at": "soon", "x-expires-at": b"\xff", "x-published-at": []},
    "times out of bounds": {"x-due-at": 2**62, "x-published-at": -(2**62)},
    "an event that is none": {"x-event": 7, "x-key": {"a": 1}},
    "a policy that is none": {"x-retry": "{", "x-replay-id": b"\x00"},
    "a story of its own": {"x-death": "no", "x-reason": 1, "x-original-queue": 2},
    "a death that never was": {
        "x-death": [{"queue": "elsewhere", "reason": "expired", "count": 3}],
        "x-delivery-count": "seven",
    },
    "tables in tables": {"nested": {"a": [{"b": [True, None, 1.5, b"\x00"]}]}},
    "a trace that is none": {"traceparent": b"\xff\xfe", "tracestate": 3},
    "names of any kind": {"": "empty", "a" * 200: "long", "ümläut": "ü"},
}

ODD_PROPERTIES: Final[Mapping[str, Properties]] = {
    "nothing at all": Properties(),
    "an encoding nobody knows": Properties(content_encoding="rot13"),
    "a type nobody knows": Properties(content_type="application/x-unknown"),
    "a body that is not what it says": Properties(content_encoding="gzip"),
    "an id that was used before": Properties(message_id="m-1"),
    "a reply to somewhere": Properties(reply_to="nowhere", correlation_id="c"),
    "priority out of range": Properties(priority=255),
}

BODIES: Final = {"json": b'{"id": 1}', "binary": bytes(range(256)), "empty": b"", "text": b"hello"}

PARCELS: Final = {
    **{
        f"{what}, {kind}": ("", "billing", properties.message_id, pack(properties), body)
        for what, properties in ODD_PROPERTIES.items()
        for kind, body in BODIES.items()
    },
    **{
        f"{what}, {kind}": ("events", "order.placed", None, pack(Properties(headers=headers)), body)
        for what, headers in ODD_HEADERS.items()
        for kind, body in BODIES.items()
    },
}


async def post(url: str, *parcels: Parcel) -> None:
    """Publish as they are, by nothing but the protocol."""
    parts = urlsplit(url)
    wire = await log_in(
        parts.hostname or "",
        parts.port or 0,
        virtual_host=vhost_of(url),
        credentials=Credentials(unquote(parts.username or ""), unquote(parts.password or "")),
        heartbeat=30,
        ssl=None,
        name="a stranger",
    )
    channel = Publishing(wire)
    await channel.open()
    flight = await channel.publish(parcels)
    await wire.close()
    assert set(flight.states) == {TAKEN}, flight.error


@pytest.mark.parametrize("handles", ["dict", "bytes"])
async def test_whatever_strangers_publish_is_handled_or_kept_and_the_worker_goes_on(
    rabbitmq_url: str, handles: str
) -> None:
    seen = Seen()

    async def of_dict(payload: dict[str, int], message: Message) -> None:
        await seen(payload, message)

    async def of_bytes(payload: bytes, message: Message) -> None:
        await seen(payload, message)

    handler = of_dict if handles == "dict" else of_bytes
    async with QueueCraft(rabbitmq_url) as qc:
        retry = Retry(max_retries=1, initial_delay=0.05)
        worker = qc.worker("billing", retry=retry, concurrency=4, prefetch=20)
        worker.on("order.*", handler)
        await worker.declare()
        await post(rabbitmq_url, *PARCELS.values())
        async with at_work(worker):
            await qc.publish("order.placed", {"id": 99})
            await settled(qc, seen, len(PARCELS) + 1)
            assert worker.state == "running"
        kept = await qc.dead_letters.list("billing", limit=1000)
        ready = (await qc.admin.inspect("billing")).ready

    assert len(seen.messages) + len(kept) == len(PARCELS) + 1
    assert ready == 0
    # A counter without end stands for a message that has been tried often enough.
    assert {each.reason for each in kept} <= {"invalid-payload", "crash-loop"}
    if handles == "dict":
        assert len(seen.messages) >= len(PARCELS) // len(BODIES) // 2


async def test_a_message_of_another_client_is_handled(rabbitmq_url: str) -> None:
    try:
        ensure([AMQP_PUBLISH])
    except Unavailable as reason:
        do_without(f"amqp-publish: {reason}")
    program = AMQP_PUBLISH.find()
    assert program is not None
    seen = Seen()
    async with QueueCraft(rabbitmq_url) as qc:
        worker = qc.worker("billing").on("order.*", seen)
        await worker.declare()
        for arguments in (["-e", "events", "-r", "order.placed"], ["-r", "billing"]):
            command = [program, "-u", rabbitmq_url, *arguments, "-b", '{"id": 7}']
            await asyncio.to_thread(subprocess.run, command, check=True, timeout=20)
        async with at_work(worker):
            await seen.until(lambda: len(seen.messages) == 2)

    assert seen.payloads == [{"id": 7}] * 2
    assert [each.attempt for each in seen.messages] == [1, 1]
    assert [each.redeliveries for each in seen.messages] == [0, 0]


async def settled(qc: QueueCraft, seen: Seen, count: int) -> None:
    """Wait until so many were handled or kept."""

    async def all_are() -> bool:
        return len(seen.messages) + await qc.dead_letters.count("billing") >= count

    await until(all_are)
