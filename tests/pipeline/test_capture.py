from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from queuecraft import DeadLetter, NoRetry, QueueCraft, failpoints
from queuecraft.admin import UnknownQueue
from queuecraft.clock import Clock
from queuecraft.drivers.base import Outgoing, Queue, QueueInfo
from queuecraft.model.errors import ConfigError, ConnectionLost, QueueError
from queuecraft.model.policy import Policy
from queuecraft.model.types import HeaderValue
from queuecraft.pipeline import capture as capturing
from queuecraft.pipeline import replayed, tap
from queuecraft.pipeline.archive import outgoing_of
from queuecraft.pipeline.capture import Captured, capture
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.replay.ledger import Ledger
from queuecraft.pipeline.replay.plan import Plan
from queuecraft.pipeline.replay.question import Question
from queuecraft.pipeline.replay.table import PLAN
from queuecraft.pipeline.segments import make_folder
from queuecraft.testing import FaultyDriver
from queuecraft.testing.failpoints import failing
from queuecraft.testing.faulty import FaultySubscription
from tests.pipeline.segments import files, ids, rows


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FaultyDriver:
    monkeypatch.setattr(capturing, "EMPTY", 0.05)  # this broker is not far away
    return FaultyDriver(inline=False)


@pytest.fixture
async def qc(driver: FaultyDriver) -> AsyncIterator[QueueCraft]:
    async with QueueCraft(drivers=[driver], reconnect_delay=0.01) as qc:
        await qc.admin.declare("tap", "order.*", dead_letters=False)
        yield qc


async def publish(qc: QueueCraft, *numbers: int, event: str = "order.placed") -> None:
    for n in numbers:
        await qc.publish(event, {"n": n}, message_id=f"m-{n}")


def plan(
    lake: Lake,
    id: str,
    *messages: tuple[str, str | None, bytes],
    question: Question | None = None,
    **about: Any,
) -> Ledger:
    """A replay that this lake has planned: ids, events and payloads."""
    made = Plan(id=id, question=question or Question(), planned_at=datetime.now(UTC), **about)
    ledger = Ledger(lake.replays / id)
    if messages:
        names = ("message_id", "event", "payload")
        make_folder(ledger.chunk(0))
        rows = [dict(zip(names, message, strict=True)) for message in messages]
        pq.write_table(pa.Table.from_pylist(rows, PLAN.arrow), ledger.chunk(0) / "part-0.parquet")
    ledger.keep(made)
    return ledger


async def ready(qc: QueueCraft, queue: str = "tap") -> list[str]:
    return [each.id for each in await qc.admin.peek(queue, 1000)]


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    while not await condition():  # noqa: ASYNC110  whatever makes it true, it sets no event
        await asyncio.sleep(0.002)


@asynccontextmanager
async def under_way(*args: Any, **options: Any) -> AsyncGenerator[Callable[[int], Awaitable[None]]]:
    """A capture that goes on while the block runs, and ends in order; wait for so many rows."""
    stop = asyncio.Event()
    state = Captured()

    def note(now: Captured) -> None:
        nonlocal state
        state = now

    async def reaches(count: int) -> None:
        async def enough() -> bool:
            return state.rows >= count

        await until(enough)

    task = asyncio.create_task(capture(*args, stop=stop, progress=note, **options))
    try:
        yield reaches
    finally:
        stop.set()
        assert await task == state


# -- what is captured ------------------------------------------------------------------------------


async def test_everything_in_a_queue_is_in_the_lake_and_not_in_the_queue(
    qc: QueueCraft, lake: Lake
) -> None:
    await qc.publish(
        "order.placed",
        {"n": 1},
        message_id="m-1",
        key="o-1",
        headers={"tenant": "t1", "pages": 2, "raw": b"\xff"},
        correlation_id="c-1",
    )
    assert await capture(qc, "tap", lake, once=True) == Captured(rows=1, segments=1, size=7)
    assert await ready(qc) == []
    (row,) = rows(lake)
    assert (row["kind"], row["queue"], row["message_id"]) == ("captured", "tap", "m-1")
    back = outgoing_of(row)
    assert (back.body, back.routing_key, back.key) == (b'{"n":1}', "order.placed", "o-1")
    assert back.headers == {"tenant": "t1", "pages": 2, "raw": b"\xff"}
    assert (back.correlation_id, back.content_type) == ("c-1", "application/json")


async def test_each_message_has_a_moment_of_its_own_also_when_the_clock_goes_back(
    driver: FaultyDriver, lake: Lake
) -> None:
    class Backwards(Clock):
        def __init__(self) -> None:
            self.now = count(1_800_000_000.000_000_7, -0.1).__next__

    async with QueueCraft(drivers=[driver], clock=Backwards()) as qc:
        await qc.admin.declare("tap", "order.*", dead_letters=False)
        sent = await qc.publish_many("order.placed", [{"n": n} for n in range(50)], key="o-1")
        assert (await capture(qc, "tap", lake, rows=20, once=True)).segments == 3
    found = sorted(rows(lake), key=lambda row: row["at"])
    assert [row["message_id"] for row in found] == sent
    assert len({row["at"] for row in found}) == 50


async def test_a_clock_that_is_set_back_by_an_hour_is_believed(
    driver: FaultyDriver, lake: Lake
) -> None:
    clock = Clock()
    clock.now = lambda: 1_800_000_000.0 if files(lake) else 1_800_003_600.0
    async with QueueCraft(drivers=[driver], clock=clock) as qc:
        await qc.admin.declare("tap", "order.*", dead_letters=False)
        await publish(qc, 1, 2)
        assert (await capture(qc, "tap", lake, rows=1, once=True)).segments == 2
    told = {row["message_id"]: row["at"].timestamp() for row in rows(lake)}
    assert told == {"m-1": 1_800_003_600, "m-2": 1_800_000_000}


async def test_what_is_captured_can_be_sent_again(qc: QueueCraft, lake: Lake) -> None:
    await publish(qc, 1, 2)
    await capture(qc, "tap", lake, once=True)
    driver = qc._engine.connection.current
    assert driver is not None
    await driver.send([outgoing_of(row, queue="tap") for row in rows(lake)])
    again = await qc.admin.peek("tap")
    assert [(each.id, each.payload, each.routing_key) for each in again] == [
        ("m-1", {"n": 1}, "order.placed"),
        ("m-2", {"n": 2}, "order.placed"),
    ]


@pytest.mark.parametrize("asked", [{"replayed": True}, {"force": True}], ids=str)
async def test_what_this_lake_replayed_is_archived_again_only_if_asked_for(
    qc: QueueCraft, driver: FaultyDriver, lake: Lake, asked: dict[str, Any]
) -> None:
    plan(lake, "r-1", ("m-1", None, b"{}"))
    again = Outgoing(b"{}", "m-1", queue="tap", headers={"x-replay-id": "r-1"})
    await driver.send([again])
    await publish(qc, 2)
    assert await capture(qc, "tap", lake, once=True) == Captured(
        rows=1, segments=1, size=7, replayed=1
    )
    assert (ids(lake), await ready(qc)) == (["m-2"], [])

    await driver.send([again])
    assert (await capture(qc, "tap", lake, once=True, **asked)).rows == 1
    assert [row["replay_id"] for row in rows(lake) if row["message_id"] == "m-1"] == ["r-1"]


@pytest.mark.parametrize(
    "told",
    ["r-2", "../replays/r-1", "", 7, b"r-1"],
    ids=["unknown", "path", "none", "int", "bytes"],
)
async def test_what_only_says_that_it_was_replayed_is_archived(
    qc: QueueCraft, driver: FaultyDriver, lake: Lake, told: HeaderValue
) -> None:
    plan(lake, "r-1", ("m-1", None, b"{}"))
    await driver.send([Outgoing(b"{}", "m-1", queue="tap", headers={"x-replay-id": told})])
    assert await capture(qc, "tap", lake, once=True) == Captured(rows=1, segments=1, size=2)
    (row,) = rows(lake)
    assert outgoing_of(row).headers == {"x-replay-id": told}


@pytest.mark.parametrize(
    ("question", "about"),
    [
        (Question(set={"payload": "upper(cast(payload as string))"}), {}),
        (Question(transform="mending:fix"), {}),
        (Question(to_event="order.again"), {}),
        (Question(), {"transformed": True}),
    ],
    ids=["set", "named transform", "another event", "transform"],
)
async def test_what_a_replay_has_changed_is_in_no_lake_yet(
    qc: QueueCraft, driver: FaultyDriver, lake: Lake, question: Question, about: dict[str, Any]
) -> None:
    sent = [(f"m-{n}", None, b"CHANGED") for n in range(4)]
    plan(lake, "r-1", *sent, question=Question(to="tap", replayed=True))
    plan(lake, "r-2", *sent, question=question, **about)
    for n, id in enumerate(("r-1", "r-2", "r-1", "r-2")):
        again = Outgoing(b"CHANGED", f"m-{n}", queue="tap", headers={"x-replay-id": id})
        await driver.send([again])
    captured = await capture(qc, "tap", lake, once=True)
    assert (captured.rows, captured.replayed) == (2, 2)
    told = [(row["message_id"], row["replay_id"], row["payload"]) for row in rows(lake)]
    assert told == [("m-1", "r-2", b"CHANGED"), ("m-3", "r-2", b"CHANGED")]


@pytest.mark.parametrize(
    ("id", "event", "body"),
    [
        ("m-1", "order.placed", b"MENDED"),
        ("m-9", "order.placed", b"{}"),
        ("m-1", "order.again", b"{}"),
    ],
    ids=["payload", "id", "event"],
)
async def test_what_was_changed_on_its_way_and_kept_the_header_is_in_no_lake_yet(
    qc: QueueCraft, driver: FaultyDriver, lake: Lake, id: str, event: str, body: bytes
) -> None:
    plan(lake, "r-1", ("m-1", "order.placed", b"{}"), ("m-2", "order.placed", b"{}"))
    for sent in (("m-1", "order.placed", b"{}"), (id, event, body)):
        headers: dict[str, HeaderValue] = {"x-replay-id": "r-1"}
        await driver.send(
            [Outgoing(sent[2], sent[0], exchange="events", routing_key=sent[1], headers=headers)]
        )
    captured = await capture(qc, "tap", lake, once=True)
    assert (captured.rows, captured.replayed) == (1, 1)
    told = [(row["message_id"], row["event"], row["payload"]) for row in rows(lake)]
    assert told == [(id, event, body)]


async def test_a_plan_is_read_once_for_all_of_its_messages(
    qc: QueueCraft, driver: FaultyDriver, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(lake, "r-1", *((f"m-{n}", None, b"") for n in range(20)))
    reads: list[Ledger] = []
    read = Ledger.plan

    def reading(ledger: Ledger) -> Plan:
        reads.append(ledger)
        return read(ledger)

    monkeypatch.setattr(Ledger, "plan", reading)
    for n in range(20):
        await driver.send([Outgoing(b"", f"m-{n}", queue="tap", headers={"x-replay-id": "r-1"})])
    assert (await capture(qc, "tap", lake, rows=5, once=True)).replayed == 20
    assert len(reads) == 1


async def test_what_is_in_a_plan_is_read_once_however_many_segments_there_are(
    qc: QueueCraft, driver: FaultyDriver, lake: Lake
) -> None:
    ledger = plan(lake, "r-1", *((f"m-{n}", None, b"") for n in range(20)))
    for n in range(20):
        await driver.send([Outgoing(b"", f"m-{n}", queue="tap", headers={"x-replay-id": "r-1"})])
    states: list[Captured] = []

    def unread(state: Captured) -> None:
        states.append(state)
        shutil.rmtree(ledger.table, ignore_errors=True)

    await capture(qc, "tap", lake, rows=5, once=True, progress=unread)
    assert [(state.rows, state.replayed) for state in states] == [(0, 5), (0, 10), (0, 15), (0, 20)]


@pytest.mark.parametrize(("plans", "known"), [(1, 2), (2, 3)])
async def test_of_no_more_plans_is_held_what_is_in_them(
    qc: QueueCraft,
    driver: FaultyDriver,
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    plans: int,
    known: int,
) -> None:
    monkeypatch.setattr(replayed, "PLANS", plans)
    first, _ = (plan(lake, id, ("m-1", None, b""), ("m-2", None, b"")) for id in ("r-1", "r-2"))
    for replay, id in (("r-1", "m-1"), ("r-2", "m-1"), ("r-1", "m-2")):
        await driver.send([Outgoing(b"", id, queue="tap", headers={"x-replay-id": replay})])

    def unread(state: Captured) -> None:
        if state.replayed == 2:
            shutil.rmtree(first.table, ignore_errors=True)

    captured = await capture(qc, "tap", lake, rows=1, once=True, progress=unread)
    assert (captured.rows, captured.replayed) == (3 - known, known)


async def test_a_plan_that_could_not_be_read_is_read_for_the_next_segment(
    qc: QueueCraft, driver: FaultyDriver, lake: Lake
) -> None:
    ledger = plan(lake, "r-1", ("m-1", None, b""), ("m-2", None, b""))
    (file,) = ledger.chunk(0).iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    for id in ("m-1", "m-2"):
        await driver.send([Outgoing(b"", id, queue="tap", headers={"x-replay-id": "r-1"})])
    captured = await capture(
        qc, "tap", lake, rows=1, once=True, progress=lambda _: file.write_bytes(whole)
    )
    assert (captured.rows, captured.replayed) == (1, 1)
    assert ids(lake) == ["m-1"]


async def test_what_is_of_a_plan_that_cannot_be_read_is_archived(
    qc: QueueCraft, driver: FaultyDriver, lake: Lake
) -> None:
    for id, broken in (("r-1", "plan.json"), ("r-2", "plan/chunk=0/part-0.parquet"), ("r-3", "")):
        ledger = plan(lake, id, *([("m-1", None, b"{}")] if broken else []))
        if broken:
            (ledger.folder / broken).write_text("{")
        await driver.send([Outgoing(b"{}", "m-1", queue="tap", headers={"x-replay-id": id})])
    assert (await capture(qc, "tap", lake, once=True)).rows == 3


async def test_what_is_of_a_plan_that_is_not_ours_to_look_at_is_archived(
    qc: QueueCraft, driver: FaultyDriver, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Ledger) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Ledger, "planned", property(refuse))  # no folder keeps root out
    await driver.send([Outgoing(b"{}", "m-1", queue="tap", headers={"x-replay-id": "r-1"})])
    assert (await capture(qc, "tap", lake, once=True)).rows == 1


async def test_a_replay_whose_plan_is_not_complete_has_sent_nothing(
    qc: QueueCraft, driver: FaultyDriver, lake: Lake
) -> None:
    (lake.replays / "r-1").mkdir(parents=True)
    await driver.send([Outgoing(b"{}", "m-1", queue="tap", headers={"x-replay-id": "r-1"})])
    assert (await capture(qc, "tap", lake, once=True)).rows == 1


async def test_an_empty_queue_makes_no_segment(qc: QueueCraft, lake: Lake) -> None:
    assert await capture(qc, "tap", lake, once=True) == Captured()
    assert not lake.root.exists()


async def test_a_segment_has_at_most_so_many_rows(qc: QueueCraft, lake: Lake) -> None:
    await publish(qc, *range(25))
    captured = await capture(qc, "tap", lake, rows=10, once=True)
    assert (captured.rows, captured.segments) == (25, 3)
    assert ids(lake) == [f"m-{n}" for n in range(25)]


async def test_large_payloads_make_smaller_segments(
    qc: QueueCraft, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capturing, "BYTES", 30)
    await publish(qc, *range(9))  # of seven bytes each
    assert (await capture(qc, "tap", lake, once=True)).segments == 3
    assert all(
        sum(row["size"] for row in pq.ParquetFile(path).read().to_pylist()) <= 30
        for path in files(lake)
    )
    assert ids(lake) == [f"m-{n}" for n in range(9)]


async def test_large_messages_among_small_ones_make_a_segment_of_their_own(
    qc: QueueCraft, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capturing, "BYTES", 30)
    monkeypatch.setattr(capturing, "LARGE", 1)
    await publish(qc, 1)
    for n in (2, 3, 4):
        await qc.publish("order.placed", {"n": "x" * 40}, message_id=f"m-{n}")
    await publish(qc, 5, 6)
    assert (await capture(qc, "tap", lake, once=True)).segments == 5
    assert ids(lake) == [f"m-{n}" for n in range(1, 7)]


async def test_of_large_messages_no_more_are_asked_for_than_fit(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capturing, "BYTES", 1000)
    monkeypatch.setattr(capturing, "LARGE", 500)
    asked: list[int] = []
    receive = tap.Tap.receive

    async def noted(self: tap.Tap, limit: int, wait: float) -> Any:
        asked.append(limit)
        return await receive(self, limit, wait)

    monkeypatch.setattr(tap.Tap, "receive", noted)
    for n in range(20):
        await qc.publish("order.placed", "x" * 198, message_id=f"m-{n}")  # of 200 bytes each
    assert (await capture(qc, "tap", lake, once=True)).segments == 4
    assert asked[:5] == [2, 3, 5, 5, 5]


async def test_no_more_is_held_than_fits_in_a_segment(qc: QueueCraft, lake: Lake) -> None:
    await publish(qc, *range(30))
    held: list[int | None] = []

    async def look() -> None:
        held.append((await qc.admin.inspect("tap")).in_flight)

    looks: list[asyncio.Task[None]] = []
    await capture(
        qc,
        "tap",
        lake,
        rows=10,
        once=True,
        progress=lambda _: looks.append(asyncio.create_task(look())),
    )
    await asyncio.gather(*looks)
    assert len(held) == 3
    assert all(each is not None and each <= 10 for each in held)


# -- when it ends ----------------------------------------------------------------------------------


async def test_a_message_waits_no_longer_than_so_many_seconds(qc: QueueCraft, lake: Lake) -> None:
    async with under_way(qc, "tap", lake, seconds=0.01) as reaches:
        await publish(qc, 1)
        await reaches(1)
        await publish(qc, 2)
        await reaches(2)
        assert ids(lake) == ["m-1", "m-2"]
        assert len(files(lake)) == 2


async def test_asked_to_stop_it_writes_what_it_holds(qc: QueueCraft, lake: Lake) -> None:
    async def taken() -> bool:
        return (await qc.admin.inspect("tap")).in_flight == 3

    async with under_way(qc, "tap", lake, seconds=1000):
        await publish(qc, 1, 2, 3)
        await until(taken)
    assert ids(lake) == ["m-1", "m-2", "m-3"]
    assert (await qc.admin.inspect("tap")).ready == 0


async def test_cancelled_it_gives_back_what_it_holds(qc: QueueCraft, lake: Lake) -> None:
    async def taken() -> bool:
        return (await qc.admin.inspect("tap")).in_flight == 3

    task = asyncio.create_task(capture(qc, "tap", lake, seconds=1000))
    await publish(qc, 1, 2, 3)
    await until(taken)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert await ready(qc) == ["m-1", "m-2", "m-3"]
    assert not lake.root.exists()


async def test_cancelled_between_the_segment_and_the_ack_it_still_acknowledges(
    qc: QueueCraft, lake: Lake
) -> None:
    await publish(qc, 1, 2)
    task = asyncio.create_task(capture(qc, "tap", lake, rows=2))

    def cancel() -> None:
        task.cancel()

    failpoints.arm("capture.before_ack", cancel)
    try:
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        failpoints.disarm("capture.before_ack")
    assert ids(lake) == ["m-1", "m-2"]
    assert await ready(qc) == []


@pytest.mark.parametrize("how", ["stop", "cancel"])
@pytest.mark.parametrize("hanging", ["ack", "close"])
async def test_a_broker_that_does_not_answer_does_not_keep_a_capture_that_is_to_end(
    qc: QueueCraft, lake: Lake, monkeypatch: pytest.MonkeyPatch, how: str, hanging: str
) -> None:
    asked, stop = asyncio.Event(), asyncio.Event()

    async def hangs(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def written() -> bool:
        return ids(lake) == ["m-1", "m-2"] and (hanging == "close" or asked.is_set())

    await publish(qc, 1, 2)
    monkeypatch.setattr(capturing, "FAREWELL", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(FaultySubscription, hanging, hangs)
        task = asyncio.create_task(capture(qc, "tap", lake, rows=2, stop=stop))
        await until(written)
        if how == "stop":
            stop.set()
        else:
            task.cancel()
        async with asyncio.timeout(5):
            await asyncio.wait([task])
    assert asked.is_set()
    assert task.cancelled() == (how == "cancel")


async def test_a_connection_that_others_found_lost_and_mended_costs_nothing(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver
) -> None:
    async def lose(_: Captured) -> None:
        await driver.drop()
        await publish(qc, 3)  # meets the loss, and waits until it is mended

    losing: list[asyncio.Task[None]] = []

    def once(state: Captured) -> None:
        if not losing:
            losing.append(asyncio.create_task(lose(state)))

    await publish(qc, 1, 2)
    await capture(qc, "tap", lake, rows=1, once=True, progress=once)
    await asyncio.gather(*losing)
    assert set(ids(lake)) == {"m-1", "m-2", "m-3"}
    assert await ready(qc) == []


async def test_once_waits_for_what_another_holds(qc: QueueCraft, lake: Lake) -> None:
    await publish(qc, 1, 2)
    driver = qc._engine.connection.current
    assert driver is not None
    other = await driver.subscribe(Queue("tap"), prefetch=1)
    held = await other.receive(1, 1)
    seen = asyncio.Event()
    task = asyncio.create_task(
        capture(qc, "tap", lake, once=True, force=True, progress=lambda _: seen.set())
    )
    await seen.wait()
    assert ids(lake) == ["m-2"]
    await other.release(held)
    assert (await task).rows == 2
    await other.close()
    assert ids(lake) == ["m-2", "m-1"]


async def test_once_waits_for_another_where_the_broker_does_not_say_what_that_holds(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect = driver.inspect

    async def unsaid(queues: Sequence[str] | None = None) -> Sequence[QueueInfo]:
        return [replace(info, in_flight=None) for info in await inspect(queues)]

    monkeypatch.setattr(driver, "inspect", unsaid)
    await publish(qc, 1, 2)
    other = await driver.subscribe(Queue("tap"), prefetch=1)
    assert await other.receive(1, 1)
    seen = asyncio.Event()
    task = asyncio.create_task(
        capture(qc, "tap", lake, once=True, force=True, progress=lambda _: seen.set())
    )
    await seen.wait()
    await asyncio.sleep(4 * capturing.EMPTY)
    assert not task.done()
    await other.close()
    assert (await task).rows == 2
    assert sorted(ids(lake)) == ["m-1", "m-2"]


async def test_asked_to_stop_in_an_outage_once_ends_too(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver
) -> None:
    stop = asyncio.Event()
    losing: list[asyncio.Task[None]] = []

    def lose(_: Captured) -> None:
        driver.refuse(opens=1_000_000)
        losing.append(asyncio.create_task(driver.drop()))

    await publish(qc, 1)
    task = asyncio.create_task(capture(qc, "tap", lake, once=True, stop=stop, progress=lose))
    await until(lambda: _is_in(qc, "reconnecting"))
    stop.set()
    assert (await asyncio.wait_for(task, 5)).rows == 1
    driver.heal()


async def _is_in(qc: QueueCraft, state: str) -> bool:
    return qc.connection_state == state


# -- what goes wrong -------------------------------------------------------------------------------


async def test_a_disk_that_is_full_costs_nothing(qc: QueueCraft, lake: Lake) -> None:
    await publish(qc, 1, 2)
    full = OSError(28, "No space left on device")
    with failing("segment.before_rename", full), pytest.raises(OSError, match="No space left"):
        await capture(qc, "tap", lake, once=True)
    assert ids(lake) == []
    assert await ready(qc) == ["m-1", "m-2"]


async def test_a_connection_lost_while_receiving_costs_nothing(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver
) -> None:
    async def taken() -> bool:
        return (await qc.admin.inspect("tap")).in_flight == 2

    async with under_way(qc, "tap", lake, seconds=1000):
        await publish(qc, 1, 2)
        await until(taken)
        await driver.drop()
        await publish(qc, 3)
        await until(lambda: _held(qc, 3))
    archived = sorted(ids(lake))
    assert archived == ["m-1", "m-1", "m-2", "m-2", "m-3"], "what was held, and what came again"
    assert await ready(qc) == []


async def _consumers(qc: QueueCraft, queue: str) -> int | None:
    return (await qc.admin.inspect(queue)).consumers


async def _held(qc: QueueCraft, count: int) -> bool:
    with suppress(ConnectionLost):
        return (await qc.admin.inspect("tap")).in_flight == count
    return False


async def test_an_ack_that_is_not_heard_gives_duplicates_of_the_same_key(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver
) -> None:
    await publish(qc, 1, 2)
    driver.fail("ack")

    # The connection counts as lost, and what was held goes back with it.
    assert (await capture(qc, "tap", lake, once=True)).rows == 4
    keys = [
        tuple(row[name] for name in ("message_id", "queue", "kind", "attempt", "replay_id"))
        for row in rows(lake)
    ]
    assert len(keys) == 4
    assert set(keys) == {(f"m-{n}", "tap", "captured", 0, None) for n in (1, 2)}
    assert await ready(qc) == []


async def test_a_broker_that_is_gone_for_good_ends_it(lake: Lake, driver: FaultyDriver) -> None:
    async with QueueCraft(drivers=[driver], auto_reconnect=False) as qc:
        await qc.admin.declare("tap", dead_letters=False)
        task = asyncio.create_task(capture(qc, "tap", lake))

        await until(lambda: _consumers(qc, "tap"))
        await driver.drop()
        with pytest.raises(ConnectionLost):
            await task


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "AGAIN", 0.0)


THROWN_OUT = "partitions went to another process before their handlers had ended"


@pytest.mark.usefixtures("at_once")
async def test_thrown_out_of_its_group_it_joins_again_and_loses_nothing(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver, caplog: pytest.LogCaptureFixture
) -> None:
    async def joined() -> bool:
        return driver.calls["subscribe"] == 4 and await _held(qc, 3)

    async with asyncio.timeout(10), under_way(qc, "tap", lake, seconds=1000):
        await publish(qc, 1, 2)
        await until(lambda: _held(qc, 2))
        driver.fail("receive", QueueError(THROWN_OUT))
        driver.fail("subscribe", QueueError("the group is being shared out"), times=2)
        await publish(qc, 3)  # wakes it, and it asks for more
        await until(joined)
        assert driver.calls["ack"] == 0, "what is in no segment is never acknowledged"
    archived = sorted(ids(lake))
    assert archived == sorted(["m-1", "m-2", "m-3"] * 2), "what was held, and came again"
    assert await ready(qc) == []
    told = [each.message for each in caplog.records if each.message.startswith("cannot capture")]
    assert told[0].startswith(f"cannot capture tap: {THROWN_OUT}")
    assert len(told) == 3


@pytest.mark.usefixtures("at_once")
async def test_an_ack_that_is_refused_gives_duplicates_and_no_end(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver
) -> None:
    await publish(qc, 1, 2)
    driver.fail("ack", QueueError(THROWN_OUT))

    assert (await capture(qc, "tap", lake, once=True)).rows == 4
    assert sorted(ids(lake)) == ["m-1", "m-1", "m-2", "m-2"], "what was written came again"
    assert await ready(qc) == []


@pytest.mark.usefixtures("at_once")
async def test_a_queue_that_is_gone_ends_it(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver
) -> None:
    deleting: list[asyncio.Task[None]] = []

    def delete(_: Captured) -> None:
        driver.fail("receive", QueueError("the broker has ended the consumer"))
        deleting.append(asyncio.create_task(driver.inner.delete("tap")))

    await publish(qc, 1, 2)
    with pytest.raises(QueueError, match="queue 'tap' exists no more: the broker has ended"):
        await asyncio.wait_for(capture(qc, "tap", lake, rows=1, progress=delete), 10)
    assert ids(lake) == ["m-1"]


@pytest.mark.usefixtures("at_once")
async def test_what_trying_again_does_not_mend_ends_it(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver
) -> None:
    task = asyncio.create_task(capture(qc, "tap", lake))
    await until(lambda: _consumers(qc, "tap"))
    driver.fail("receive", QueueError(THROWN_OUT))
    driver.fail("subscribe", ConfigError("there is no such user"))
    await publish(qc, 1)  # wakes it, and it asks for more
    with pytest.raises(ConfigError, match="no such user"):
        await asyncio.wait_for(task, 10)

    driver.heal()
    driver.fail("subscribe", QueueError("it may not be consumed"))
    with pytest.raises(QueueError, match="may not be consumed"):
        await capture(qc, "tap", lake)


async def test_a_queue_that_breaks_loses_nothing_of_what_was_taken(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver
) -> None:
    await publish(qc, 1, 2)
    received = 0

    class Breaking(tap.Tap):
        async def receive(self, limit: int, wait: float) -> Any:
            nonlocal received
            received += 1
            if received > 1:
                raise QueueError("there is no such queue any more")
            return await super().receive(limit, wait)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capturing, "Tap", Breaking)
        with pytest.raises(QueueError, match="no such queue any more"):
            await capture(qc, "tap", lake)
    assert ids(lake) == ["m-1", "m-2"]


# -- what is refused -------------------------------------------------------------------------------


async def test_a_work_queue_is_refused_and_a_tap_proposed(
    qc: QueueCraft, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capturing, "LINGER", 0.01)
    worker = qc.worker("billing")
    worker.on("order.placed", print)
    await worker.start()
    await until(lambda: _consumers(qc, "billing"))
    with pytest.raises(QueueError, match=r"has a consumer.*queuecraft declare billing\.tap"):
        await capture(qc, "billing", lake, once=True)
    await worker.stop()
    assert await capture(qc, "billing", lake, once=True) == Captured()


async def test_dead_letters_are_captured_only_by_force_and_tell_their_story(
    qc: QueueCraft, lake: Lake
) -> None:
    worker = qc.worker("billing", retry=NoRetry())

    @worker.on("order.placed")
    async def fail(order: dict[str, int]) -> None:
        raise KeyError("order 17")

    await worker.start()
    await publish(qc, 1)

    async def dead() -> bool:
        return (await qc.admin.inspect("billing.dlq")).ready == 1

    await until(dead)
    await worker.stop()
    with pytest.raises(QueueError, match="holds dead letters"):
        await capture(qc, "billing.dlq", lake, once=True)
    (letter,) = await qc.dead_letters.list("billing")
    assert (await capture(qc, "billing.dlq", lake, once=True, force=True)).rows == 1
    (row,) = rows(lake)
    assert (row["message_id"], row["queue"], row["error_type"]) == (
        "m-1",
        "billing.dlq",
        "KeyError",
    )
    assert row["reason"] == letter.reason
    assert row["fingerprint"] == letter.fingerprint


@pytest.mark.parametrize("known", ["here", "there"])
async def test_dead_letters_are_known_under_another_name_too(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver, known: str
) -> None:
    worker = qc.worker("payments", dead_letter=DeadLetter(queue="payments.failed"))
    worker.on("payment.made", print)
    if known == "here":  # in this application, and by nothing that is on the broker yet
        await qc.admin.declare("payments.failed", dead_letters=False)
        await _refuses_dead_letters(qc, lake)
    else:
        await worker.start()
        await worker.stop()
        async with QueueCraft(drivers=[FaultyDriver(driver.inner)]) as other:
            await _refuses_dead_letters(other, lake)


async def test_a_tap_on_events_stays_one_though_what_waits_for_another_try_goes_by_there(
    qc: QueueCraft, lake: Lake
) -> None:
    waiting = Policy(dead_letter=DeadLetter(exchange="events", queue="tap"))
    await qc.admin.declare(Queue("billing.wait", policy=waiting))
    await publish(qc, 1)
    assert (await capture(qc, "tap", lake, once=True)).rows == 1


async def _refuses_dead_letters(qc: QueueCraft, lake: Lake) -> None:
    driver = qc._engine.connection.current
    assert driver is not None
    await driver.send([Outgoing(b"{}", "m-1", queue="payments.failed")])
    with pytest.raises(QueueError, match=r"queue 'payments\.failed' holds dead letters"):
        await capture(qc, "payments.failed", lake, once=True)
    assert await ready(qc, "payments.failed") == ["m-1"]
    assert (await capture(qc, "payments.failed", lake, once=True, force=True)).rows == 1


async def test_copies_of_dead_letters_are_captured_from_a_tap_and_those_stay(
    qc: QueueCraft, lake: Lake
) -> None:
    await qc.admin.declare("billing")
    await qc.admin.declare("morgue", "#", exchange="events.dlx", dead_letters=False)
    driver = qc._engine.connection.current
    assert driver is not None
    await driver.send([Outgoing(b"{}", "m-1", exchange="events.dlx", routing_key="billing.dlq")])
    assert (await capture(qc, "morgue", lake, once=True)).rows == 1
    assert await ready(qc, "billing.dlq") == ["m-1"]


@pytest.mark.parametrize("force", [False, True])
async def test_a_queue_that_does_not_exist_is_an_error(
    qc: QueueCraft, lake: Lake, force: bool
) -> None:
    with pytest.raises(UnknownQueue, match="did you mean 'tap'"):
        await capture(qc, "tapp", lake, once=True, force=force)


@pytest.mark.parametrize("options", [{"rows": 0}, {"rows": 70_000}, {"seconds": 0}])
async def test_numbers_that_make_no_sense_are_refused(
    qc: QueueCraft, lake: Lake, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="capture"):
        await capture(qc, "tap", lake, **options)


async def test_a_message_that_fits_no_column_is_captured_with_the_others(
    qc: QueueCraft, lake: Lake, driver: FaultyDriver
) -> None:
    await driver.send(
        [Outgoing(b"1", "m-1", queue="tap", timestamp=1e300), Outgoing(b"2", "m-2", queue="tap")]
    )
    assert (await capture(qc, "tap", lake, once=True)).rows == 2
    assert [row["payload"] for row in rows(lake)] == [b"1", b"2"]
