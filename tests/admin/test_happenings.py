"""What happened between two looks."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from queuecraft.admin.growth import growth
from queuecraft.admin.happenings import KEPT, Happenings, happenings
from queuecraft.admin.overview import Happening, Overview, QueueRow
from tests.admin.looks import NOON, circuit, letters, overview, row

OLD = NOON - timedelta(hours=1)


@pytest.mark.parametrize(
    ("before", "now", "level", "text"),
    [
        (
            overview(),
            overview(workers=(row(),)),
            "info",
            "The worker of 'billing' on web-1 (7) came.",
        ),
        (
            overview(workers=(row(),)),
            overview(),
            "info",
            "The worker of 'billing' on web-1 (7) stopped.",
        ),
        (
            overview(workers=(row(),)),
            overview(workers=(row(state="silent"),)),
            "warning",
            "The worker of 'billing' on web-1 (7) has given no sign of life lately.",
        ),
        (
            overview(workers=(row(state="silent"),)),
            overview(),
            "error",
            "The worker of 'billing' on web-1 (7) is gone without a word.",
        ),
        (
            overview(workers=(row(state="silent"),)),
            overview(workers=(row(),)),
            "info",
            "The worker of 'billing' on web-1 (7) is back.",
        ),
        (
            overview(),
            overview(workers=tuple(row(process=str(n)) for n in range(12))),
            "info",
            "12 workers of 'billing' came.",
        ),
        (
            overview(QueueRow(name="billing")),
            overview(QueueRow(name="billing", paused="paused by ada")),
            "warning",
            "'billing' stands still: paused by ada",
        ),
        (
            overview(QueueRow(name="billing", paused="paused by ada")),
            overview(QueueRow(name="billing")),
            "info",
            "'billing' is resumed.",
        ),
        (
            overview(),
            overview(state="reconnecting", last_error="no route"),
            "error",
            "The broker is reconnecting: no route",
        ),
        (overview(state="reconnecting"), overview(), "info", "The broker answers again."),
        (overview(), overview(blocked="disk"), "error", "The broker takes no messages: disk."),
        (overview(blocked="disk"), overview(), "info", "The broker takes messages again."),
        (
            overview(),
            overview(circuits=(circuit(), circuit(process="b"))),
            "warning",
            "The circuit 'bank' is open on web-1.",
        ),
        (
            overview(circuits=(circuit(),)),
            overview(circuits=(circuit(state="half_open"),)),
            "info",
            "The circuit 'bank' is half open on web-1.",
        ),
        (
            overview(letters(3)),
            overview(letters(5)),
            "warning",
            "2 new dead letters in 'billing.dlq'.",
        ),
    ],
)
def test_what_happened_is_told(before: Overview, now: Overview, level: str, text: str) -> None:
    (found,) = happenings(before, now)
    assert (found.level, found.text, found.at) == (level, text, NOON)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (overview(), overview()),
        (overview(letters(5)), overview(letters(3))),
        (overview(circuits=(circuit(),)), overview(circuits=(circuit(),))),
        (overview(), overview(circuits=(circuit(state="closed"),))),
        (overview(), overview(workers=(row(started_at=OLD),))),  # only heard of now
        (overview(workers=None), overview(workers=(row(),))),
    ],
)
def test_what_did_not_happen_is_not_told(before: Overview, now: Overview) -> None:
    assert happenings(before, now) == []


def grown(count: int, seconds: float = 0.0, queue: str = "billing.dlq") -> Any:
    text = f"{count} new dead letters in {queue!r}."
    when = NOON + timedelta(seconds=seconds)
    new = Happening(at=when, kind="dead-letters", text=text, level="warning", queue=queue)
    return [new], {queue: count}


def test_a_queue_that_fails_all_the_time_is_one_line_a_minute() -> None:
    kept = Happenings()
    for seconds in range(0, 62, 2):
        kept.add(*grown(5, seconds))
    assert [each.text for each in kept.all()] == ["155 new dead letters in 'billing.dlq'."]
    kept.add(*grown(5, 62))
    assert len(kept.all()) == 2


def test_the_newest_comes_first_and_only_so_many_are_kept() -> None:
    kept = Happenings()
    for number in range(KEPT + 50):
        kept.add(*grown(number, queue=f"q-{number}.dlq"))
    assert len(kept.all()) == KEPT
    assert kept.all()[0].queue == f"q-{KEPT + 49}.dlq"


def test_only_what_grew_is_counted() -> None:
    before = overview(letters(3), letters(9, "a.dlq"), QueueRow(name="billing", ready=1))
    now = overview(
        letters(5), letters(2, "a.dlq"), letters(7, "b.dlq"), QueueRow(name="x", ready=9)
    )
    assert growth(before.queues, now.queues) == {"billing.dlq": 2, "b.dlq": 7}


def test_what_a_redrive_takes_and_gives_back_is_not_new() -> None:
    looks = [
        letters(100),
        QueueRow(name="billing.dlq", ready=0, in_flight=100, consumers=1, holds_dead_letters=True),
        QueueRow(name="billing.dlq", ready=40, in_flight=0, consumers=1, holds_dead_letters=True),
        letters(90),
    ]
    for before, now in pairwise(looks):
        assert growth([before], [now]) == {}
