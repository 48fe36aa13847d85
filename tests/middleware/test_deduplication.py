"""What is published twice is sent once; what may not have arrived is sent again as the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from queuecraft import ConfigError, Event, Exchange, PublishError, Queue, QueueCraft, Unroutable
from queuecraft.middleware import Deduplicate, Idempotent, MemoryClaims, Publication, SqliteClaims
from queuecraft.testing import FakeClock
from tests.middleware.stage import number, stage


class Wire:
    """Publishing, with the broker at hand: what it got, and what it says."""

    def __init__(self) -> None:
        self.sent: list[str | None] = []
        self.error: BaseException | None = None
        self.held_up: asyncio.Event | None = None
        self.reached = asyncio.Event()

    async def __call__(self, publication: Publication) -> str:
        self.sent.append(publication.options.get("message_id"))
        self.reached.set()
        if self.held_up is not None:
            await self.held_up.wait()
        if self.error is not None:
            raise self.error
        return publication.options.get("message_id") or f"new-{len(self.sent)}"


def order(name: str, target: Any = "order.placed", **options: Any) -> Publication:
    given: Any = {"headers": {"order": name}, **options}
    return Publication(target, {}, given)


async def test_a_second_publish_within_the_window_is_not_sent() -> None:
    async with stage() as (qc, clock):
        qc.use_publishing(Deduplicate(MemoryClaims(clock=clock), "order", window=60))
        await qc.admin.declare("numbers", "number")
        ids = []
        for wait in (0, 59, 2):
            await clock.advance(wait)
            ids.append(await qc.publish(number, 1, headers={"order": "o-1"}))
        other = await qc.publish(number, 1, headers={"order": "o-2"})
        unkeyed = [await qc.publish(number, 1) for _ in range(2)]
        assert ids[0] == ids[1]
        assert len({*ids, other, *unkeyed}) == 5
        assert (await qc.admin.inspect("numbers")).ready == 5


async def test_by_default_the_message_id_is_the_key() -> None:
    async with stage() as (qc, clock):
        qc.use_publishing(Deduplicate(MemoryClaims(clock=clock)))
        await qc.admin.declare("numbers", "number")
        assert [await qc.publish(number, 1, message_id="m-1") for _ in range(2)] == ["m-1", "m-1"]
        assert (await qc.admin.inspect("numbers")).ready == 1


async def test_the_same_key_of_many_payloads_is_sent_once() -> None:
    async with stage() as (qc, _):
        parity = Deduplicate(MemoryClaims(), lambda publication: str(publication.payload)[-1])
        qc.use_publishing(parity)
        await qc.admin.declare("numbers", "number")
        ids = await qc.publish_many(number, [1, 2, 11, 12, 21])
        assert ids[0] == ids[2] == ids[4] != ids[1] == ids[3]
        assert (await qc.admin.inspect("numbers")).ready == 2


@pytest.mark.parametrize("wrong", [{"store": 5}, {"key": ""}, {"window": 0}, {"lease": None}])
def test_what_cannot_work_is_refused_at_once(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"store": MemoryClaims(), **wrong}
    with pytest.raises(ConfigError, match=r"Deduplicate.*expected"):
        Deduplicate(**given)


@pytest.mark.parametrize("gave", ["", 5, b"o-1"])
async def test_a_function_that_gives_no_text_sends_nothing(gave: Any) -> None:
    wire = Wire()
    with pytest.raises(ConfigError, match="gave"):
        await Deduplicate(MemoryClaims(), lambda _: gave)(wire)(order("o-1"))
    assert wire.sent == []


def test_publications_to_different_places_are_not_the_same() -> None:
    once = Deduplicate(MemoryClaims(), "order")
    keys = [
        once.key_of(order("o-1", target, **options))
        for target, options in (
            ("orders", {}),
            ("orders.b", {}),
            (Queue("orders"), {}),
            ("orders", {"exchange": "other"}),
        )
    ]
    assert len(set(keys)) == len(keys)
    assert once.key_of(order("o-1", Event("orders", dict))) == keys[0]
    assert once.key_of(order("o-1", "orders", exchange=Exchange("other"))) == keys[3]
    assert once.key_of(order("o-1", "orders", reply_to="qc.reply.1")) is None


# -- when it fails ---------------------------------------------------------------------------------


async def test_a_publish_that_failed_can_be_repeated_at_once() -> None:
    wire = Wire()
    publish = Deduplicate(MemoryClaims(), "order")(wire)
    wire.error = Unroutable("nobody is bound")
    with pytest.raises(Unroutable):
        await publish(order("o-1"))
    wire.error = None
    id = await publish(order("o-1"))
    assert wire.sent == [id, id]


async def test_what_may_have_been_stored_is_sent_again_with_the_same_id() -> None:
    wire = Wire()
    publish = Deduplicate(MemoryClaims(), "order")(wire)
    wire.error = PublishError("no answer", outcome="unknown")
    with pytest.raises(PublishError):
        await publish(order("o-1"))
    wire.error = None
    first = await publish(order("o-1"))
    assert await publish(order("o-1")) == first
    assert wire.sent == [first, first]


async def test_a_publish_that_was_cancelled_can_be_repeated_with_the_same_id() -> None:
    wire = Wire()
    wire.held_up = asyncio.Event()
    publish = Deduplicate(MemoryClaims(), "order")(wire)
    task = asyncio.ensure_future(publish(order("o-1")))
    await wire.reached.wait()
    task.cancel()
    await asyncio.wait([task])
    wire.held_up.set()
    id = await publish(order("o-1"))
    assert wire.sent == [id, id]


async def test_a_publish_that_is_thrown_away_lets_go_of_its_key() -> None:
    wire = Wire()
    claims = MemoryClaims()
    publish = Deduplicate(claims, "order")(wire)
    wire.error = GeneratorExit()
    with pytest.raises(GeneratorExit):
        await publish(order("o-1"))
    await claims.close()
    wire.error = None
    assert await publish(order("o-1")) == wire.sent[0]


async def test_the_id_a_caller_gives_is_the_one_that_is_sent() -> None:
    wire = Wire()
    publish = Deduplicate(MemoryClaims(), "order")(wire)
    assert await publish(order("o-1", message_id="mine")) == "mine"
    assert await publish(order("o-1", message_id="other")) == "mine"
    assert wire.sent == ["mine"]


async def test_who_publishes_the_same_at_once_waits_for_the_first() -> None:
    wire = Wire()
    wire.held_up = asyncio.Event()
    publish = Deduplicate(MemoryClaims(), "order")(wire)
    tasks = [asyncio.ensure_future(publish(order("o-1"))) for _ in range(5)]
    await wire.reached.wait()
    wire.held_up.set()
    assert len(set(await asyncio.gather(*tasks))) == 1
    assert len(wire.sent) == 1


async def test_if_the_first_fails_another_that_waited_publishes_it() -> None:
    wire = Wire()
    wire.held_up = asyncio.Event()
    publish = Deduplicate(MemoryClaims(), "order")(wire)
    tasks = [asyncio.ensure_future(publish(order("o-1"))) for _ in range(2)]
    await wire.reached.wait()
    tasks[0].cancel()
    wire.held_up.set()
    await asyncio.wait(tasks)
    assert tasks[0].cancelled()
    assert wire.sent == [tasks[1].result()] * 2


async def test_what_cannot_be_known_to_be_new_is_not_sent(tmp_path: Path) -> None:
    wire = Wire()
    claims = SqliteClaims(tmp_path / "missing" / "claims.db")
    with pytest.raises(PublishError, match="nothing was sent") as caught:
        await Deduplicate(claims, "order")(wire)(order("o-1"))
    assert caught.value.outcome == "rejected"
    assert wire.sent == []
    await claims.close()


async def test_two_processes_publish_it_once(tmp_path: Path) -> None:
    wire = Wire()
    both = [SqliteClaims(tmp_path / "claims.db") for _ in range(2)]
    ids = await asyncio.gather(*(Deduplicate(each, "order")(wire)(order("o-1")) for each in both))
    assert ids[0] == ids[1]
    assert len(wire.sent) == 1
    for each in both:
        await each.close()


async def test_a_publisher_that_died_is_followed_by_one_that_sends_the_same_id(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    wire = Wire()
    wire.held_up = asyncio.Event()
    dead = SqliteClaims(tmp_path / "claims.db", clock=clock)
    task = asyncio.ensure_future(Deduplicate(dead, "order", lease=10)(wire)(order("o-1")))
    await wire.reached.wait()
    # As if it had died: nothing is renewed, nothing completed.
    assert dead._timer is not None
    dead._timer.cancel()

    alive = SqliteClaims(tmp_path / "claims.db", clock=clock)
    other = Wire()
    again = asyncio.ensure_future(Deduplicate(alive, "order", lease=10)(other)(order("o-1")))
    await clock.advance(9)
    assert other.sent == []
    await clock.advance(2)
    assert other.sent == wire.sent == [await again]
    task.cancel()
    await asyncio.wait([task])
    for each in (dead, alive):
        await each.close()


async def test_one_store_serves_both_sides() -> None:
    qc = QueueCraft("local://")
    claims = MemoryClaims()
    qc.use_publishing(Deduplicate(claims))
    worker = qc.worker("numbers", middleware=[Idempotent(claims)])
    seen: list[int] = []
    done = asyncio.Event()

    @worker.on(number)
    async def handle(n: int) -> None:
        seen.append(n)
        done.set()

    async with qc:
        await worker.start()
        await qc.publish(number, 1, message_id="m-1")
        await qc.publish(number, 2, message_id="m-1")
        async with asyncio.timeout(5):
            await done.wait()
    assert seen == [1]
