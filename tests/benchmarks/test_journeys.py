"""That pairs of worker and publisher carry orders, are weighed, and start; who fails is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from benchmarks.harness import RunFailed
from benchmarks.journeys import JOURNEYS, Journeys
from benchmarks.pairs.entries import BY_KEY, ENTRIES, Entry
from benchmarks.place import Site, in_a_file, of_redis, site, under_a_prefix
from benchmarks.travel import Amount, begin, fill, travel
from tests.brokers.fixtures import PEER_MISSING
from tests.brokers.kafka import Kafka
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.redis import Redis

TINY = Amount(paced=20, rate=500.0, burst=50, fill=200, fill_seconds=5.0)
OURS_IN_A_FILE = BY_KEY["file/QueueCraft: 100 in flight"]


async def test_a_turn_tells_how_long_orders_took_and_how_many_went_a_second():
    trip = await travel(OURS_IN_A_FILE, Site(in_a_file), TINY)

    assert 0 < trip.p50 <= trip.p99
    assert trip.rate > 0


async def test_what_piles_up_is_counted_and_weighed():
    growth = await fill(OURS_IN_A_FILE, Site(in_a_file), TINY)

    assert growth.count == TINY.fill
    assert growth.broker is None


async def test_a_fresh_process_handles_the_order_that_waits():
    assert 0 < await begin(OURS_IN_A_FILE, Site(in_a_file)) < 60


@pytest.mark.parametrize("measure", ["travel", "pending", "start"])
def test_in_memory_one_process_does_both(measure: str):
    found, _ = JOURNEYS[f"memory-{measure}"].run(TINY, 1, only=["QueueCraft"])

    [only] = found
    assert [row.contender for row in only.rows] == ["QueueCraft"]
    assert len(only.rows[0].figures) == 1
    assert only.missing == {}


async def test_a_contender_that_breaks_is_named_with_its_last_words():
    broken = replace(OURS_IN_A_FILE, case="no such case")

    with pytest.raises(RunFailed, match=r"no such case: the worker ended early: KeyError"):
        await travel(broken, Site(in_a_file), TINY)


def test_one_that_fails_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch):
    def take_turn(journeys: Journeys, entry: Entry, place: Site, amount: Amount):
        if entry.contender == "sqlite3":
            raise RunFailed("the disk is full")
        return {"seconds": 1.0}

    monkeypatch.setattr(Journeys, "_take_turn", take_turn)
    told: list[str] = []

    [found], _ = JOURNEYS["file-start"].run(TINY, 2, say=told.append)

    assert [(row.contender, row.figures) for row in found.rows] == [
        ("QueueCraft", [1.0, 1.0]),
        ("QueueCraft", [1.0, 1.0]),
    ]
    assert found.missing == {"sqlite3, one at a time": "it failed: the disk is full"}
    assert told == ["failed: the disk is full"]


def test_an_unknown_broker_is_an_error_that_lists_those_there_are():
    with (
        pytest.raises(ValueError, match="no broker 'pigeon'; there is memory, file"),
        site("pigeon"),
    ):
        pass


def on(*brokers: str):
    found = []
    for entry in ENTRIES:
        if entry.broker in brokers:
            reason = f"{PEER_MISSING}{entry.key} is not measured, {entry.missing} is not installed"
            marks = [pytest.mark.skip(reason=reason)] if entry.missing else []
            found.append(pytest.param(entry, id=entry.key, marks=marks))
    return found


def do_all(entry: Entry, place: Site) -> None:
    async def measure() -> None:
        trip = await travel(entry, place, TINY)
        assert 0 < trip.p50 <= trip.p99
        assert (await fill(entry, place, TINY)).count > 0
        assert await begin(entry, place) > 0

    asyncio.run(measure())


@pytest.mark.faults  # for the time it takes
@pytest.mark.parametrize("entry", on("rabbitmq"))
def test_every_pair_on_rabbitmq_is_measured(entry: Entry, rabbitmq: RabbitMQ):
    rabbitmq.start()
    do_all(entry, Site(rabbitmq.vhost))


@pytest.mark.faults  # for the time it takes
@pytest.mark.parametrize("entry", on("redis-lists", "redis-streams"))
def test_every_pair_on_redis_is_measured(entry: Entry, redis: Redis):
    redis.start()
    place = partial(under_a_prefix, redis, entry.broker)
    do_all(entry, Site(place, partial(of_redis, redis)))


@pytest.mark.faults  # for the time it takes
@pytest.mark.parametrize("entry", on("kafka"))
def test_every_pair_on_kafka_is_measured(entry: Entry, kafka: Kafka):
    kafka.start()
    do_all(entry, Site(kafka.prefix))
