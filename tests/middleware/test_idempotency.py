"""A message is handled once, however often it comes; a handler that failed or died has not."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    ConnectionLost,
    Message,
    NoRetry,
    QueueCraft,
    RequestTimeout,
    Retry,
    Worker,
)
from queuecraft.middleware import (
    Handle,
    Idempotent,
    MemoryClaims,
    Postponed,
    RedisClaims,
    SqliteClaims,
)
from queuecraft.stores.claims.base import CLAIMED, Answer, Busy, ClaimStore, Done
from queuecraft.stores.claims.claims import Claims
from queuecraft.stores.claims.memory import MemoryClaimStore
from queuecraft.testing import FakeClock, message_of
from tests.middleware.stage import number, stage


async def nothing(message: Message[Any]) -> None:
    pass


def counting(worker: Worker) -> list[int]:
    seen: list[int] = []

    @worker.on(number)
    async def handle(n: int) -> None:
        seen.append(n)

    return seen


# -- in a worker -----------------------------------------------------------------------------------


async def test_a_message_that_comes_again_is_acknowledged_unrun() -> None:
    async with stage() as (qc, clock):
        worker = qc.worker("numbers", middleware=[Idempotent(MemoryClaims(clock=clock))])
        seen = counting(worker)
        await worker.start()
        for _ in range(3):
            await qc.publish(number, 1, message_id="same")
            await clock.settle()
        await qc.publish(number, 2, message_id="other")
        await clock.settle()
        assert seen == [1, 2]
        assert (await qc.admin.inspect("numbers")).ready == 0
        assert qc.get_metrics().messages_failed == 0


async def test_after_its_time_to_live_a_message_is_handled_again() -> None:
    async with stage() as (qc, clock):
        worker = qc.worker("numbers", middleware=[Idempotent(MemoryClaims(clock=clock), ttl=3600)])
        seen = counting(worker)
        await worker.start()
        for wait in (0, 3599, 2):
            await clock.advance(wait)
            await qc.publish(number, wait, message_id="same")
            await clock.settle()
        assert seen == [0, 2]


async def test_each_queue_of_an_event_handles_it() -> None:
    async with stage() as (qc, clock):
        claims = MemoryClaims(clock=clock)
        qc.use(Idempotent(claims))
        seen = {name: counting(qc.worker(name)) for name in ("billing", "audit")}
        for worker in qc.workers:
            await worker.start()
        for _ in range(2):
            await qc.publish(number, 1, message_id="same")
            await clock.settle()
        assert seen == {"billing": [1], "audit": [1]}


async def test_a_handler_that_failed_is_tried_again() -> None:
    async with stage(retry=Retry(max_retries=2, initial_delay=1)) as (qc, clock):
        worker = qc.worker("numbers", middleware=[Idempotent(MemoryClaims(clock=clock))])
        attempts: list[int] = []

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            attempts.append(message.attempt)
            if len(attempts) < 3:
                raise OSError("no answer")

        await worker.start()
        await qc.publish(number, 1)
        await clock.advance(10)
        assert attempts == [1, 2, 3]


async def test_while_one_is_handled_the_same_waits_without_a_runner() -> None:
    async with stage() as (qc, clock):
        once = Idempotent(MemoryClaims(clock=clock), lambda message: "all the same", lease=60)
        worker = qc.worker("numbers", concurrency=2, prefetch=10, middleware=[once])
        seen: list[int] = []
        go_on = asyncio.Event()

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append(n)
            await go_on.wait()

        await worker.start()
        await qc.publish_many(number, [1, 2, 3])
        await clock.advance(150)  # a lease that is not renewed would be over twice
        assert seen == [1]
        assert qc.get_metrics().messages_failed == 0
        go_on.set()
        await clock.advance(61)
        assert seen == [1]
        assert (await qc.admin.inspect("numbers")).ready == 0


async def test_a_message_that_the_handler_has_failed_by_hand_is_not_done() -> None:
    async with stage() as (qc, clock):
        worker = qc.worker("numbers", middleware=[Idempotent(MemoryClaims(clock=clock))])
        attempts: list[int] = []

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            attempts.append(message.attempt)
            if message.attempt == 1:
                await message.retry(delay=5)

        await worker.start()
        await qc.publish(number, 1)
        await clock.advance(10)
        assert attempts == [1, 2]


async def test_a_dead_letter_that_is_redriven_is_handled() -> None:
    async with stage(retry=NoRetry()) as (qc, clock):
        worker = qc.worker("numbers", middleware=[Idempotent(MemoryClaims(clock=clock))])
        seen: list[int] = []

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.append(n)
            if len(seen) == 1:
                await message.dead_letter("not today")

        await worker.start()
        await qc.publish(number, 1)
        await clock.settle()
        await qc.dead_letters.redrive("numbers")
        await clock.settle()
        assert seen == [1, 1]


async def test_a_sync_handler_is_run_once_too() -> None:
    qc = QueueCraft("local://", concurrency=2)
    worker = qc.worker("numbers", middleware=[Idempotent(MemoryClaims())])
    seen: list[int] = []
    worker.on(number, seen.append)
    async with qc:
        await worker.start()
        for done, n in enumerate((1, 1, 2), start=1):
            await qc.publish(number, n, message_id=f"m-{n}")
            async with asyncio.timeout(5):
                while qc.get_metrics().messages_succeeded < done:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
    assert seen == [1, 2]


# -- the key ---------------------------------------------------------------------------------------


def key_of(key: Any, **message: Any) -> str:
    return Idempotent(MemoryClaims(), key).key_of(message_of({}, **message))


def test_a_header_is_the_key_and_without_it_the_id() -> None:
    def named(value: Any, id: str = "m-1") -> str:
        return key_of("order", id=id, headers={} if value is None else {"order": value})

    assert named("o-1") == named("o-1", "m-2")
    assert named("o-1") != named("o-2")
    assert named(None) != named(None, "m-2")
    assert named("") != named("", "m-2")
    assert named("m-1") != named(None)
    assert len({named(value) for value in ("1", "true", b"1", 1.5, 0)}) == 5


def test_keys_that_are_long_or_odd_stay_apart() -> None:
    odd = ["x" * 5000, "x" * 5001, "é", "\ud800", "\ud801", "a\0", "a\0b"]
    keys = {key_of(lambda message, key=key: key) for key in odd}
    assert len(keys) == len(odd)
    assert all(len(key) <= 200 and key.isascii() for key in keys)


def test_no_queue_and_key_make_the_key_of_another_queue() -> None:
    assert key_of(lambda _: "c", queue="a:b") != key_of(lambda _: "b:c", queue="a")
    assert key_of(None, queue="a b", id="c") != key_of(None, queue="a", id="b c")


@pytest.mark.parametrize("gave", ["", None, 5])
async def test_a_function_that_gives_no_key_fails_the_message(gave: Any) -> None:
    handle = Idempotent(MemoryClaims(), lambda message: gave)(nothing)
    with pytest.raises(ConfigError, match="not a text"):
        await handle(message_of({}))


async def test_a_message_without_an_id_fails_unless_it_has_another_key() -> None:
    with pytest.raises(ConfigError, match="not a text"):
        await Idempotent(MemoryClaims())(nothing)(message_of({}, id=""))
    assert key_of("order", id="", headers={"order": "o-1"}) == "handled:test\nkey:o-1"


@pytest.mark.parametrize(
    "wrong",
    [{"store": None}, {"key": ""}, {"key": 5}, {"ttl": 0}, {"lease": -1}, {"ttl": float("inf")}],
)
def test_what_cannot_work_is_refused_at_once(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"store": MemoryClaims(), **wrong}
    with pytest.raises(ConfigError, match=r"Idempotent.*expected"):
        Idempotent(**given)


def test_a_url_of_no_redis_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        RedisClaims("amqp://ada:secret@rabbit")
    assert "secret" not in str(caught.value)


# -- a handler and its end -------------------------------------------------------------------------


async def test_a_cancelled_handler_lets_go_of_its_message() -> None:
    claims = MemoryClaims()
    begun = asyncio.Event()

    async def slow(message: Message[Any]) -> None:
        begun.set()
        await asyncio.Event().wait()

    once = Idempotent(claims)
    message: Message[Any] = message_of({})
    task = asyncio.create_task(_run(once(slow), message))
    await begun.wait()
    with pytest.raises(Postponed):
        await once(nothing)(message)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await claims.claim(once.key_of(message), 60) is CLAIMED


async def _run(handle: Handle, message: Message[Any]) -> object:
    return await handle(message)


async def test_a_handler_that_is_thrown_away_lets_go_of_its_message() -> None:
    async def odd(message: Message[Any]) -> None:
        raise GeneratorExit

    claims = MemoryClaims()
    once = Idempotent(claims)
    with pytest.raises(GeneratorExit):
        await once(odd)(message_of({}))
    await claims.close()
    assert await once(nothing)(message_of({})) is None
    assert claims._held == {}


async def test_a_handler_that_acked_and_then_failed_has_handled_it() -> None:
    async def hasty(message: Message[Any]) -> None:
        await message.ack()
        raise OSError("too late")

    once = Idempotent(MemoryClaims())
    with pytest.raises(OSError, match="too late"):
        await once(hasty)(message_of({}))
    assert await once(hasty)(message_of({})) is None


async def test_what_the_handler_returns_is_passed_on_the_first_time() -> None:
    async def answer(message: Message[Any]) -> str:
        return "42"

    handle = Idempotent(MemoryClaims())(answer)
    assert [await handle(message_of({})) for _ in range(2)] == ["42", None]


async def test_a_request_that_was_handled_before_gets_no_reply_rather_than_none() -> None:
    async with stage() as (qc, clock):
        worker = qc.worker("pricing", middleware=[Idempotent(MemoryClaims(clock=clock))])

        @worker.on("price.asked")
        async def price(article: str) -> int:
            return 42

        await worker.start()
        assert await qc.request("price.asked", "tea", int, message_id="m-1") == 42
        again = asyncio.ensure_future(qc.request("price.asked", "tea", timeout=5, message_id="m-1"))
        await clock.advance(5)
        with pytest.raises(RequestTimeout, match="no reply came"):
            await again
        assert worker.in_flight == 0
        assert (await qc.admin.inspect("pricing")).ready == 0


# -- a store that is away, or slow -----------------------------------------------------------------


class Frail(ClaimStore):
    """A store that can be cut off, held up, and counts what it is asked."""

    def __init__(self) -> None:
        self.kept = MemoryClaimStore()
        self.away: set[str] = set()
        self.calls: list[tuple[str, int]] = []
        self.held_up: asyncio.Event | None = None
        self.reached = asyncio.Event()
        self.opened = 0
        self.closed = 0
        self.lost = False
        self.mended = False  # all is well again once it is opened again

    @property
    def is_lost(self) -> bool:
        return self.lost

    async def open(self) -> None:
        self.opened += 1
        self.lost = False
        if self.mended:
            self.away.clear()
        await self._pass("open", 0)

    async def close(self) -> None:
        self.closed += 1

    async def claim(self, keys: Sequence[str], owner: str, lease: float) -> Sequence[Answer]:
        await self._pass("claim", len(keys))
        return await self.kept.claim(keys, owner, lease)

    async def complete(
        self, values: Mapping[str, bytes], owner: str, ttl: float
    ) -> Collection[str]:
        await self._pass("complete", len(values))
        return await self.kept.complete(values, owner, ttl)

    async def release(self, keys: Sequence[str], owner: str) -> None:
        await self._pass("release", len(keys))
        await self.kept.release(keys, owner)

    async def renew(self, keys: Sequence[str], owner: str, lease: float) -> Collection[str]:
        await self._pass("renew", len(keys))
        return await self.kept.renew(keys, owner, lease)

    async def _pass(self, what: str, count: int) -> None:
        self.calls.append((what, count))
        self.reached.set()
        if self.held_up is not None:
            await self.held_up.wait()
        if what in self.away:
            raise ConnectionLost(f"{what}: nobody is there")


@pytest.fixture
def frail() -> Frail:
    return Frail()


def claims_in(frail: Frail, clock: FakeClock | None = None) -> Claims:
    async def opened() -> ClaimStore:
        return frail

    return Claims(opened, clock=clock or FakeClock())


async def test_a_message_of_which_nothing_can_be_known_waits_and_is_not_run(
    frail: Frail, caplog: pytest.LogCaptureFixture
) -> None:
    claims = claims_in(frail)
    frail.away.add("claim")
    handle = Idempotent(claims)(nothing)
    with pytest.raises(Postponed, match="nobody is there") as caught:
        await handle(message_of({}))
    assert caught.value.seconds == 5
    assert claims.trouble is not None
    frail.away.clear()
    await handle(message_of({}))
    assert claims.trouble is None
    said = [(record.levelno, record.message.partition(",")[0]) for record in caplog.records]
    assert said == [(logging.ERROR, "claims cannot be reached")]
    await claims.close()


async def test_a_connection_that_was_lost_is_made_again_without_anybody_noticing(
    frail: Frail, caplog: pytest.LogCaptureFixture
) -> None:
    claims = claims_in(frail)
    handle = Idempotent(claims)(nothing)
    await handle(message_of({}, id="m-1"))
    frail.away.add("claim")
    frail.mended = True
    opened, frail.opened = frail.opened, 0
    await handle(message_of({}, id="m-2"))
    assert opened == frail.opened == 1
    assert not caplog.records
    await claims.close()


async def test_what_is_handled_is_acked_even_if_that_cannot_be_written_down(
    frail: Frail, caplog: pytest.LogCaptureFixture
) -> None:
    claims = claims_in(frail)
    frail.away.add("complete")
    assert await Idempotent(claims)(nothing)(message_of({})) is None
    assert "could not be written down" in caplog.text
    await claims.close()


async def test_the_failure_of_a_handler_is_told_even_if_its_claim_cannot_be_released(
    frail: Frail,
) -> None:
    async def failing(message: Message[Any]) -> None:
        raise KeyError("o-1")

    claims = claims_in(frail)
    frail.away.add("release")
    with pytest.raises(KeyError):
        await Idempotent(claims)(failing)(message_of({}))
    await claims.close()


async def test_many_runners_ask_in_one_call(frail: Frail) -> None:
    claims = claims_in(frail)
    handle = Idempotent(claims)(nothing)
    await asyncio.gather(*(_run(handle, message_of({}, id=f"m-{n}")) for n in range(100)))
    assert frail.calls == [("open", 0), ("claim", 100), ("complete", 100)]
    await claims.close()


async def test_a_store_that_is_known_to_be_lost_is_opened_before_it_is_used(frail: Frail) -> None:
    claims = claims_in(frail)
    await claims.claim("a", 60)
    frail.lost = True
    await claims.claim("b", 60)
    assert frail.calls == [("open", 0), ("claim", 1)] * 2
    await claims.close()
    assert (frail.opened, frail.closed) == (2, 2)


async def test_a_store_that_cannot_be_opened_is_closed(frail: Frail) -> None:
    claims = claims_in(frail)
    frail.away.add("open")
    with pytest.raises(ConnectionLost):
        await claims.claim("a", 60)
    assert (frail.opened, frail.closed) == (1, 1)
    await claims.close()


async def test_who_gives_up_waiting_for_its_completion_leaves_it_to_be_completed(
    frail: Frail,
) -> None:
    claims = claims_in(frail)
    await claims.claim("a", 60)
    frail.held_up, frail.reached = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(claims.complete("a", 60))
    await frail.reached.wait()
    task.cancel()
    await asyncio.wait([task])
    assert isinstance(await claims.claim("a", 60), Busy)
    frail.held_up.set()
    await claims.close()
    assert await claims.claim("a", 60) == Done()
    await claims.close()


async def test_a_claim_that_nobody_waits_for_any_more_is_given_back(frail: Frail) -> None:
    claims = claims_in(frail)
    await claims.claim("first", 60)
    frail.held_up, frail.reached = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(claims.claim("a", 60))
    await frail.reached.wait()
    task.cancel()
    await asyncio.wait([task])
    assert isinstance(await claims.claim("a", 60), Busy)  # it is on its way, in or out
    frail.held_up.set()
    await claims.close()
    assert list(await frail.kept.claim(["a"], "another", 60)) == [CLAIMED]


async def test_leases_are_renewed_together_while_handlers_run(frail: Frail) -> None:
    clock = FakeClock()
    frail.kept = MemoryClaimStore(clock)
    claims = claims_in(frail, clock)
    for key in ("a", "b"):
        await claims.claim(key, 60)
    await clock.advance(61)
    assert frail.calls.count(("renew", 2)) == 3
    assert all(isinstance(each, Busy) for each in await frail.kept.claim(["a", "b"], "other", 60))
    await claims.complete("a", 60)
    await claims.release("b")
    frail.calls.clear()
    await clock.advance(1000)
    assert frail.calls == []
    assert clock.pending == ()
    await claims.close()


async def test_a_short_lease_is_renewed_in_time_beside_a_long_one(frail: Frail) -> None:
    clock = FakeClock()
    frail.kept = MemoryClaimStore(clock)
    claims = claims_in(frail, clock)
    await claims.claim("long", 600)
    await clock.advance(10)
    await claims.claim("short", 3)
    await clock.advance(700)
    answers = await frail.kept.claim(["long", "short"], "other", 60)
    assert all(isinstance(each, Busy) for each in answers)
    await claims.release("short")
    frail.calls.clear()
    await clock.advance(600)
    assert len(frail.calls) <= 4
    await claims.release("long")
    await claims.close()
    assert clock.pending == ()


async def test_what_is_not_claimed_yet_or_done_already_is_not_renewed(
    frail: Frail, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    claims = claims_in(frail, clock)
    await claims.claim("a", 60)
    await claims.claim("b", 60)
    frail.held_up = asyncio.Event()
    under_way = [
        asyncio.create_task(each)
        for each in (claims.complete("a", 60), claims.release("b"), claims.claim("c", 60))
    ]
    await clock.advance(21)
    frail.held_up.set()
    await asyncio.gather(*under_way)
    await clock.advance(21)
    assert [call for call in frail.calls if call[0] == "renew"] == [("renew", 1)]
    assert not caplog.records
    await claims.release("c")
    await claims.close()


async def test_a_lease_that_was_over_all_the_same_is_told(
    frail: Frail, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    frail.kept = MemoryClaimStore(clock)
    claims = claims_in(frail, clock)

    async def slow(message: Message[Any]) -> None:
        frail.away.add("renew")
        await clock.advance(61)
        frail.away.clear()
        assert list(await frail.kept.claim([once.key_of(message)], "other", 60)) == [CLAIMED]
        await clock.advance(21)

    once = Idempotent(claims, lease=60)
    await once(slow)(message_of({}))
    assert "was over while it was being worked on" in caplog.text
    assert "another has begun with it too" in caplog.text
    (answer,) = await frail.kept.claim([once.key_of(message_of({}))], "third", 60)
    assert isinstance(answer, Busy)
    await claims.close()


async def test_a_store_that_is_away_makes_the_application_unhealthy_until_it_is_back(
    frail: Frail,
) -> None:
    async with stage() as (qc, clock):
        worker = qc.worker("numbers", middleware=[Idempotent(claims_in(frail, clock))])
        seen = counting(worker)
        await worker.start()
        assert qc.health_check().ok
        frail.away.add("claim")
        await qc.publish(number, 1)
        await clock.settle()
        health = qc.health_check()
        assert (health.status, seen) == ("unhealthy", [])
        assert "nobody is there" in (health.last_error or "")
        frail.away.clear()
        await clock.advance(10)
        assert seen == [1]
        assert qc.health_check().ok


async def test_it_is_seen_that_a_store_is_back_though_nobody_asks(frail: Frail) -> None:
    clock = FakeClock()
    claims = claims_in(frail, clock)
    frail.away.add("open")
    with pytest.raises(ConnectionLost):
        await claims.claim("a", 60)
    await clock.advance(20)
    assert claims.trouble is not None
    frail.away.clear()
    await clock.advance(20)
    assert claims.trouble is None
    assert clock.pending == ()
    await claims.close()


async def test_while_the_store_is_away_it_is_not_asked_all_the_time(frail: Frail) -> None:
    clock = FakeClock(turns=10)
    claims = claims_in(frail, clock)
    frail.away.add("open")
    tasks: list[asyncio.Task[Answer]] = []
    for n in range(600):
        tasks.append(asyncio.create_task(claims.claim(f"k-{n}", 60)))
        await clock.advance(0.1)
    assert 12 <= frail.opened <= 20
    frail.away.clear()
    await clock.advance(6)
    ends = Counter(type(task.exception()) for task in tasks)
    assert set(ends) == {ConnectionLost, type(None)}
    assert ends[type(None)] <= 100  # a call waits for a try, and may wait for the call before it
    await claims.close()


async def test_a_store_that_does_not_answer_counts_as_lost(
    frail: Frail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuecraft.stores.claims.claims.PATIENCE", 0.01)
    claims = claims_in(frail)
    await claims.claim("a", 60)
    frail.held_up = asyncio.Event()
    with pytest.raises(ConnectionLost, match="no answer"):
        await claims.claim("b", 60)
    frail.held_up.set()
    await claims.close()


async def test_claims_can_be_used_again_after_they_were_closed(tmp_path: Any) -> None:
    claims = SqliteClaims(tmp_path / "claims.db")
    for expected in (CLAIMED, Done()):
        assert await claims.claim("a", 60) == expected
        if expected is CLAIMED:
            await claims.complete("a", 60)
        await claims.close()


async def test_a_file_that_cannot_be_had_is_trouble_and_loses_nothing(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    claims = SqliteClaims(tmp_path / "missing" / "claims.db")
    with pytest.raises(Postponed, match="does not exist"):
        await Idempotent(claims)(nothing)(message_of({}))
    assert "does not exist" in caplog.text
    await claims.close()


async def test_claims_may_be_kept_in_the_file_of_the_queue(tmp_path: Any) -> None:
    qc = QueueCraft(f"local://{tmp_path}/queue.db")
    worker = qc.worker("numbers", middleware=[Idempotent(SqliteClaims(tmp_path / "queue.db"))])
    seen = counting(worker)
    async with qc:
        await worker.start()
        for done, n in enumerate((1, 1, 2), start=1):
            await qc.publish(number, n, message_id=f"m-{n}")
            async with asyncio.timeout(5):
                while qc.get_metrics().messages_succeeded < done:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
    assert seen == [1, 2]
