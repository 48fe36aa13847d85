"""What becomes of a delivery."""

from __future__ import annotations

import pytest

from queuecraft.model.errors import PayloadError
from queuecraft.model.outcome import (
    DeadLettered,
    Dropped,
    Failure,
    Retried,
    UnreadablePayload,
    after_error,
    after_failure,
    at_the_end,
)
from queuecraft.model.policy import DeadLetter, NoDeadLetter, NoRetry, Policy, Retry

KEPT = Policy(retry=Retry(max_retries=2, initial_delay=1), dead_letter=DeadLetter())
DROPPED = Policy(retry=Retry(max_retries=2, initial_delay=1), dead_letter=NoDeadLetter())


def test_a_failure_is_tried_again_until_attempts_run_out() -> None:
    assert [after_failure(KEPT, attempt, "nack") for attempt in (1, 2, 3)] == [
        Retried(1.0, "nack"),
        Retried(2.0, "nack"),
        DeadLettered("nack"),
    ]


def test_without_dead_letters_the_end_is_dropped() -> None:
    assert after_failure(DROPPED, 3, "nack") == Dropped("nack")
    assert at_the_end(DROPPED, "expired") == Dropped("expired")


def test_dead_letters_are_on_unless_said_otherwise() -> None:
    assert at_the_end(Policy(), "expired") == DeadLettered("expired")


def test_without_a_retry_policy_a_failure_is_final() -> None:
    assert after_failure(Policy(), 1, "nack") == DeadLettered("nack")
    assert after_failure(Policy(retry=NoRetry()), 1, "nack") == DeadLettered("nack")


@pytest.mark.parametrize("delay", [0, 0.0, 60])
def test_a_wait_that_is_given_stands_over_the_policys(delay: float) -> None:
    assert after_failure(KEPT, 1, "retry", delay=delay) == Retried(delay, "retry")


def test_a_wait_that_is_given_adds_no_attempts() -> None:
    assert after_failure(KEPT, 3, "retry", delay=60) == DeadLettered("retry")


def test_an_error_is_a_failure_with_its_story() -> None:
    error = ValueError("no such order")
    outcome = after_error(KEPT, 1, error)
    assert isinstance(outcome, Retried)
    assert outcome.reason == "handler-error"
    assert outcome.failure == Failure.of(error)


def test_a_payload_that_cannot_be_read_is_never_tried_again() -> None:
    outcome = after_error(KEPT, 1, UnreadablePayload("not JSON"))
    assert isinstance(outcome, DeadLettered)
    assert outcome.reason == "invalid-payload"
    assert isinstance(after_error(DROPPED, 1, UnreadablePayload("not JSON")), Dropped)


def test_a_payload_that_the_handler_could_not_publish_may_be_tried_again() -> None:
    assert isinstance(after_error(KEPT, 1, PayloadError("too large")), Retried)


def test_jitter_takes_its_chance() -> None:
    policy = Policy(retry=Retry(initial_delay=10, jitter=0.5))
    waits = [after_failure(policy, 1, "nack", chance=chance) for chance in (0, 1)]
    assert waits == [Retried(5.0, "nack"), Retried(15.0, "nack")]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_a_failure_is_text() -> None:
    try:
        raise KeyError("o-1")
    except KeyError as error:
        failure = Failure.of(error)
    assert failure.error_type == "KeyError"
    assert failure.error == "'o-1'"
    assert "test_a_failure_is_text" in failure.traceback
    assert failure.traceback.endswith("KeyError: 'o-1'\n")


def test_a_failure_names_the_module_of_a_type_that_is_not_built_in() -> None:
    assert Failure.of(PayloadError("x")).error_type == "queuecraft.PayloadError"


def test_an_error_that_cannot_be_printed_is_recorded_all_the_same() -> None:
    failure = Failure.of(Unprintable())
    assert failure.error_type.endswith("Unprintable")
    assert failure.error == "(the error cannot be printed)"


def test_the_traceback_of_endless_recursion_is_bounded() -> None:
    def deeper() -> None:
        deeper()

    with pytest.raises(RecursionError) as caught:
        deeper()
    assert len(Failure.of(caught.value).traceback) < 10_000


def test_the_causes_of_an_error_are_part_of_its_story() -> None:
    try:
        try:
            raise OSError("the disk is full")
        except OSError as cause:
            raise RuntimeError("cannot charge") from cause
    except RuntimeError as error:
        failure = Failure.of(error)
    assert "the disk is full" in failure.traceback
