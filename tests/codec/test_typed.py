from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from queuecraft.codec.typed import of_json, to_json


def test_what_json_and_we_have_no_word_for_is_told_as_text() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    told = of_json(to_json({"at": moment, "price": Decimal("9.50"), "of": object, "n": 2**70}))
    assert told == {
        "at": "2026-01-01T00:00:00Z",
        "price": "9.50",
        "of": "<class 'object'>",
        "n": 2**70,
    }
