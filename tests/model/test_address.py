"""An address is a URL, or the fields it is made of; what cannot be reached is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.model.address import FIELDS, TYPES, compose, fault
from queuecraft.model.masking import masked


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({}, "local://"),
        ({"type": "local"}, "local://"),
        ({"type": "rabbitmq", "host": "rabbit"}, "amqp://rabbit"),
        ({"type": "RabbitMQ", "host": "rabbit"}, "amqp://rabbit"),
        ({"type": "amqp", "host": "rabbit", "port": 5673}, "amqp://rabbit:5673"),
        ({"type": "rabbitmqs", "host": "rabbit"}, "amqps://rabbit"),
        ({"type": "amqps", "host": "rabbit"}, "amqps://rabbit"),
        ({"type": "rabbitmq", "host": "rabbit", "vhost": "/"}, "amqp://rabbit/%2F"),
        ({"type": "rabbitmq", "host": "rabbit", "vhost": "a b"}, "amqp://rabbit/a%20b"),
        (
            {"type": "rabbitmq", "host": "rabbit", "username": "a@b", "password": "c:/?#d é"},
            "amqp://a%40b:c%3A%2F%3F%23d%20%C3%A9@rabbit",
        ),
        ({"type": "redis", "host": "cache", "password": "s3cret"}, "redis://:s3cret@cache"),
        ({"type": "rediss", "host": "cache"}, "rediss://cache"),
        ({"type": "redis", "host": "::1", "port": 6380}, "redis://[::1]:6380"),
        ({"type": "kafka", "host": "one, two:9093", "port": 9092}, "kafka://one:9092,two:9093"),
        ({"type": "kafkas", "host": "one,two"}, "kafkas://one,two"),
        ({"url": "amqp://one,two"}, "amqp://one,two"),
        ({"url": "amqps://one", "type": "rabbitmq"}, "amqps://one"),
        ({"url": "mine://ada:x@roof"}, "mine://ada:x@roof"),
        (
            {"url": "amqp://one,two/shop", "username": "ada", "password": "a/b"},
            "amqp://ada:a%2Fb@one,two/shop",
        ),
        ({"url": "amqp://ada@one", "password": "a/b"}, "amqp://ada:a%2Fb@one"),
        ({"url": "amqp://ada:x@one", "username": "ada"}, "amqp://ada:x@one"),
        ({"url": "mine://roof", "username": "ada", "password": "x"}, "mine://ada:x@roof"),
    ],
    ids=str,
)
def test_fields_become_a_url(fields: dict[str, Any], url: str) -> None:
    assert compose(fields) == (url, [])
    assert fault(url) is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"host": "rabbit"}, "type is missing, and host needs it: expected one of 'local', 'rabbi"),
        ({"type": "rabbitmq"}, "host is missing, and type needs it: expected a text such as 'loc"),
        (
            {"type": "rabbitmq", "host": "h", "password": "s3cret"},
            "username is missing, and password needs it: expected a text (no default)",
        ),
        (
            {"type": "rabbitmq", "host": "h", "username": "ada"},
            "password is missing, and username needs it: expected a text (no default)",
        ),
        ({"type": "local", "host": "h"}, "host has no meaning for type 'local'"),
        ({"type": "redis", "host": "h", "vhost": "1"}, "vhost has no meaning for type 'redis'"),
        (
            {"type": "redis", "url": "amqp://ada:s3cret@h"},
            "type is 'redis', but url begins with 'amqp://'; expected a URL such as 'redis://local",
        ),
        ({"type": "amqps", "url": "amqp://h"}, "such as 'amqps://user:password@localhost:5671"),
        ({"url": "amqp://h", "host": "h"}, "host and url both say where to go; keep one"),
        (
            {"url": "amqp://ada:s3cret@h", "password": "other"},
            "password and the one in url differ; keep one",
        ),
        ({"url": "local://", "password": "s3cret"}, "password: 'local://' needs none; leave it ou"),
    ],
    ids=str,
)
def test_what_does_not_fit_together_is_named(fields: dict[str, Any], said: str) -> None:
    _, problems = compose(fields)
    assert len(problems) == 1
    assert said in problems[0]
    assert "s3cret" not in problems[0]


def test_a_password_that_comes_at_each_connect_is_not_missing() -> None:
    fields = {"type": "rabbitmq", "host": "h", "username": "ada"}
    assert compose(fields, rotating=True) == ("amqp://ada@h", [])


@pytest.mark.parametrize("type_", TYPES)
def test_the_example_of_a_type_is_a_good_url(type_: str) -> None:
    broker = TYPES[type_]
    assert fault(broker.example) is None
    assert compose({"type": type_, "url": broker.example})[1] == []


@pytest.mark.parametrize(
    "url",
    [
        "amqp://",
        "amqp:///shop",
        "amqp://ada:s3cret@",
        "amqp://ada:s3cret@host:port",
        "amqp://ada:s3cret@host:0",
        "amqp://ada:s3cret@host:70000",
        "amqp://ada:s3cret@one,,two",
        "amqp://ada:s3cret@::1",
        "amqp://ada:s3cret@[::1",
        "amqp://ada:s3cret/x@host",
        "amqp://ada:1/s3cret@host",
        "amqp://ada:s3cret@host/a b",
        "amqp://ada:s3cret@ho\nst",
        "local:///a\0b",
        "local://ada:s3cret@host/queue.db",
        "redis:/ada:s3cret@host",
        "",
        None,
        b"amqp://ada:s3cret@host",
    ],
)
def test_a_bad_url_is_refused_with_a_good_example(url: Any) -> None:
    said = fault(url)
    assert said is not None
    assert "expected a URL such as '" in said
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("queue.db", "local://./queue.db"),
        ("./queue.db", "local://./queue.db"),
        ("../data/queue.sqlite3", "local://../data/queue.sqlite3"),
        ("data/my queue.sqlite", "local://./data/my%20queue.sqlite"),
        ("~/queue.db", "local://~/queue.db"),
        ("~queue.db", "local://./~queue.db"),
        ("/var/lib/queue.db", "local:///var/lib/queue.db"),
    ],
)
def test_a_path_is_answered_with_its_url(path: str, url: str) -> None:
    assert fault(path) == f"has no scheme; for the file {path!r} write '{url}'"
    assert fault(url) is None


@pytest.mark.parametrize("text", ["ada:s3cret.db", "s3cret@queue.db", "s3cret", "s3cret\n.db"])
def test_what_may_be_a_password_is_not_taken_for_a_path(text: str) -> None:
    assert "s3cret" not in str(fault(text))


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(
    type_=st.sampled_from([name for name, broker in TYPES.items() if broker.remote]),
    host=st.sampled_from(["rabbit", "10.0.0.1", "::1", "one,two", "one:1, two"]),
    port=st.none() | st.integers(1, 65535),
    username=texts,
    password=texts,
)
def test_any_valid_fields_make_a_url_that_is_good_and_shows_no_password(
    type_: str, host: str, port: int | None, username: str, password: str
) -> None:
    fields = {"type": type_, "host": host, "port": port}
    fields |= {"username": username, "password": f"s3cReT{password}"}
    assert all(FIELDS[name].will_do(value) for name, value in fields.items())
    url, problems = compose(fields)
    assert problems == []
    assert fault(url) is None
    assert "s3cReT" not in masked(url)
