"""Requests: typed replies, errors that travel, and what happens when one side is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from queuecraft import (
    ConfigError,
    ConnectionLost,
    Event,
    Message,
    NoDeadLetter,
    PayloadError,
    Queue,
    QueueCraft,
    QueueError,
    RemoteError,
    RequestTimeout,
    Retry,
    Unroutable,
)
from queuecraft.drivers.base import Outgoing
from queuecraft.facts import Fact, MessageDropped, MessageExpired, MessageFailed, MessageRetried
from queuecraft.model.outcome import Postponed
from queuecraft.runtime.handler import Handle
from queuecraft.testing.faults import Hang
from tests.runtime.support import Stage, contents, eventually, quiet, running, staged

asked = Event("price.asked", str)


@dataclass
class Price:
    article: str
    total: float


class Offer(pydantic.BaseModel):
    total: float


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


@pytest.fixture
async def qc() -> AsyncIterator[QueueCraft]:
    async with QueueCraft() as qc:
        yield qc


async def price(article: str) -> Price:
    return Price(article, 4.5)


# -- replies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", [True, False])
async def test_a_reply_has_the_type_that_was_asked_for(inline: bool) -> None:
    async with staged(inline=inline) as stage:
        pricing = stage.qc.worker("pricing")
        pricing.on(asked, price)
        async with running(pricing):
            assert await stage.qc.request(asked, "tea", Price) == Price("tea", 4.5)
            assert await stage.qc.request(asked, "tea") == {"article": "tea", "total": 4.5}


@pytest.mark.parametrize(
    ("result", "reply"),
    [
        (None, None),
        (Offer(total=2), Offer),
        (b"\x00 raw", bytes),
        ([Price("tea", 1)], list[Price]),
        ((1, 2), tuple[int, int]),
        ("text", str),
        (0, int),
        ({"a": {"b": 1.5}}, dict[str, dict[str, float]]),
    ],
)
@pytest.mark.parametrize("serializer", ["json", "msgpack"])
async def test_whatever_a_handler_returns_comes_back_the_same(
    result: object, reply: Any, serializer: Any
) -> None:
    async with QueueCraft(serializer=serializer) as qc:
        pricing = qc.worker("pricing")

        @pricing.on(asked)
        async def answer(article: str) -> object:
            return result

        async with running(pricing):
            assert await qc.request(asked, "tea", reply) == result


async def test_a_plain_function_answers_as_well(qc: QueueCraft) -> None:
    pricing = qc.worker("pricing")

    @pricing.on(asked)
    def slowly(article: str) -> float:
        return 4.5

    async with running(pricing):
        assert await qc.request(asked, "tea", float) == 4.5


async def test_middleware_is_around_the_answer(qc: QueueCraft) -> None:
    def doubled(handle: Handle) -> Handle:
        async def doubling(message: Message) -> object:
            result = await handle(message)
            return [result, result]

        return doubling

    pricing = qc.worker("pricing", middleware=[doubled])
    pricing.on(asked, price)
    async with running(pricing):
        assert len(await qc.request(asked, "tea", list[Price])) == 2


async def test_a_queue_can_be_asked_by_name(qc: QueueCraft) -> None:
    queue = Queue("pricing", str)
    pricing = qc.worker(queue)
    pricing.on(queue, price)
    async with running(pricing):
        assert await qc.request(queue, "tea", Price) == Price("tea", 4.5)


async def test_what_a_handler_asks_for_while_it_answers_does_not_wait_for_itself(
    qc: QueueCraft,
) -> None:
    pricing, taxes = qc.worker("pricing"), qc.worker("taxes")

    @pricing.on(asked)
    async def total(article: str) -> float:
        return 10 * await qc.request("tax.asked", article, float)

    @taxes.on("tax.asked")
    async def tax(article: str) -> float:
        return 1.5

    async with running(pricing, taxes):
        replies = await asyncio.gather(*(qc.request(asked, "tea", float) for _ in range(20)))
    assert replies == [15.0] * 20


async def test_the_request_is_acknowledged_after_its_reply_was_sent(stage: Stage) -> None:
    pricing = stage.qc.worker("pricing")
    hung: list[Hang] = []

    @pricing.on(asked)
    async def answer(article: str) -> str:
        hung.append(stage.driver.hang())  # the next to be sent is the reply
        return article

    async with running(pricing):
        waiting = asyncio.ensure_future(stage.qc.request(asked, "tea", str))
        await eventually(lambda: hung)
        await quiet()
        assert (pricing.in_flight, pricing.counters.succeeded) == (1, 0)
        hung[0].release()
        assert await waiting == "tea"
        await eventually(lambda: pricing.counters.succeeded == 1)


async def test_a_reply_that_the_broker_refuses_holds_up_nothing(stage: Stage) -> None:
    pricing = stage.qc.worker("pricing")
    pricing.on(asked, price)
    async with running(pricing):
        stage.driver.reject(QueueError("too large"), to="qc.reply", times=None, of="send")
        waiting = asyncio.ensure_future(stage.qc.request(asked, "tea", timeout=5))
        await eventually(lambda: pricing.counters.succeeded == 1)
        assert not waiting.done()
        await stage.clock.advance(5)
        with pytest.raises(RequestTimeout):
            await waiting


async def test_a_reply_that_does_not_fit_says_so(qc: QueueCraft) -> None:
    pricing = qc.worker("pricing")
    pricing.on(asked, price)
    async with running(pricing):
        with pytest.raises(PayloadError, match=r"the reply to 'price\.asked': .* int"):
            await qc.request(asked, "tea", int)


async def test_replies_are_neither_counted_nor_told_of_as_published(qc: QueueCraft) -> None:
    pricing = qc.worker("pricing")
    pricing.on(asked, price)
    async with running(pricing):
        await qc.request(asked, "tea")
    assert qc.get_metrics().messages_sent == 1
    assert qc.get_metrics().messages_succeeded == 1


# -- failures --------------------------------------------------------------------------------------


async def test_the_error_of_a_handler_reaches_who_asked_and_ends_there(qc: QueueCraft) -> None:
    told: list[Fact] = []
    qc.observe(Fact, told.append)
    pricing = qc.worker("pricing", retry=Retry(max_retries=5))

    @pricing.on(asked)
    async def fail(article: str) -> None:
        raise LookupError("no \x1b[31mtea " + "x" * 5000)

    async with running(pricing):
        with pytest.raises(RemoteError) as caught:
            await qc.request(asked, "tea", float)
        await eventually(lambda: [each for each in told if isinstance(each, MessageDropped)])
    error = caught.value
    assert error.error_type == "LookupError"
    assert error.error.startswith("no \x1b[31mtea xxx")
    assert len(error.error) <= 1024
    assert "\x1b" not in str(error)
    assert [each for each in told if isinstance(each, MessageFailed)]
    assert not [each for each in told if isinstance(each, MessageRetried)]
    assert (await qc.admin.inspect("pricing")).dead == 0


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError("enough")])
async def test_whatever_a_handler_raises_reaches_who_asked(
    qc: QueueCraft, error: BaseException
) -> None:
    pricing = qc.worker("pricing")

    @pricing.on(asked)
    async def fail(article: str) -> None:
        raise error

    async with running(pricing):
        with pytest.raises(RemoteError, match=type(error).__name__):
            await qc.request(asked, "tea")


async def test_a_handler_that_was_stopped_leaves_the_answer_to_another(stage: Stage) -> None:
    first, second = stage.qc.worker("pricing"), stage.qc.worker("pricing")
    begun = asyncio.Event()

    async def hang(article: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    first.on(asked, hang)
    second.on(asked, price)
    await first.start()
    waiting = asyncio.ensure_future(stage.qc.request(asked, "tea", Price))
    await begun.wait()
    await first.stop(drain=False)
    async with running(second):
        assert await waiting == Price("tea", 4.5)


async def test_a_request_that_cannot_be_read_fails_at_once(qc: QueueCraft) -> None:
    pricing = qc.worker("pricing")

    @pricing.on("price.asked")
    async def answer(article: int) -> int:
        return article

    async with running(pricing):
        with pytest.raises(RemoteError, match="PayloadError"):
            await qc.request("price.asked", "tea", int)


async def test_a_result_that_cannot_be_written_is_an_error_to_who_asked(qc: QueueCraft) -> None:
    pricing = qc.worker("pricing")

    @pricing.on(asked)
    async def answer(article: str) -> object:
        return object()

    async with running(pricing):
        with pytest.raises(RemoteError, match="what the handler returned cannot be sent"):
            await qc.request(asked, "tea")


async def test_a_handler_of_batches_refuses_to_answer_and_is_not_run(qc: QueueCraft) -> None:
    seen: list[str] = []
    pricing = qc.worker("pricing", batch_size=10, prefetch=20)

    @pricing.on(asked)
    async def store(articles: list[str]) -> None:
        seen.extend(articles)

    await pricing.declare()
    await qc.publish(asked, "coffee")
    waiting = asyncio.ensure_future(qc.request(asked, "tea"))
    await quiet()
    await qc.publish(asked, "milk")
    async with running(pricing):
        with pytest.raises(RemoteError, match="takes batches, and cannot answer a request"):
            await waiting
        await eventually(lambda: len(seen) == 2)
    assert seen == ["coffee", "milk"]


async def test_an_ack_timeout_is_told_to_who_asked(stage: Stage) -> None:
    pricing = stage.qc.worker("pricing", ack_timeout=2)

    @pricing.on(asked)
    async def answer(article: str) -> None:
        await asyncio.Event().wait()

    async with running(pricing):
        waiting = asyncio.ensure_future(stage.qc.request(asked, "tea", timeout=60))
        await eventually(lambda: pricing.in_flight)
        await stage.clock.advance(3)
        with pytest.raises(RemoteError) as caught:
            await waiting
        assert caught.value.error_type == "AckTimeout"


async def test_a_handler_that_overhears_everything_answers_for_nobody(qc: QueueCraft) -> None:
    audit, broken, pricing = qc.worker("audit"), qc.worker("broken"), qc.worker("pricing")
    heard: list[str] = []
    may_answer = asyncio.Event()

    @audit.on("#")
    async def note(article: str) -> None:
        heard.append(article)

    @broken.on("price.*")
    async def fail(article: str) -> None:
        heard.append(article)
        raise ValueError(article)

    @pricing.on(asked)
    async def answer(article: str) -> float:
        await may_answer.wait()
        return 4.5

    async with running(audit, broken, pricing):
        waiting = asyncio.ensure_future(qc.request(asked, "tea", float))
        await eventually(lambda: len(heard) == 2)
        await quiet()
        assert not waiting.done()
        may_answer.set()
        assert await waiting == 4.5


async def test_a_handler_by_wildcard_answers_with_what_it_returns(qc: QueueCraft) -> None:
    pricing = qc.worker("pricing")
    pricing.on("price.*", price)
    async with running(pricing):
        assert await qc.request(asked, "tea", Price) == Price("tea", 4.5)


async def test_of_several_replies_the_first_wins(qc: QueueCraft) -> None:
    slow, fast = qc.worker("slow"), qc.worker("fast")
    go = asyncio.Event()

    @slow.on(asked)
    async def late(article: str) -> str:
        await go.wait()
        return "late"

    @fast.on(asked)
    async def soon(article: str) -> str:
        return "soon"

    async with running(slow, fast):
        assert await qc.request(asked, "tea", str) == "soon"
        go.set()
        await eventually(lambda: slow.counters.succeeded == 1)
        assert await qc.request(asked, "tea", str) in ("soon", "late")


async def test_two_replies_that_come_together_are_one_too_many_and_no_harm(stage: Stage) -> None:
    pricing = stage.qc.worker("pricing")
    pricing.on(asked, price)
    await pricing.declare()
    for _ in range(2):
        waiting = asyncio.ensure_future(stage.qc.request(asked, "tea", int))
        await quiet()
        request = (await contents(stage.driver, "pricing"))[-1]
        replies = [
            Outgoing(body, "r", queue=request.reply_to, correlation_id=request.correlation_id)
            for body in (b"1", b"2")
        ]
        await stage.driver.send(replies)
        assert await waiting == 1


async def test_a_postponed_request_is_answered_when_its_time_has_come(stage: Stage) -> None:
    pricing = stage.qc.worker("pricing")
    tries: list[str] = []

    @pricing.on(asked)
    async def answer(article: str) -> int:
        tries.append(article)
        if len(tries) == 1:
            raise Postponed(2)
        return len(tries)

    async with running(pricing):
        waiting = asyncio.ensure_future(stage.qc.request(asked, "tea", int, timeout=60))
        await eventually(lambda: tries)
        await stage.clock.advance(3)
        assert await waiting == 2


# -- time ------------------------------------------------------------------------------------------


async def test_no_reply_within_the_timeout_is_an_error_of_its_own(stage: Stage) -> None:
    pricing = stage.qc.worker("pricing")
    pricing.on(asked, price)
    await pricing.declare()
    waiting = asyncio.ensure_future(stage.qc.request(asked, "tea", timeout=5))
    await quiet()
    (request,) = await contents(stage.driver, "pricing")
    assert request.expires_at == pytest.approx(stage.clock.now() + 5)
    await stage.clock.advance(4.9)
    assert not waiting.done()
    await stage.clock.advance(0.2)
    with pytest.raises(RequestTimeout, match=r"'price\.asked': no reply came within 5 s"):
        await waiting


async def test_a_request_that_comes_too_late_is_dropped_without_being_run(stage: Stage) -> None:
    expired: list[MessageExpired] = []
    stage.qc.observe(MessageExpired, expired.append)
    pricing = stage.qc.worker("pricing")
    ran: list[str] = []
    pricing.on(asked, ran.append)
    await pricing.declare()
    waiting = asyncio.ensure_future(stage.qc.request(asked, "tea", timeout=5))
    await quiet()
    await stage.clock.advance(6)
    with pytest.raises(RequestTimeout):
        await waiting
    async with running(pricing):
        await eventually(lambda: expired)
    assert ran == []
    assert (await stage.qc.admin.inspect("pricing")).dead == 0


async def test_a_late_reply_is_forgotten(stage: Stage) -> None:
    pricing = stage.qc.worker("pricing", concurrency=2)
    go = asyncio.Event()

    @pricing.on(asked)
    async def answer(article: str) -> str:
        if article == "tea":
            await go.wait()
        return article

    async with running(pricing):
        waiting = asyncio.ensure_future(stage.qc.request(asked, "tea", str, timeout=5))
        await eventually(lambda: pricing.in_flight)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go.set()
        assert await stage.qc.request(asked, "coffee", str) == "coffee"
        await eventually(lambda: pricing.counters.succeeded == 2)
    (queue,) = [each for each in await stage.qc.admin.queues() if each.name.startswith("qc.reply.")]
    assert queue.ready == 0


async def test_a_request_that_nobody_is_bound_to_fails_at_once() -> None:
    async with QueueCraft(unroutable="drop") as qc:
        with pytest.raises(Unroutable, match="start the worker"):
            await qc.request(asked, "tea", timeout=60)


async def test_a_request_no_handler_knows_yet_is_tried_again_while_it_lives(stage: Stage) -> None:
    again: list[MessageRetried] = []
    stage.qc.observe(MessageRetried, again.append)
    old = stage.qc.worker("pricing", retry=Retry(max_retries=9, initial_delay=1, factor=1))
    old.on("other", price)
    old.on("more", price)
    await old.declare()
    async with running(old):
        waiting = asyncio.ensure_future(stage.qc.request(Queue("pricing"), "tea", Price))
        await eventually(lambda: again)
    new = stage.qc.worker("pricing")
    new.on("pricing", price)
    async with running(new):
        await stage.clock.advance(1.5)
        assert await waiting == Price("tea", 4.5)


# -- connections -----------------------------------------------------------------------------------


async def test_requests_go_on_after_the_connection_was_lost(stage: Stage) -> None:
    pricing = stage.qc.worker("pricing")
    pricing.on(asked, price)
    async with running(pricing):
        assert await stage.qc.request(asked, "tea", Price) == Price("tea", 4.5)
        await stage.driver.drop()
        await quiet()
        await stage.clock.advance(30)
        assert await stage.qc.request(asked, "tea", Price) == Price("tea", 4.5)


async def test_a_reply_outlives_the_connection_of_who_gives_it(stage: Stage) -> None:
    pricing = stage.qc.worker("pricing")
    go, begun = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @pricing.on(asked)
    async def answer(article: str) -> str:
        ran.append(article)
        begun.set()
        await go.wait()
        return article

    async with running(pricing):
        waiting = asyncio.ensure_future(stage.qc.request(asked, "tea", str, timeout=100))
        await begun.wait()
        await stage.driver.drop()
        await quiet()
        await stage.clock.advance(5)
        await quiet()
        go.set()
        assert await waiting == "tea"
    assert ran == ["tea"]  # its redelivery is acknowledged unrun


async def test_without_a_connection_a_request_times_out_and_says_why() -> None:
    async with staged() as stage:
        pricing = stage.qc.worker("pricing")
        pricing.on(asked, price)
        await pricing.declare()
        stage.driver.refuse(opens=1000)
        await stage.driver.drop()
        waiting = asyncio.ensure_future(stage.qc.request(asked, "tea", timeout=5))
        await quiet()
        await stage.clock.advance(6)
        with pytest.raises(RequestTimeout, match=r"a queue for its reply .* not connected"):
            await waiting


async def test_shutting_down_fails_who_still_waits() -> None:
    qc = QueueCraft()
    pricing = qc.worker("pricing")
    pricing.on(asked, price)
    await qc.open()
    waiting = asyncio.ensure_future(qc.request(asked, "tea", timeout=60))
    await quiet()
    await qc.shutdown()
    with pytest.raises(ConnectionLost, match="shut down before a reply came"):
        await waiting
    with pytest.raises(ConnectionLost, match="shut down"):
        await qc.request(asked, "tea")


async def test_what_drains_may_still_get_its_reply() -> None:
    caller = QueueCraft()
    shop, back = caller.worker("shop"), caller.worker("back")
    results: list[str] = []
    begun, go = asyncio.Event(), asyncio.Event()

    @shop.on("order.placed")
    async def order(article: str) -> None:
        results.append(await caller.request(asked, article, str))

    @back.on(asked)
    async def answer(article: str) -> str:
        begun.set()
        await go.wait()
        return article

    async with caller:
        await shop.start()
        await back.start()
        await caller.publish("order.placed", "tea")
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, go.set)
    assert results == ["tea"]


async def test_the_first_requests_at_once_share_one_queue_and_one_may_give_up() -> None:
    async with staged(inline=False) as stage:
        pricing = stage.qc.worker("pricing")
        pricing.on(asked, price)
        async with running(pricing):
            first, second = (
                asyncio.ensure_future(stage.qc.request(asked, "tea", Price)) for _ in range(2)
            )
            await asyncio.sleep(0)  # both wait for their queue now
            first.cancel()
            assert await second == Price("tea", 4.5)
            queues = [each.name for each in await stage.qc.admin.queues()]
            assert len([name for name in queues if name.startswith("qc.reply.")]) == 1


# -- safety ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["billing", "qc.replies", "", "qc.dlq"])
async def test_workers_reply_to_no_queue_but_one_of_replies(stage: Stage, address: str) -> None:
    billing, pricing = stage.qc.worker("billing"), stage.qc.worker("pricing")
    billing.on("nothing", price)
    pricing.on(asked, price)
    await billing.declare()
    async with running(pricing):
        await stage.qc.publish(asked, "tea", reply_to=address, ttl=60)
        await eventually(lambda: pricing.counters.succeeded == 1)
        await quiet()
    assert await contents(stage.driver, "billing") == []


async def test_a_caller_that_is_gone_holds_up_nobody(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    pricing = stage.qc.worker("pricing")
    pricing.on(asked, price)
    async with running(pricing):
        await stage.qc.publish(asked, "tea", reply_to="qc.reply.gone", ttl=60)
        await eventually(lambda: pricing.counters.succeeded == 1)
    assert [r.levelname for r in caplog.records if "is lost" in r.message] == ["DEBUG"]


async def test_a_forged_reply_is_for_nobody(stage: Stage) -> None:
    pricing = stage.qc.worker("pricing")
    pricing.on(asked, price)
    async with running(pricing):
        await stage.qc.request(asked, "tea")
        (queue,) = [q.name for q in await stage.qc.admin.queues() if q.name.startswith("qc.reply.")]
        forged = [
            Outgoing(b"1", "f-1", queue=queue, correlation_id="guessed"),
            Outgoing(b"1", "f-2", queue=queue),
            Outgoing(b"1", "f-3", queue=queue, headers={"x-error": b"\xff"}),
        ]
        await stage.driver.send(forged)
        assert await stage.qc.request(asked, "tea", Price) == Price("tea", 4.5)


# -- what cannot be asked --------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, -1, True, "5", float("nan"), float("inf"), None])
async def test_a_timeout_is_a_number_of_seconds(qc: QueueCraft, timeout: Any) -> None:
    with pytest.raises(ConfigError, match="timeout="):
        await qc.request(asked, "tea", timeout=timeout)


@pytest.mark.parametrize(
    "options",
    [
        {"ttl": 5},
        {"delay": 5},
        {"retry": Retry()},
        {"dead_letter": NoDeadLetter()},
        {"correlation_id": "c-1"},
        {"reply_to": "qc.reply.mine"},
        {"unroutable": "drop"},
        {"no_such": 1},
    ],
)
async def test_what_a_request_cannot_have_is_refused(
    qc: QueueCraft, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        await qc.request(asked, "tea", **options)


async def test_options_of_a_request_reach_its_handler(qc: QueueCraft) -> None:
    pricing = qc.worker("pricing")

    @pricing.on(asked)
    async def answer(article: str, message: Message) -> list[object]:
        return [message.headers["tenant"], message.key, message.id]

    async with running(pricing):
        reply = await qc.request(
            asked, "tea", list[str], headers={"tenant": "acme"}, key="k", message_id="m-1"
        )
    assert reply == ["acme", "k", "m-1"]
