"""Whether all is well, in a word, and why not."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from queuecraft.admin.overview import QueueRow
from queuecraft.admin.status import Trends, judged
from tests.admin.looks import circuit, letters, row

ILL = QueueRow(name="billing", ready=3, consumers=0)


def judge(*queues: QueueRow, **about: Any) -> tuple[str, tuple[str, ...]]:
    told: dict[str, Any] = {"workers": (), "circuits": (), "trends": Trends(), "failing": {}}
    told = {**told, "blocked": None, "time": 1000.0, **about}
    return judged(queues, **told)


def test_an_idle_broker_is_healthy() -> None:
    quiet = QueueRow(name="billing", ready=0, consumers=0)
    assert judge(quiet, letters(50)) == ("healthy", ())


@pytest.mark.parametrize(
    ("queue", "about", "word", "said"),
    [
        (ILL, {}, "critical", "'billing' has messages waiting, and nobody consumes it."),
        (None, {"blocked": "disk"}, "critical", "The broker takes no messages: disk."),
        (None, {"workers": [row(state="silent")]}, "warning", "Process 7 on web-1 has given no"),
        (None, {"workers": [row(state="reconnecting")]}, "warning", "1 process has lost"),
        (None, {"circuits": [circuit()]}, "warning", "The circuit 'bank' is open."),
        (None, {"failing": {"billing": 0.12}}, "warning", "12% of what 'billing' handles fails."),
        (
            None,
            {"trends": Trends({"billing.dlq": (990.0, 4)})},
            "warning",
            "4 new dead letters in the last minutes, in 'billing.dlq'.",
        ),
        (
            None,
            {"died": {"billing.dlq": 30.0, "old.dlq": 3000.0}},
            "warning",
            "Messages died in the last minutes, in 'billing.dlq'.",
        ),
        (
            QueueRow(name="billing", ready=3, consumers=0, paused="the bank is down"),
            {},
            "warning",
            "'billing' is paused, and has messages waiting.",
        ),
        (
            QueueRow(name="billing", ready=3, consumers=1, drain=inf),
            {"trends": Trends(stuck={"billing": 900.0})},
            "warning",
            "'billing' has had a backlog for over a minute that is not getting smaller.",
        ),
    ],
)
def test_what_is_wrong_is_said(
    queue: QueueRow | None, about: dict[str, Any], word: str, said: str
) -> None:
    found, reasons = judge(*([queue] if queue else []), **about)
    assert found == word
    (reason,) = reasons
    assert reason.startswith(said)


@pytest.mark.parametrize(
    ("queue", "about"),
    [
        (ILL, {"workers": [row()]}),  # somebody does, only the broker has not noticed
        (QueueRow(name="billing", ready=3), {}),  # the broker cannot tell
        (None, {"circuits": [circuit(state="closed")]}),
        (None, {"failing": {"billing": 0.05}}),
        (
            QueueRow(name="billing", ready=3, consumers=1, drain=inf),
            {"trends": Trends(stuck={"billing": 950.0})},
        ),
        (QueueRow(name="billing.dlq", ready=3, consumers=0, holds_dead_letters=True), {}),
    ],
)
def test_what_is_not_wrong_is_not_said(queue: QueueRow | None, about: dict[str, Any]) -> None:
    assert judge(*([queue] if queue else []), **about) == ("healthy", ())


def test_the_worst_comes_first() -> None:
    word, reasons = judge(ILL, circuits=[circuit()])
    assert word == "critical"
    assert "nobody consumes" in reasons[0]
    assert len(reasons) == 2


def test_many_queues_are_one_sentence() -> None:
    _, (reason,) = judge(*(QueueRow(name=f"q-{n}", ready=1, consumers=0) for n in range(500)))
    assert reason == (
        "500 queues have messages waiting, and nobody consumes them: 'q-0', 'q-1', 'q-2' and 497 "
        "more."
    )


# -- what takes more than one look -------------------------------------------------------------


def test_new_dead_letters_are_remembered_for_five_minutes() -> None:
    trends = Trends().after([letters(3)], [letters(5)], 100.0)
    trends = trends.after([letters(5)], [letters(6)], 150.0)
    assert trends.grown == {"billing.dlq": (150.0, 3)}
    trends = trends.after([letters(6)], [letters(6)], 440.0)
    assert trends.grown
    assert not trends.after([letters(6)], [letters(6)], 451.0).grown


def test_dead_letters_that_were_there_at_first_are_not_new() -> None:
    assert not Trends().after((), [letters(5)], 100.0).grown


def test_a_dead_letter_queue_that_is_new_has_new_dead_letters() -> None:
    other = QueueRow(name="billing", ready=0)
    assert Trends().after([other], [other, letters(2)], 1.0).grown == {"billing.dlq": (1.0, 2)}


def test_when_somebody_has_seen_to_them_they_are_forgotten() -> None:
    trends = Trends({"billing.dlq": (100.0, 3)})
    assert not trends.after([letters(3)], [letters(0)], 110.0).grown


def test_a_queue_is_stuck_since_the_first_of_the_looks_that_found_it_so() -> None:
    stuck, moving = (QueueRow(name="billing", ready=3, drain=drain) for drain in (inf, 5.0))
    trends = Trends().after((), [stuck], 10.0).after([stuck], [stuck], 20.0)
    assert trends.stuck == {"billing": 10.0}
    assert trends.after([stuck], [moving], 30.0).stuck == {}
