"""Plans executed: what arrives, in which order, and when it stops by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuecraft import ConfigError, Message, NoRetry, QueueCraft, QueueError
from queuecraft.admin import UnknownQueue
from queuecraft.pipeline.replay.execution import Progress, execute, progress_of
from queuecraft.pipeline.replay.ledger import Ledger
from queuecraft.pipeline.replay.planning import plan
from queuecraft.pipeline.replay.question import Question
from queuecraft.pipeline.replay.state import replays
from queuecraft.pipeline.source.site import Site
from queuecraft.testing.failpoints import Failed, failing
from tests.pipeline.replay.scene import DEEP, NOON, Broker, archive, captured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def worker(url: str, queue: str, *, failing: bool) -> Generator[list[str]]:
    """A worker of the queue in a thread; what it was given."""
    seen: list[str] = []
    ready = threading.Event()
    ended: list[asyncio.Event] = []

    async def main() -> None:
        qc = QueueCraft(url, concurrency=4)
        billing = qc.worker(queue, retry=NoRetry())

        async def handle(payload: Any, message: Message[Any]) -> None:
            seen.append(message.id)
            if failing:
                raise ValueError("no money")

        billing.on("#", handle)
        stop = asyncio.Event()
        async with qc:
            await billing.start()
            ended.append(stop)
            loops.append(asyncio.get_running_loop())
            ready.set()
            await stop.wait()

    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(30)
        yield seen
    finally:
        loops[0].call_soon_threadsafe(ended[0].set)
        thread.join()


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def test_messages_arrive_in_order_with_all_they_had_and_the_id_of_the_replay(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    told = {
        "key": "k",
        "priority": 3,
        "correlation_id": "c-1",
        "reply_to": "qc.reply.1",
        "due_at": NOON + 1e9,
        "expires_at": NOON + 1e9,
        "headers": {"tenant": "t1", "x-retry": "{}"},
        "typed_headers": '{"n":5,"x-retry-count":2}',
    }
    late = {"expires_at": NOON}
    rows = [captured(n, **(told if n == 2 else late if n == 4 else {})) for n in range(12)]
    lake = archive(tmp_path / "lake", rows)
    broker.declare("billing")
    made = plan(spark, lake, Question(to="billing", canary=3, chunk=5))
    seen: list[Progress] = []
    result = execute(spark, lake, made.id, on_progress=seen.append)
    assert (result.sent, result.expired, result.refused, result.done) == (11, 1, 0, True)
    assert result.unattended == ("billing",)
    assert [each.chunks_done for each in seen] == sorted(each.chunks_done for each in seen)
    received = broker.received("billing")
    # The embedded queue keeps priorities: the one that has some is ahead.
    order = [2, *(n for n in range(12) if n not in (2, 4))]
    assert [each.sent.id for each in received] == [f"m-{n:05}" for n in order]
    assert {each.sent.headers["x-replay-id"] for each in received} == {made.id}
    sent = received[0].sent
    assert (sent.body, sent.routing_key, sent.key, sent.correlation_id, sent.priority) == (
        b'{"n":2}',
        "order.placed",
        "k",
        "c-1",
        3,
    )
    assert (sent.timestamp, sent.content_type) == (NOON + 2, "application/json")
    assert (sent.expires_at, sent.reply_to) == (NOON + 1e9, None)
    assert sent.headers == {"tenant": "t1", "x-retry": "{}", "n": 5, "x-replay-id": made.id}
    # Once done, it is done.
    assert execute(spark, lake, made.id).done
    assert len(broker.ids("billing")) == 11
    assert replays(lake)[-1].state == "done"


def test_an_event_goes_to_every_queue_bound_to_it_and_one_that_nobody_wants_is_told(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    lake = archive(
        tmp_path / "lake",
        [captured(1), captured(2, event="user.created"), captured(3, exchange=None, queue="audit")],
    )
    broker.declare("billing", "order.*")
    broker.declare("audit", "order.placed")
    made = plan(spark, lake)
    result = execute(spark, lake, made.id)
    assert (result.sent, result.refused) == (2, 1)
    ((message_id, why),) = result.refusals
    assert message_id == "m-00002"
    assert "no queue is bound" in why
    assert broker.ids("billing") == ["m-00001"]
    assert broker.ids("audit") == ["m-00001", "m-00003"]


def test_a_row_that_makes_no_message_is_refused_alone_and_the_replay_ends(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    told = {3: DEEP, 5: '{"of":{"table":"orders"}}'}
    rows = [captured(n, typed_headers=told.get(n)) for n in range(9)]
    broker.declare("billing")
    lake = archive(tmp_path / "lake", rows)
    result = execute(spark, lake, plan(spark, lake, Question(to="billing", chunk=4)).id)
    assert (result.sent, result.refused, result.done) == (8, 1, True)
    assert broker.ids("billing") == [f"m-{n:05}" for n in range(9) if n != 3]


def test_nothing_is_sent_to_a_queue_or_exchange_that_is_not_there(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.declare("billing")
    lake = archive(tmp_path / "lake", [captured(1, exchange="elsewhere"), captured(2)])
    made = plan(spark, lake, Question(to="biling"))
    with pytest.raises(UnknownQueue, match="did you mean 'billing'"):
        execute(spark, lake, made.id)
    other = plan(spark, lake)
    with pytest.raises(ConfigError, match="exchange 'elsewhere'"):
        execute(spark, lake, other.id)
    with pytest.raises(ConfigError, match="no replay 'r-1'"):
        execute(spark, lake, "r-1")
    with pytest.raises(ConfigError, match="not the id of a replay"):
        execute(spark, lake, "../other")
    with pytest.raises(ConfigError, match="a name or a URL"):
        execute(spark, lake, made.id, connection="shop", url=broker.url)


def test_nothing_is_sent_where_tasks_are_started_twice(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.declare("billing")
    lake = archive(tmp_path / "lake", [captured(1)])
    made = plan(spark, lake, Question(to="billing"))
    # Within one process Spark never does; tests/pipeline/cluster has one that would.
    monkeypatch.setattr(Site, "of", lambda _: Site(local=True, slots=1, speculates=True))
    with pytest.raises(ConfigError, match=r"spark\.speculation=false"):
        execute(spark, lake, made.id)
    assert broker.ids("billing") == []


@pytest.mark.parametrize(
    ("place", "again"),
    [
        ("replay.before_chunk", 0),
        ("replay.after_chunk", 3),
        ("replay.after_ledger", 0),
    ],
)
def test_interrupted_it_goes_on_at_the_first_chunk_that_is_not_done(
    spark: SparkSession, broker: Broker, tmp_path: Path, place: str, again: int
) -> None:
    lake = archive(tmp_path / "lake", [captured(n) for n in range(8)])
    broker.declare("billing")
    made = plan(spark, lake, Question(to="billing", canary=2, chunk=3))
    with failing(place, skip=1), pytest.raises(Failed):
        execute(spark, lake, made.id)
    assert replays(lake)[-1].state == "interrupted"
    so_far = progress_of(lake, made.id)
    result = execute(spark, lake, made.id)
    assert result.done
    assert so_far.chunks_done < result.chunks_done == 3
    received = broker.received("billing")
    ids = [each.sent.id for each in received]
    assert set(ids) == {f"m-{n:05}" for n in range(8)}
    assert len(ids) == 8 + again
    assert {each.sent.headers["x-replay-id"] for each in received} == {made.id}


def test_ctrl_c_ends_the_tasks_as_well(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    lake = archive(tmp_path / "lake", [captured(n) for n in range(50)])
    broker.declare("billing")
    made = plan(spark, lake, Question(to="billing"))

    def press() -> None:
        wait_until(lambda: bool(broker.ids("billing")))
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        execute(spark, lake, made.id, rate=2)
    pressing.join()
    assert replays(lake)[0].state == "planned"
    assert execute(spark, lake, made.id).sent == 50
    times = Counter(broker.ids("billing"))
    assert sorted(times) == [f"m-{n:05}" for n in range(50)]
    assert times.total() < 100


def test_only_one_at_a_time_executes_a_replay(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    lake = archive(tmp_path / "lake", [captured(1)])
    broker.declare("billing")
    made = plan(spark, lake, Question(to="billing"))
    with Ledger.of(lake, made.id).locked():
        assert replays(lake)[0].state == "running"
        with pytest.raises(QueueError, match="running already"):
            execute(spark, lake, made.id)
    assert execute(spark, lake, made.id).done


def test_it_pauses_when_messages_fail_and_goes_on_when_told_to(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    lake = archive(tmp_path / "lake", [captured(n) for n in range(30)])
    broker.declare("billing")
    made = plan(spark, lake, Question(to="billing", canary=5, chunk=10))
    with worker(broker.url, "billing", failing=True) as seen:
        result = execute(spark, lake, made.id)
        assert result.paused is not None
        assert "5 of the last 5 messages failed" in result.paused
        assert (result.sent, result.done, result.failure_rate) == (5, False, 1.0)
        assert sorted(seen) == [f"m-{n:05}" for n in range(5)]
        (state,) = replays(lake)
        assert (state.state, state.reason) == ("paused", result.paused)
        assert execute(spark, lake, made.id, force=True).done
    assert replays(lake)[0].state == "done"


def test_it_goes_on_while_messages_are_handled(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    lake = archive(tmp_path / "lake", [captured(n) for n in range(30)])
    broker.declare("billing")
    made = plan(spark, lake, Question(to="billing", canary=5, chunk=10))
    with worker(broker.url, "billing", failing=False):
        result = execute(spark, lake, made.id, max_backlog=9)
    assert (result.sent, result.paused, result.failed) == (30, None, 0)


def test_with_a_limit_it_pauses_where_nobody_consumes(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    lake = archive(tmp_path / "lake", [captured(n) for n in range(30)])
    broker.declare("billing")
    made = plan(spark, lake, Question(to="billing", canary=5, chunk=10))
    result = execute(spark, lake, made.id, max_backlog=14)
    assert result.paused is not None
    assert "nobody consumes 'billing'" in result.paused
    assert len(broker.ids("billing")) == result.sent == 15


def test_refusals_are_failures_too(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    lake = archive(tmp_path / "lake", [captured(n) for n in range(30)])
    made = plan(spark, lake, Question(to_event="nobody.wants", canary=5, chunk=10))
    broker.declare("billing")
    result = execute(spark, lake, made.id)
    assert result.paused is not None
    assert "no queue is bound" in result.paused
    assert (result.sent, result.refused) == (0, 5)


def test_resumed_it_sends_what_was_refused_once_the_cause_is_mended(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    lake = archive(tmp_path / "lake", [captured(n) for n in range(60)])
    made = plan(spark, lake, Question(to_event="nobody.wants", canary=50, chunk=10))
    broker.declare("billing")
    assert execute(spark, lake, made.id).refused == 50
    assert replays(lake)[0].state == "paused"
    # Nothing is mended: the next chunk does not go the same way.
    still = execute(spark, lake, made.id)
    assert (still.sent, still.refused, still.chunks_done) == (0, 50, 1)
    assert still.paused is not None
    broker.declare("audit", "nobody.wants")
    result = execute(spark, lake, made.id)
    assert (result.sent, result.refused, result.refusals, result.done) == (60, 0, (), True)
    received = broker.received("audit")
    assert [each.sent.id for each in received] == [f"m-{n:05}" for n in range(60)]
    assert {each.sent.headers["x-replay-id"] for each in received} == {made.id}
    assert replays(lake)[0].state == "done"
    assert execute(spark, lake, made.id).sent == 60
    assert len(broker.ids("audit")) == 60


@pytest.mark.parametrize(
    ("place", "again"),
    [("replay.before_chunk", 0), ("replay.after_chunk", 2), ("replay.after_ledger", 0)],
)
def test_interrupted_while_it_sends_what_was_refused_it_loses_none_of_it(
    spark: SparkSession, broker: Broker, tmp_path: Path, place: str, again: int
) -> None:
    odd = {"event": "user.created"}
    lake = archive(tmp_path / "lake", [captured(n, **(odd if n % 3 else {})) for n in range(6)])
    broker.declare("billing", "order.placed")
    made = plan(spark, lake, Question(canary=3, chunk=3))
    first = execute(spark, lake, made.id, force=True)
    assert (first.sent, first.refused, first.done) == (2, 4, True)
    broker.declare("billing", "user.created")
    with failing(place), pytest.raises(Failed):
        execute(spark, lake, made.id)
    assert execute(spark, lake, made.id).sent == 6
    times = Counter(broker.ids("billing"))
    assert set(times) == {f"m-{n:05}" for n in range(6)}
    assert times.total() == 6 + again
    assert {times["m-00000"], times["m-00003"]} == {1}, "they were not refused"


def test_what_is_refused_for_good_holds_up_nothing_else(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    odd = {5: {"event": "user.created"}, 25: {"typed_headers": "no json"}}
    lake = archive(tmp_path / "lake", [captured(n, **odd.get(n, {})) for n in range(40)])
    broker.declare("billing", "order.placed")
    made = plan(spark, lake, Question(canary=20, chunk=20))
    assert execute(spark, lake, made.id).refused == 2
    broker.declare("billing", "user.created")
    result = execute(spark, lake, made.id)
    assert (result.sent, result.refused, result.paused) == (39, 1, None)
    assert [message_id for message_id, _ in result.refusals] == ["m-00025"]
    assert replays(lake)[0].state == "done"
    assert sorted(broker.ids("billing")) == [f"m-{n:05}" for n in range(40) if n != 25]


def test_a_chunk_noted_without_saying_which_were_refused_goes_again_as_a_whole(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    lake = archive(tmp_path / "lake", [captured(n) for n in range(5)])
    broker.declare("billing")
    made = plan(spark, lake, Question(to="billing", canary=3))
    older = Ledger.of(lake, made.id).folder / "ledger" / "000000.json"
    older.parent.mkdir()
    older.write_text('{"chunk": 0, "sent": 1, "refused": 2}')
    result = execute(spark, lake, made.id)
    assert (result.sent, result.refused) == (5, 0)
    assert broker.ids("billing") == [f"m-{n:05}" for n in range(5)]


def test_it_does_not_go_on_at_another_broker(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = archive(tmp_path / "lake", [captured(n) for n in range(8)])
    other = Broker(f"local://{tmp_path / 'other.db'}")
    for each in (broker, other):
        each.declare("billing")
    monkeypatch.setenv("QUEUECRAFT_CONNECTION_SHOP_URL", broker.url)
    monkeypatch.setenv("QUEUECRAFT_CONNECTION_TEST_URL", other.url)
    made = plan(spark, lake, Question(to="billing", canary=2, chunk=3))
    with failing("replay.after_ledger"), pytest.raises(Failed):
        execute(spark, lake, made.id, connection="shop")
    with pytest.raises(ConfigError, match=r"began at .*queue\.db \(connection 'shop'\).*plan"):
        execute(spark, lake, made.id, connection="test")
    assert other.ids("billing") == []
    # By another name it is the same broker; and a replay that was begun before this was noted may
    # go on anywhere.
    assert execute(spark, lake, made.id, max_backlog=1).paused is not None
    (Ledger.of(lake, made.id).folder / "broker.json").unlink()
    assert execute(spark, lake, made.id, connection="test").done
    assert len(other.ids("billing")) == 6


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["rabbitmq", "redis"])
def test_it_is_the_same_on_brokers_elsewhere(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    kind: str,
) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    elsewhere = Broker(f"{url}&mode=list" if kind == "redis" else url)
    monkeypatch.setenv("QUEUECRAFT_CONNECTION_SHOP_URL", elsewhere.url)
    lake = archive(tmp_path / "lake", [captured(n, key=f"k-{n % 3}") for n in range(20)])
    elsewhere.declare("billing", "order.*")
    made = plan(spark, lake, Question(canary=5, chunk=10))
    with worker(elsewhere.url, "billing", failing=False) as seen:
        result = execute(spark, lake, made.id, connection="shop", rate=1000)
        assert (result.sent, result.done, result.paused) == (20, True, None)
        wait_until(lambda: len(seen) >= 20)
    assert sorted(seen) == [f"m-{n:05}" for n in range(20)]
    again = plan(spark, lake, Question(to="billing"))
    execute(spark, lake, again.id, connection="shop")
    received = elsewhere.received("billing")
    assert [each.sent.id for each in received] == [f"m-{n:05}" for n in range(20)]
    assert {each.sent.headers["x-replay-id"] for each in received} == {again.id}
