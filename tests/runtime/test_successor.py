"""What takes the place of a message, whatever a foreign sender has put into its headers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuecraft.codec import headers
from queuecraft.codec.attempts import Attempt
from queuecraft.codec.headers import MAX_HEADERS, size
from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.model.outcome import CRASH_LOOP, Failure
from queuecraft.model.queue import DeadLetterTarget
from queuecraft.runtime.dead_message import DeadMessage
from queuecraft.runtime.successor import dead_letter_of, redrive_of, retry_of

OURS = sorted(
    value
    for name, value in vars(headers).items()
    if name.isupper() and isinstance(value, str) and value.startswith("x-")
)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)  # half characters among them
STORIES = st.sampled_from(['[[1500,1,"no"]]', "[[1e400,1]]", "[[", "9" * 5000]).map(str.encode)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.binary(), STORIES)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=4
)
FAILURE = Failure("ValueError", "no money", "Traceback:\nValueError: no money\n")


@given(st.dictionaries(st.sampled_from(OURS) | TEXTS, VALUES, max_size=6))
@example({"x-attempts": b'[[1500,1,"\xff"]]'})
@example({"x-attempts": '[[1500,1,"\ud800"]]'})
@pytest.mark.parametrize("reason", ["handler-error", CRASH_LOOP])
def test_no_header_keeps_a_message_from_being_tried_again_kept_and_sent_back(
    reason: str, given: dict[str, Any]
) -> None:
    delivery = Delivery(
        Outgoing(b"{}", "m-1", routing_key="order.placed", headers=given), "billing"
    )
    again = retry_of(delivery, 1, 5.0, Attempt.of(1.0, 1, "ValueError", "no money"))
    dead = dead_letter_of(
        delivery, DeadLetterTarget("dlx", "billing.dlq", "billing.dlq"), 1, reason, FAILURE, 1.0
    )
    back = redrive_of(Delivery(dead, "billing.dlq"), "billing", 2.0)
    assert {each.id for each in (again, dead, back)} == {"m-1"}
    letter = DeadMessage.of(Delivery(dead, "billing.dlq"))
    assert (letter.queue, letter.reason, letter.error) == ("billing", reason, "no money")
    assert size(dead.headers) <= MAX_HEADERS
