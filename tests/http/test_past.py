"""How each queue has fared in the last minutes."""

from __future__ import annotations

from datetime import timedelta

from queuecraft.admin.overview import QueueRow
from queuecraft.http.past import Past
from tests.admin.looks import NOON, overview


def test_a_clock_that_is_set_back_stops_no_history() -> None:
    past = Past()
    for ready, at in enumerate((NOON, NOON, NOON - timedelta(hours=1))):
        past.note(overview(QueueRow(name="billing", ready=ready), at=at))
    assert [ready for _, ready, _ in past.of("billing")] == [0, 2]


def test_a_queue_that_is_gone_is_forgotten() -> None:
    past = Past()
    past.note(overview(QueueRow(name="billing", ready=1)))
    past.note(overview(at=NOON + timedelta(seconds=2)))
    assert past.of("billing") == ()
