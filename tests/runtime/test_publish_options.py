"""Every option of publish: what it does, and how a wrong value is refused, with nothing sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import (
    ConfigError,
    DeadLetter,
    Event,
    NoDeadLetter,
    NoRetry,
    PayloadError,
    Policy,
    Queue,
    QueueCraft,
    Retry,
    Unroutable,
    UnsupportedFeature,
)
from queuecraft.drivers.base import Outgoing
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.runtime.options import MAX_KEY, PublishOptions, policy_for, policy_header
from queuecraft.testing import FakeClock, FaultyDriver, Ledger
from tests.runtime.publishing import Order, Shop, order_placed


@pytest.fixture(params=[True, False], ids=["inline", "network"])
def inline(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def shop(inline: bool) -> AsyncIterator[Shop]:
    async with Shop(inline=inline) as shop:
        yield shop


async def sent(shop: Shop, **options: Any) -> Outgoing:
    """The message that a publish with these options makes."""
    await shop.qc.publish(order_placed, Order("o-1"), **options)
    (message,) = await shop.messages()
    return message


# -- what they do ----------------------------------------------------------------------------------


async def test_there_are_as_many_options_as_are_promised() -> None:
    promised = (
        "headers message_id correlation_id reply_to timestamp key priority ttl delay deliver_at "
        "persistent retry dead_letter exchange unroutable"
    )
    assert set(PublishOptions.__annotations__) == set(promised.split())


async def test_headers_travel_as_they_are(shop: Shop) -> None:
    headers = {"tenant": "t-1", "n": 1, "f": 0.5, "b": True, "raw": b"\x00", "none": None}
    assert dict((await sent(shop, headers=headers)).headers) == headers


async def test_headers_changed_later_are_not_changed_in_the_message(shop: Shop) -> None:
    headers: dict[str, Any] = {"tenant": "t-1"}
    message = await sent(shop, headers=headers)
    headers["tenant"] = "t-2"
    assert message.headers["tenant"] == "t-1"


async def test_trace_headers_are_the_callers_to_set(shop: Shop) -> None:
    headers = {"traceparent": "00-1-2-01", "tracestate": "a=b"}
    assert dict((await sent(shop, headers=headers)).headers) == headers


async def test_the_id_may_be_given(shop: Shop) -> None:
    assert await shop.qc.publish(order_placed, Order("o-1"), message_id="mine") == "mine"
    assert await shop.stored() == ["mine"]


async def test_correlation_id_key_priority_and_persistence_travel(shop: Shop) -> None:
    message = await sent(shop, correlation_id="c", key="k", priority=7, persistent=False)
    assert message.correlation_id == "c"
    assert message.key == "k"
    assert message.priority == 7
    assert message.persistent is False


async def test_the_address_for_replies_travels(shop: Shop) -> None:
    assert (await sent(shop, reply_to="qc.reply.a")).reply_to == "qc.reply.a"


async def test_a_timestamp_is_kept(shop: Shop) -> None:
    when = datetime(2020, 2, 29, 12, tzinfo=timezone(timedelta(hours=2)))
    assert (await sent(shop, timestamp=when)).timestamp == when.timestamp()


async def test_an_option_that_is_none_was_left_out(shop: Shop) -> None:
    options: Any = dict.fromkeys(PublishOptions.__annotations__)
    await shop.qc.publish(order_placed, Order("o-1"))
    await shop.qc.publish(order_placed, Order("o-1"), **options)
    plain, optioned = await shop.messages()
    for name in Outgoing.__struct_fields__:
        if name != "id":
            assert getattr(plain, name) == getattr(optioned, name), name


async def test_options_hold_for_send_too(shop: Shop) -> None:
    await shop.driver.declare(Queue("invoices"))
    await shop.qc.send("invoices", 1, headers={"a": 1}, key="k", message_id="m-1")
    (message,) = await shop.messages("invoices")
    assert (message.id, message.key, dict(message.headers)) == ("m-1", "k", {"a": 1})


async def test_send_takes_no_exchange(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="send goes to a queue"):
        await shop.qc.send("billing", 1, exchange="other")


# -- what is refused -------------------------------------------------------------------------------

HUGE = 10**400
NAN = float("nan")
INF = float("inf")


class NoOffset(tzinfo):
    """A time zone that does not know itself."""

    def utcoffset(self, when: datetime | None) -> None:
        return None

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> None:
        return None


BAD: list[tuple[str, Any]] = [
    ("headers", 5),
    ("headers", "a=b"),
    ("headers", [("a", "b")]),
    ("headers", {5: "a"}),
    ("headers", {"": "a"}),
    ("headers", {"h" * 300: "a"}),
    ("headers", {"x-retry-count": 1}),
    ("headers", {"X-Retry": "{}"}),
    ("headers", {"x-id": "1"}),
    ("headers", {"content-type": "text/plain"}),
    ("headers", {"x-original-queue": "billing"}),
    ("headers", {"x-death": []}),
    ("headers", {"a": NAN}),
    ("headers", {"a": 2**63}),
    ("headers", {"a": object()}),
    ("headers", {"a": "\udc80"}),
    ("headers", {"a": "x" * 70_000}),
    ("message_id", 5),
    ("message_id", ""),
    ("message_id", b"m-1"),
    ("message_id", "m" * 256),
    ("message_id", "\udc80"),
    ("correlation_id", 5),
    ("reply_to", 5),
    ("reply_to", "r" * 256),
    ("correlation_id", "c" * 256),
    ("correlation_id", "\udc80"),
    ("key", 5),
    ("key", "k" * (MAX_KEY + 1)),
    ("key", "ü" * MAX_KEY),
    ("key", "\udc80"),
    ("timestamp", 1_700_000_000),
    ("timestamp", "2030-01-01"),
    ("timestamp", datetime(2030, 1, 1)),  # noqa: DTZ001
    ("timestamp", datetime(2030, 1, 1, tzinfo=NoOffset())),
    ("deliver_at", 1_700_000_000),
    ("deliver_at", datetime(2030, 1, 1)),  # noqa: DTZ001
    ("deliver_at", datetime(2030, 1, 1, tzinfo=NoOffset())),
    ("deliver_at", datetime(2030, 1, 1, tzinfo=UTC).date()),
    ("delay", -1),
    ("delay", -1e-9),
    ("delay", NAN),
    ("delay", INF),
    ("delay", -INF),
    ("delay", HUGE),
    ("delay", 1e300),
    ("delay", "5"),
    ("delay", ""),
    ("delay", True),
    ("delay", False),
    ("delay", timedelta(seconds=5)),
    ("ttl", 0),
    ("ttl", 0.0),
    ("ttl", -1),
    ("ttl", NAN),
    ("ttl", INF),
    ("ttl", HUGE),
    ("ttl", "60"),
    ("ttl", True),
    ("priority", -1),
    ("priority", 256),
    ("priority", 1.0),
    ("priority", "5"),
    ("priority", True),
    ("priority", HUGE),
    ("persistent", "no"),
    ("persistent", 0),
    ("retry", 3),
    ("retry", "never"),
    ("retry", DeadLetter()),
    ("dead_letter", False),
    ("dead_letter", NoRetry()),
    ("dead_letter", DeadLetter(queue="elsewhere")),
    ("dead_letter", DeadLetter(exchange="elsewhere")),
    ("exchange", 5),
    ("exchange", ""),
    ("exchange", "e" * 300),
    ("unroutable", "ignore"),
    ("unroutable", True),
    ("unroutable", ["drop"]),
]


@pytest.mark.parametrize(
    ("name", "value"), BAD, ids=[f"{name}={str(value)[:20]}" for name, value in BAD]
)
async def test_a_wrong_value_is_refused_before_anything_is_sent(
    shop: Shop, name: str, value: Any
) -> None:
    options: Any = {name: value}
    with pytest.raises((ConfigError, PayloadError)) as caught:
        await shop.qc.publish(order_placed, Order("o-1"), **options)
    assert name.removesuffix("s") in str(caught.value)
    assert len(str(caught.value)) < 1000
    with pytest.raises((ConfigError, PayloadError)):
        await shop.qc.publish_many(order_placed, [Order("o-1")], **options)
    assert shop.driver.calls["send"] == 0


async def test_a_refusal_says_what_was_expected(shop: Shop) -> None:
    with pytest.raises(ConfigError) as caught:
        await shop.qc.publish(order_placed, Order("o-1"), delay=-1)
    assert str(caught.value) == "delay=-1: expected seconds from 0"


async def test_an_unknown_option_is_named_with_the_known_ones(shop: Shop) -> None:
    options: Any = {"prioritiy": 5}
    with pytest.raises(ConfigError, match=r"unknown option 'prioritiy'.*priority"):
        await shop.qc.publish(order_placed, Order("o-1"), **options)


async def test_a_delay_and_a_time_at_once_are_refused(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="not both"):
        await shop.qc.publish(
            order_placed, Order("o-1"), delay=1, deliver_at=datetime(2030, 1, 1, tzinfo=UTC)
        )


async def test_priority_is_refused_before_sending_where_the_broker_has_none(inline: bool) -> None:
    driver = FaultyDriver(inline=inline)
    vars(driver)["traits"] = replace(driver.traits, priority=False)
    async with Shop(drivers=[driver]) as shop:
        with pytest.raises(UnsupportedFeature, match="priorities") as caught:
            await shop.qc.publish(order_placed, Order("o-1"), priority=1)
        assert caught.value.broker == "local"
        with pytest.raises(UnsupportedFeature):
            await shop.qc.publish_many(order_placed, [Order("o-1")], priority=1)
        assert driver.calls["send"] == 0
        await shop.qc.publish(order_placed, Order("o-1"), priority=0)


async def test_priority_is_refused_even_before_connecting() -> None:
    driver = FaultyDriver()
    vars(driver)["traits"] = replace(driver.traits, priority=False)
    qc = QueueCraft(drivers=[driver])
    with pytest.raises(UnsupportedFeature):
        await qc.publish(order_placed, Order("o-1"), priority=1)
    assert driver.calls["open"] == 0


@given(
    st.dictionaries(
        st.sampled_from(sorted(PublishOptions.__annotations__)),
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(),
            st.datetimes(), st.datetimes(timezones=st.just(UTC)),
            st.dictionaries(st.text(), st.one_of(st.text(), st.floats(), st.integers())),
            st.lists(st.integers()),
        ),
        max_size=3,
    )
)  # fmt: skip
async def test_whatever_is_given_publish_either_sends_or_refuses(options: Any) -> None:
    driver = FaultyDriver()
    qc = QueueCraft(drivers=[driver])
    await qc.open()
    options.setdefault("unroutable", "drop")
    try:
        await qc.publish("order.placed", 1, **options)
    except (ConfigError, PayloadError):
        assert driver.calls["send"] == 0
    except Unroutable:
        assert options["unroutable"] is None
    finally:
        await qc.shutdown()


# -- time ------------------------------------------------------------------------------------------


def _clocked(inline: bool, **settings: Any) -> tuple[FakeClock, QueueCraft, Ledger]:
    clock, ledger = FakeClock(), Ledger()
    driver = FaultyDriver(MemoryDriver(clock), inline=inline)
    return clock, QueueCraft(drivers=[driver], clock=clock, **settings), ledger


@pytest.mark.parametrize("delay", [0.5, 30, 86_400])
async def test_a_delay_is_never_early_and_not_late(inline: bool, delay: float) -> None:
    clock, qc, ledger = _clocked(inline)
    worker = qc.worker("billing").on(order_placed, ledger.recording("billing"))
    async with qc:
        await worker.start()
        await qc.publish(order_placed, Order("o-1"), delay=delay)
        await clock.advance(delay * 0.999)
        assert ledger.calls == []
        await clock.advance(delay * 0.001 + 0.001)
        assert len(ledger.calls) == 1


async def test_a_message_is_delivered_at_its_time(inline: bool) -> None:
    clock, qc, ledger = _clocked(inline)
    worker = qc.worker("billing").on(order_placed, ledger.recording("billing"))
    when = datetime.fromtimestamp(clock.now() + 60, UTC)
    async with qc:
        await worker.start()
        await qc.publish(order_placed, Order("o-1"), deliver_at=when)
        await clock.advance(59)
        assert ledger.calls == []
        await clock.advance(1)
        assert len(ledger.calls) == 1


@pytest.mark.parametrize("when", [datetime.min, datetime(1969, 1, 1), datetime(2001, 1, 1)])  # noqa: DTZ001, DTZ901
async def test_a_time_that_is_past_is_now(shop: Shop, when: datetime) -> None:
    message = await sent(shop, deliver_at=when.replace(tzinfo=UTC), ttl=60)
    assert message.due_at is None
    assert message.expires_at == shop.clock.now() + 60


async def test_no_delay_is_now(shop: Shop) -> None:
    assert (await sent(shop, delay=0)).due_at is None


async def test_a_time_to_live_counts_from_when_the_message_is_due(shop: Shop) -> None:
    await shop.qc.publish(order_placed, Order("o-1"), delay=100, ttl=5)
    await shop.clock.advance(100)
    (message,) = await shop.messages()
    assert message.due_at is not None
    assert message.expires_at == message.due_at + 5


async def test_a_delayed_message_lives_for_its_time_once_it_is_due(inline: bool) -> None:
    clock, qc, ledger = _clocked(inline)
    worker = qc.worker("billing").on(order_placed, ledger.recording("billing"))
    async with qc:
        await qc.publish(order_placed, Order("o-1"), delay=100, ttl=5, message_id="in time")
        await qc.publish(order_placed, Order("o-2"), delay=100, ttl=3, message_id="too late")
        await clock.advance(104)
        await worker.start()
        await ledger.wait_for(billing=1)
        await clock.settle()
        assert ledger.ids("billing") == ["in time"]
        assert qc.get_metrics().messages_expired == 1


async def test_a_historic_timestamp_does_not_use_up_the_time_to_live(inline: bool) -> None:
    clock, qc, ledger = _clocked(inline, ttl=60)
    worker = qc.worker("billing").on(order_placed, ledger.recording("billing"))
    async with qc:
        await worker.start()
        await qc.publish(order_placed, Order("1"), timestamp=datetime(2001, 1, 1, tzinfo=UTC))
        await clock.settle()
        assert len(ledger.calls) == 1


# -- the policy that travels -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"retry": NoRetry()}, {"max_retries": 0}),
        ({"dead_letter": NoDeadLetter()}, {"dead_letter": False}),
        ({"dead_letter": DeadLetter()}, {"dead_letter": True}),
        (
            {"retry": Retry(max_retries=1, initial_delay=0.5)},
            {"max_retries": 1, "initial_delay": 0.5, "factor": 2, "max_delay": 30, "jitter": 0},
        ),
    ],
)
async def test_retry_and_dead_letter_travel_in_a_header(
    shop: Shop, options: Any, expected: Any
) -> None:
    header = (await sent(shop, **options)).headers.get("x-retry")
    assert expected == (None if header is None else msgspec.json.decode(str(header)))


RETRIES = st.builds(
    Retry,
    max_retries=st.integers(0, 10**12),
    initial_delay=st.floats(0, INF),
    factor=st.floats(1, INF),
    max_delay=st.floats(0, INF),
    jitter=st.floats(0, 1),
)


@given(RETRIES)
def test_what_travels_arrives_within_the_consumers_limits(retry: Retry) -> None:
    limit = Retry(max_retries=5, max_delay=10)
    consumer = Policy(retry=limit, dead_letter=DeadLetter())
    header = policy_header({"retry": retry})
    assert header is not None
    got = policy_for({"x-retry": header}, consumer).retry
    assert got is not None
    assert got.max_retries == min(retry.max_retries, 5)
    if isinstance(got, Retry):
        assert got.max_delay == min(retry.max_delay, 10)
        assert (got.jitter, min(got.factor, 1e300)) == (retry.jitter, min(retry.factor, 1e300))


def test_a_message_cannot_have_retries_where_its_consumer_has_none() -> None:
    header = policy_header({"retry": Retry(max_retries=5)})
    assert policy_for({"x-retry": header}, Policy(retry=NoRetry())).retry == NoRetry()


def test_a_message_cannot_have_dead_letters_where_its_consumer_has_none() -> None:
    header = policy_header({"dead_letter": DeadLetter()})
    consumer = Policy(dead_letter=NoDeadLetter())
    assert policy_for({"x-retry": header}, consumer).dead_letter == NoDeadLetter()


def test_a_message_may_do_without_dead_letters() -> None:
    header = policy_header({"dead_letter": NoDeadLetter()})
    consumer = Policy(retry=Retry(), dead_letter=DeadLetter())
    got = policy_for({"x-retry": header}, consumer)
    assert (got.retry, got.dead_letter) == (Retry(), NoDeadLetter())


HOSTILE: list[Any] = [
    None,
    5,
    True,
    [],
    "",
    "null",
    "[]",
    "5",
    "{",
    "{}",
    '{"max_retries": "5"}',
    '{"max_retries": null}',
    '{"max_retries": -1}',
    '{"max_retries": 1e999}',
    '{"max_retries": 5, "max_delay": "for ever"}',
    '{"initial_delay": -5}',
    '{"factor": 0}',
    '{"jitter": 17}',
    '{"unknown": 1}',
    '{"dead_letter": {"queue": "elsewhere"}}',
    '{"__class__": "os.system"}',
    "[" * 10_000,
    '{"a":' * 10_000,
    b"\xff\xfe",
    "\udc80",
    "\x00",
]


@pytest.mark.parametrize("header", HOSTILE, ids=lambda header: repr(header)[:30])
def test_a_hostile_policy_header_is_ignored(header: Any) -> None:
    consumer = Policy(retry=Retry(max_retries=2), dead_letter=DeadLetter())
    assert policy_for({"x-retry": header}, consumer) == consumer


@given(st.one_of(st.text(), st.binary(), st.dictionaries(st.text(), st.floats()).map(repr)))
def test_no_policy_header_raises_or_goes_past_the_consumers_limits(header: Any) -> None:
    consumer = Policy(retry=Retry(max_retries=2, max_delay=3), dead_letter=DeadLetter())
    retry = policy_for({"x-retry": header}, consumer).retry
    assert retry is not None
    assert retry.max_retries <= 2


async def test_a_message_published_without_retries_is_tried_once(inline: bool) -> None:
    clock, qc, ledger = _clocked(inline, retry=Retry(max_retries=3))
    worker = qc.worker("billing").on(order_placed, ledger.failing("billing", times=None))
    async with qc:
        await worker.start()
        await qc.publish(order_placed, Order("o-1"), retry=NoRetry())
        await clock.advance(3600)
        assert ledger.attempts("billing") == [1]
        assert qc.get_metrics().messages_dead_lettered == 1


async def test_a_message_may_ask_for_no_more_retries_than_its_consumer_allows(
    inline: bool,
) -> None:
    clock, qc, ledger = _clocked(inline, retry=Retry(max_retries=2))
    worker = qc.worker("billing").on(order_placed, ledger.failing("billing", times=None))
    async with qc:
        await worker.start()
        await qc.publish(order_placed, Order("o-1"), retry=Retry(max_retries=50))
        await clock.advance(3600)
        assert ledger.attempts("billing") == [1, 2, 3]


async def test_a_message_published_without_dead_letters_is_dropped_at_the_end(
    inline: bool,
) -> None:
    clock, qc, ledger = _clocked(inline, retry=NoRetry())
    worker = qc.worker("billing").on(order_placed, ledger.failing("billing", times=None))
    async with qc:
        await worker.start()
        await qc.publish(order_placed, Order("o-1"), dead_letter=NoDeadLetter())
        await clock.advance(1)
        metrics = qc.get_metrics()
        assert (metrics.messages_dropped, metrics.messages_dead_lettered) == (1, 0)


async def test_an_option_does_not_linger_on_the_event(shop: Shop) -> None:
    event = Event("order.placed", Order)
    await shop.qc.publish(event, Order("1"), exchange="other", unroutable="drop")
    await shop.qc.publish(event, Order("2"), priority=9, headers={"a": 1})
    await shop.qc.publish(event, Order("3"))
    _, last = await shop.messages()
    assert (last.exchange, last.priority, dict(last.headers)) == ("events", 0, {})
