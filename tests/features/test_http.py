"""The HTTP service, the same on every broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from queuecraft import NoRetry, QueueCraft
from queuecraft.http import app
from tests.features.life import running, until

TOKEN = "operator-token-0123456789"


@asynccontextmanager
async def served(qc: QueueCraft) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of the service, in this process."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app(qc, token=TOKEN)),
        base_url="http://localhost",
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=30,
    ) as client:
        yield client


async def told(client: httpx.AsyncClient, path: str) -> Any:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ended(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The job that was asked for, once it is over."""
    answer = await client.post(path, json=body)
    assert answer.status_code == 202, answer.text
    async with asyncio.timeout(20):
        while True:
            job: dict[str, Any] = await told(client, f"/api/jobs/{answer.json()['id']}")
            if job["ended_at"] is not None:
                return job
            await asyncio.sleep(0.02)


async def test_an_operator_sees_mends_and_empties_a_queue(url: str) -> None:
    qc = QueueCraft(url, presence=0.1)
    mended = asyncio.Event()
    handled: list[int] = []
    billing = qc.worker("billing", retry=NoRetry())

    @billing.on("order.placed")
    async def charge(order: dict[str, int]) -> None:
        if not mended.is_set():
            raise ValueError("no such account")
        handled.append(order["n"])

    async with qc, served(qc) as client:
        async with running(billing):
            await qc.publish_many("order.placed", [{"n": n} for n in range(4)])
            await until(lambda: billing.counters.dead_lettered == 4)

            overview = await told(client, "/api/overview")
            assert overview["state"] == "connected"
            assert overview["queue_count"] == 1
            (listed,) = (await told(client, "/api/queues"))["queues"]
            assert listed["name"] == "billing"
            one = await told(client, "/api/queues/billing")
            assert one["dead_letter_queue"] == "billing.dlq"
            assert ("events", "order.placed") in [
                (each["exchange"], each["pattern"]) for each in one["bindings"]
            ]

            found = await told(client, "/api/dead-letters/groups?queue=billing")
            (group,) = found["groups"]
            assert (group["count"], found["total"], group["error"]) == (4, 4, "no such account")
            letters = await told(client, "/api/dead-letters?queue=billing&limit=2")
            assert len(letters["letters"]) == 2
            path = f"/api/dead-letters/billing/{group['example']}"
            assert "no such account" in (await told(client, path))["story"]["traceback"]

            redrive = "/api/dead-letters/billing/redrive"
            job = await ended(client, redrive, {"canary": 1})
            assert (job["state"], job["moved"]) == ("stopped", 1), job
            assert "died again" in job["stopped"]
            mended.set()
            chosen = {"group": group["fingerprint"], "canary": 1, "patience": 1}
            job = await ended(client, redrive, chosen)
            assert (job["state"], job["moved"], job["errors"]) == ("done", 4, []), job
            await until(lambda: sorted(handled) == [0, 1, 2, 3])
            assert (await told(client, "/api/dead-letters?queue=billing"))["total"] == 0

            why = {"reason": "the bank is down"}
            answer = await client.post("/api/queues/billing/pause", json=why)
            assert answer.status_code == 204, answer.text
            await until(lambda: billing.paused is not None)
            assert (await client.post("/api/queues/billing/resume")).status_code == 204
            await until(lambda: billing.paused is None)

        await qc.publish("order.placed", {"n": 9}, message_id="m-9")
        (line,) = (await told(client, "/api/queues/billing/messages"))["messages"]
        assert (line["id"], line["preview"]) == ("m-9", '{"n": 9}')
        message = await told(client, "/api/queues/billing/messages/m-9")
        assert message["payload"] == {"n": 9}
        answer = await client.post("/api/queues/billing/purge", json={"confirm": "billing"})
        assert answer.json() == {"purged": 1}
        assert (await told(client, "/api/queues/billing/messages"))["messages"] == []
