"""Whether two ways to write a broker mean the same one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from queuecraft.model.settings import Settings
from queuecraft.pipeline.replay.destination import Destination
from queuecraft.pipeline.replay.plan import Line, Plan
from queuecraft.pipeline.replay.question import Question


def at(url: str, **more: Any) -> Destination:
    return Destination.of("default", Settings(url=url, **more))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("amqp://ada:a@one,two/shop", "amqp://bob:b@two:5672,three/shop"),
        ("amqp://One", "amqp://one:5672/%2F"),
        ("redis://:x@cache?mode=list", "redis://cache:6379/0?retain=5&mode=list"),
        ("kafka://one,two?prefix=shop.", "kafka://two:9092?prefix=shop.&partitions=2"),
        ("amqp://[::1]/shop", "amqp://[::1]:5672/shop"),
        ("local://./queue.db", f"local://{Path.cwd()}/folder/../queue.db"),
    ],
)
def test_a_broker_is_the_same_however_it_is_written(one: str, other: str) -> None:
    assert at(one).is_same(at(other))
    assert at(other).is_same(at(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("amqp://one/shop", "amqp://two/shop"),
        ("amqp://one/shop", "amqp://one/test"),
        ("amqp://one/shop", "amqp://one:5673/shop"),
        ("amqp://one", "redis://one?mode=list"),
        ("redis://one/0?mode=list", "redis://one/1?mode=list"),
        ("redis://one?mode=list", "redis://one?mode=stream"),
        ("redis://one?mode=list", "redis://one?mode=list&prefix=shop"),
        ("local:///data/one.db", "local:///data/two.db"),
    ],
)
def test_another_host_or_place_is_another_broker(one: str, other: str) -> None:
    assert not at(one).is_same(at(other))
    assert not at(other).is_same(at(one))


def test_nothing_of_who_one_is_there_is_kept() -> None:
    found = at("amqp://ada:s3cret@one/shop?cafile=/etc/ada.pem")
    assert "ada" not in msgspec.json.encode(found).decode()
    assert "s3cret" not in str(found)


def test_the_exchange_counts_where_events_go_through_it() -> None:
    line = Line(event="e", queue=None, exchange=None, messages=1, size=1, first=None, last=None)
    plan = Plan(id="r", question=Question(), planned_at=datetime.now(UTC), lines=(line,))
    one, other = (
        Destination.of("default", Settings(url="amqp://one", exchange=name), plan)
        for name in ("events", "others")
    )
    assert not one.is_same(other)
    assert str(other) == "amqp://one:5672/, exchange others"
    assert at("amqp://one", exchange="events").is_same(at("amqp://one", exchange="others"))
