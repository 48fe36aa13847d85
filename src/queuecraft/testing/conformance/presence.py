"""Notes that everybody sees for a while: signs of life."""

from __future__ import annotations

import asyncio

import pytest

from queuecraft.drivers.base import ConnectionLost, Driver
from queuecraft.testing.conformance.broker import Broker
from queuecraft.testing.conformance.suite import Suite

LONG = 60.0  # seconds: longer than any test


class PresenceConformance(Suite):
    """A note is seen by others, until it is replaced, taken down, or its time is over.

    >>> issubclass(PresenceConformance, Suite)
    True
    """

    async def test_a_note_is_seen_by_another_connection_and_replaced_by_a_newer_one(
        self, broker: Broker, second_driver: Driver
    ) -> None:
        await self._listening(second_driver)
        one, other = broker.name("one"), broker.name("other")
        await broker.driver.announce(one, b"first", ttl=LONG)
        await broker.driver.announce(other, b"\x00\xff", ttl=LONG)
        await self._tells(broker, second_driver, {one: b"first", other: b"\x00\xff"})
        await broker.driver.announce(one, b"second", ttl=LONG)
        await self._tells(broker, second_driver, {one: b"second", other: b"\x00\xff"})

    async def test_an_empty_note_takes_it_down(self, broker: Broker, second_driver: Driver) -> None:
        await self._listening(second_driver)
        name = broker.name("one")
        await broker.driver.announce(name, b"", ttl=LONG)  # one that never was up
        await broker.driver.announce(name, b"here", ttl=LONG)
        await self._tells(broker, second_driver, {name: b"here"})
        await broker.driver.announce(name, b"", ttl=LONG)
        await self._tells(broker, second_driver, {})

    async def test_a_note_is_gone_when_its_time_is_over(
        self, broker: Broker, second_driver: Driver
    ) -> None:
        await self._listening(second_driver)
        brief, long = broker.name("brief"), broker.name("long")
        await broker.driver.announce(brief, b"here", ttl=0.5)
        await broker.driver.announce(long, b"here", ttl=LONG)
        await self._tells(broker, second_driver, {brief: b"here", long: b"here"})
        await self._tells(broker, second_driver, {long: b"here"})

    async def test_a_thousand_notes_are_up_at_once(
        self, broker: Broker, second_driver: Driver
    ) -> None:
        await self._listening(second_driver)
        notes = {broker.name(f"n-{number}"): bytes(500) for number in range(1000)}
        for name, note in notes.items():
            await broker.driver.announce(name, note, ttl=LONG)
        await self._tells(broker, second_driver, notes)

    async def test_notes_are_neither_queues_nor_exchanges(self, broker: Broker) -> None:
        await self._listening(broker.driver)
        before = await broker.driver.topology()
        name = broker.name("one")
        await broker.driver.announce(name, b"here", ttl=LONG)
        await self._tells(broker, broker.driver, {name: b"here"})
        after = await broker.driver.topology()
        assert not {*after.queues} - {*before.queues}
        assert not {each.name for each in after.exchanges} - {e.name for e in before.exchanges}
        assert not [each for each in await broker.driver.inspect() if "presence" in each.name]

    async def test_without_a_connection_there_is_nowhere_to_put_a_note(
        self, broker: Broker
    ) -> None:
        await self._listening(broker.driver)
        await broker.driver.close()
        try:
            with pytest.raises(ConnectionLost):
                await broker.driver.announce(broker.name("one"), b"here", ttl=LONG)
            with pytest.raises(ConnectionLost):
                await broker.driver.announced()
        finally:
            await broker.driver.open()
        await broker.driver.announced()
        await broker.driver.announce(broker.name("one"), b"again", ttl=LONG)
        await self._tells(broker, broker.driver, {broker.name("one"): b"again"})

    async def _listening(self, driver: Driver) -> None:
        """The first look may find only what comes after it."""
        if await driver.announced() is None:
            pytest.skip(f"{driver.traits.name} has no place for notes")

    async def _tells(self, broker: Broker, driver: Driver, expected: dict[str, bytes]) -> None:
        """The driver comes to tell these notes of this test."""
        own = {*expected, broker.name("one"), broker.name("brief")}

        async def told() -> dict[str, bytes]:
            await asyncio.sleep(0)
            notes = await driver.announced() or {}
            return {name: note for name, note in notes.items() if name in own}

        await broker.eventually(told, expected)
