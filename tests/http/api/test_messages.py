"""Messages over HTTP: what is shown of them, and moving them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from queuecraft import QueueCraft
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.model.envelope import Outgoing
from tests.http.site import OPERATOR, PAGE, ended, problem, serving, signed_in


async def test_operators_see_payloads_readers_their_shape_and_nobody_what_is_masked() -> None:
    async with serving(mask=["*.card", "authorization"]) as site:
        await site.qc.admin.declare("billing", "order.*")
        payload = {"id": "o-1", "card": "4111", "lines": [{"card": "4222", "n": 2}]}
        headers: Any = {"Authorization": "Bearer 4333", "tenant": "t1"}
        await site.qc.publish("order.placed", payload, message_id="m-1", headers=headers, key="k")
        answers = [
            await client.get(f"/api/queues/billing/messages{path}")
            for client in (site.operator, site.reader)
            for path in ("", "/m-1")
        ]
        for answer in answers:
            assert answer.status_code == 200
            assert not [each for each in ("4111", "4222", "4333") if each in answer.text]
        whole, shape = answers[1].json(), answers[3].json()
        mask = "•••"
        assert whole["payload"] == {"id": "o-1", "card": mask, "lines": [{"card": mask, "n": 2}]}
        assert whole["headers"] == {"Authorization": mask, "tenant": "t1"}
        assert (whole["event"], whole["key"], whole["attempt"]) == ("order.placed", "k", 1)
        assert shape["payload"] == {
            "id": "str",
            "card": "str",
            "lines": [{"card": "str", "n": "int"}],
        }
        assert shape["headers"] == {"Authorization": "str", "tenant": "str"}
        (line,) = answers[0].json()["messages"]
        assert json.loads(line["preview"])["card"] == mask
        assert (await site.reader.get("/api/overview")).json()["masked"] is True

        await site.qc.delayed.add("order.placed", payload, delay=60)
        assert "4111" not in (await site.operator.get("/delayed")).text


async def test_what_is_too_large_or_cannot_be_read_is_cut_and_said() -> None:
    driver = MemoryDriver()
    async with serving(QueueCraft(drivers=[driver])) as site:
        await site.qc.admin.declare("billing")
        odd = [
            Outgoing(b"{broken", "broken", queue="billing", content_type="application/json"),
            Outgoing(b"\xff" * 100_000, "binary", queue="billing", content_type="application/json"),
            Outgoing(b"{}", "unknown", queue="billing", content_encoding="rot13"),
            Outgoing(b'"%s"' % (b"x" * 100_000), "long", queue="billing"),
            Outgoing(b"[" * 500 + b"]" * 500, "deep", queue="billing"),
            Outgoing(b'{"a": 1e400, "b": NaN}', "number", queue="billing"),
            Outgoing(b'"\\ud800"', "half", queue="billing"),
            Outgoing(
                b"1", "\x1b[31m\x7f", queue="billing", headers={"\x1b": b"\xff", "l": "x" * 9**6}
            ),
        ]
        await driver.send(odd)
        answer = await site.operator.get("/api/queues/billing/messages")
        assert answer.status_code == 200, answer.text
        assert answer.text.isascii()
        assert answer.text.isprintable()
        shown = {}
        for each in odd:
            path = "%1B%5B31m%7F" if each.id.startswith("\x1b") else each.id
            answer = await site.operator.get(f"/api/queues/billing/messages/{path}")
            assert answer.status_code == 200, (each.id, answer.text)
            assert answer.text.isprintable()
            assert len(answer.content) < 500_000
            shown[each.id] = answer.json()
        assert shown["broken"]["payload_error"]
        assert shown["broken"]["body_base64"] == "e2Jyb2tlbg=="
        assert shown["binary"]["truncated"]
        assert len(shown["long"]["payload"]) <= 65_537
        assert shown["long"]["truncated"]
        answer = await site.reader.get("/api/queues/billing/messages/broken")
        assert answer.json()["body_base64"] is None


async def test_a_message_there_is_not_is_404() -> None:
    async with serving() as site:
        await site.qc.admin.declare("billing")
        answer = await site.reader.get("/api/queues/billing/messages/m-1")
        assert (answer.status_code, problem(answer)["type"]) == (404, "NotFound")


async def test_where_looking_leaves_a_mark_it_is_refused_and_only_operators_may_insist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryDriver, "traits", replace(MemoryDriver.traits, peek="marks"))
    qc = QueueCraft()
    worker = qc.worker("billing")

    @worker.on("order.*")
    async def charge(order: dict[str, Any]) -> None: ...

    page = "/api/queues/billing/messages"
    async with serving(qc) as site, signed_in(site, OPERATOR) as browser:
        await worker.start()
        answer = await site.operator.get(page)
        assert (answer.status_code, problem(answer)["type"]) == (422, "UnsupportedFeature")
        assert (await site.reader.get(f"{page}?force=true")).status_code == 403
        assert (await site.operator.get(f"{page}?force=true")).status_code == 200
        # A link on somebody's page is followed with the cookie, and must not be enough.
        assert (await browser.get(f"{page}?force=true")).status_code == 403
        assert (await browser.get(f"{page}?force=true", headers=PAGE)).status_code == 200
        await worker.stop()


async def test_messages_are_moved_by_a_job() -> None:
    async with serving() as site:
        qc = site.qc
        for name in ("billing", "parked"):
            await qc.admin.declare(name)
        for n in range(5):
            await qc.send("billing", n)
        body: Any = {"to": "parked", "limit": 3, "dry_run": True}
        job = await ended(site, await site.operator.post("/api/queues/billing/move", json=body))
        assert (job["state"], job["moved"], job["dry_run"]) == ("done", 3, True)
        assert (await qc.admin.inspect("parked")).ready == 0
        body = {"to": "parked", "limit": 3}
        job = await ended(site, await site.operator.post("/api/queues/billing/move", json=body))
        assert (job["kind"], job["queue"], job["by"]) == ("move", "billing", "operator")
        assert job["what"] == "Move up to 3 messages of billing to parked"
        assert [each.ready for each in await qc.admin.queues() if each.name == "parked"] == [3]
        (entry,) = (await site.reader.get("/api/audit?limit=1")).json()["entries"]
        assert entry["outcome"] == "done: 3 moved, 0 kept, 0 refused"
