"""Messages come out of the file as they went in, whatever they carry."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.drivers.base import ACCEPTED, Outgoing, Queue, Rejected
from queuecraft.drivers.local.sqlite.record import decode, encode, pack, unpack
from queuecraft.model.errors import PublishError
from tests.drivers.local.sqlite.conftest import Opener

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.none() | st.floats(allow_nan=False)
HEADERS = st.dictionaries(
    TEXT, TEXT | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.binary()
)


@given(
    st.builds(
        Outgoing,
        st.binary(),
        TEXT,
        TEXT,
        TEXT,
        timestamp=TIMES,
        content_type=st.none() | TEXT,
        content_encoding=st.none() | TEXT,
        key=st.none() | TEXT,
        queue=st.none() | TEXT,
        headers=HEADERS,
        due_at=TIMES,
        expires_at=TIMES,
        priority=st.integers(0, 255),
        persistent=st.booleans(),
        correlation_id=st.none() | TEXT,
        reply_to=st.none() | TEXT,
    )
)
def test_every_field_survives(message: Outgoing) -> None:
    assert msgspec.to_builtins(decode(encode(message), 1)) == msgspec.to_builtins(message)


@given(st.binary())
def test_a_record_that_cannot_be_read_is_given_as_it_is(data: bytes) -> None:
    message = decode(data, 5)
    if message.id == "unreadable-5":
        assert message.body == data


@given(st.binary(), st.data())
def test_a_damaged_record_never_raises(body: bytes, data: st.DataObject) -> None:
    record = bytearray(encode(Outgoing(body, "m-1", "events", "a.b", headers={"h": "ü"})))
    for _ in range(3):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    assert isinstance(decode(bytes(record), 5), Outgoing)


@pytest.mark.parametrize("data", [None, "text", 7, 1.5])
def test_a_record_that_is_not_even_bytes_never_raises(data: Any) -> None:
    assert isinstance(decode(data, 5).body, bytes)


@given(HEADERS)
def test_equal_arguments_give_equal_bytes(values: dict[str, Any]) -> None:
    backwards = dict(reversed(values.items()))
    assert pack(values) == pack(backwards) == pack(MappingProxyType(values))
    assert unpack(pack(values)) == values


@pytest.mark.parametrize("value", [object(), 2**70, "\ud800"], ids=["object", "huge", "surrogate"])
async def test_a_header_that_cannot_be_stored_rejects_its_message_alone(
    open_driver: Opener, value: Any
) -> None:
    driver = await open_driver()
    await driver.declare(Queue("jobs"))
    good = Outgoing(b"", "good", queue="jobs")
    bad = Outgoing(b"", "bad", queue="jobs", headers={"h": value})

    first, second, third = await driver.send([good, bad, good])

    assert first is third is ACCEPTED
    assert isinstance(second, Rejected)
    assert isinstance(second.error, PublishError)
    assert [each.sent.id for each in await driver.peek("jobs", 9)] == ["good", "good"]
