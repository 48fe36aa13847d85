"""`GET /events`: what happens, for as many as may listen, at nobody's cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from queuecraft import QueueCraft, Retry
from queuecraft.facts import DelayedCleaned, MessageFailed, MessagesPublished, Shutdown
from queuecraft.http.feed import WAITING, EventStream, Feed
from queuecraft.http.story import told
from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.model.outcome import Failure
from tests.http.site import Site, problem, serving, signed_in
from tests.runtime.support import eventually, running


class Ear:
    """One who listens, and understands what it hears."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def block(self) -> dict[str, str]:
        """The lines up to the next empty one, by their names; a comment has none."""
        found: dict[str, str] = {}
        async for line in self._lines:
            if not line:
                return found
            name, _, value = line.partition(": ")
            found[name] = value
        raise EOFError

    async def end(self) -> None:
        """Listen until there is nothing more to come."""
        with suppress(EOFError):
            while True:
                await asyncio.wait_for(self.block(), 10)

    async def hear(self, kind: str) -> dict[str, Any]:
        """The next event of this kind."""
        while True:
            block = await asyncio.wait_for(self.block(), 10)
            if block.get("event") == kind:
                heard: dict[str, Any] = json.loads(block["data"])
                return heard


@asynccontextmanager
async def listening(site: Site, query: str = "") -> AsyncGenerator[Ear]:
    async with site.reader.stream("GET", f"/events{query}") as answer:
        assert answer.status_code == 200
        ear = Ear(answer)
        assert await ear.block() == {"retry": "2000", "": "listening"}
        yield ear


async def test_what_happens_is_told_in_names_and_counts() -> None:
    qc = QueueCraft()
    worker = qc.worker("billing", retry=Retry(max_retries=0))

    @worker.on("order.*")
    async def charge(order: dict[str, str]) -> None:
        if order["card"] == "bad":
            raise ValueError("card 4111 refused")

    async with serving(qc) as site, running(worker), listening(site) as ear:
        kind = ear.answer.headers["content-type"]
        assert kind.startswith("text/event-stream")
        await qc.publish_many("order.placed", [{"card": "4111"}] * 3)
        published = await ear.hear("messages_published")
        assert published == {"count": 3, "events": {"order.placed": 3}}
        await qc.publish("order.placed", {"card": "bad"}, message_id="m-1")
        failed = await ear.hear("message_failed")
        assert failed.pop("duration") >= 0
        assert failed == {
            "worker": "billing",
            "queue": "billing",
            "event": "order.placed",
            "message_id": "m-1",
            "attempt": 1,
            "reason": "handler-error",
            "error_type": "ValueError",
        }
        assert (await ear.hear("message_dead_lettered"))["queue"] == "billing"


async def test_a_cleanup_is_told() -> None:
    async with serving() as site, listening(site, "?kind=delayed_cleaned") as ear:
        await site.qc.delayed.cleanup()
        assert (await ear.hear("delayed_cleaned"))["cleaned"] == 0


async def test_who_asks_for_some_kinds_hears_no_other() -> None:
    query = "?kind=messages_published&kind=delayed_cleaned"
    async with serving() as site, listening(site, query) as ear:
        await site.qc.admin.declare("audit", "#")
        await site.qc.delayed.cleanup()
        await site.qc.publish("number", 1)
        assert (await ear.block())["event"] == "delayed_cleaned"
        assert (await ear.block())["event"] == "messages_published"


async def test_a_kind_there_is_not_is_refused() -> None:
    async with serving() as site:
        answer = await site.reader.get("/events?kind=everything")
        assert answer.status_code == 422
        assert "message_failed" in problem(answer)["hint"]


async def test_who_hangs_up_is_forgotten_and_facts_cost_nothing_again() -> None:
    async with serving() as site:
        facts = site.qc._engine.facts
        before = len(facts._observers)
        async with listening(site), listening(site):
            assert len(site.service.feed) == 2
            assert len(facts._observers) == before + 1
        await eventually(lambda: len(site.service.feed) == 0)
        assert len(facts._observers) == before


async def test_only_so_many_may_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuecraft.http.feed.MOST", 1)
    async with serving() as site:
        async with listening(site):
            answer = await site.operator.get("/events")
            assert (answer.status_code, problem(answer)["type"]) == (503, "Busy")
        await eventually(lambda: len(site.service.feed) == 0)
        async with listening(site):
            pass


async def test_silence_is_broken_by_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuecraft.http.feed.HEARTBEAT", 0.01)
    async with serving() as site, listening(site, "?kind=shutdown") as ear:
        assert await ear.block() == {"": "still here"}


async def test_who_signs_out_hears_no_more() -> None:
    async with (
        serving() as site,
        signed_in(site) as browser,
        browser.stream("GET", "/events") as answer,
    ):
        await site.qc.admin.declare("billing", "order.placed")
        ear = Ear(answer)
        await ear.block()
        await site.qc.publish("order.placed", 1)
        await ear.hear("messages_published")
        await browser.delete("/session")
        await site.qc.publish("order.placed", 2)
        with pytest.raises(EOFError):
            await ear.hear("messages_published")


async def test_who_takes_nothing_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuecraft.http.feed.SLOWEST", 0.01)
    feed = Feed(QueueCraft())

    async def forever(*_: Any) -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await forever()

    async with asyncio.timeout(10):
        await EventStream(feed.listening)({}, forever, send)
    assert len(feed) == 0


async def test_a_service_that_stops_lets_listeners_go() -> None:
    async with serving() as site, listening(site) as ear:
        site.server.stop()
        await ear.end()


async def test_nobody_listens_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuecraft.http.feed.LONGEST", 0.05)
    async with serving() as site, listening(site) as ear:
        await ear.end()


async def test_a_slow_listener_loses_some_and_is_told_how_many() -> None:
    qc = QueueCraft()
    feed = Feed(qc)
    published = frozenset({"messages_published"})
    slow, other = feed.join(published), feed.join(frozenset({"shutdown"}))
    async with qc:
        await qc.admin.declare("audit", "#")
        for n in range(WAITING + 100):
            await qc.publish("number", n)
    feed.close()
    heard = [event async for event in slow.events()]
    assert [each for each in heard if "event: dropped" in each] == [
        'event: dropped\ndata: {"count": 100}\n\n'
    ]
    assert sum("event: messages_published" in each for each in heard) == WAITING
    assert sum("event: shutdown" in each for each in [e async for e in other.events()]) == 1


def test_hostile_names_are_escaped_and_cut() -> None:
    hostile = "a\nevent: fake\ndata: {}\n\n\x1b[31m\x9b\x7f\u2028" + "x" * 10_000
    delivery = Delivery(Outgoing(b"secret", hostile, "events", hostile), hostile)
    failure = Failure(error="card 4111", error_type=hostile, traceback="line 1")
    text = told(
        MessageFailed(
            worker="w", delivery=delivery, attempt=1, reason=hostile, failure=failure, duration=0.1
        )
    )
    assert "\n" not in text
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < 3000
    assert "4111" not in text
    assert "line 1" not in text
    assert "secret" not in text


def test_a_batch_of_many_events_names_the_most_frequent() -> None:
    messages = [Outgoing(b"", "m", "events", f"e.{n % 50}") for n in range(500)]
    heard = json.loads(told(MessagesPublished(messages=messages)))
    assert heard["count"] == 500
    assert len(heard["events"]) == 21
    assert sum(heard["events"].values()) == 500


def test_every_fact_can_be_told() -> None:
    cleaned = DelayedCleaned(
        cleaned=1, refused=0, seconds=float("nan"), size=None, policy="drop", error=None
    )
    assert json.loads(told(cleaned))["cleaned"] == 1
    assert json.loads(told(Shutdown())) == {}
