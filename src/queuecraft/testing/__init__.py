"""For tests: a mock facade, time travel, faults on command, an account of what was handled."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queuecraft.testing.clock import FakeClock
    from queuecraft.testing.conformance import DriverConformance
    from queuecraft.testing.failpoints import failing, killed_at, to_be_killed_at
    from queuecraft.testing.faulty import FaultyDriver
    from queuecraft.testing.ledger import Ledger
    from queuecraft.testing.message import RecordedMessage, message_of
    from queuecraft.testing.mock import MockQueueCraft
    from queuecraft.testing.record import Record
    from queuecraft.testing.records import Records
    from queuecraft.testing.rehearsal import Rehearsal, testing

__all__ = [
    "DriverConformance",
    "FakeClock",
    "FaultyDriver",
    "Ledger",
    "MockQueueCraft",
    "Record",
    "RecordedMessage",
    "Records",
    "Rehearsal",
    "failing",
    "killed_at",
    "message_of",
    "testing",
    "to_be_killed_at",
]

# Looked up when first asked for: importing this package does not import pytest, nor the app.
_HOMES = {
    "DriverConformance": "conformance",
    "FakeClock": "clock",
    "FaultyDriver": "faulty",
    "Ledger": "ledger",
    "MockQueueCraft": "mock",
    "Record": "record",
    "RecordedMessage": "message",
    "Records": "records",
    "Rehearsal": "rehearsal",
    "failing": "failpoints",
    "killed_at": "failpoints",
    "message_of": "message",
    "testing": "rehearsal",
    "to_be_killed_at": "failpoints",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
