"""Settings, wherever they come from: a wrong one is named, with what is expected instead."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import ConfigError, DeadLetter, NoDeadLetter, NoRetry, QueueCraft, Retry, Settings
from queuecraft.config import settings_from_environment

NAN, INF = float("nan"), float("inf")
WRONG_SECONDS = [0, -1, NAN, INF, -INF, "30", True, b"1", [1], {}, object()]
WRONG_COUNTS = [0, -1, 1.0, NAN, "8", True, [1]]

WRONG: dict[str, list[Any]] = {
    "exchange": ["", "e" * 300, 5, None, "tab\t"],
    "exchange_type": ["topics", "", None, 5, ["topic"]],
    "retry": [None, 3, True, "never", DeadLetter()],
    "dead_letter": [None, True, "billing.dlq", NoRetry()],
    "ttl": WRONG_SECONDS,
    "ack_timeout": WRONG_SECONDS,
    "max_redeliveries": [-1, 1.0, "20", True, None],
    "concurrency": [*WRONG_COUNTS, None],
    "prefetch": WRONG_COUNTS,
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
    "auto_reconnect": ["no", 0, 1, None],
    "reconnect_delay": [*WRONG_SECONDS, None],
    "reconnect_attempts": WRONG_COUNTS,
    "max_message_bytes": [*WRONG_COUNTS, None],
}

RIGHT: dict[str, list[Any]] = {
    "exchange": ["orders", "e" * 255],
    "exchange_type": ["topic", "direct", "fanout", "headers"],
    "retry": [Retry(), NoRetry()],
    "dead_letter": [DeadLetter(), NoDeadLetter()],
    "ttl": [None, 0.001, 60],
    "ack_timeout": [None, 0.001, 60],
    "max_redeliveries": [0, 20],
    "concurrency": [1, 1000],
    "prefetch": [None, 1],
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
    "auto_reconnect": [True, False],
    "reconnect_delay": [0.001],
    "reconnect_attempts": [None, 1],
    "max_message_bytes": [1],
}

SETTINGS = [each.name for each in fields(Settings) if each.name != "url"]


def test_every_setting_is_tried() -> None:
    assert set(SETTINGS) == set(WRONG) == set(RIGHT)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_wrong_value_is_named_with_what_is_expected_and_the_default(name: str) -> None:
    default = getattr(Settings(), name)
    for value in WRONG[name]:
        with pytest.raises(ConfigError) as caught:
            QueueCraft(**{name: value})
        text = str(caught.value)
        assert text.startswith(f"{name}={value!r}: expected "), text
        assert text.endswith(f"(default {default!r})"), text


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
        assert str(error).startswith(f"{name}=")  # noqa: PT017  either is fine
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
    "url",
    [
        "nosuch://user:s3cret@host",
        "user:s3cret@host://",
        "://user:s3cret@host",
        "user s3cret://host",
        "amqp://user:s3cret@[::1",
    ],
)
def test_a_url_of_no_known_broker_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="no known broker; use one of local://") as caught:
        QueueCraft(url)
    assert "s3cret" not in str(caught.value)


def test_a_password_shows_in_no_picture_of_the_settings() -> None:
    settings = Settings(url="amqp://user:s3cret@host")
    assert "s3cret" not in f"{settings!r} {settings}"


def test_settings_cannot_be_changed() -> None:
    changing: Any = Settings()
    with pytest.raises(AttributeError):
        changing.ttl = 5


# -- the environment -------------------------------------------------------------------------------


def test_an_empty_environment_gives_the_defaults() -> None:
    assert settings_from_environment({}) == Settings()


def test_other_variables_do_not_matter() -> None:
    environ = {
        "PATH": "/bin",
        "URL": "amqp://",
        "QUEUECRAFT_TOKEN": "t",
        "QUEUECRAFT_READ_TOKEN": "t",
        "QUEUECRAFT_FAILPOINT": "ack.before",
        "QUEUECRAFT_REDIS_URL": "redis://",
        "CONCURRENCY": "9",
    }
    assert settings_from_environment(environ) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("url", "local://", "local://"),
        ("exchange", "orders", "orders"),
        ("exchange_type", "fanout", "fanout"),
        ("ttl", "2.5", 2.5),
        ("ttl", "none", None),
        ("ttl", "", None),
        ("max_redeliveries", "0", 0),
        ("concurrency", " 8 ", 8),
        ("prefetch", "None", None),
        ("compression", "true", True),
        ("compression", "off", False),
        ("compression", "gzip", "gzip"),
        ("compression", "", None),
        ("publish_timeout", "5", 5.0),
        ("on_outage", "fail", "fail"),
        ("auto_reconnect", "no", False),
        ("auto_reconnect", "YES", True),
        ("auto_reconnect", "0", False),
        ("reconnect_attempts", "10", 10),
        ("max_message_bytes", "1024", 1024),
    ],
)
def test_a_variable_sets_its_setting(name: str, text: str, value: Any) -> None:
    settings = settings_from_environment({f"QUEUECRAFT_{name.upper()}": text})
    assert getattr(settings, name) == value
    assert type(getattr(settings, name)) is type(value)


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("QUEUECRAFT_CONCURRENCY", "many", "expected a whole number"),
        ("QUEUECRAFT_CONCURRENCY", "8.0", "expected a whole number"),
        ("QUEUECRAFT_CONCURRENCY", "", "expected a whole number"),
        ("QUEUECRAFT_PREFETCH", "x", "expected a whole number"),
        ("QUEUECRAFT_TTL", "1 h", "expected a number"),
        ("QUEUECRAFT_AUTO_RECONNECT", "maybe", "expected true or false"),
        ("QUEUECRAFT_AUTO_RECONNECT", "", "expected true or false"),
        ("QUEUECRAFT_RETRY", "3", "set it in code"),
        ("QUEUECRAFT_DEAD_LETTER", "off", "set it in code"),
        ("QUEUECRAFT_CONCURENCY", "8", "did you mean QUEUECRAFT_CONCURRENCY"),
        ("QUEUECRAFT_PUBLISH_TIMEOUTS", "8", "did you mean QUEUECRAFT_PUBLISH_TIMEOUT"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        settings_from_environment({variable: text})
    assert variable in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("QUEUECRAFT_CONCURRENCY", "0"),
        ("QUEUECRAFT_PUBLISH_TIMEOUT", "nan"),
        ("QUEUECRAFT_TIMEOUT", "inf"),
        ("QUEUECRAFT_ON_OUTAGE", "panic"),
        ("QUEUECRAFT_MAX_PENDING", "-5"),
    ],
)
def test_a_variable_out_of_range_is_refused_as_its_setting_is(variable: str, text: str) -> None:
    name = variable.removeprefix("QUEUECRAFT_").lower()
    with pytest.raises(ConfigError, match=f"{name}=.*default"):
        settings_from_environment({variable: text})


def test_a_password_in_the_environment_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from_environment({"QUEUECRAFT_URL": "user:s3cret@host"})
    assert "s3cret" not in str(caught.value)


def test_an_app_may_be_made_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECRAFT_URL", "local://")
    monkeypatch.setenv("QUEUECRAFT_CONCURRENCY", "8")
    assert QueueCraft.from_environment().settings == Settings(concurrency=8)
