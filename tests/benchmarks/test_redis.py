"""That every case on Redis handles and acks all it was sent; one that does not is refused."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks.harness import Case, run_once
from benchmarks.order import Order, WrongCount, orders
from benchmarks.rabbitmq.stretch import QUEUE
from benchmarks.redis import CONSUMING, PUBLISHING, ours
from benchmarks.redis.broker import Place, place, sharing
from benchmarks.redis.ours import make_queue, order_placed, verify_depth
from queuecraft import QueueCraft
from tests.brokers.fixtures import PEER_MISSING
from tests.brokers.installation import Unavailable
from tests.brokers.redis import Redis, call

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
def test_every_case_on_redis_handles_all_it_was_sent(each: Case, redis: Redis):
    redis.start()
    with sharing(redis):
        measurement = run_once(each, 150, deadline=30)

    assert measurement.messages == 150
    assert measurement.seconds > 0


def test_no_case_is_in_both_halves_and_none_in_neither():
    halves = [{each.key for each in half.load(["QueueCraft"])[0]} for half in HALVES]

    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == {each.key for each in ours.CASES}


@pytest.fixture
def here(redis: Redis):
    redis.start()
    with sharing(redis), place() as found:
        yield found


@pytest.mark.parametrize("mode", ["list", "stream"])
@pytest.mark.parametrize("expected", [0, 2, 4])
async def test_our_run_is_refused_if_the_server_has_another_number_of_messages(
    here: Place, mode: str, expected: int
):
    url = here.url(mode)
    await make_queue(url)
    async with QueueCraft(url) as qc:
        await qc.publish_many(order_placed, orders(Order, 3))
    await verify_depth(url, 3)

    with pytest.raises(WrongCount, match=f"the server holds 3 messages, not {expected}"):
        await verify_depth(url, expected)


def test_a_run_of_a_peer_is_refused_if_the_server_has_another_number_of_messages(here: Place):
    here.call("RPUSH", QUEUE, "one", "two")
    here.verify_count("LLEN", QUEUE, 2)

    with pytest.raises(WrongCount, match="the server holds 2 messages, not 0"):
        here.verify_count("LLEN", QUEUE, 0)


def test_a_stream_stands_only_if_all_of_it_was_read_and_acked(here: Place):
    server, key = here.server, here.key()
    for number in range(2):
        here.call("XADD", QUEUE, "*", "order", number)
    call(server, "XGROUP", "CREATE", key, "billing", "0")
    with pytest.raises(WrongCount):
        here.verify_acked(QUEUE, "billing", 2)
    told = call(server, "XREADGROUP", "GROUP", "billing", "one", "STREAMS", key, ">")
    first, second = (entry[0] for entry in told[0][1])
    here.call("XACK", QUEUE, "billing", first.decode())
    with pytest.raises(WrongCount, match="the server holds 1 messages, not 0"):
        here.verify_acked(QUEUE, "billing", 2)
    here.call("XACK", QUEUE, "billing", second.decode())

    here.verify_acked(QUEUE, "billing", 2)

    with pytest.raises(WrongCount, match="no group 'shipping'"):
        here.verify_acked(QUEUE, "shipping", 2)


def test_the_keys_of_a_run_are_gone_when_it_ends(redis: Redis):
    redis.start()
    with sharing(redis), place() as here:
        here.call("RPUSH", QUEUE, "one")

    assert here.call("EXISTS", QUEUE) == 0


@pytest.mark.parametrize(("check", "status"), [([], 0), (["--check"], 1)])
def test_without_a_server_the_groups_are_skipped_aloud(
    monkeypatch: pytest.MonkeyPatch, check: list[str], status: int
):
    def unavailable(server: Redis) -> None:
        raise Unavailable("run: apt-get install redis-server")

    monkeypatch.delenv("QUEUECRAFT_TEST_REDIS", raising=False)
    monkeypatch.setattr(Redis, "start", unavailable)
    app = typer.Typer()
    app.command()(command.main)
    result = CliRunner().invoke(app, ["--group", "redis-publish", *check])

    assert result.exit_code == status, result.output
    assert "SKIPPED QueueCraft: no broker: run: apt-get install" in result.output
    assert "not measured" in result.output
