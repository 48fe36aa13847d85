"""Which errors are the same error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.model.fingerprint import fingerprint, normalise

TRACEBACK = """Traceback (most recent call last):
  File "/app/lib/framework.py", line 10, in run
    call()
  File "/app/shop/billing.py", line {line}, in charge
    raise KeyError(order)
KeyError: 'o-1'
"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 not found", "order 18 not found"),
        ("order 'a' not found", "order 'b c' not found"),
        ('order "a" not found', 'order "b" not found'),
        ("took 1.5 s", "took 20,000.25 s"),
        ("<Order at 0x7f3a>", "<Order at 0xDEADBEEF>"),
        ("id 0b1e7c6a-5f3e-4a2b-9c1d-1234567890ab", "id ffffffff-5f3e-4a2b-9c1d-1234567890ab"),
        ("commit 1a2b3c4d5e", "commit ffffffff00"),
        ("at 2024-01-01T10:00:00Z", "at 2025-12-31 23:59:59.123+02:00"),
        ("no  such\torder", "no such order"),
        ("first line\nsecond", "first line\nother"),
    ],
)
def test_what_differs_from_message_to_message_does_not_count(one: str, other: str) -> None:
    assert fingerprint("KeyError", one) == fingerprint("KeyError", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order not found", "user not found"),
        ("connection refused", "connection reset"),
        ("deadbeef", "decade"),
    ],
)
def test_what_the_error_says_does_count(one: str, other: str) -> None:
    assert fingerprint("KeyError", one) != fingerprint("KeyError", other)


def test_the_type_counts() -> None:
    assert fingerprint("KeyError", "x") != fingerprint("ValueError", "x")


def test_the_place_counts_but_not_the_line() -> None:
    here = fingerprint("KeyError", "o-1", TRACEBACK.format(line=20))
    assert here == fingerprint("KeyError", "o-1", TRACEBACK.format(line=25))
    assert here != fingerprint("KeyError", "o-1", TRACEBACK.replace("charge", "refund"))
    assert here != fingerprint("KeyError", "o-1")


def test_the_folder_does_not_count() -> None:
    unix = TRACEBACK.format(line=1)
    windows = unix.replace("/app/shop/billing.py", "C:\\app\\billing.py")
    assert fingerprint("KeyError", "o-1", unix) == fingerprint("KeyError", "o-1", windows)


def test_it_is_the_same_in_every_process() -> None:
    assert fingerprint("KeyError", "order 'o-1' not found") == "f49b57140f8c"


def test_a_hostile_traceback_costs_no_time() -> None:
    for text in ("\n" * 1_000_000, " " * 1_000_000, 'File "' * 200_000, '  File "a\n' * 100_000):
        fingerprint("E", text, text)


@given(st.text(), st.text(), st.text())
def test_any_text_has_a_fingerprint(kind: str, message: str, traceback: str) -> None:
    made = fingerprint(kind, message, traceback)
    assert len(made) == 12
    assert set(made) <= set("0123456789abcdef")


@given(st.text())
def test_normalising_twice_changes_nothing_more(message: str) -> None:
    assert normalise(normalise(message)) == normalise(message)
