"""Queues, exchanges and bindings."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from queuecraft.model.errors import ConfigError
from queuecraft.model.policy import Policy
from queuecraft.model.queue import EXCHANGE_TYPES, Binding, Exchange, Queue


def test_a_queue_is_durable_and_shared_unless_said_otherwise() -> None:
    queue: Queue[Any] = Queue("billing")
    assert queue.durable
    assert not queue.exclusive
    assert not queue.auto_delete
    assert queue.policy == Policy()
    assert queue.bindings == ()
    assert queue.dead_letters is None


def test_queues_described_alike_are_equal() -> None:
    def described() -> Queue[Any]:
        return Queue("billing", bindings=(Binding(Exchange("events"), "order.*"),))

    assert described() == described()
    assert described() != Queue("billing")


def test_values_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Queue("billing").name = "audit"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError):
        Exchange("events").type = "fanout"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_an_exchange_has_one_of_four_types(kind: Any) -> None:
    assert Exchange("events", kind).type == kind


def test_an_unknown_exchange_type_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="topic, direct, fanout, headers"):
        Exchange("events", "topics")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", [Queue, Exchange])
@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", 5])
def test_a_name_no_broker_would_take_is_refused(kind: Any, name: Any) -> None:
    with pytest.raises(ConfigError):
        kind(name)


def test_a_binding_that_could_never_be_matched_is_refused() -> None:
    exchange = Exchange("events", "headers")
    assert Binding(exchange, "", {"x-match": "any", "a": 1}).headers["a"] == 1
    with pytest.raises(ConfigError, match="x-match='most'"):
        Binding(exchange, "", {"x-match": "most"})


def test_a_queue_can_be_made_with_its_type_in_brackets() -> None:
    assert Queue[int]("numbers", int) == Queue("numbers", int)
