"""That every case on RabbitMQ handles and acks all it was sent; one that does not is refused."""

from __future__ import annotations

import asyncio

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks.harness import Case, Measurement, RunFailed, Spread, run_once
from benchmarks.order import Order, WrongCount, order_fields, orders
from benchmarks.rabbitmq import CONSUMING, PUBLISHING, latency, ours
from benchmarks.rabbitmq.broker import place, sharing, verify_depth
from benchmarks.rabbitmq.ours import make_queue, order_placed
from benchmarks.rabbitmq.stretch import IN_FLIGHT, QUEUE, Stretch, in_flight, one_at_a_time
from queuecraft import QueueCraft
from tests.brokers.fixtures import PEER_MISSING
from tests.brokers.installation import Unavailable
from tests.brokers.rabbitmq import RabbitMQ

HALVES = (PUBLISHING, CONSUMING)


def all_cases():
    found = []
    for half in HALVES:
        cases, skipped = half.load()
        found += [pytest.param(each, id=each.key) for each in cases]
        for peer in skipped:
            reason = f"{PEER_MISSING}{peer.contender} is not measured, {peer.reason}"
            mark = pytest.mark.skip(reason=reason)
            found.append(pytest.param(None, id=f"{half.verb}: {peer.contender}", marks=mark))
    return found


@pytest.mark.faults  # for the time it takes
@pytest.mark.parametrize("each", all_cases())
def test_every_case_on_rabbitmq_handles_all_it_was_sent(each: Case, rabbitmq: RabbitMQ):
    rabbitmq.start()
    with sharing(rabbitmq):
        measurement = run_once(each, 150, deadline=30)

    assert measurement.messages == 150
    assert measurement.seconds > 0


def test_no_case_is_in_both_halves_and_none_in_neither():
    halves = [{each.key for each in half.load(["QueueCraft"])[0]} for half in HALVES]

    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == {each.key for each in ours.CASES}


async def left_behind(rabbitmq: RabbitMQ, *, expected: int) -> None:
    """Publish three; then ask for another number."""
    with sharing(rabbitmq), place() as url:
        await make_queue(url)
        async with QueueCraft(url) as qc:
            await qc.publish_many(order_placed, orders(Order, 3))
        await verify_depth(url, QUEUE, expected)


@pytest.mark.parametrize("expected", [0, 2, 4])
async def test_a_run_is_refused_if_the_broker_has_another_number_of_messages(rabbitmq, expected):
    rabbitmq.start()

    with pytest.raises(WrongCount, match=f"'billing' holds 3 messages, not {expected}"):
        await left_behind(rabbitmq, expected=expected)


async def test_a_run_stands_if_the_broker_has_that_number(rabbitmq):
    rabbitmq.start()

    await left_behind(rabbitmq, expected=3)


def test_a_stretch_is_timed_from_the_first_handled_to_the_last(monkeypatch: pytest.MonkeyPatch):
    moments = iter([10.0, 12.5])
    monkeypatch.setattr("benchmarks.rabbitmq.stretch.perf_counter", lambda: next(moments))
    stretch = Stretch(3)

    for _ in range(3):
        stretch.add(Order(**order_fields(1)))

    assert stretch.measurement(Order) == Measurement(3, 2.5)


def test_a_stretch_that_is_not_complete_gives_no_figure():
    stretch = Stretch(2)
    stretch.add(Order(**order_fields(1)))

    with pytest.raises(WrongCount, match="handled 1 messages of 2"):
        stretch.measurement(Order)


@pytest.mark.parametrize(("pace", "most"), [(in_flight, IN_FLIGHT), (one_at_a_time, 1)])
async def test_every_order_is_published_once_and_so_many_are_in_flight(pace, most: int):
    seen: list[int] = []
    flying = highest = 0

    async def publish(number: int) -> None:
        nonlocal flying, highest
        flying += 1
        highest = max(highest, flying)
        await asyncio.sleep(0)
        seen.append(number)
        flying -= 1

    await pace(publish, range(350))

    assert sorted(seen) == list(range(350))
    assert highest == most


@pytest.mark.parametrize("contender", [latency.OURS, latency.THEIRS])
async def test_the_latency_of_every_order_is_told(rabbitmq: RabbitMQ, contender: str):
    if contender == latency.THEIRS:
        pytest.importorskip("aio_pika", reason=f"{PEER_MISSING}aio-pika is not installed")
    rabbitmq.start()
    with rabbitmq.vhost() as url:
        taken = await latency.take_turn(contender, url, 100, 1000.0)

    assert len(taken) == 100
    assert min(taken) > 0


async def test_a_worker_that_does_not_start_gives_no_latencies(rabbitmq: RabbitMQ):
    rabbitmq.start()
    with pytest.raises(RunFailed, match="QueueCraft: its worker did not start"):
        await latency.take_turn(latency.OURS, "nonsense://nowhere", 100, 1000.0)


def test_latencies_are_compared_in_the_same_round():
    ours, theirs = latency.Latencies(p99=[1.0, 8.0, 3.0]), latency.Latencies(p99=[2.0, 4.0, 3.0])

    assert latency.later(ours, theirs) == Spread(median=1.0, low=0.5, high=2.0)


@pytest.mark.parametrize(("check", "status"), [([], 0), (["--check"], 1)])
def test_without_a_broker_the_groups_are_skipped_aloud(
    monkeypatch: pytest.MonkeyPatch, check: list[str], status: int
):
    def unavailable(broker: RabbitMQ) -> None:
        raise Unavailable("run: apt-get install rabbitmq-server")

    monkeypatch.delenv("QUEUECRAFT_TEST_RABBITMQ", raising=False)
    monkeypatch.setattr(RabbitMQ, "start", unavailable)
    app = typer.Typer()
    app.command()(command.main)
    result = CliRunner().invoke(app, ["--group", "rabbitmq-publish", *check])

    assert result.exit_code == status, result.output
    assert "SKIPPED QueueCraft: no broker: run: apt-get install" in result.output
    assert "not measured" in result.output
