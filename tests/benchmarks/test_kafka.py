"""That every case on Kafka handles and commits all it was sent; one that does not is refused."""

from __future__ import annotations

import pytest
import typer
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks.harness import Case, run_once
from benchmarks.kafka import CONSUMING, PUBLISHING, ours
from benchmarks.kafka.broker import PATIENCE, Place, place, sharing
from benchmarks.kafka.ours import make_queue, order_placed, verify_depth
from benchmarks.order import Order, WrongCount, orders
from queuecraft import QueueCraft
from tests.brokers.fixtures import PEER_MISSING
from tests.brokers.installation import Unavailable
from tests.brokers.kafka import Kafka

pytestmark = pytest.mark.faults  # for the time it takes

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


@pytest.mark.parametrize("each", all_cases())
def test_every_case_on_kafka_handles_all_it_was_sent(each: Case, kafka: Kafka):
    kafka.start()
    with sharing(kafka):
        measurement = run_once(each, 150, deadline=30)

    assert measurement.messages == 150
    assert measurement.seconds > 0


def test_no_case_is_in_both_halves_and_none_in_neither():
    halves = [{each.key for each in half.load(["QueueCraft"])[0]} for half in HALVES]

    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == {each.key for each in ours.CASES}


@pytest.fixture
def here(kafka: Kafka):
    kafka.start()
    with sharing(kafka), place() as found:
        yield found


@pytest.mark.parametrize("expected", [0, 2, 4])
async def test_our_run_is_refused_if_the_broker_has_another_number_of_messages(
    here: Place, expected: int
):
    await make_queue(here)
    async with QueueCraft(here.url) as qc:
        await qc.publish_many(order_placed, orders(Order, 3))
    await verify_depth(here.url, 3)

    with pytest.raises(WrongCount, match=f"the broker has 3 messages, not {expected}"):
        await verify_depth(here.url, expected)


def test_a_run_stands_only_if_all_of_it_was_stored_and_committed(here: Place):
    here.make_topic()
    producer = Producer(here.settings())
    for partition in (0, 0, 1):
        producer.produce(here.topic, b"{}", partition=partition)
    producer.flush(PATIENCE)
    here.verify_stored(3)
    with pytest.raises(WrongCount, match="the broker holds 3 messages, not 2"):
        here.verify_stored(2)

    commit(here, [2, 0])
    with pytest.raises(WrongCount, match="the broker was told of 2 messages, not 3"):
        here.verify_committed(3)

    commit(here, [2, 1])
    here.verify_committed(3)


def commit(here: Place, offsets: list[int]) -> None:
    consumer = Consumer(here.settings(group_id=here.group))
    places = [TopicPartition(here.topic, at, offset) for at, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


@pytest.mark.parametrize(("check", "status"), [([], 0), (["--check"], 1)])
def test_without_a_broker_the_groups_are_skipped_aloud(
    monkeypatch: pytest.MonkeyPatch, check: list[str], status: int
):
    def unavailable(broker: Kafka) -> None:
        raise Unavailable("there is no Java")

    monkeypatch.delenv("QUEUECRAFT_TEST_KAFKA", raising=False)
    monkeypatch.setattr(Kafka, "start", unavailable)
    app = typer.Typer()
    app.command()(command.main)
    result = CliRunner().invoke(app, ["--group", "kafka-publish", *check])

    assert result.exit_code == status, result.output
    assert "SKIPPED QueueCraft: no broker: there is no Java" in result.output
    assert "not measured" in result.output
