"""Dead letters over HTTP: grouped, read, sent back with care, forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from queuecraft import DeadLetter, QueueCraft, Retry
from queuecraft.drivers.base import Delivery
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.http.api import dead_letters
from tests.http.site import Site, ended, problem, serving
from tests.runtime.support import dead_letter, eventually, sparing

IDS = ["m-0", "m-1", "m-2", "m-3"]


@asynccontextmanager
async def failing(mended: list[bool], **options: Any) -> AsyncGenerator[Site]:
    """A service for a shop with dead letters of two kinds in billing.dlq, there before it."""
    async with shop(mended) as qc:
        await fail(qc)
        async with serving(qc, **options) as site:
            yield site


async def fail(qc: QueueCraft, count: int = 4) -> None:
    await qc.admin.declare("billing", "order.*")
    for n in range(count):
        await qc.publish("order.placed", {"n": n, "card": "4111"}, message_id=f"m-{n}")
    (worker,) = qc.workers
    await worker.start()
    while await qc.dead_letters.count("billing") < count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await worker.stop()


def shop(mended: list[bool]) -> QueueCraft:
    qc = QueueCraft()
    billing = qc.worker("billing", retry=Retry(max_retries=0))

    @billing.on("order.*")
    async def charge(order: dict[str, Any]) -> None:
        if not mended:
            kind = ValueError if order["n"] % 2 else KeyError
            raise kind(f"<script>no money for {order['n']}</script>")

    return qc


async def test_they_are_grouped_listed_and_read_with_their_story() -> None:
    async with failing([], mask=["card"]) as site:
        told = (await site.reader.get("/api/dead-letters/groups?queue=billing")).json()
        assert (told["looked_at"], told["total"]) == (4, 4)
        assert {(each["error_type"], each["count"]) for each in told["groups"]} == {
            ("ValueError", 2),
            ("KeyError", 2),
        }
        group = next(each for each in told["groups"] if each["error_type"] == "ValueError")
        for query, wanted in (
            ("queue=billing", 4),
            ("queue=billing.dlq&limit=3", 3),
            (f"queue=billing&group={group['fingerprint']}", 2),
            ("queue=billing&error=KEY", 2),
            ("queue=billing&event=user.*", 0),
        ):
            told = (await site.reader.get(f"/api/dead-letters?{query}")).json()
            assert (len(told["letters"]), told["total"]) == (wanted, 4), query
            assert told["looked_at"] == (3 if "limit=3" in query else 4)
        answer = await site.reader.get("/api/dead-letters")
        assert answer.status_code == 422
        answer = await site.operator.get(f"/api/dead-letters/billing/{IDS[1]}")
        told = answer.json()
        assert told["payload"] == {"n": 1, "card": "•••"}
        story = told["story"]
        assert (story["error_type"], story["original_queue"]) == ("ValueError", "billing")
        assert "in charge" in story["traceback"]
        assert story["attempts"] == [
            {
                "at": story["failed_at"],
                "attempt": 1,
                "error": "ValueError: <script>no money for 1</script>",
            }
        ]
        told = (await site.reader.get(f"/api/dead-letters/billing.dlq/{IDS[1]}")).json()
        assert told["payload"] == {"n": "int", "card": "str"}
        answer = await site.reader.get("/api/dead-letters/billing/m-99")
        assert (answer.status_code, problem(answer)["type"]) == (404, "NotFound")


async def test_a_letter_is_looked_for_as_far_as_asked() -> None:
    async with failing([]) as site:
        page = "/api/dead-letters/billing.dlq/m-3"
        answer = await site.reader.get(page, params={"look": 2})
        assert (answer.status_code, problem(answer)["type"]) == (404, "NotAmongTheFirst")
        assert "first 2 of 4" in problem(answer)["message"]
        assert "look=4" in problem(answer)["hint"]
        assert (await site.reader.get(page, params={"look": 10_000})).json()["id"] == "m-3"
        assert (await site.reader.get(page, params={"look": 0})).status_code == 422


@pytest.mark.parametrize("look", [10_001, 1_000_000_000, 10**30])
async def test_nobody_can_have_a_whole_queue_of_letters_held_in_memory(look: int) -> None:
    async with failing([]) as site:
        answer = await site.reader.get("/api/dead-letters/billing.dlq/m-3", params={"look": look})
        assert (answer.status_code, problem(answer)["type"]) == (422, "InvalidRequest")
        assert "look: Input should be less than or equal to 10000" in problem(answer)["message"]


async def test_where_letters_share_a_place_no_more_are_held_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letters, "LOOK", 5)
    peeked: list[int] = []
    peek = MemoryDriver.peek

    async def counting(driver: MemoryDriver, queue: str, limit: int) -> Sequence[Delivery]:
        peeked.append(limit)
        return await peek(driver, queue, limit)

    qc = QueueCraft()
    names = ("billing", "audit")
    for name in names:
        qc.worker(name, dead_letter=DeadLetter(queue="graveyard")).on("order.*", print)
    async with qc, serving(qc) as site:
        driver = qc._engine.connection.current
        assert driver is not None
        letters = [dead_letter(f"m-{n}", queue=names[n % 2], to="graveyard") for n in range(20)]
        await driver.send(letters)
        monkeypatch.setattr(MemoryDriver, "peek", counting)
        told = (await site.reader.get("/api/dead-letters?queue=billing&look=5&limit=5")).json()
        assert ([each["id"] for each in told["letters"]], told["total"]) == (
            ["m-0", "m-2", "m-4"],
            3,
        )
        answer = await site.reader.get("/api/dead-letters/billing/m-18", params={"look": 5})
        assert (answer.status_code, problem(answer)["type"]) == (404, "NotAmongTheFirst")
        assert "first 5 of 20" in problem(answer)["message"]
    assert peeked
    assert 20 not in peeked


async def test_where_one_is_that_is_further_down_than_anybody_looks_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letters, "LOOK", 2)
    async with failing([]) as site:
        page = "/api/dead-letters/billing.dlq/m-3"
        answer = await site.reader.get(page, params={"look": 1})
        assert "look=2 looks further" in problem(answer)["hint"]
        answer = await site.reader.get(page, params={"look": 2})
        assert (answer.status_code, problem(answer)["type"]) == (404, "NotAmongTheFirst")
        assert "queuecraft dlq show" in problem(answer)["hint"]


async def test_a_redrive_is_counted_first_then_a_group_goes_back_and_the_rest_stays() -> None:
    async with failing([]) as site:
        page = "/api/dead-letters/billing.dlq/redrive"
        body: Any = {"error": "ValueError", "dry_run": True}
        job = await ended(site, await site.operator.post(page, json=body))
        assert (job["state"], job["moved"], job["kept"]) == ("done", 2, 2)
        assert await site.qc.dead_letters.count("billing") == 4
        job = await ended(site, await site.operator.post(page, json={"ids": ["m-1"]}))
        assert (job["moved"], job["kept"], job["total"]) == (1, 3, 4)
        assert job["what"] == "Send back dead letters (1 by their ids) from billing.dlq"
        left = [each.id for each in await site.qc.dead_letters.list("billing")]
        assert left == ["m-0", "m-2", "m-3"]


async def test_a_canary_that_dies_again_stops_the_redrive_and_a_mended_one_does_not() -> None:
    mended: list[bool] = []
    async with failing(mended) as site:
        (worker,) = site.qc.workers
        await worker.start()
        page = "/api/dead-letters/billing/redrive"
        job = await ended(site, await site.operator.post(page, json={"canary": 1}))
        assert (job["state"], job["moved"]) == ("stopped", 1)
        assert job["stopped"]
        assert await site.qc.dead_letters.count("billing") == 4
        mended.append(True)
        job = await ended(site, await site.operator.post(page, json={"canary": 1}))
        assert (job["state"], job["moved"]) == ("done", 4)
        assert await site.qc.dead_letters.count("billing") == 0
        await worker.stop()


async def test_what_is_deleted_is_confirmed_chosen_and_gone() -> None:
    async with failing([]) as site:
        page = "/api/dead-letters/billing/delete"
        answer = await site.operator.post(page, json={"error": "KeyError", "confirm": "bill"})
        assert (answer.status_code, problem(answer)["type"]) == (422, "NotConfirmed")
        body: Any = {"error": "KeyError", "confirm": "billing"}
        job = await ended(site, await site.operator.post(page, json=body))
        assert (job["kind"], job["moved"], job["kept"]) == ("delete", 2, 2)
        left = [each.id for each in await site.qc.dead_letters.list("billing")]
        assert left == ["m-1", "m-3"]


async def test_a_job_that_is_not_given_everything_is_not_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with failing([]) as site:
        sparing(monkeypatch, MemoryDriver, 3)
        page = "/api/dead-letters/billing.dlq/delete"
        body: Any = {"ids": ["m-3"], "confirm": "billing.dlq"}
        job = await ended(site, await site.operator.post(page, json=body))
        assert (job["state"], job["moved"], job["kept"], job["total"]) == ("stopped", 0, 3, 4)
        assert job["stopped"] == "only 3 of 4 could be looked at; run it again"
        (deed,) = (await site.reader.get("/api/audit?limit=1")).json()["entries"]
        assert "only 3 of 4 could be looked at" in deed["outcome"]
        assert await site.qc.dead_letters.count("billing") == 4


async def test_a_queue_without_a_place_for_them_says_so() -> None:
    async with serving() as site:
        await site.qc.admin.declare("scratch", dead_letters=False)
        for answer in (
            await site.reader.get("/api/dead-letters?queue=scratch"),
            await site.operator.post("/api/dead-letters/scratch/redrive", json={}),
        ):
            assert answer.status_code == 422
            assert "has no dead-letter queue" in problem(answer)["message"]


async def test_the_overview_shows_groups_jobs_and_who_asks() -> None:
    async with failing([]) as site:
        answer = await site.operator.post(
            "/api/dead-letters/billing/redrive", json={"dry_run": True}
        )
        await ended(site, answer)
        lookout = site.service._desk.lookout
        await lookout.overview()
        await eventually(lambda: lookout.last is not None and len(lookout.last.groups) == 2, 10)
        told = (await site.reader.get("/api/overview")).json()
        assert (told["role"], told["masked"], told["reports"]) == ("reader", False, False)
        assert (told["queue_count"], told["dead"], len(told["groups"])) == (1, 4, 2)
        assert [each["state"] for each in told["jobs"]] == ["done"]
        assert told["numbers"].keys() == {
            "in_per_second",
            "handled_per_second",
            "failure_ratio",
            "oldest_age",
        }
        assert "queues" not in told


async def test_only_the_largest_groups_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "GROUPS", 1)
    async with failing([]) as site:
        for query in ("", "?queue=billing"):
            told = (await site.reader.get(f"/api/dead-letters/groups{query}")).json()
            assert (len(told["groups"]), told["looked_at"], told["total"]) == (1, 4, 4)
