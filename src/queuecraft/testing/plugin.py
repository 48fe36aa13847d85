"""The pytest plugin: a QueueCraft in memory, a mock, and a clock, as fixtures.

>>> async def test_an_order_is_announced(mock_queuecraft):
...     await place_order(mock_queuecraft, "o-1")
...     assert mock_queuecraft.published(order_placed) == [Order("o-1")]
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

# Nothing of QueueCraft is imported here: pytest loads this in every project, used or not.
if TYPE_CHECKING:
    from queuecraft.app import QueueCraft
    from queuecraft.testing.clock import FakeClock
    from queuecraft.testing.mock import MockQueueCraft

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:  # another plugin may run async fixtures, such as anyio's
    from pytest import fixture as async_fixture  # type: ignore[no-redef]  # noqa: PT013


@async_fixture
async def queuecraft() -> AsyncIterator[QueueCraft]:
    """A `QueueCraft("local://")`, opened, and shut down after the test."""
    from queuecraft.app import QueueCraft

    async with QueueCraft("local://") as opened:
        yield opened


@async_fixture
async def mock_queuecraft() -> AsyncIterator[MockQueueCraft]:
    """A `MockQueueCraft`, shut down after the test."""
    from queuecraft.testing.mock import MockQueueCraft

    async with MockQueueCraft() as mock:
        yield mock


@pytest.fixture
def fake_clock() -> FakeClock:
    """A `FakeClock`, for what takes a `clock=`."""
    from queuecraft.testing.clock import FakeClock

    return FakeClock()
