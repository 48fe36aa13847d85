"""The account of what was published and handled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from queuecraft.testing import Ledger, message_of


def given(ledger: Ledger, name: str, *calls: tuple[str, int], failed: int = 0) -> None:
    """Calls of a handler with (id, attempt); the first ones failed."""
    for number, (id, attempt) in enumerate(calls):
        ledger.record(name, message_of(id, id=id, attempt=attempt), failed=number < failed)


async def test_recording_handlers_keep_what_they_are_given() -> None:
    ledger = Ledger()
    bill, audit = ledger.recording("billing"), ledger.recording("audit")
    await bill("one", message_of("one", id="m-1"))
    await audit("one", message_of("one", id="m-1", redeliveries=2))
    await bill("two", message_of("two", id="m-2", attempt=4))
    assert ledger.ids("billing") == ["m-1", "m-2"]
    assert ledger.payloads("billing") == ["one", "two"]
    assert ledger.attempts("billing") == [1, 4]
    assert ledger.ids() == ["m-1", "m-1", "m-2"]
    assert [each.redeliveries for each in ledger.calls] == [0, 2, 0]


async def test_failing_handlers_fail_each_message_so_often() -> None:
    ledger = Ledger()
    handler = ledger.failing("billing", times=2, error=KeyError("o-1"))
    for id in ("m-1", "m-2"):
        for attempt in (1, 2):
            with pytest.raises(KeyError, match="o-1"):
                await handler(None, message_of(None, id=id, attempt=attempt))
        await handler(None, message_of(None, id=id, attempt=3))
    assert [each.failed for each in ledger.calls] == [True, True, False] * 2


async def test_a_handler_may_fail_for_ever() -> None:
    handler = Ledger().failing("billing", times=None)
    for attempt in range(1, 10):
        with pytest.raises(RuntimeError, match="m-1"):
            await handler(None, message_of(None, attempt=attempt))


async def test_waiting_ends_when_everything_was_seen() -> None:
    ledger = Ledger()
    waiting = asyncio.create_task(ledger.wait_for(billing=2, audit=1))
    await asyncio.sleep(0)
    given(ledger, "billing", ("m-1", 1), ("m-2", 1))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    given(ledger, "audit", ("m-1", 1))
    await waiting
    await ledger.wait_for(billing=1)


async def test_waiting_too_long_tells_what_was_seen() -> None:
    ledger = Ledger()
    given(ledger, "billing", ("m-1", 1), ("m-1", 2))
    given(ledger, "other", ("m-9", 1))
    with pytest.raises(AssertionError) as caught:
        await ledger.wait_for(billing=3, audit=1, timeout=0.01)
    assert str(caught.value) == (
        "waited 0.01 s for billing=3, audit=1; seen: "
        "billing=2 (m-1 attempt 1, m-1 attempt 2); audit=0; other=1 (m-9 attempt 1)"
    )


async def test_calls_in_threads_are_seen() -> None:
    ledger = Ledger()
    thread = threading.Thread(target=given, args=(ledger, "billing", ("m-1", 1)))
    waiting = asyncio.create_task(ledger.wait_for(billing=1))
    await asyncio.sleep(0)
    thread.start()
    await waiting
    thread.join()


def test_an_account_that_adds_up() -> None:
    ledger = Ledger()
    for id in ("m-1", "m-2"):
        ledger.published(id)
    given(ledger, "billing", ("m-1", 1), ("m-1", 2), ("m-2", 1), failed=1)
    given(ledger, "audit", ("m-1", 1), ("m-2", 1))
    ledger.check()
    ledger.check(by=["billing", "audit"])


def test_what_was_published_and_never_handled_is_named() -> None:
    ledger = Ledger()
    for id in ("m-1", "m-2", "m-3"):
        ledger.published(id)
    given(ledger, "billing", ("m-1", 1), ("m-2", 1), failed=1)
    given(ledger, "audit", ("m-1", 1))
    with pytest.raises(AssertionError, match="published, never handled: m-3"):
        ledger.check()
    with pytest.raises(AssertionError) as caught:
        ledger.check(by=["billing", "audit"])
    assert "never handled by billing: m-1, m-3" in str(caught.value)
    assert "never handled by audit: m-2, m-3" in str(caught.value)


def test_a_dead_letter_that_was_expected_is_no_loss() -> None:
    ledger = Ledger()
    ledger.published("m-1")
    given(ledger, "billing", ("m-1", 1), failed=1)
    ledger.check(dead_letters=["m-1"])


def test_duplicates_are_allowed_up_to_a_number() -> None:
    ledger = Ledger()
    given(ledger, "billing", ("m-1", 1), ("m-1", 1), ("m-2", 1), ("m-2", 1))
    ledger.check(duplicates_at_most=2)
    with pytest.raises(
        AssertionError, match="2 duplicates, at most 1 allowed: m-1 in billing, attempt 1, m-2"
    ):
        ledger.check(duplicates_at_most=1)


def test_two_handlers_of_one_message_are_no_duplicates() -> None:
    ledger = Ledger()
    given(ledger, "billing", ("m-1", 1))
    given(ledger, "audit", ("m-1", 1))
    assert ledger.duplicates() == []


def test_an_attempt_made_twice_is_a_duplicate_even_if_it_failed() -> None:
    ledger = Ledger()
    given(ledger, "billing", ("m-1", 1), ("m-1", 1), failed=2)
    assert len(ledger.duplicates()) == 1


def test_a_retry_after_a_success_is_a_duplicate() -> None:
    ledger = Ledger()
    given(ledger, "billing", ("m-1", 1), ("m-1", 2))
    assert [each.attempt for each in ledger.duplicates()] == [2]


@pytest.mark.parametrize("attempts", [(2,), (1, 3), (1, 2, 4)])
def test_attempts_that_jump_are_named(attempts: tuple[int, ...]) -> None:
    ledger = Ledger()
    given(ledger, "billing", *(("m-1", each) for each in attempts), failed=len(attempts) - 1)
    with pytest.raises(AssertionError, match=f"m-1 in billing: attempt {attempts[-1]} follows"):
        ledger.check()


def keyed(ledger: Ledger, name: str, *ids: str, failed: bool = False) -> None:
    for id in ids:
        ledger.record(name, message_of(None, id=id, key=id[0]), failed=failed)


def test_order_is_kept_per_key() -> None:
    ledger = Ledger()
    for id in ("a1", "b1", "a2", "b2", "a3"):
        ledger.published(id, key=id[0])
    keyed(ledger, "billing", "b1", "a1", "a2", "b2", "a3")
    assert ledger.order("a") == ["a1", "a2", "a3"]
    assert ledger.order("b", "billing") == ["b1", "b2"]
    ledger.check(ordered=["billing"])


def test_order_that_was_not_kept_is_named() -> None:
    ledger = Ledger()
    for id in ("a1", "a2"):
        ledger.published(id, key="a")
    keyed(ledger, "billing", "a2", "a1")
    ledger.check()
    with pytest.raises(
        AssertionError, match="key 'a' in billing: published a1, a2, handled a2, a1"
    ):
        ledger.check(ordered=["billing"])


def test_a_failure_does_not_count_for_the_order() -> None:
    ledger = Ledger()
    for id in ("a1", "a2"):
        ledger.published(id, key="a")
    keyed(ledger, "billing", "a2", failed=True)
    keyed(ledger, "billing", "a1")
    ledger.record("billing", message_of(None, id="a2", key="a", attempt=2))
    ledger.check(ordered=["billing"])


def test_long_lists_are_cut() -> None:
    ledger = Ledger()
    for number in range(100):
        ledger.published(f"m-{number}")
    with pytest.raises(AssertionError, match="m-19 and 80 more"):
        ledger.check()
