"""Settings, wherever they come from: a wrong one is named, with what is expected instead."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import (
    ConfigError,
    DeadLetter,
    Journal,
    NoDeadLetter,
    NoRetry,
    QueueCraft,
    Retry,
    Settings,
)
from queuecraft.model import address
from queuecraft.model.checks import shown
from queuecraft.model.delayed import DelayedSettings
from queuecraft.model.settings import CHECKS, NAMES, default

NAN, INF = float("nan"), float("inf")
WRONG_SECONDS = [0, -1, NAN, INF, -INF, 10**400, "30", True, b"1", [1], {}, object()]
WRONG_COUNTS = [0, -1, 1.0, NAN, "8", True, [1]]

WRONG: dict[str, list[Any]] = {
    "type": ["rabitmq", "", 5, "amqp://", True],
    "host": [
        "",
        "a b",
        "amqp://host",
        "host:port",
        "host:0",
        "host:70000",
        "a,,b",
        "u@h",
        5,
        "a\n",
    ],
    "port": [0, -1, 65536, "5672", 1.0, True],
    "username": ["", 5, b"ada", "\ud800"],
    "password": ["", 5, b"s3cret", "\ud800"],
    "vhost": ["", 5, "\ud800"],
    "credentials": ["", " ", 5, b"file", ("ada", "s3cret"), "nul\0"],
    "exchange": ["", "e" * 300, 5, None, "tab\t"],
    "exchange_type": ["topics", "", None, 5, ["topic"]],
    "retry": [None, 3, True, "never", DeadLetter()],
    "dead_letter": [None, True, "billing.dlq", NoRetry()],
    "ttl": WRONG_SECONDS,
    "ack_timeout": WRONG_SECONDS,
    "max_redeliveries": [-1, 1.0, "20", True, None],
    "concurrency": [*WRONG_COUNTS, None],
    "prefetch": WRONG_COUNTS,
    "batch_size": [*WRONG_COUNTS, None],
    "compression": [5, b"gzip", ["gzip"]],
    "compression_threshold": [-1, 1.0, "1 KiB", True, None],
    "serializer": [None, 5, True],
    "publish_timeout": [*WRONG_SECONDS, None],
    "on_outage": ["panic", "", None, True],
    "max_pending": [*WRONG_COUNTS, None],
    "unroutable": ["ignore", "", None, True],
    "shutdown_timeout": [*WRONG_SECONDS, None],
    "timeout": [*WRONG_SECONDS, None],
    "heartbeat": [*WRONG_SECONDS, None],
    "presence": [-1, 61, NAN, INF, "5", True, None, [5]],
    "auto_reconnect": ["no", 0, 1, None],
    "reconnect_delay": [*WRONG_SECONDS, None],
    "reconnect_attempts": WRONG_COUNTS,
    "redis_mode": ["lists", "", 5, True, ["list"]],
    "redis_delivery": ["exactly-once", "", None, 5],
    "max_message_bytes": [*WRONG_COUNTS, None],
    "delayed": [None, 10, True, {"limit": 10}, Retry()],
    "journal": [True, "", " ", 5, b"lake", "nul\0", "s3://bucket/lake"],
    "journal_payload": ["all", "", None, 5],
    "journal_redact": ["card.number", 5, [5], [""], ["a..b"], ["a[0]"], ["a]"], ["[].[]"]],
}

RIGHT: dict[str, list[Any]] = {
    "credentials": [None, "/run/secrets/broker", Path("broker.json"), lambda: None],
    "exchange": ["orders", "e" * 255],
    "exchange_type": ["topic", "direct", "fanout", "headers"],
    "retry": [Retry(), NoRetry()],
    "dead_letter": [DeadLetter(), NoDeadLetter()],
    "ttl": [None, 0.001, 60],
    "ack_timeout": [None, 0.001, 60],
    "max_redeliveries": [0, 20],
    "concurrency": [1, 1000],
    "prefetch": [None, 1],
    "batch_size": [1, 500],
    "compression": [None, True, False, "gzip"],
    "compression_threshold": [0, 1],
    "serializer": ["json", "msgpack"],
    "publish_timeout": [0.001, 3600],
    "on_outage": ["wait", "fail"],
    "max_pending": [1],
    "unroutable": ["error", "drop"],
    "shutdown_timeout": [0.001],
    "timeout": [0.001],
    "heartbeat": [0.001],
    "presence": [0, 0.5, 60],
    "auto_reconnect": [True, False],
    "reconnect_delay": [0.001],
    "reconnect_attempts": [None, 1],
    "redis_mode": [None, "list", "pubsub", "stream"],
    "redis_delivery": ["at-least-once", "at-most-once"],
    "max_message_bytes": [1],
    "delayed": [DelayedSettings(), DelayedSettings(limit=1)],
    "journal": [None, "./lake", Path("lake"), Journal("lake")],
    "journal_payload": ["none", "headers", "full"],
    "journal_redact": [None, [], ("card.number", "lines[].sku", "[].a", "a[][]", "some field")],
}

SETTINGS = [each.name for each in fields(Settings) if each.name != "url"]


def test_every_setting_is_tried() -> None:
    assert set(SETTINGS) == set(RIGHT)
    assert set(SETTINGS) | set(address.FIELDS) == set(WRONG) == set(NAMES) - {"url"}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named_with_what_is_expected_and_the_default(name: str) -> None:
    for value in WRONG[name]:
        with pytest.raises(ConfigError) as caught:
            QueueCraft(**{name: value})
        text = str(caught.value)
        picture = "" if CHECKS[name].secret else f"={shown(value)}"
        assert text.startswith(f"{name}{picture}: expected "), text
        assert text.endswith(f"(default {default(name)})"), text


def test_all_that_is_wrong_is_named_at_once() -> None:
    options: Any = {"ttl": 0, "concurency": 2, "on_outage": "panic", "host": "rabbit"}
    with pytest.raises(ConfigError) as caught:
        QueueCraft(**options)
    first, *lines = str(caught.value).splitlines()
    assert first == "4 settings are wrong:"
    assert [line.split()[0] for line in lines] == [
        "unknown",
        "ttl=0:",
        "on_outage='panic':",
        "type",
    ]


def test_a_long_list_of_wrong_settings_is_cut_and_counted() -> None:
    options: Any = {f"no_such_{number}": 1 for number in range(50)}
    with pytest.raises(ConfigError) as caught:
        QueueCraft(**options)
    lines = str(caught.value).splitlines()
    assert (lines[0], len(lines), lines[-1].strip()) == (
        "50 settings are wrong:",
        22,
        "and 30 more",
    )


@pytest.mark.parametrize(
    "value",
    [10**5000, "x" * 1000, "\x1b[31m", object(), [10**5000]],
    ids=["huge", "long", "escape", "object", "list"],
)
def test_a_wrong_value_of_any_kind_is_shown_short_and_harmless(value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(on_outage=value)
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", SETTINGS)
def test_a_right_value_is_kept(name: str) -> None:
    for value in RIGHT[name]:
        assert getattr(QueueCraft(**{name: value}).settings, name) == value


@given(
    st.sampled_from(SETTINGS),
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(),
        st.lists(st.integers()), st.dictionaries(st.text(), st.integers()),
    ),
)  # fmt: skip
def test_any_value_is_either_kept_or_refused_by_name(name: str, value: Any) -> None:
    try:
        kept = getattr(Settings.of({name: value}), name)
    except ConfigError as error:
        assert str(error).startswith(name)  # noqa: PT017  either is fine
    else:
        assert kept == value


@pytest.mark.parametrize(
    ("options", "named"), [({"compression": "br"}, "br"), ({"serializer": "yaml"}, "yaml")]
)
def test_a_codec_nobody_knows_is_named_before_anything_is_connected(
    options: Any, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        QueueCraft(**options)


def test_an_unknown_setting_is_named_with_the_nearest() -> None:
    options: Any = {"publish_timout": 5}
    with pytest.raises(ConfigError, match="'publish_timout'; did you mean 'publish_timeout'"):
        QueueCraft(**options)


@pytest.mark.parametrize(
    "url", ["", "local", "amqp:user:s3cret@host", "user:s3cret@host", 5, None, b"local://"]
)
def test_what_is_no_url_is_refused_with_an_example_and_not_shown(url: Any) -> None:
    with pytest.raises(ConfigError, match="local://") as caught:
        Settings(url=url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nosuch://user:s3cret@host", "no known broker; use one of .*local://"),
        ("user:s3cret@host://", "no scheme; expected a URL such as 'local://'"),
        ("://user:s3cret@host", "no scheme; expected a URL such as 'local://'"),
        ("user s3cret://host", "no scheme; expected a URL such as 'local://'"),
        ("amqp://user:s3cret@[::1", "expected a URL such as 'amqp://user:password@localhost"),
        ("redis://user:s3cret@", "names no host.* such as 'redis://localhost:6379"),
        ("kafka://user:s3cret@one:9092,two:x", "such as 'kafka://one:9092,two:9092'"),
        ("amqp://user:s3cret/s3cret@host", "percent-encoded.*such as 'amqp://user:password@"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        QueueCraft(url)
    assert "s3cret" not in str(caught.value)


def test_a_password_shows_in_no_picture_of_the_settings() -> None:
    settings = Settings(url="amqp://user:s3cret@host")
    assert "s3cret" not in f"{settings!r} {settings}"


def test_settings_cannot_be_changed() -> None:
    changing: Any = Settings()
    with pytest.raises(AttributeError):
        changing.ttl = 5


def test_a_journal_that_says_it_all_is_not_said_twice() -> None:
    journal = Journal("lake", payload="full")
    assert Settings(journal=journal).journal_settings is journal
    with pytest.raises(ConfigError) as caught:
        Settings(journal=journal, journal_payload="none", journal_redact=["card"])
    assert str(caught.value).splitlines()[1:] == [
        "  journal_payload is given beside journal, which is a Journal(…); keep one",
        "  journal_redact is given beside journal, which is a Journal(…); keep one",
    ]
