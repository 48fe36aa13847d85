"""What queues are called."""

from __future__ import annotations

import hashlib

import pytest

from queuecraft.model.errors import ConfigError
from queuecraft.model.naming import check_name, queue_name


def test_a_name_that_is_given_stands() -> None:
    assert queue_name("billing", "shop", ["order.placed"]) == "billing"
    assert queue_name("billing", None, []) == "billing"


def test_a_service_names_its_queue_by_the_events_in_any_order() -> None:
    digest = hashlib.sha256(b"a.b:c.d").hexdigest()[:8]
    assert queue_name(None, "shop", ["c.d", "a.b"]) == f"shop-{digest}"
    assert queue_name(None, "shop", ["a.b", "c.d", "a.b"]) == f"shop-{digest}"


def test_without_a_service_the_events_are_the_name() -> None:
    assert queue_name(None, None, ["b.c", "a"]) == "queue.b.c.a"
    assert queue_name(None, None, ["a", "a"]) == "queue.a"


def test_no_name_and_no_events_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"qc\.worker"):
        queue_name(None, "shop", [])


@pytest.mark.parametrize("events", [[f"e{n}" for n in range(6)], ["x" * 95]])
def test_a_long_name_made_of_events_is_warned_about(events: list[str]) -> None:
    with pytest.warns(UserWarning, match="name the queue"):
        queue_name(None, None, events)


def test_five_events_and_a_hundred_characters_are_fine() -> None:
    assert queue_name(None, None, [f"e{n}" for n in range(5)]) == "queue.e0.e1.e2.e3.e4"
    assert len(queue_name(None, None, ["x" * 94])) == 100


def test_a_name_longer_than_the_broker_allows_is_refused() -> None:
    check_name("queue", "x" * 255)
    with pytest.raises(ConfigError, match="256 bytes, the broker allows 255"):
        check_name("queue", "x" * 256)
    with pytest.raises(ConfigError, match="249"):
        queue_name("x" * 250, None, [], limit=249)


def test_length_is_counted_in_bytes() -> None:
    check_name("queue", "ü" * 127)
    with pytest.raises(ConfigError, match="256 bytes"):
        check_name("queue", "ü" * 128)


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00b", "\ud800", "a\u2028b", 7, None, b"bytes"])
def test_a_name_no_broker_would_take_is_refused(name: object) -> None:
    with pytest.raises(ConfigError, match="queue"):
        check_name("queue", name)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("a..b", "has an empty word; put one dot between words"),
        (".", "has an empty word"),
        ("order.", "has an empty word"),
        ("order.*x", r"\* and # stand for whole words"),
        ("order.##", r"\* and # stand for whole words"),
        ("*order", r"\* and # stand for whole words"),
    ],
)
def test_an_event_of_words_that_match_nothing_is_refused(event: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_name("event", event)
    check_name("queue", event)  # a queue is not made of words


@pytest.mark.parametrize("event", ["order", "order.*", "#", "*.*", "order.#.placed", "a-b.c_d.é"])
def test_an_event_is_words_and_wildcards(event: str) -> None:
    check_name("event", event)


@pytest.mark.parametrize(("kind", "said"), [("event", "an event"), ("queue", "a queue")])
def test_the_kind_of_a_name_has_its_article(kind: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said} needs a name"):
        check_name(kind, "")
    with pytest.raises(ConfigError, match=f"^the name of {said} must be a str"):
        check_name(kind, 5)


@pytest.mark.parametrize("name", ["billing", "with space", "a.b-c_d/e", "数", "🚀", "order.*"])
def test_any_printable_text_is_a_name(name: str) -> None:
    check_name("queue", name)
