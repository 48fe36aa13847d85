"""`/delayed`: seen, added to and taken from, over HTTP."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuecraft import PublishError, QueueCraft
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.model.delayed import DelayedSettings
from tests.http.site import problem, serving


async def test_a_message_is_accepted_listed_and_taken_back() -> None:
    async with serving() as site:
        answer = await site.operator.post(
            "/delayed",
            json={
                "event": "order.placed",
                "payload": {"id": "o-1"},
                "delay": 60,
                "headers": {"tenant": "t1", "tries": 3, "vip": True},
                "message_id": "m-1",
                "key": "customer-7",
                "correlation_id": "c-1",
            },
        )
        assert (answer.status_code, answer.json()) == (201, {"id": "m-1"})
        (kept,) = await site.qc.delayed.list()
        assert (kept.target, kept.kind, kept.key) == ("order.placed", "event", "customer-7")
        assert kept.headers == {"tenant": "t1", "tries": 3, "vip": True}
        assert isinstance(kept.headers["tries"], int)

        (listed,) = (await site.operator.get("/delayed")).json()["messages"]
        assert (listed["id"], listed["target"], listed["kind"]) == ("m-1", "order.placed", "event")
        assert datetime.fromisoformat(listed["due_at"]) == kept.due_at

        assert (await site.operator.delete("/delayed/m-1")).status_code == 204
        assert (await site.operator.get("/delayed")).json() == {"messages": [], "next": None}
        answer = await site.operator.delete("/delayed/m-1")
        assert (answer.status_code, problem(answer)["type"]) == (404, "NotFound")


async def test_readers_see_what_waits_but_no_payload() -> None:
    async with serving() as site:
        await site.qc.delayed.add("order.placed", {"card": "4111"}, delay=60)
        (for_reader,) = (await site.reader.get("/delayed")).json()["messages"]
        (for_operator,) = (await site.operator.get("/delayed")).json()["messages"]
    assert for_reader["preview"] is None
    assert "4111" in for_operator["preview"]


async def test_what_is_due_reaches_its_queue() -> None:
    qc = QueueCraft()
    got: asyncio.Queue[Any] = asyncio.Queue()
    worker = qc.worker("billing")
    worker.on("order.*", got.put)
    async with serving(qc) as site, qc.delayed.running():
        await worker.start()
        body = {"event": "order.placed", "payload": {"id": "o-1"}, "delay": 0}
        assert (await site.operator.post("/delayed", json=body)).status_code == 201
        body = {"queue": "billing", "payload": 5, "deliver_at": "2020-01-01T00:00:00Z"}
        assert (await site.operator.post("/delayed", json=body)).status_code == 201
        assert [await got.get(), await got.get()] == [{"id": "o-1"}, 5]
        await worker.stop()


async def test_at_the_limit_503_and_nothing_is_added() -> None:
    qc = QueueCraft(delayed=DelayedSettings(limit=2))
    body = {"event": "order.placed", "payload": 1, "delay": 60}
    async with serving(qc) as site:
        for _ in range(2):
            assert (await site.operator.post("/delayed", json=body)).status_code == 201
        answer = await site.operator.post("/delayed", json=body)
        assert answer.status_code == 503
        assert problem(answer)["type"] == "QueueFull"
        assert int(answer.headers["retry-after"]) > 0
        assert (await qc.delayed.stats()).size == 2


async def test_fifty_at_once_never_pass_the_limit() -> None:
    qc = QueueCraft(delayed=DelayedSettings(limit=10))
    body = {"event": "order.placed", "payload": 1, "delay": 60}
    async with serving(qc) as site:
        answers = await asyncio.gather(
            *(site.operator.post("/delayed", json=body) for _ in range(50))
        )
        statuses = sorted(each.status_code for each in answers)
        assert statuses == [201] * 10 + [503] * 40
        assert (await qc.delayed.stats()).size == 10


async def test_pages_follow_each_other_to_the_end() -> None:
    async with serving() as site:
        for n in range(25):
            await site.qc.delayed.add("number", n, delay=60 + n, message_id=f"m/{n:02}?&=")
        seen: list[str] = []
        after: dict[str, str] = {}
        while True:
            page = (await site.reader.get("/delayed", params={"limit": 10, **after})).json()
            seen += [each["id"] for each in page["messages"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
    assert seen == [f"m/{n:02}?&=" for n in range(25)]


async def test_stats_tell_sizes_growth_and_cleanups() -> None:
    async with serving() as site:
        await site.qc.delayed.add("number", 1, delay=60)
        told = (await site.reader.get("/delayed/stats")).json()
    assert (told["size"], told["max_size"], told["status"]) == (1, 1, "healthy")
    assert {"average_size", "growth_per_minute", "abnormal_growth", "history"} <= told.keys()
    assert told["cleanup"]["runs"] == 0


async def test_where_nothing_can_be_delayed_501_says_what_is_missing() -> None:
    qc = QueueCraft("amqp://broker.test/", drivers=[MemoryDriver()])
    async with serving(qc) as site:
        assert (await site.reader.get("/health")).json()["delayed"] is None
        for client, method, path in (
            (site.reader, "GET", "/delayed"),
            (site.reader, "GET", "/delayed/stats"),
            (site.operator, "DELETE", "/delayed/m-1"),
            (site.cron, "POST", "/cron/cleanup"),
        ):
            answer = await client.request(method, path)
            assert (answer.status_code, problem(answer)["type"]) == (501, "NotConfigured"), path
            assert "delayed.store" in problem(answer)["message"]


async def test_an_addition_that_got_no_answer_can_be_repeated_by_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unsure(*_: object, **__: object) -> None:
        raise PublishError("no answer within 30 s", outcome="unknown", message_id="m-7")

    monkeypatch.setattr("queuecraft.runtime.delayed.Delayed.add", unsure)
    async with serving() as site:
        answer = await site.operator.post("/delayed", json=GOOD)
        assert answer.status_code == 503
        assert '"message_id": "m-7"' in problem(answer)["hint"]


GOOD: dict[str, Any] = {"event": "order.placed", "payload": 1, "delay": 60}
SOON = (datetime.now(UTC) + timedelta(hours=1)).isoformat()


NONSENSE: list[Any] = [
    {},
    [],
    None,
    {"payload": 1, "delay": 60},
    {"event": "order.placed", "delay": 60},
    {"event": "order.placed", "payload": 1},
    {**GOOD, "queue": "billing"},
    {**GOOD, "deliver_at": SOON},
    {**GOOD, "event": None, "queue": "billing"},
    {**GOOD, "event": 5},
    {**GOOD, "event": ""},
    {**GOOD, "event": "a..b"},
    {**GOOD, "event": "order.*"},
    {**GOOD, "event": "a\x1bb"},
    {**GOOD, "event": "x" * 256},
    {**GOOD, "delay": -1},
    {**GOOD, "delay": "60"},
    {**GOOD, "delay": True},
    {**GOOD, "delay": 1e300},
    {"event": "order.placed", "payload": 1, "deliver_at": "2030-01-01T00:00:00"},
    {"event": "order.placed", "payload": 1, "deliver_at": 5},
    {**GOOD, "headers": {"x-retry-count": 3}},
    {**GOOD, "headers": {"a": [1]}},
    {**GOOD, "message_id": ""},
    {**GOOD, "prioritty": 5},
]


async def test_a_body_that_makes_no_sense_is_422_with_a_reason() -> None:
    async with serving() as site:
        for body in NONSENSE:
            answer = await site.operator.post(
                "/delayed", content=json.dumps(body), headers={"Content-Type": "application/json"}
            )
            assert answer.status_code == 422, body
            assert problem(answer)["message"], body
        assert (await site.qc.delayed.stats()).size == 0


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b'"\\ud800"', b"[" * 100_000, b"NaN", b"1" * 10_000]
)
async def test_a_body_that_is_no_json_is_422(content: bytes) -> None:
    async with serving() as site:
        answer = await site.operator.post(
            "/delayed", content=content, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 422
        assert problem(answer)["type"] == "InvalidRequest"


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_a_form_of_a_web_page_is_no_request(kind: str | None) -> None:
    async with serving() as site:
        headers = {} if kind is None else {"Content-Type": kind}
        answer = await site.operator.post("/delayed", content=b"{}", headers=headers)
        assert (answer.status_code, problem(answer)["type"]) == (415, "NotJson")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "after=nowhere", "after=_", "limit="]
)
async def test_a_page_that_cannot_be_is_422(query: str) -> None:
    async with serving() as site:
        answer = await site.reader.get(f"/delayed?{query}")
        assert (answer.status_code, problem(answer)["type"]) == (422, "InvalidRequest")
