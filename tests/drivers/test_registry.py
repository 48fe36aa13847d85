"""Which driver serves which URL."""

from __future__ import annotations

import pytest

from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.drivers.registry import Drivers
from queuecraft.drivers.target import Target
from queuecraft.model.errors import ConfigError
from queuecraft.testing import FakeClock, FaultyDriver


@pytest.mark.parametrize("url", ["local://", "local:///"])
def test_a_local_url_is_a_queue_in_memory(url: str) -> None:
    (driver,) = Drivers().create(Target(url))
    assert isinstance(driver, MemoryDriver)


def test_each_call_makes_drivers_of_its_own() -> None:
    drivers = Drivers()
    assert drivers.create(Target("local://"))[0] is not drivers.create(Target("local://"))[0]


def test_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'pigeon://' is no known broker.*local://"):
        Drivers().create(Target("pigeon://roof"))


@pytest.mark.parametrize("url", ["local://host", "local://?mode=list"])
def test_a_local_url_that_asks_for_more_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="local://"):
        Drivers().create(Target(url))


async def test_a_scheme_of_your_own_can_be_added() -> None:
    seen: list[Target] = []
    mine = FaultyDriver()

    def factory(target: Target) -> list[FaultyDriver]:
        seen.append(target)
        return [mine]

    drivers = Drivers()
    drivers.add("faulty", factory)
    target = Target("faulty://one,two", FakeClock())
    assert drivers.create(target) == [mine]
    assert seen == [target]
    assert "faulty" in drivers.schemes
    assert "faulty" not in Drivers().schemes


async def test_the_clock_reaches_the_driver() -> None:
    clock = FakeClock()
    (driver,) = Drivers().create(Target("local://", clock))
    assert isinstance(driver, MemoryDriver)
    assert driver._clock is clock


def test_a_scheme_is_known_in_upper_case_too() -> None:
    drivers = Drivers()
    drivers.add("Faulty", lambda target: [FaultyDriver()])
    assert "faulty" in drivers.schemes
    assert len(drivers.create(Target("FAULTY://"))) == 1
    assert len(drivers.create(Target("faulty://"))) == 1
    (driver,) = drivers.create(Target("LOCAL://"))
    assert isinstance(driver, MemoryDriver)


@pytest.mark.parametrize("scheme", ["", "redis://", "my_redis", "1st", "re dis", "ré"])
def test_what_no_url_can_begin_with_is_no_scheme(scheme: str) -> None:
    with pytest.raises(ConfigError, match="scheme"):
        Drivers().add(scheme, lambda target: [FaultyDriver()])


@pytest.mark.parametrize(
    "url", ["", "local", "amqp:user:s3cret@host", "user:s3cret@host://", "nosuch://u:s3cret@[::1"]
)
def test_what_no_driver_serves_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"no known broker; use one of .*local://") as caught:
        Drivers().create(Target(url))
    assert "s3cret" not in str(caught.value)
