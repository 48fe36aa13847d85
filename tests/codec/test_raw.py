"""Bytes travel as they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.codec import RawSerializer
from queuecraft.model.errors import ConfigError


@given(st.binary())
def test_bytes_come_back_as_they_were(body: bytes) -> None:
    raw = RawSerializer()

    assert raw.decoder(bytes)(raw.encoder(bytes)(body)) == body


@pytest.mark.parametrize("payload", [bytearray(b"ab"), memoryview(b"ab")])
def test_other_buffers_are_sent_as_bytes(payload: Any) -> None:
    assert RawSerializer().encoder(Any)(payload) == b"ab"


@pytest.mark.parametrize("payload", ["text", 5, [1], None])
def test_what_is_not_bytes_is_refused(payload: Any) -> None:
    with pytest.raises(TypeError, match="is not bytes"):
        RawSerializer().encoder(None)(payload)


def test_other_payload_types_are_refused_before_any_message() -> None:
    with pytest.raises(ConfigError, match="carries bytes, not int"):
        RawSerializer().decoder(int)
