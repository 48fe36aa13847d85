"""Jobs: how many run, how they end, and that nothing is lost when one is cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from queuecraft import ConnectionLost, QueueCraft
from queuecraft.http.access import Who
from queuecraft.http.audit import Audit, Entry
from queuecraft.http.jobs import AT_ONCE, KEPT, Job, Jobs
from queuecraft.http.refusal import Refusal
from queuecraft.http.session import Role
from queuecraft.runtime.redrive import Redrive
from tests.http.site import ended, problem, serving
from tests.runtime.support import eventually

ADA = Who(Role.OPERATOR, "::1", name="ada")


def job(queue: str = "billing") -> Job:
    return Job(kind="redrive", queue=queue, by="ada", what="Send all back", dry_run=False)


async def forever(hear: Callable[[Redrive], object]) -> Redrive:
    hear(Redrive(total=10, seen=3, moved=3))
    await asyncio.Event().wait()
    raise AssertionError


async def at_once(hear: Callable[[Redrive], object]) -> Redrive:
    return Redrive(total=2, seen=2, moved=2)


async def test_it_tells_how_far_it_has_come_and_how_it_ended() -> None:
    audit = Audit()
    heard: list[str] = []
    jobs = Jobs(audit, lambda: heard.append(""))
    gate = asyncio.Event()

    async def work(hear: Callable[[Redrive], object]) -> Redrive:
        hear(Redrive(total=10, seen=1, moved=1, waiting=True))
        await gate.wait()
        return Redrive(total=10, seen=1, moved=1, stopped="the canary died again")

    started = await jobs.start(job(), ADA, work)
    await asyncio.sleep(0)
    assert (started.state, started.total) == ("waiting-for-canary", 10)
    gate.set()
    await jobs.settled()
    assert (started.state, started.stopped) == ("stopped", "the canary died again")
    assert started.ended_at is not None
    assert audit.last(1)[0].outcome.startswith("stopped: 1 moved")
    assert len(heard) >= 3


async def test_one_runs_for_each_queue_and_four_in_all() -> None:
    jobs = Jobs(Audit())
    for n in range(AT_ONCE):
        await jobs.start(job(f"q-{n}"), ADA, forever)
    with pytest.raises(Refusal, match="works on the queue 'q-0' already") as caught:
        await jobs.start(job("q-0"), ADA, forever)
    assert caught.value.status == 409
    with pytest.raises(Refusal, match="4 jobs run already") as caught:
        await jobs.start(job("another"), ADA, forever)
    assert caught.value.status == 503
    await jobs.close()
    assert {each.state for each in jobs.list()} == {"cancelled"}
    with pytest.raises(Refusal, match="stopping"):
        await jobs.start(job("q-0"), ADA, at_once)


async def test_cancelled_it_is_over_when_the_answer_comes_and_may_be_begun_again() -> None:
    jobs = Jobs(Audit())
    started = await jobs.start(job(), ADA, forever)
    await asyncio.sleep(0)
    assert (await jobs.cancel(started.id)).state == "cancelled"
    assert started.progress.moved == 3
    again = await jobs.start(job(), ADA, at_once)
    await jobs.settled()
    assert (await jobs.cancel(again.id)).state == "done"


async def test_what_fails_says_why_and_a_mistake_of_ours_does_not_say_much(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def lost(hear: Callable[[Redrive], object]) -> Redrive:
        raise ConnectionLost("the broker went \x1b[31maway")

    async def broken(hear: Callable[[Redrive], object]) -> Redrive:
        raise ZeroDivisionError("secret detail")

    jobs = Jobs(Audit())
    one = await jobs.start(job("a"), ADA, lost)
    other = await jobs.start(job("b"), ADA, broken)
    await jobs.settled()
    assert (one.state, one.errors) == ("failed", ["the broker went \\x1b[31maway"])
    assert other.state == "failed"
    assert "secret" not in other.errors[0]
    causes = [each.exc_info[1] for each in caplog.records if each.exc_info]
    assert list(map(repr, causes)) == ["ZeroDivisionError('secret detail')"]


async def test_ended_ones_are_kept_for_ten_minutes_and_a_hundred_at_most() -> None:
    jobs = Jobs(Audit())
    first = await jobs.start(job(), ADA, at_once)
    await jobs.settled()
    first.ended_at = datetime.now(UTC) - timedelta(minutes=11)
    with pytest.raises(Refusal, match="no such job"):
        jobs.find(first.id)
    for _ in range(KEPT + 5):
        await jobs.start(job(), ADA, at_once)
        await jobs.settled()
    assert len(jobs.list()) == KEPT
    assert len(jobs.list(timedelta(0))) == 0


async def dead(qc: QueueCraft, count: int) -> None:
    """So many dead letters of billing."""
    await qc.admin.declare("billing", "order.*")
    for n in range(count):
        await qc.send("billing.dlq", {"n": n}, message_id=f"m-{n}", headers={"tenant": "t1"})


async def test_a_service_that_stops_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    url = f"local://{tmp_path / 'queue.db'}"
    async with serving(QueueCraft(url)) as site:
        await dead(site.qc, 50)
        body = {"to": "billing", "rate": 20}
        answer = await site.operator.post("/api/dead-letters/billing/redrive", json=body)
        assert answer.status_code == 202
        found = site.service._desk.jobs.find(answer.json()["id"])
        await eventually(lambda: found.progress.moved)
        answer = await site.operator.post(
            "/api/dead-letters/billing.dlq/delete", json={"confirm": "billing.dlq"}
        )
        assert (answer.status_code, problem(answer)["type"]) == (409, "Busy")
    assert found.state == "cancelled"
    async with QueueCraft(url) as qc:
        back = [each.id for each in await qc.admin.peek("billing", 100)]
        left = [each.id for each in await qc.dead_letters.list("billing")]
        assert 0 < len(back) < 50
        assert back + left == [f"m-{n}" for n in range(50)]


async def test_cancelled_over_http_the_rest_stays_in_its_place() -> None:
    async with serving() as site:
        qc = site.qc
        await dead(qc, 30)
        body = {"to": "billing", "rate": 20}
        answer = await site.operator.post("/api/dead-letters/billing.dlq/redrive", json=body)
        id = answer.json()["id"]
        while not (await site.reader.get(f"/api/jobs/{id}")).json()["moved"]:
            pass
        told = (await site.operator.delete(f"/api/jobs/{id}")).json()
        assert told["state"] == "cancelled"
        moved = (await qc.admin.inspect("billing")).ready or 0
        left = [each.id for each in await qc.dead_letters.list("billing")]
        assert moved == told["moved"] > 0
        assert left == [f"m-{n}" for n in range(moved, 30)]
        again = await site.operator.post(
            "/api/dead-letters/billing/redrive", json={"to": "billing"}
        )
        assert (await ended(site, again))["moved"] == len(left)
        assert (await qc.admin.inspect("billing")).ready == 30


async def test_one_asked_for_while_the_service_stops_never_begins() -> None:
    begun: list[str] = []

    class Slow(Audit):
        async def write(self, entry: Entry) -> None:
            await jobs.close()

    async def work(hear: Callable[[Redrive], object]) -> Redrive:
        begun.append("work")
        return Redrive(total=0)

    audit = Slow()
    jobs = Jobs(audit)
    with pytest.raises(Refusal, match="stopping"):
        await jobs.start(job(), ADA, work)
    assert (begun, jobs.list()) == ([], [])
    assert audit.last(1)[0].outcome == "refused: the service is stopping"
