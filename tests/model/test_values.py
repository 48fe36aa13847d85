"""Envelopes and metadata."""

from __future__ import annotations

import pytest

from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.model.metadata import ConsumeMetadata, ParamMetadata, QueueMetadata


def test_an_envelope_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Outgoing(b"", "m-1").id = "m-2"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError):
        Delivery(Outgoing(b"", "m-1"), "billing").queue = "x"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_two_deliveries_of_one_message_are_two_holds() -> None:
    sent = Outgoing(b"", "m-1")
    assert Delivery(sent, "billing") != Delivery(sent, "billing")


def test_headers_are_empty_and_fixed_unless_given() -> None:
    headers = Outgoing(b"", "m-1").headers
    assert dict(headers) == {}
    with pytest.raises(TypeError):
        headers["a"] = 1  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


def test_metadata_describes_a_channel_down_to_its_parameters() -> None:
    async def charge(order: dict[str, str]) -> None: ...

    param = ParamMetadata("order", "payload", dict[str, str])
    handler = ConsumeMetadata("order.placed", dict[str, str], charge, (param,))
    channel = QueueMetadata("billing", "events", (handler,))
    assert channel.handlers[0].params[0].name == "order"
