"""A URL is shown without its secrets, however badly it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.model.address import bare, signed, userinfo
from queuecraft.model.masking import masked

SECRET = "s3cReT"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://ada:s3cReT@host", "amqp://ada:***@host"),
        ("amqp://ada:s3cReT@one:5672,two:5673/shop", "amqp://ada:***@one:5672,two:5673/shop"),
        ("redis://:s3cReT@[::1]:6379/0", "redis://:***@[::1]:6379/0"),
        ("redis://s3cReT@host", "redis://***@host"),
        ("amqp://host/%2F", "amqp://host/%2F"),
        ("local://", "local://"),
        ("local:///var/lib/queue.db", "local:///var/lib/queue.db"),
        ("redis://h?mode=list&password=s3cReT", "redis://h?mode=list&password=***"),
        ("redis://h?mode=list;Access_Token=s3cReT", "redis://h?mode=list&Access_Token=***"),
        ("redis://h?%70assword=s3cReT", "redis://h?%70assword=***"),
        ("redis://h?s3cReT", "redis://h?***"),
        ("redis://h/0#s3cReT", "redis://h/0"),
        # not percent-encoded, or cut short
        ("amqp://ada:s3cReT@s3cReT@host", "amqp://ada:***@host"),
        ("amqp://ada:a/s3cReT@host/shop", "amqp://ada:***@host/shop"),
        ("amqp://ada:a?s3cReT@host", "amqp://ada:***@host"),
        ("amqp://ada:a#s3cReT@host", "amqp://ada:***@host"),
        ("amqp://ada:s3cReT", "amqp://ada:***"),
        ("amqp://ada:s3c/s3cReT", "amqp://ada:***"),
        ("amqp://one:5672,ada:s3cReT", "amqp://one:5672,ada:***"),
        ("amqp://ada:s3cReT@[::1", "amqp://ada:***@[:***"),
        ("ada:s3cReT@host", "***"),
        ("s3cReT", "***"),
        ("", "***"),
        ("ada:s3cReT@host://x", "***"),
        ("amqp://ada:s3cReT@ho\x1bst", "amqp://ada:***@ho\\x1bst"),
    ],
)
def test_a_url_is_shown_with_what_is_secret_hidden(url: str, shown: str) -> None:
    assert masked(url) == shown
    assert SECRET not in masked(url)


anything = st.text(st.characters(exclude_characters="\0"), max_size=8)
separators = st.text("/?#@:[],;&=% ", max_size=4)


@given(before=separators, after=separators, host=st.sampled_from(["host", "one:1,two", "[::1]:5"]))
def test_a_password_is_hidden_whatever_stands_beside_it(before: str, after: str, host: str) -> None:
    url = f"amqp://ada:{before}{SECRET}{after}@{host}/shop"
    assert SECRET not in masked(url)


@given(anything, anything, anything)
def test_any_text_can_be_shown(scheme: str, authority: str, rest: str) -> None:
    assert masked(f"{scheme}://{authority}/{rest}").isprintable()
    assert masked(scheme + authority).isprintable()


@given(
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_what_is_put_into_a_url_can_be_read_from_it(name: str | None, password: str | None) -> None:
    url = signed("amqp://one,two:5673/shop?x=1", name, password)
    assert userinfo(url) == (name, password)
    assert bare(url) == "amqp://one,two:5673/shop?x=1"
