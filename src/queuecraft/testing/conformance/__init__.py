"""The suite every driver must pass. The contract is in `queuecraft.drivers.base`."""

# ruff: noqa: E402 - asserts learn to explain themselves before the modules are imported

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{part}"
        for part in (
            "binding",
            "broker",
            "envelope",
            "lifecycle",
            "listening",
            "moving",
            "operations",
            "presence",
            "receiving",
            "routing",
            "settling",
            "timing",
        )
    )
)

from queuecraft.testing.conformance.binding import BindingConformance
from queuecraft.testing.conformance.envelope import EnvelopeConformance
from queuecraft.testing.conformance.lifecycle import LifecycleConformance
from queuecraft.testing.conformance.listening import ListeningConformance
from queuecraft.testing.conformance.moving import MovingConformance
from queuecraft.testing.conformance.operations import OperationsConformance
from queuecraft.testing.conformance.presence import PresenceConformance
from queuecraft.testing.conformance.receiving import ReceivingConformance
from queuecraft.testing.conformance.routing import RoutingConformance
from queuecraft.testing.conformance.settling import SettlingConformance
from queuecraft.testing.conformance.timing import TimingConformance

__all__ = ["DriverConformance"]


class DriverConformance(
    RoutingConformance,
    BindingConformance,
    EnvelopeConformance,
    ReceivingConformance,
    SettlingConformance,
    MovingConformance,
    TimingConformance,
    OperationsConformance,
    PresenceConformance,
    ListeningConformance,
    LifecycleConformance,
):
    """Subclass it in a test module of yours and give it a driver; needs `pytest-asyncio`.

    The driver's traits decide what applies, and each skip names the trait. Further settings:
    `patience`, `quiet` and `moment` in seconds, `unique(name)`, and a fixture `second_driver`
    for another connection to the same broker.

    >>> import pytest_asyncio
    >>> from queuecraft.drivers.local.memory import MemoryDriver
    >>> class TestMemoryDriver(DriverConformance):
    ...     quiet = 0.01
    ...
    ...     @pytest_asyncio.fixture
    ...     async def driver(self):
    ...         driver = MemoryDriver()
    ...         await driver.open()
    ...         yield driver
    ...         await driver.close()
    """
