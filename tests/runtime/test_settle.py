"""What becomes of deliveries: retries, dead letters, and nothing lost on the way."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from queuecraft import (
    ConnectionLost,
    DeadLetter,
    Event,
    Message,
    NoDeadLetter,
    NoRetry,
    PublishError,
    QueueError,
    Retry,
)
from queuecraft.clock import Clock
from queuecraft.codec.attempts import Attempt, attempts
from queuecraft.codec.headers import ATTEMPTS, DEAD_LETTER, MAX_HEADERS, size
from queuecraft.drivers.base import (
    ACCEPTED,
    Delivery,
    Exchange,
    Move,
    Outgoing,
    Queue,
    Receipt,
    Rejected,
    Subscription,
    Unknown,
)
from queuecraft.facts import (
    MessageDeadLettered,
    MessageDropped,
    MessageExpired,
    MessageRetried,
    MessagesAcked,
    MessagesSucceeded,
)
from queuecraft.model.errors import AlreadySettled
from queuecraft.model.outcome import Acked, DeadLettered, Dropped, Failure, Outcome, Retried
from queuecraft.model.queue import DeadLetterTarget
from queuecraft.runtime.counters import Counters
from queuecraft.runtime.facts import Fact, Facts
from queuecraft.runtime.settle import Settler
from queuecraft.runtime.successor import dead_letter_of, failures, redrive_of, retry_of
from queuecraft.testing import FakeClock, FaultyDriver, Ledger, failing
from queuecraft.testing.faulty import FaultySubscription
from tests.runtime.support import (
    Order,
    Stage,
    changed,
    contents,
    ids,
    order_placed,
    running,
    staged,
)

NOW = 1_750_000_000.0
TARGET = DeadLetterTarget("events.dlx", "billing.dlq", "billing.dlq")
FAILURE = Failure("ValueError", "no money", "Traceback (most recent call last):\nValueError")


def delivered(**changes: Any) -> Delivery:
    sent = Outgoing(
        b'{"id":"o-1"}',
        "m-1",
        "events",
        "order.placed",
        NOW - 60,
        "application/json",
        key="k-1",
        headers={"tenant": "acme", "trace": b"\x00\xff", "n": 7, "ok": True, "none": None},
        priority=3,
        correlation_id="c-1",
    )
    return Delivery(changed(sent, **changes), "billing")


def user_headers(message: Outgoing) -> dict[str, Any]:
    return {name: value for name, value in message.headers.items() if name not in DEAD_LETTER}


# -- a retry, as a value ---------------------------------------------------------------------


def test_a_retry_is_addressed_to_its_own_queue_and_to_no_exchange() -> None:
    retry = retry_of(delivered(), 2, NOW + 5)
    assert (retry.queue, retry.exchange, retry.due_at) == ("billing", "", NOW + 5)


def test_a_retry_records_one_failure_more() -> None:
    first = retry_of(delivered(), 1, NOW)
    assert failures(Delivery(first, "billing")) == 1


def test_a_retry_is_otherwise_the_message_it_was() -> None:
    delivery = delivered(content_encoding="gzip", expires_at=NOW + 90, reply_to="qc.reply.x")
    retry = retry_of(delivery, 1, NOW)
    same = ["body", "id", "routing_key", "timestamp", "content_type", "content_encoding", "key"]
    same += ["expires_at", "priority", "persistent", "correlation_id", "reply_to"]
    assert {name: getattr(retry, name) for name in same} == {
        name: getattr(delivery.sent, name) for name in same
    }
    assert user_headers(retry) == delivery.sent.headers


def test_what_a_broker_wrote_does_not_travel_on() -> None:
    written = {"x-death": "[]", "x-first-death-queue": "a", "x-delivery-count": 3, "mine": 1}
    delivery = delivered(headers=written)
    for moved in (
        retry_of(delivery, 1, NOW),
        dead_letter_of(delivery, TARGET, 1, "nack", None, NOW),
        redrive_of(delivery, "billing", NOW),
    ):
        assert user_headers(moved) == {"mine": 1}


def test_making_a_move_leaves_the_delivery_as_it_is() -> None:
    delivery = delivered()
    before = dict(delivery.sent.headers)
    retry_of(delivery, 1, NOW)
    dead_letter_of(delivery, TARGET, 1, "nack", FAILURE, NOW)
    redrive_of(delivery, "other", NOW)
    assert delivery.sent.headers == before


@pytest.mark.parametrize("value", ["many", -3, None, b"\xff", 1e400, True, [1]])
def test_a_failure_count_that_cannot_be_read_counts_as_none(value: Any) -> None:
    assert failures(delivered(headers={"x-retry-count": value})) == 0


# -- a dead letter, as a value ---------------------------------------------------------------


def test_a_dead_letter_tells_its_story() -> None:
    letter = dead_letter_of(delivered(), TARGET, 4, "handler-error", FAILURE, NOW)
    assert {name: letter.headers[name] for name in DEAD_LETTER & letter.headers.keys()} == {
        "x-original-queue": "billing",
        "x-original-routing-key": "order.placed",
        "x-error": "no money",
        "x-error-type": "ValueError",
        "x-traceback": FAILURE.traceback,
        "x-retry-count": 4,
        "x-failed-at": int(NOW * 1000),
        "x-reason": "handler-error",
        "x-attempts": f'[[{int(NOW * 1000)},4,"ValueError: no money"]]',
    }


def test_a_message_remembers_the_last_ten_of_its_failures() -> None:
    message = delivered().sent
    for number in range(1, 13):
        failed = Attempt.of(NOW + number, number, "shop.Declined", "no money")
        message = retry_of(Delivery(message, "billing"), number, NOW, failed)
    letter = dead_letter_of(Delivery(message, "billing"), TARGET, 13, "nack", None, NOW + 13)
    told = attempts(letter.headers)
    assert [each.attempt for each in told] == list(range(4, 14))
    assert {each.error for each in told[:-1]} == {"Declined: no money"}
    assert told[-1] == Attempt(int((NOW + 13) * 1000), 13, "nack")
    assert ATTEMPTS not in redrive_of(Delivery(letter, "billing.dlq"), "billing", NOW).headers


def test_a_message_put_off_has_not_failed() -> None:
    failed = retry_of(delivered(), 1, NOW, Attempt.of(NOW, 1, "ValueError", "no money"))
    put_off = retry_of(Delivery(failed, "billing"), 1, NOW + 5)
    assert attempts(put_off.headers) == attempts(failed.headers)


def test_failures_of_another_queue_are_not_told_as_those_of_this_one() -> None:
    old = dead_letter_of(delivered(), TARGET, 4, "handler-error", FAILURE, NOW - 99)
    retried = retry_of(
        Delivery(old, "graveyard"), 1, NOW, Attempt.of(NOW, 1, "OSError", "the disk is full")
    )
    assert attempts(retried.headers) == attempts(old.headers)
    again = dead_letter_of(Delivery(old, "graveyard"), TARGET, 1, "nack", None, NOW)
    assert [each.error for each in attempts(again.headers)] == ["nack"]


@pytest.mark.parametrize(
    "value", ["", "[", "[[1]]", '[["a",1,"b"]]', "[" * 5000, b"\xff", 5, None, '{"a": 1}']
)
def test_failures_that_cannot_be_read_are_none(value: Any) -> None:
    assert attempts({ATTEMPTS: value}) == ()


def test_failures_from_elsewhere_are_cut_short() -> None:
    (told,) = attempts({ATTEMPTS: json.dumps([[1, 1, "x" * 60_000]])})
    assert len(told.error) <= 120


def test_where_headers_are_full_the_failures_are_left_out() -> None:
    full = delivered(headers={"mine": "x" * (MAX_HEADERS - 60)})
    failed = Attempt.of(NOW, 1, "ValueError", "no money")
    assert ATTEMPTS not in retry_of(full, 1, NOW, failed).headers
    letter = dead_letter_of(full, TARGET, 1, "nack", None, NOW)
    assert ATTEMPTS not in letter.headers
    assert letter.headers["mine"] == full.sent.headers["mine"]


def test_a_dead_letter_goes_through_its_exchange() -> None:
    target = DeadLetterTarget("graveyard", "failed.billing", "billing.failed")
    letter = dead_letter_of(delivered(), target, 1, "nack", None, NOW)
    assert (letter.exchange, letter.routing_key, letter.queue) == (
        "graveyard",
        "billing.failed",
        None,
    )


def test_payload_and_the_users_headers_survive_unchanged() -> None:
    delivery = delivered(body=bytes(range(256)), content_encoding="gzip")
    letter = dead_letter_of(delivery, TARGET, 4, "handler-error", FAILURE, NOW)
    same = ["body", "id", "timestamp", "content_type", "content_encoding", "key", "priority"]
    same += ["persistent", "correlation_id"]
    assert {name: getattr(letter, name) for name in same} == {
        name: getattr(delivery.sent, name) for name in same
    }
    assert user_headers(letter) == delivery.sent.headers


def test_a_dead_letter_never_expires_and_is_due_at_once() -> None:
    letter = dead_letter_of(delivered(expires_at=NOW - 1), TARGET, 1, "expired", None, NOW)
    assert (letter.expires_at, letter.due_at) == (None, NOW)


@pytest.mark.parametrize("reason", ["expired", "crash-loop"])
def test_what_was_never_handled_counts_no_failure_of_its_own(reason: str) -> None:
    letter = dead_letter_of(delivered(headers={"x-retry-count": 2}), TARGET, 3, reason, None, NOW)
    assert letter.headers["x-retry-count"] == 2


def test_an_old_story_is_not_mixed_with_the_new_one() -> None:
    old = dead_letter_of(delivered(), TARGET, 4, "handler-error", FAILURE, NOW - 99)
    again = dead_letter_of(Delivery(old, "billing.dlq"), TARGET, 1, "nack", None, NOW)
    assert again.headers["x-original-queue"] == "billing.dlq"
    assert again.headers["x-reason"] == "nack"
    assert not {"x-error", "x-error-type", "x-traceback"} & again.headers.keys()


def test_a_dead_letter_of_a_dead_letter_remembers_the_first_event() -> None:
    old = dead_letter_of(delivered(), TARGET, 4, "handler-error", FAILURE, NOW)
    again = dead_letter_of(Delivery(old, "billing.dlq"), TARGET, 1, "nack", None, NOW)
    assert again.headers["x-original-routing-key"] == "order.placed"


def test_an_original_routing_key_that_is_no_text_is_not_believed() -> None:
    letter = dead_letter_of(
        delivered(headers={"x-original-routing-key": 5}), TARGET, 1, "nack", None, NOW
    )
    assert letter.headers["x-original-routing-key"] == "order.placed"


def utf8(value: object) -> int:
    assert isinstance(value, str)
    return len(value.encode())


@given(
    error=st.text() | st.just("é" * 5000) | st.just("\ud800" * 5000),
    error_type=st.text() | st.just("T" * 5000),
    traceback=st.text() | st.just("line\n" * 9000) | st.just("…" * 20_000),
    reason=st.text() | st.just("r" * 70_000),
    fat=st.integers(0, 65_000),
)
@settings(max_examples=60)
def test_a_story_keeps_its_limits(
    error: str, error_type: str, traceback: str, reason: str, fat: int
) -> None:
    given = {"fat": "x" * fat}
    failure = Failure(error_type, error, traceback)
    letter = dead_letter_of(delivered(headers=given), TARGET, 1, reason, failure, NOW)
    headers = letter.headers
    assert utf8(headers.get("x-error", "")) <= 1024
    assert utf8(headers.get("x-error-type", "")) <= 1024
    assert utf8(headers.get("x-traceback", "")) <= 8192
    assert size(headers) <= 65_536
    assert user_headers(letter) == given
    assert {"x-original-queue", "x-original-routing-key", "x-retry-count"} <= headers.keys()


def test_a_long_traceback_keeps_its_end_where_the_error_is() -> None:
    failure = Failure("E", "e", "start\n" + "middle\n" * 5000 + "E: the end")
    letter = dead_letter_of(delivered(), TARGET, 1, "handler-error", failure, NOW)
    assert str(letter.headers["x-traceback"]).startswith("start")
    assert str(letter.headers["x-traceback"]).endswith("E: the end")


def test_with_large_headers_the_traceback_gives_way_before_the_error() -> None:
    failure = Failure("ValueError", "no money", "frame\n" * 2000)
    letter = dead_letter_of(
        delivered(headers={"fat": "x" * 60_000}), TARGET, 1, "handler-error", failure, NOW
    )
    assert letter.headers["x-error"] == "no money"
    assert letter.headers["x-error-type"] == "ValueError"


# -- a redrive, as a value -------------------------------------------------------------------


def test_a_redriven_message_is_the_original_again() -> None:
    delivery = delivered(headers={"tenant": "acme", "x-retry": '{"max_retries":1}'})
    letter = dead_letter_of(delivery, TARGET, 4, "handler-error", FAILURE, NOW)
    back = redrive_of(Delivery(letter, "billing.dlq"), "billing", NOW + 60)
    assert back.headers == delivery.sent.headers
    assert (back.queue, back.exchange, back.routing_key) == ("billing", "", "order.placed")
    assert (back.body, back.id, back.key) == (delivery.sent.body, "m-1", "k-1")


def test_a_redriven_message_has_no_past() -> None:
    delivery = delivered(headers={"x-retry-count": 9, "x-redeliveries": 21})
    letter = dead_letter_of(delivery, TARGET, 4, "crash-loop", None, NOW)
    back = redrive_of(Delivery(letter, "billing.dlq"), "billing", NOW)
    assert back.headers == {}


def test_a_time_to_live_starts_anew_with_a_redrive() -> None:
    letter = dead_letter_of(delivered(expires_at=NOW - 1), TARGET, 1, "expired", None, NOW)
    back = redrive_of(Delivery(letter, "billing.dlq"), "billing", NOW + 3600)
    assert (back.due_at, back.expires_at) == (NOW + 3600, None)


# -- the settler, with a driver that fails on command ----------------------------------------


@dataclass
class Told:
    """Somebody a settler can work for, who remembers what it said."""

    name: str = "billing"
    lost: list[QueueError] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    stuck_with: list[tuple[str, QueueError]] = field(default_factory=list)

    def session_lost(self, settler: Settler, error: QueueError) -> None:
        if not settler.void:
            settler.end()
            self.lost.append(error)

    def handled_elsewhere(self, deliveries: Sequence[Delivery]) -> None:
        self.elsewhere += [each.sent.id for each in deliveries]

    def stuck(self, delivery: Delivery, error: QueueError) -> None:
        self.stuck_with.append((delivery.sent.id, error))


class Bench:
    """A settler on a queue of its own, with everything that surrounds it."""

    def __init__(self, *, dead_letters: bool = True) -> None:
        self.clock = FakeClock()
        self.driver = FaultyDriver()
        self.owner = Told()
        self.counters = Counters()
        self.facts = Facts(logging.getLogger("queuecraft.test"))
        self.seen: list[Fact] = []
        self.facts.observe(Fact, self.seen.append)
        self.queue: Queue[Any] = Queue("billing", dead_letters=TARGET if dead_letters else None)
        self.settler: Settler

    async def receive(self, *messages: Outgoing) -> list[Delivery]:
        """Messages that the settler holds."""
        await self.driver.open()
        await self.driver.declare(self.queue)
        await self.driver.send(messages)
        subscription = await self.driver.subscribe(self.queue, prefetch=100)
        self.settler = Settler(
            subscription, self.queue, self.owner, self.counters, self.facts, self.clock
        )
        got = list(await subscription.receive(100, 0))
        self.settler.held = len(got)
        return got

    async def settle(self, delivery: Delivery, outcome: Outcome, attempt: int = 1) -> None:
        self.settler.settle(delivery, outcome, attempt)
        await self.settler.flush()

    async def held(self) -> int | None:
        (info,) = await self.driver.inspect(["billing"])
        return info.in_flight

    def facts_of(self, kind: type[Fact]) -> list[Any]:
        return [fact for fact in self.seen if type(fact) is kind]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def order(id: str = "m-1") -> Outgoing:
    return Outgoing(b"{}", id, "", "order.placed", queue="billing", headers={"tenant": "acme"})


async def test_an_ack_makes_the_broker_forget(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    bench.settler.acks.append(one)
    bench.settler.durations.append(0.5)
    assert bench.settler.waiting
    await bench.settler.flush()
    assert await bench.held() == 0
    assert await ids(bench.driver, "billing") == []
    assert (bench.counters.succeeded, bench.counters.busy_seconds) == (1, 0.5)
    assert not bench.settler.waiting
    assert bench.settler.held == 0


async def test_acks_that_pile_up_are_one_call(bench: Bench) -> None:
    got = await bench.receive(*(order(f"m-{n}") for n in range(10)))
    for each in got:
        bench.settler.acks.append(each)
        bench.settler.durations.append(0.1)
    await bench.settler.flush()
    assert bench.driver.calls["ack"] == 1
    (fact,) = bench.facts_of(MessagesSucceeded)
    assert len(fact.deliveries) == len(fact.durations) == 10
    assert len(bench.facts_of(MessagesAcked)) == 1


async def test_moves_that_pile_up_are_one_call(bench: Bench) -> None:
    got = await bench.receive(*(order(f"m-{n}") for n in range(10)))
    for each in got[:5]:
        bench.settler.settle(each, Retried(1.0, "nack"), 1)
    for each in got[5:]:
        bench.settler.settle(each, DeadLettered("nack"), 1)
    await bench.settler.flush()
    assert bench.driver.calls["move"] == 1
    assert (bench.counters.retried, bench.counters.dead_lettered) == (5, 5)


async def test_an_ack_that_came_too_late_is_counted_and_told(bench: Bench) -> None:
    one, two = await bench.receive(order("m-1"), order("m-2"))
    await bench.settler.subscription.ack([one])
    for each in (one, two):
        bench.settler.settle(each, Acked(), 1)
    await bench.settler.flush()
    assert bench.counters.stale == 1
    assert bench.owner.elsewhere == ["m-1"]
    assert bench.settler.held == 0


async def test_a_lost_ack_tells_that_the_message_was_handled(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    bench.driver.fail("ack")
    await bench.settle(one, Acked())
    assert bench.owner.elsewhere == ["m-1"]
    assert len(bench.owner.lost) == 1


async def test_acks_for_a_session_that_is_over_do_not_reach_the_broker(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    bench.settler.void = True
    await bench.settle(one, Acked())
    assert bench.driver.calls["ack"] == 0
    assert bench.owner.elsewhere == ["m-1"]


async def test_moves_for_a_session_that_is_over_are_left_to_the_broker(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    bench.settler.void = True
    await bench.settle(one, DeadLettered("nack"))
    assert bench.driver.calls["move"] == 0
    assert bench.counters.dead_lettered == 0


async def test_a_dropped_message_is_acked_and_counted_once(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    await bench.settle(one, Dropped("handler-error", FAILURE))
    assert await bench.held() == 0
    assert (bench.counters.dropped, bench.counters.succeeded) == (1, 0)
    (fact,) = bench.facts_of(MessageDropped)
    assert fact.failure is FAILURE
    assert bench.settler.held == 0


async def test_an_expired_message_tells_both_that_and_its_end(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    await bench.settle(one, DeadLettered("expired"))
    assert bench.counters.expired == bench.counters.dead_lettered == 1
    assert len(bench.facts_of(MessageExpired)) == len(bench.facts_of(MessageDeadLettered)) == 1


async def test_a_retry_that_is_rejected_becomes_a_dead_letter(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    bench.driver.reject(to="billing", of="move")
    await bench.settle(one, Retried(1.0, "handler-error", FAILURE), attempt=2)
    (letter,) = await contents(bench.driver, "billing.dlq")
    assert letter.headers["x-error"] == "no money"
    assert letter.headers["x-retry-count"] == 2
    assert (bench.counters.retried, bench.counters.dead_lettered) == (0, 1)
    assert bench.facts_of(MessageRetried) == []
    assert bench.owner.stuck_with == []
    assert bench.settler.held == 0


async def test_a_move_that_cannot_be_begun_keeps_no_other_from_being_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = FaultySubscription.move

    async def without_delays(self: FaultySubscription, moves: Sequence[Move]) -> Sequence[Receipt]:
        if any((each.to.due_at or 0) > bench.clock.now() for each in moves):
            raise QueueError("there is no level of delay")
        return await move(self, moves)

    monkeypatch.setattr(FaultySubscription, "move", without_delays)
    one, two = await bench.receive(order("m-1"), order("m-2"))
    bench.settler.settle(one, Retried(1.0, "handler-error", FAILURE), 2)
    await bench.settle(two, DeadLettered("nack"))
    letters = {each.id: each for each in await contents(bench.driver, "billing.dlq")}
    assert letters.keys() == {"m-1", "m-2"}
    assert letters["m-1"].headers["x-error"] == "no money"
    assert letters["m-1"].headers["x-retry-count"] == 2
    assert bench.owner.lost == []
    assert bench.settler.held == 0


async def test_a_retry_that_is_rejected_with_dead_letters_off_stays_in_its_queue() -> None:
    bench = Bench(dead_letters=False)
    (one,) = await bench.receive(order())
    bench.driver.reject(to="billing", of="move")
    await bench.settle(one, Retried(1.0, "handler-error", FAILURE))
    assert await ids(bench.driver, "billing") == ["m-1"]
    assert [id for id, _ in bench.owner.stuck_with] == ["m-1"]
    assert bench.settler.held == 0


async def test_a_rejected_dead_letter_is_tried_again_without_its_traceback(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    bench.driver.reject(to="billing.dlq")
    await bench.settle(one, DeadLettered("handler-error", FAILURE))
    (letter,) = await contents(bench.driver, "billing.dlq")
    assert "x-traceback" not in letter.headers
    assert letter.headers["x-error"] == "no money"
    assert user_headers(letter) == {"tenant": "acme"}
    assert bench.counters.dead_lettered == 1
    assert bench.owner.stuck_with == []


async def test_a_dead_letter_rejected_twice_leaves_the_message_in_its_queue(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    error = PublishError("the queue is full")
    bench.driver.reject(error, to="billing.dlq", times=2)
    await bench.settle(one, DeadLettered("handler-error", FAILURE))
    assert await ids(bench.driver, "billing") == ["m-1"]
    assert await ids(bench.driver, "billing.dlq") == []
    assert bench.owner.stuck_with == [("m-1", error)]
    assert bench.counters.dead_lettered == 0
    assert bench.settler.held == 0


async def test_a_dead_letter_without_a_traceback_is_not_tried_twice(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    bench.driver.reject(to="billing.dlq")
    await bench.settle(one, DeadLettered("nack"))
    assert [id for id, _ in bench.owner.stuck_with] == ["m-1"]
    assert bench.driver.calls["move"] == 1


async def test_a_retry_and_its_dead_letter_rejected_leave_the_message(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    bench.driver.reject(times=None)
    await bench.settle(one, Retried(1.0, "handler-error", FAILURE))
    assert await ids(bench.driver, "billing") == ["m-1"]
    assert [id for id, _ in bench.owner.stuck_with] == ["m-1"]


async def test_one_rejected_move_does_not_hold_up_its_neighbours(bench: Bench) -> None:
    got = await bench.receive(*(order(f"m-{n}") for n in range(3)))
    bench.driver.reject(to="billing.dlq", times=2)
    for each in got:
        bench.settler.settle(each, DeadLettered("handler-error", FAILURE), 1)
    await bench.settler.flush()
    assert sorted(await ids(bench.driver, "billing.dlq")) == ["m-0", "m-1", "m-2"]


async def test_a_stale_move_changes_nothing(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    await bench.settler.subscription.ack([one])
    await bench.settle(one, Retried(0.0, "nack"))
    assert await ids(bench.driver, "billing") == []
    assert await ids(bench.driver, "billing.dlq") == []
    assert (bench.counters.stale, bench.counters.retried) == (1, 0)
    assert bench.facts_of(MessageRetried) == []
    assert bench.owner.stuck_with == []
    assert bench.settler.held == 0


@pytest.mark.parametrize("stored", [True, False])
async def test_a_move_without_an_answer_loses_nothing(bench: Bench, stored: bool) -> None:
    (one,) = await bench.receive(order())
    bench.driver.lose_answers(stored=stored, of="move")
    await bench.settle(one, DeadLettered("handler-error", FAILURE))
    assert len(bench.owner.lost) == 1
    await bench.driver.drop()
    await bench.driver.open()
    assert await ids(bench.driver, "billing") == ["m-1"]
    assert await ids(bench.driver, "billing.dlq") == (["m-1"] if stored else [])
    assert bench.counters.dead_lettered == 0


async def test_a_move_without_an_answer_ends_the_session_though_the_connection_stands(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = await bench.receive(order())
    monkeypatch.setattr(bench.driver, "unknown", lambda: Unknown(QueueError("no confirm")))
    bench.driver.lose_answers(stored=False, of="move")
    await bench.settle(one, Retried(5.0, "nack"))
    (error,) = bench.owner.lost
    assert isinstance(error, ConnectionLost)
    assert "no confirm" in str(error)
    await bench.driver.drop()
    await bench.driver.open()
    assert await ids(bench.driver, "billing") == ["m-1"]


async def test_a_move_that_cannot_be_attempted_is_left_to_the_broker(bench: Bench) -> None:
    (one,) = await bench.receive(order())
    bench.driver.fail("move")
    await bench.settle(one, DeadLettered("nack"))
    assert len(bench.owner.lost) == 1
    await bench.driver.drop()
    await bench.driver.open()
    assert await ids(bench.driver, "billing") == ["m-1"]


async def test_releasing_gives_back_in_order_without_counting(bench: Bench) -> None:
    got = await bench.receive(order("m-1"), order("m-2"))
    await bench.settler.release(got)
    assert await ids(bench.driver, "billing") == ["m-1", "m-2"]
    assert [each.redeliveries for each in await bench.driver.peek("billing", 2)] == [0, 0]
    assert bench.settler.held == 0


async def test_a_release_that_meets_a_lost_connection_says_so(bench: Bench) -> None:
    got = await bench.receive(order())
    bench.driver.fail("release")
    await bench.settler.release(got)
    assert len(bench.owner.lost) == 1


async def test_closing_twice_is_closing_once(bench: Bench) -> None:
    await bench.receive(order())
    await bench.settler.close()
    await bench.settler.close()
    assert bench.driver.calls["unsubscribe"] == 1
    assert await ids(bench.driver, "billing") == ["m-1"]


async def test_closing_what_is_lost_already_is_no_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.receive(order())

    async def lost() -> None:
        raise ConnectionLost("gone")

    monkeypatch.setattr(bench.settler.subscription, "close", lost)
    await bench.settler.close()
    assert bench.settler.void


@pytest.mark.parametrize("reason", [ValueError("no money"), None, 5, "\ud800"])
async def test_a_reason_that_is_no_text_is_written_as_one(bench: Bench, reason: Any) -> None:
    (one,) = await bench.receive(order())
    await bench.settle(one, DeadLettered(reason))
    (letter,) = await contents(bench.driver, "billing.dlq")
    assert isinstance(letter.headers["x-reason"], str)


# -- through the facade ----------------------------------------------------------------------


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


async def test_a_retry_goes_back_to_the_queue_that_failed_and_no_other(stage: Stage) -> None:
    seen = Ledger()
    billing = stage.qc.worker("billing", retry=Retry(max_retries=1))
    audit = stage.qc.worker("audit")
    billing.on(order_placed, seen.failing("billing", times=1))
    audit.on("order.*", seen.recording("audit"))
    async with running(billing, audit):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.advance(10)
    assert seen.attempts("billing") == [1, 2]
    assert seen.attempts("audit") == [1]


async def test_competing_failures_of_one_event_stay_apart(stage: Stage) -> None:
    seen = Ledger()
    workers = [
        stage.qc.worker(name, retry=Retry(max_retries=2, initial_delay=delay)).on(
            order_placed, seen.failing(name, times=times)
        )
        for name, delay, times in (("a", 1, 1), ("b", 2, 2), ("c", 3, 3))
    ]
    async with running(*workers):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.advance(60)
    assert [seen.attempts(name) for name in "abc"] == [[1, 2], [1, 2, 3], [1, 2, 3]]
    assert len(await ids(stage.driver, "c.dlq")) == 1
    assert await ids(stage.driver, "a.dlq") == await ids(stage.driver, "b.dlq") == []


async def test_after_its_last_attempt_a_message_is_a_dead_letter(stage: Stage) -> None:
    seen = Ledger()
    billing = stage.qc.worker("billing", retry=Retry(max_retries=3))
    billing.on(order_placed, seen.failing("billing", times=None, error=ValueError("no money")))
    async with running(billing):
        id = await stage.qc.publish(
            order_placed, Order("o-1"), headers={"tenant": "acme", "raw": b"\xff"}, key="k"
        )
        await stage.clock.advance(60)
        (letter,) = await contents(stage.driver, "billing.dlq")
    assert seen.attempts() == [1, 2, 3, 4]
    assert letter.id == id
    assert letter.body == b'{"id":"o-1","total":9.5}'
    assert user_headers(letter) == {"tenant": "acme", "raw": b"\xff"}
    story = letter.headers
    assert story["x-original-queue"] == "billing"
    assert story["x-original-routing-key"] == "order.placed"
    assert story["x-error"] == "no money"
    assert story["x-error-type"] == "ValueError"
    assert "no money" in str(story["x-traceback"])
    assert story["x-retry-count"] == 4
    assert story["x-reason"] == "handler-error"
    assert story["x-failed-at"] == int((NOW + 7) * 1000)  # after waits of 1, 2 and 4 seconds


async def test_a_retry_is_never_early(stage: Stage) -> None:
    seen = Ledger()
    billing = stage.qc.worker("billing", retry=Retry(initial_delay=10))
    billing.on(order_placed, seen.failing("billing", times=1))
    async with running(billing):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.advance(9.999)
        assert seen.attempts() == [1]
        await stage.clock.advance(0.002)
        assert seen.attempts() == [1, 2]


async def test_with_dead_letters_off_a_message_is_dropped_logged_and_counted(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    billing = stage.qc.worker("billing", retry=NoRetry(), dead_letter=NoDeadLetter())
    billing.on(order_placed, Ledger().failing("billing", times=None))
    async with running(billing):
        id = await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
        metrics = stage.qc.get_metrics()
        (info,) = await stage.driver.inspect(["billing"])
    assert (metrics.messages_dropped, metrics.messages_failed) == (1, 1)
    assert metrics.messages_dead_lettered == 0
    assert (info.ready, info.in_flight) == (0, 0)
    assert "billing.dlq" not in (await stage.driver.topology()).queues
    (line,) = [each for each in caplog.records if "dropped" in each.message]
    assert line.levelno == logging.ERROR
    assert id in line.message


async def test_the_failed_counter_rises_with_every_failed_delivery(stage: Stage) -> None:
    billing = stage.qc.worker("billing", retry=Retry(max_retries=2))
    billing.on(order_placed, Ledger().failing("billing", times=None))
    async with running(billing):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.advance(60)
        metrics = stage.qc.get_metrics()
    assert (metrics.messages_failed, metrics.messages_retried) == (3, 2)
    assert metrics.messages_dead_lettered == 1


async def test_dead_letters_have_the_names_of_the_requirements(stage: Stage) -> None:
    billing = stage.qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    async with running(billing):
        topology = await stage.driver.topology()
    assert Exchange("events.dlx", "topic", durable=True) in topology.exchanges
    assert "billing.dlq" in topology.queues
    bound = [(b.exchange.name, b.pattern, queue) for b, queue in topology.bindings]
    assert ("events.dlx", "billing.dlq", "billing.dlq") in bound


@pytest.mark.parametrize(
    "dead_letter",
    [
        DeadLetter(exchange="graveyard", queue="failed", routing_key="billing.failed"),
        DeadLetter(
            exchange=lambda name: "graveyard",
            queue=lambda name: "failed",
            routing_key=lambda name: f"{name}.failed",
        ),
    ],
    ids=["values", "functions"],
)
async def test_dead_letters_go_where_the_worker_says(stage: Stage, dead_letter: DeadLetter) -> None:
    billing = stage.qc.worker("billing", retry=NoRetry(), dead_letter=dead_letter)
    billing.on(order_placed, Ledger().failing("billing", times=None))
    async with running(billing):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
        (letter,) = await contents(stage.driver, "failed")
        topology = await stage.driver.topology()
    assert (letter.exchange, letter.routing_key) == ("graveyard", "billing.failed")
    assert "billing.dlq" not in topology.queues


async def test_dead_letters_of_one_queue_reach_no_other_dead_letter_queue(stage: Stage) -> None:
    # Named after their events, these two have names that are patterns for each other.
    any_order = stage.qc.worker().on("order.*", Ledger().recording("any"))
    placed = stage.qc.worker(retry=NoRetry()).on(
        order_placed, Ledger().failing("placed", times=None)
    )
    everything = stage.qc.worker().on("#", Ledger().recording("everything"))
    async with running(any_order, placed, everything):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
        infos = await stage.driver.inspect()
    dead = {info.name: info.ready for info in infos if info.name.endswith(".dlq")}
    assert dead == {
        "queue.order.*.dlq": 0,
        "queue.order.placed.dlq": 1,
        "queue.#.dlq": 0,
    }


async def test_poison_is_dead_lettered_at_once_with_the_reason(stage: Stage) -> None:
    seen = Ledger()
    billing = stage.qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with running(billing):
        await stage.qc.publish("order.placed", {"id": 5})
        await stage.clock.settle()
        (letter,) = await contents(stage.driver, "billing.dlq")
    assert seen.calls == []
    assert letter.body == b'{"id":5}'
    assert letter.headers["x-reason"] == "invalid-payload"
    assert "id" in str(letter.headers["x-error"])


async def test_a_dead_letter_that_cannot_be_written_pauses_the_queue(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    billing = stage.qc.worker("billing", retry=NoRetry())
    billing.on(order_placed, Ledger().failing("billing", times=None))
    async with running(billing):
        await stage.clock.settle()
        await stage.driver.delete("billing.dlq")
        id = await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
        assert await ids(stage.driver, "billing") == [id]
        assert billing.state == "paused"
        health = stage.qc.health_check()
    assert not health.ok
    assert "dead letter" in health.paused["billing"]
    assert any("cannot be dead-lettered" in each.message for each in caplog.records)


async def test_a_paused_queue_goes_on_once_dead_letters_can_be_written_again(stage: Stage) -> None:
    billing = stage.qc.worker("billing", retry=NoRetry())
    billing.on(order_placed, Ledger().failing("billing", times=None))
    async with running(billing):
        await stage.clock.settle()
        await stage.driver.delete("billing.dlq")
        id = await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
        await stage.driver.declare(billing.definition)
        billing.resume()
        await stage.clock.settle()
        assert await ids(stage.driver, "billing.dlq") == [id]
        assert stage.qc.health_check().ok


async def test_a_story_too_long_for_the_headers_is_cut_and_kept(stage: Stage) -> None:
    billing = stage.qc.worker("billing", retry=NoRetry())

    @billing.on(order_placed)
    async def charge(order: Order) -> None:
        raise ValueError("é" * 100_000)

    fat = {"fat": "x" * 64_000}
    async with running(billing):
        await stage.qc.publish(order_placed, Order("o-1"), headers=fat)
        await stage.clock.settle()
        (letter,) = await contents(stage.driver, "billing.dlq")
    assert size(letter.headers) <= 65_536
    assert user_headers(letter) == fat
    assert str(letter.headers["x-error"]).startswith("éé")


async def test_an_error_that_cannot_be_printed_is_kept_all_the_same(stage: Stage) -> None:
    class Mean(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    billing = stage.qc.worker("billing", retry=NoRetry())
    billing.on(order_placed, Ledger().failing("billing", times=None, error=Mean()))
    async with running(billing):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
        (letter,) = await contents(stage.driver, "billing.dlq")
    assert letter.headers["x-error"] == "(the error cannot be printed)"


async def test_a_retried_message_keeps_what_its_publisher_gave_it(stage: Stage) -> None:
    got: list[tuple[Any, ...]] = []
    billing = stage.qc.worker("billing")

    @billing.on(order_placed)
    async def charge(order: Order, message: Message[Order]) -> None:
        got.append(
            (order, message.id, message.key, message.correlation_id, message.headers["tenant"])
        )
        if message.attempt == 1:
            raise ValueError

    async with running(billing):
        await stage.qc.publish(
            order_placed,
            Order("o-1"),
            key="k",
            correlation_id="c",
            headers={"tenant": "acme"},
            message_id="m-1",
        )
        await stage.clock.advance(5)
    assert got == [(Order("o-1"), "m-1", "k", "c", "acme")] * 2


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("stored", [True, False])
async def test_retries_without_an_answer_lose_nothing(inline: bool, stored: bool) -> None:
    seen = Ledger()
    async with staged(inline=inline) as stage:
        billing = stage.qc.worker("billing").on(order_placed, seen.failing("billing", times=1))
        async with running(billing):
            stage.driver.lose_answers(stored=stored, of="move")
            seen.published(await stage.qc.publish(order_placed, Order("o-1")))
            await stage.clock.advance(30)
    seen.check(duplicates_at_most=2 if stored else 1)


async def test_a_broker_that_never_answers_does_not_make_a_handler_run_hot(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Ledger()
    worker = stage.qc.worker("billing").on(order_placed, seen.failing("billing", times=None))
    monkeypatch.setattr(stage.driver, "unknown", lambda: Unknown(QueueError("no confirm")))
    stage.driver.lose_answers(stored=False, of="move", times=1_000_000)
    async with running(worker):
        await stage.qc.publish(order_placed, Order("o-1"))
        for _ in range(20):
            await stage.clock.settle()
        assert len(seen.calls) < 10
        stage.driver.heal()
        await stage.clock.advance(120)
        assert len(await ids(stage.driver, "billing.dlq")) == 1


async def test_a_retry_that_the_broker_does_not_take_yet_keeps_no_other_message_from_being_acked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_move, move = asyncio.Event(), FaultySubscription.move

    async def held_up(self: FaultySubscription, moves: Sequence[Move]) -> Sequence[Receipt]:
        await may_move.wait()
        return await move(self, moves)

    monkeypatch.setattr(FaultySubscription, "move", held_up)
    handled: list[str] = []

    async def charge(order: Order, message: Message) -> None:
        if order.id == "bad" and message.attempt == 1:
            raise ValueError("no money")
        handled.append(order.id)

    async with staged(inline=False) as stage:
        billing = stage.qc.worker("billing", prefetch=4).on(order_placed, charge)
        async with running(billing):
            good = [f"o-{n}" for n in range(20)]
            for id in ("bad", *good):
                await stage.qc.publish(order_placed, Order(id))
            await stage.clock.advance(1)
            assert handled == good
            (info,) = await stage.driver.inspect(["billing"])
            assert (info.ready, info.in_flight) == (0, 1)

            may_move.set()
            await stage.clock.advance(5)
            assert handled == [*good, "bad"]


async def test_a_crash_between_send_and_ack_of_a_dead_letter_duplicates_but_never_loses() -> None:
    seen = Ledger()
    async with staged() as stage:
        billing = stage.qc.worker("billing", retry=NoRetry())
        billing.on(order_placed, seen.failing("billing", times=None))
        async with running(billing):
            with failing("move.before", ConnectionLost("cut"), times=1):
                id = await stage.qc.publish(order_placed, Order("o-1"))
                await stage.clock.advance(30)
            assert await ids(stage.driver, "billing.dlq") == [id]
            assert await ids(stage.driver, "billing") == []


async def test_a_settled_message_may_be_an_event_of_any_kind(stage: Stage) -> None:
    plain: Event[Any] = Event("anything")
    billing = stage.qc.worker("billing", retry=NoRetry())
    billing.on(plain, Ledger().failing("billing", times=None))
    async with running(billing):
        await stage.qc.publish(plain, None)
        await stage.clock.settle()
        (letter,) = await contents(stage.driver, "billing.dlq")
    assert letter.body == b"null"


# -- the settler against a model -------------------------------------------------------------

ANSWERS = st.sampled_from(
    ["accepted", "rejected", "stale", "unknown", "unknown-stored", "lost", "lost-stored"]
)
LOST = ConnectionLost("the model is cut off")


class Model(Subscription):
    """A broker of two queues in a few lines: what is ready, held and dead, by id."""

    def __init__(self) -> None:
        self.ready: list[Outgoing] = []
        self.dead: list[Outgoing] = []
        self.held: dict[Delivery, None] = {}
        self.elsewhere: list[Outgoing] = []  # taken from us, now another consumer's
        self.forgotten: list[str] = []
        self.answers: list[str] = []
        self.cut = False

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        got = [Delivery(each, "billing") for each in self.ready[:limit]]
        del self.ready[:limit]
        self.held.update(dict.fromkeys(got))
        return got

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        self._check()
        stale = [each for each in deliveries if each not in self.held]
        for each in deliveries:
            if each in self.held:
                del self.held[each]
                self.forgotten.append(each.sent.id)
        return stale

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        self._check()
        ours = [each for each in deliveries if each in self.held]
        for each in ours:
            del self.held[each]
        self.ready[:0] = [each.sent for each in ours]

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        raise AssertionError("a settler moves")

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        self._check()
        return [self._move(move) for move in moves]

    async def close(self) -> None:
        self.ready[:0] = [each.sent for each in self.held]
        self.held.clear()

    def _move(self, move: Move) -> Receipt:
        answer = self.answers.pop(0) if self.answers else "accepted"
        if move.delivery not in self.held:
            return Rejected(AlreadySettled("not ours"))
        if answer == "stale":
            del self.held[move.delivery]
            self.elsewhere.append(move.delivery.sent)
            return Rejected(AlreadySettled("not ours"))
        if answer == "rejected":
            return Rejected(PublishError("the model will not have it"))
        if answer.startswith("lost"):
            self.cut = True
        if answer in ("accepted", "unknown-stored", "lost-stored"):
            assert move.to.queue in (None, "billing"), "a retry goes to its own queue alone"
            (self.dead if move.to.queue is None else self.ready).append(move.to)
        if answer == "accepted":
            del self.held[move.delivery]
            return ACCEPTED
        return Unknown(LOST if answer.startswith("lost") else QueueError("no confirm"))

    def _check(self) -> None:
        if self.cut:
            raise LOST


def finish(work: Coroutine[Any, Any, Any]) -> Any:
    """Run what never suspends."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the model suspended")


class SettlerAgainstModel(RuleBasedStateMachine):
    """Whatever the broker answers: nothing is lost, nothing is counted twice."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.owner = Told()
        self.counters = Counters()
        self.facts = Facts(logging.getLogger("queuecraft.test"))
        self.queue: Queue[Any] = Queue("billing", dead_letters=TARGET)
        self.published = 0
        self.received: list[Delivery] = []
        self.ended: set[str] = set()  # ids whose handling ended well, or that were dropped
        self.subscribe()

    def subscribe(self) -> None:
        self.settler = Settler(
            self.model, self.queue, self.owner, self.counters, self.facts, Clock()
        )
        self.received.clear()

    @rule()
    def publish(self) -> None:
        self.published += 1
        self.model.ready.append(order(f"m-{self.published}"))

    @precondition(lambda self: not self.settler.void)
    @rule(limit=st.integers(1, 5))
    def receive(self, limit: int) -> None:
        got = finish(self.model.receive(limit, 0))
        self.settler.held += len(got)
        self.received += got

    @precondition(lambda self: self.received)
    @rule(which=st.integers(0))
    def succeed(self, which: int) -> None:
        delivery = self.received.pop(which % len(self.received))
        self.settler.acks.append(delivery)
        self.settler.durations.append(0.1)
        self.ended.add(delivery.sent.id)

    @precondition(lambda self: self.received)
    @rule(
        which=st.integers(0),
        outcome=st.sampled_from(
            [
                Retried(0.0, "handler-error", FAILURE),
                Retried(5.0, "nack"),
                DeadLettered("handler-error", FAILURE),
                DeadLettered("expired"),
                Dropped("handler-error", FAILURE),
                Acked(),
            ]
        ),
    )
    def end(self, which: int, outcome: Outcome) -> None:
        delivery = self.received.pop(which % len(self.received))
        if isinstance(outcome, (Acked, Dropped)):
            self.ended.add(delivery.sent.id)
        self.settler.settle(delivery, outcome, failures(delivery) + 1)

    @precondition(lambda self: self.received)
    @rule(which=st.integers(0))
    def release(self, which: int) -> None:
        delivery = self.received.pop(which % len(self.received))
        finish(self.settler.release([delivery]))

    @precondition(lambda self: self.received)
    @rule(which=st.integers(0))
    def taken_away(self, which: int) -> None:
        delivery = self.received[which % len(self.received)]
        if self.model.held.pop(delivery, self) is None:
            self.model.elsewhere.append(delivery.sent)

    @rule(answers=st.lists(ANSWERS, max_size=6) | st.just(["rejected"] * 20))
    def flush(self, answers: list[str]) -> None:
        self.model.answers = answers
        finish(self.settler.flush())
        self.model.answers = []
        assert not self.settler.waiting

    @rule()
    def cut(self) -> None:
        self.model.cut = True

    @precondition(lambda self: self.settler.void)
    @rule()
    def reconnect(self) -> None:
        finish(self.model.close())
        self.model.cut = False
        self.subscribe()

    @invariant()
    def every_message_is_somewhere(self) -> None:
        model = self.model
        kept = [*model.ready, *model.dead, *model.elsewhere, *(each.sent for each in model.held)]
        there = {each.id for each in kept}
        for number in range(1, self.published + 1):
            id = f"m-{number}"
            assert id in there or id in self.ended, f"{id} is lost"

    @invariant()
    def only_what_was_handled_is_forgotten(self) -> None:
        assert set(self.model.forgotten) <= self.ended

    @invariant()
    def the_settler_knows_how_much_it_holds(self) -> None:
        if not self.settler.void and not self.settler.waiting:
            assert self.settler.held == len(self.received)
            assert self.model.held.keys() <= set(self.received)

    @invariant()
    def every_dead_letter_has_its_story_and_its_own_headers(self) -> None:
        for letter in self.model.dead:
            assert letter.headers["x-original-queue"] == "billing"
            assert letter.headers["x-original-routing-key"] == "order.placed"
            assert letter.headers["tenant"] == "acme"
            assert letter.body == b"{}"

    @invariant()
    def who_is_stuck_has_been_told(self) -> None:
        for _, error in self.owner.stuck_with:
            assert isinstance(error, PublishError)


def test_no_answer_of_a_broker_makes_the_settler_lose_a_message() -> None:
    run_state_machine_as_test(
        SettlerAgainstModel,
        settings=settings(max_examples=200, stateful_step_count=40),
    )
