"""Events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from queuecraft.model.errors import ConfigError
from queuecraft.model.event import Event
from queuecraft.model.queue import Exchange


@dataclass
class Order:
    id: str


def test_an_event_names_a_routing_key_and_a_type() -> None:
    event = Event("order.placed", Order, key=lambda order: order.id, exchange=Exchange("shop"))
    assert (event.name, event.type) == ("order.placed", Order)
    assert event.key is not None
    assert event.key(Order("o-1")) == "o-1"
    assert event.exchange == Exchange("shop")
    assert repr(event) == "Event('order.placed', Order)"


def test_an_event_without_a_type_carries_anything() -> None:
    event: Event[Any] = Event("order.placed")
    assert event.type is Any
    assert repr(event) == "Event('order.placed')"


def test_a_type_without_a_name_is_shown_as_it_is() -> None:
    event = Event("orders.placed", list[Order])
    assert event.type == list[Order]
    assert "list" in repr(event)


@pytest.mark.parametrize("name", ["*", "#", "order.*", "order.#.placed", "", "x" * 256, "a\nb"])
def test_a_name_that_nobody_could_publish_to_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"event|wildcard"):
        Event(name)


@pytest.mark.parametrize("name", ["order.5*", "a..b", ".a", "a.", "c#.sold"])
def test_a_name_that_a_pattern_would_misread_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"whole words|empty word"):
        Event(name)


def test_an_event_has_no_room_for_typing_errors() -> None:
    with pytest.raises(AttributeError):
        Event("order.placed").nmae = "x"  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
