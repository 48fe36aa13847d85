"""What a `redis://` URL may say, and what is said about one that cannot be."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.drivers.redis import drivers
from queuecraft.drivers.redis.address import addresses
from queuecraft.drivers.redis.driver import PubsubDriver, RedisDriver, StreamDriver
from queuecraft.drivers.registry import Drivers
from queuecraft.drivers.target import Target
from queuecraft.model.errors import ConfigError
from queuecraft.model.settings import Settings
from tests.brokers.certificates import Certificates


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("redis://one", [("one", 6379)]),
        ("rediss://one", [("one", 6379)]),
        ("REDIS://one:1/2", [("one", 1)]),
        ("redis://:p%40ss%2Fw,rd@one,two:6380,[::1]/0", [
            ("one", 6379), ("two", 6380), ("::1", 6379),
        ]),
        ("redis://one?mode=list", [("one", 6379)]),
    ],
)  # fmt: skip
def test_hosts_are_tried_in_the_order_they_are_written(
    url: str, places: list[tuple[str, int]]
) -> None:
    assert [(each.host, each.port) for each in addresses(url)] == places


def test_the_path_is_the_number_of_the_database() -> None:
    assert [each.database for each in addresses("redis://one,two/3")] == [3, 3]
    assert addresses("redis://one")[0].database == addresses("redis://one/")[0].database == 0


def test_sentinels_are_one_place_with_their_own_usual_port() -> None:
    (address,) = addresses("redis://one,two:5000/1?sentinel=shop")
    assert (address.sentinels, address.master) == ((("one", 26379), ("two", 5000)), "shop")


@given(st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="{}"), min_size=1))
def test_any_prefix_without_braces_can_be_written(name: str) -> None:
    assert addresses(f"redis://one?prefix={quote(name, safe='')}")[0].prefix == name


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://", "names no host"),
        ("redis://one/shop", "the number of a database"),
        ("redis://one/-1", "the number of a database"),
        ("redis://one/%F0%9D%9F%99", "the number of a database"),
        ("redis://one?retain=many", "how many messages"),
        ("redis://one?prefix=", "without braces"),
        ("redis://one?prefix=%7Bqc%7D", "without braces"),
        ("redis://one?sentinel=", "the name of the master"),
        ("redis://one?db=1", "no option 'db'"),
        ("redis://one?cafile=x", "begin the URL with rediss://"),
        ("rediss://one?cafile=", "names no file"),
        ("rediss://one?keyfile=x", "give both"),
        ("rediss://one?verify=maybe", "expected 'yes' or 'no'"),
    ],
)
def test_what_cannot_be_is_told(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        addresses(url)


def test_certificates_are_read_at_each_connect(tmp_path: Path) -> None:
    (address,) = addresses(f"rediss://one?cafile={tmp_path / 'authority.pem'}")
    with pytest.raises(ConfigError, match="cannot be used"):
        address.context()
    made = Certificates.make(tmp_path / "made")
    (address,) = addresses(f"rediss://one?cafile={made.authority}&certfile={made.client}&verify=no")
    context = address.context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE
    assert addresses("redis://one")[0].context() is None


@pytest.mark.parametrize(
    ("mode", "kind"), [("list", RedisDriver), ("stream", StreamDriver), ("pubsub", PubsubDriver)]
)
def test_the_mode_is_that_of_the_url_or_the_setting(mode: Any, kind: type[RedisDriver]) -> None:
    in_url = Drivers().create(Target(f"redis://one,two?mode={mode}"))
    assert [type(each) for each in in_url] == [kind, kind]
    settings = Settings(url="redis://one", redis_mode=mode)
    (driver,) = Drivers().create(Target("rediss://one", settings=settings))
    assert type(driver) is kind


def test_an_unknown_mode_is_told() -> None:
    with pytest.raises(ConfigError, match="expected one of 'list', 'pubsub', 'stream'"):
        drivers(Target("redis://one?mode=queue"))
