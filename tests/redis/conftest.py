"""Drivers on a real Redis, closed when the test ends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.redis.place import Place


@pytest.fixture
async def place(redis_url: str) -> AsyncIterator[Place]:
    """A prefix of this test's own, and drivers on it."""
    place = Place(redis_url)
    yield place
    await place.close()
