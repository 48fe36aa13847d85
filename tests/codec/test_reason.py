"""Errors about payloads are short."""

from __future__ import annotations

from queuecraft.codec.reason import LIMIT, reason, refused


def test_a_message_never_passes_the_limit() -> None:
    error = ValueError("x" * 1_000_000)

    assert len(reason(error)) <= LIMIT
    assert len(str(refused("y" * 1_000_000, error))) <= LIMIT


def test_a_message_is_one_line() -> None:
    assert "\n" not in str(refused("cannot", ValueError("a\nb\r\nc")))


def test_an_error_without_words_gives_its_name() -> None:
    assert str(refused("cannot read", KeyboardInterrupt())) == "cannot read: KeyboardInterrupt"
