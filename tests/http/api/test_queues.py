"""`/api/queues`: seen, made, bound, paused, purged and deleted, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

from queuecraft import Exchange, QueueCraft
from queuecraft.admin.overview import QueueRow
from queuecraft.http.api.queues import _sorted
from tests.http.site import PAGE, problem, serving, signed_in


async def test_a_queue_is_made_bound_seen_purged_and_deleted() -> None:
    async with serving() as site, signed_in(site) as browser:
        body: Any = {"name": "billing", "patterns": ["order.*"]}
        answer = await browser.post("/api/queues", json=body, headers=PAGE)
        assert (answer.status_code, answer.json()) == (201, {"name": "billing"})
        await site.qc.publish("order.placed", {"id": "o-1"})

        told = (await browser.get("/api/queues/billing")).json()
        assert (told["queue"]["name"], told["dead_letter_queue"]) == ("billing", "billing.dlq")
        assert told["bindings"] == [
            {"exchange": "events", "type": "topic", "pattern": "order.*", "headers": {}}
        ]
        assert (told["workers"], told["groups"]) == ([], [])

        body = {"patterns": ["user.*"]}
        answer = await browser.post("/api/queues/billing/bindings", json=body, headers=PAGE)
        assert answer.status_code == 204
        (exchange, _) = (await browser.get("/api/exchanges")).json()
        assert [each["pattern"] for each in exchange["bindings"]] == ["order.*", "user.*"]
        answer = await browser.request(
            "DELETE", "/api/queues/billing/bindings", json=body, headers=PAGE
        )
        assert answer.status_code == 204
        told = (await browser.get("/api/queues/billing")).json()
        assert [each["pattern"] for each in told["bindings"]] == ["order.*"]

        for wrong in ("", "biling"):
            body = {"confirm": wrong}
            answer = await browser.post("/api/queues/billing/purge", json=body, headers=PAGE)
            assert (answer.status_code, problem(answer)["type"]) == (422, "NotConfirmed")
            answer = await browser.delete(f"/api/queues/billing?confirm={wrong}", headers=PAGE)
            assert answer.status_code == 422
        body = {"confirm": "billing"}
        answer = await browser.post("/api/queues/billing/purge", json=body, headers=PAGE)
        assert answer.json() == {"purged": 1}
        answer = await browser.delete("/api/queues/billing?confirm=billing", headers=PAGE)
        assert answer.status_code == 204
        assert [each.name for each in await site.qc.admin.queues()] == ["billing.dlq"]


async def test_a_queue_there_is_not_is_404_and_says_what_may_have_been_meant() -> None:
    async with serving() as site:
        await site.qc.admin.declare("billing")
        for method, path, body in (
            ("GET", "/api/queues/biling", None),
            ("GET", "/api/queues/biling/messages", None),
            ("GET", "/api/dead-letters?queue=biling", None),
            ("DELETE", "/api/queues/biling?confirm=biling", None),
            ("POST", "/api/queues/biling/purge", {"confirm": "biling"}),
            ("POST", "/api/queues/biling/pause", {}),
            ("POST", "/api/queues/biling/resume", None),
            ("POST", "/api/queues/biling/bindings", {"patterns": ["a.b"]}),
            ("POST", "/api/queues/biling/move", {"to": "billing"}),
            ("POST", "/api/queues/billing/move", {"to": "biling"}),
            ("POST", "/api/dead-letters/biling/redrive", {}),
            ("POST", "/api/dead-letters/billing/redrive", {"to": "biling"}),
            ("POST", "/api/dead-letters/biling/delete", {"confirm": "biling"}),
        ):
            answer = await site.operator.request(method, path, json=body)
            assert (answer.status_code, problem(answer)["type"]) == (404, "UnknownQueue"), path
            assert "did you mean 'billing'" in problem(answer)["message"]


async def test_a_queue_may_be_called_anything_that_can_be_printed() -> None:
    async with serving() as site:
        for name, path in (
            ("a/b", "a%2Fb"),
            ("a/messages", "a%2fmessages"),
            ("späte Post", "sp%C3%A4te%20Post"),
            ("<script>", "%3Cscript%3E"),
            ("100%", "100%25"),
            ("?#&", "%3F%23%26"),
            ("%2F", "%252F"),
        ):
            assert (await site.operator.post("/api/queues", json={"name": name})).is_success
            await site.qc.send(name, {"id": 1}, message_id="m/1?é")
            told = (await site.operator.get(f"/api/queues/{path}")).json()
            assert told["queue"]["name"] == name
            (line,) = (await site.operator.get(f"/api/queues/{path}/messages")).json()["messages"]
            assert line["id"] == "m/1?é"
            for id in ("m%2F1%3F%C3%A9", "m/1%3F%C3%A9"):
                answer = await site.operator.get(f"/api/queues/{path}/messages/{id}")
                assert answer.json()["payload"] == {"id": 1}, (name, id)
            assert answer.text.isascii()
            assert answer.text.isprintable()
        answer = await site.operator.post("/api/queues", json={"name": "a\nb"})
        assert (answer.status_code, problem(answer)["type"]) == (422, "ConfigError")
        assert (await site.operator.get("/api/queues/a%0Ab")).status_code == 422


async def test_what_exists_otherwise_is_a_conflict_or_a_mistake_and_nothing_happens() -> None:
    async with serving() as site:
        await site.qc.admin.declare_exchange(Exchange("audit", "fanout"))
        await site.qc.admin.declare("billing")
        body: Any = {"patterns": ["a.b"], "headers": {"x": 1}}
        answer = await site.operator.post("/api/queues/billing/bindings", json=body)
        assert (answer.status_code, problem(answer)["type"]) == (422, "ConfigError")
        for body in ({"patterns": ["a..b"]}, {"patterns": []}, {"pattern": "a"}, {"patterns": "a"}):
            answer = await site.operator.post("/api/queues/billing/bindings", json=body)
            assert answer.status_code == 422, body
        answer = await site.operator.post("/api/queues/billing/move", json={"to": "billing"})
        assert answer.status_code == 422


async def test_queues_are_filtered_sorted_and_cut_into_pages() -> None:
    async with serving() as site:
        for name in ("billing", "audit", "mail"):
            await site.qc.admin.declare(name, "order.*" if name != "audit" else "x")
        await site.qc.publish("order.placed", 1)

        async def names(query: str) -> list[str]:
            told = (await site.reader.get(f"/api/queues?{query}")).json()
            return [each["name"] for each in told["queues"]]

        assert await names("") == ["billing", "mail", "audit"]
        assert await names("sort=name") == ["audit", "billing", "mail"]
        assert await names("sort=name&order=desc&limit=1&offset=1") == ["billing"]
        assert await names("sort=ready&order=asc") == ["audit", "billing", "mail"]
        assert await names("filter=IL") == ["billing", "mail"]
        assert len(await names("dead_letters=true")) == 6
        assert (await site.reader.get("/api/queues?limit=1")).json()["total"] == 3
        for wrong in ("limit=0", "limit=1001", "offset=-1", "sort=drian", "order=up"):
            assert (await site.reader.get(f"/api/queues?{wrong}")).status_code == 422


def test_what_is_not_known_comes_last_whichever_way() -> None:
    rows = [QueueRow(name="a"), QueueRow(name="b", dead=1), QueueRow(name="c", dead=2)]
    assert [row.name for row in _sorted(rows, "dead", None)] == ["c", "b", "a"]
    assert [row.name for row in _sorted(rows, "dead", "asc")] == ["b", "c", "a"]


async def test_a_paused_queue_is_handled_no_more_until_it_is_resumed() -> None:
    qc = QueueCraft(presence=0.05)
    seen: asyncio.Queue[Any] = asyncio.Queue()
    worker = qc.worker("billing")
    worker.on("order.*", seen.put)
    async with serving(qc) as site, signed_in(site) as browser:
        answer = await browser.post(
            "/api/queues/billing/pause", json={"reason": "bank is down"}, headers=PAGE
        )
        assert answer.status_code == 204
        pause = (await qc.admin.pauses())["billing"]
        assert (pause.reason, pause.by) == ("bank is down", "ada")
        await worker.start()
        await qc.publish("order.placed", 1)
        with_reason = await paused(site)
        assert "bank is down" in with_reason
        assert seen.empty()
        assert (await browser.post("/api/queues/billing/resume", headers=PAGE)).status_code == 204
        assert await asyncio.wait_for(seen.get(), 10) == 1
        await worker.stop()


async def paused(site: Any) -> str:
    """Why billing is paused, once the overview shows it."""
    while True:
        told = (await site.reader.get("/api/queues/billing")).json()
        if told["queue"]["paused"]:
            return str(told["queue"]["paused"])
        await asyncio.sleep(0.05)


async def test_a_body_that_cannot_be_read_says_what_to_send() -> None:
    async with serving() as site:
        kind = {"Content-Type": "application/json"}
        for body in (b"[" * 100_000, b'{"name": ' + b"9" * 5000 + b"}", b"\xff\xff"):
            answer = await site.operator.post("/api/queues", content=body, headers=kind)
            assert (answer.status_code, problem(answer)["type"]) == (400, "InvalidRequest")
            assert problem(answer)["hint"]
        form = {"Content-Type": "text/plain"}
        answer = await site.operator.post("/api/queues", content=b'{"name": "a"}', headers=form)
        assert answer.status_code == 422
        assert "Content-Type" in problem(answer)["hint"]
        assert await site.qc.admin.queues() == []
