"""Settings are checked before anything is connected."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from queuecraft.model import address
from queuecraft.model.errors import ConfigError
from queuecraft.model.policy import DeadLetter, NoRetry, Policy, Retry
from queuecraft.model.queue import Exchange
from queuecraft.model.settings import NAMES, Settings, SettingsOptions


def test_the_defaults_are_those_that_are_documented() -> None:
    settings = Settings()
    assert settings.url == "local://"
    assert settings.default_exchange == Exchange("events", "topic")
    assert (settings.concurrency, settings.prefetch) == (1, None)
    assert settings.policy == Policy(
        retry=Retry(max_retries=3, initial_delay=1, factor=2, max_delay=30),
        dead_letter=DeadLetter(),
        max_redeliveries=20,
    )
    assert (settings.publish_timeout, settings.shutdown_timeout) == (30, 30)
    assert (settings.on_outage, settings.max_pending) == ("wait", 10_000)
    assert settings.unroutable == "error"
    assert settings.max_message_bytes == 16 * 2**20


def test_keywords_and_fields_are_the_same() -> None:
    names = {each.name for each in fields(Settings)} | set(address.FIELDS)
    assert names - {"url"} == set(SettingsOptions.__annotations__)
    assert names == set(NAMES)


@pytest.mark.parametrize(
    "wrong",
    [
        {"publish_timeout": 0},
        {"publish_timeout": "30"},
        {"shutdown_timeout": -1},
        {"timeout": float("nan")},
        {"reconnect_delay": None},
        {"reconnect_delay": True},
        {"concurrency": 0},
        {"concurrency": "8"},
        {"concurrency": True},
        {"prefetch": 1.5},
        {"max_pending": 0},
        {"max_message_bytes": -1},
        {"reconnect_attempts": 0},
        {"compression_threshold": -1},
        {"compression_threshold": "1 KiB"},
        {"exchange_type": "topics"},
        {"on_outage": "panic"},
        {"unroutable": "ignore"},
        {"ttl": 0},
        {"ack_timeout": "10"},
        {"max_redeliveries": -1},
        {"retry": 3},
        {"dead_letter": True},
    ],
    ids=str,
)
def test_a_value_that_cannot_work_is_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=name):
        Settings.of(wrong)


def test_a_refusal_says_what_was_expected_and_what_the_default_is() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(on_outage="panic")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == "on_outage='panic': expected one of 'wait', 'fail' (default 'wait')"


def test_an_unknown_setting_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'prefetsch'; did you mean 'prefetch'"):
        Settings.of({"prefetsch": 1})
    with pytest.raises(ConfigError, match=r"unknown setting 'zzz'; known: url, type, host"):
        Settings.of({"zzz": 1})


@pytest.mark.parametrize("name", ["max_retries", "factor", "jitter", "max_delay"])
def test_a_setting_of_the_retries_is_pointed_to_them(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"did you mean retry=Retry\({name}=…\)\?"):
        Settings.of({name: 1})


@pytest.mark.parametrize("url", ["guest:secret@host", "", None])
def test_a_url_without_a_scheme_is_refused_and_not_shown(url: Any) -> None:
    with pytest.raises(ConfigError, match="local://") as caught:
        Settings(url=url)
    assert "secret" not in str(caught.value)


def test_the_url_is_not_shown() -> None:
    assert "secret" not in repr(Settings(url="amqp://guest:secret@host"))


def test_numbers_at_the_edge_are_fine() -> None:
    settings = Settings(
        publish_timeout=1, timeout=0.001, concurrency=1, compression_threshold=0, retry=NoRetry()
    )
    assert settings.policy.retry == NoRetry()


# -- the address -----------------------------------------------------------------------------------


def test_the_fields_of_an_address_become_its_url() -> None:
    settings = Settings(
        type="rabbitmq", host="rabbit", port=5673, username="ada", password="s3c/ret", vhost="shop"
    )
    assert settings.url == "amqp://ada:s3c%2Fret@rabbit:5673/shop"
    assert "s3c" not in repr(settings)
    assert settings == Settings(url=settings.url)


def test_settings_with_an_address_can_be_changed_elsewhere() -> None:
    settings = Settings(type="redis", host="one", redis_mode="list")
    assert replace(settings, concurrency=8).url == settings.url
    assert replace(settings, url="redis://two").url == "redis://two"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"url": "local://", "type": "rabbitmq"}, "type is 'rabbitmq', but url begins with 'local"),
        ({"password": "s3cret", "credentials": "file"}, "password and credentials are both given"),
        ({"url": "redis://h?mode=heap"}, "url says mode='heap': expected one of 'list'"),
        (
            {"url": "redis://h?mode=list", "redis_mode": "stream"},
            "redis_mode is 'stream', but url says mode=list; keep one",
        ),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_together_are_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Settings.of({"type": "redis", "host": "h"} | values if "password" in values else values)
    assert "s3cret" not in str(caught.value)


def test_a_mode_in_the_url_that_agrees_is_fine() -> None:
    assert Settings(url="redis://h?mode=list", redis_mode="list").redis_mode == "list"
