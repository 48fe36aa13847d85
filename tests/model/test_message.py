"""A message as a handler sees it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.model.errors import PayloadError
from queuecraft.model.message import Message
from queuecraft.model.outcome import UnreadablePayload
from queuecraft.testing import message_of


def message_from(sent: Outgoing, decode: Any = lambda body, *_: body) -> Message[Any]:
    return Message(Delivery(sent, "billing", 2, "token"), decode, message_of(None)._record)


def test_a_message_shows_what_it_was_sent_with() -> None:
    message = message_from(
        Outgoing(
            b"body",
            "m-1",
            "events",
            "order.placed",
            timestamp=1_700_000_000.5,
            key="k",
            headers={"tenant": "acme"},
            correlation_id="c-1",
            reply_to="qc.reply.x",
        )
    )
    assert message.id == "m-1"
    assert message.routing_key == "order.placed"
    assert message.queue == "billing"
    assert message.key == "k"
    assert message.redeliveries == 2
    assert message.headers == {"tenant": "acme"}
    assert message.correlation_id == "c-1"
    assert message.reply_to == "qc.reply.x"
    assert message.timestamp == datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC)
    assert repr(message) == "<Message m-1 'order.placed' from 'billing'>"


def test_a_payload_is_decoded_once_and_only_when_asked_for() -> None:
    decoded: list[tuple[bytes, str | None, str | None]] = []

    def decode(body: bytes, content_type: str | None, content_encoding: str | None) -> str:
        decoded.append((body, content_type, content_encoding))
        return body.decode()

    sent = Outgoing(b"body", "m-1", content_type="text/plain", content_encoding="gzip")
    message = message_from(sent, decode)
    assert decoded == []
    assert message.payload == "body"
    assert message.payload == "body"
    assert decoded == [(b"body", "text/plain", "gzip")]


def test_a_payload_that_cannot_be_read_is_an_error_of_its_own() -> None:
    def decode(*_: object) -> None:
        raise PayloadError("not JSON")

    message = message_from(Outgoing(b"", "m-1"), decode)
    for _ in range(2):
        with pytest.raises(UnreadablePayload, match="not JSON"):
            print(message.payload)


def test_a_payload_may_be_none() -> None:
    decoded: list[None] = []
    message = message_from(Outgoing(b"null", "m-1"), lambda *_: decoded.append(None))
    assert message.payload is None
    assert message.payload is None
    assert len(decoded) == 1


@pytest.mark.parametrize(
    "name", ["payload", "id", "headers", "routing_key", "key", "queue", "attempt", "timestamp"]
)
def test_nothing_about_a_message_can_be_changed(name: str) -> None:
    message = message_from(Outgoing(b"", "m-1"))
    with pytest.raises(AttributeError):
        setattr(message, name, "other")


def test_headers_can_be_changed_neither_here_nor_behind_its_back() -> None:
    headers: dict[str, Any] = {"tenant": "acme"}
    message = message_from(Outgoing(b"", "m-1", headers=headers))
    seen = message.headers
    with pytest.raises(TypeError):
        seen["tenant"] = "other"  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
    headers["tenant"] = "other"
    assert seen["tenant"] == "acme"


@pytest.mark.parametrize("at", [None, 1e300, -1e300, 1.7e15, float("nan"), float("inf")])
def test_a_time_nobody_can_make_sense_of_is_unknown(at: float | None) -> None:
    assert message_from(Outgoing(b"", "m-1", timestamp=at)).timestamp is None


def test_settling_goes_to_whoever_runs_the_handler() -> None:
    message = message_of("payload")
    message.extend(30)
    _ = message.nack(requeue=False, reason="not today")
    assert [tuple(call) for call in message.calls] == [
        ("extend", {"seconds": 30}),
        ("nack", {"requeue": False, "reason": "not today"}),
    ]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ack", {}),
        ("nack", {"requeue": False}),
        ("requeue", {}),
        ("retry", {"delay": 5}),
        ("dead_letter", {"reason": "why"}),
    ],
)
async def test_a_message_knows_how_it_was_settled_by_hand(
    name: str, arguments: dict[str, Any]
) -> None:
    message = message_from(Outgoing(b"", "m-1"))
    assert message.settled is None
    await getattr(message, name)(**arguments)
    assert message.settled == name
