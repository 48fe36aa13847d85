"""What the publisher and all workers of one QueueCraft share."""

from __future__ import annotations

from dataclasses import dataclass, field

from queuecraft.clock import Clock
from queuecraft.codec import Codec
from queuecraft.model.policy import Policy
from queuecraft.model.settings import Settings
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.facts import Facts
from queuecraft.runtime.handler import Middleware
from queuecraft.runtime.publisher import Publisher
from queuecraft.runtime.signals import Signals
from queuecraft.runtime.watchdog import Watchdog


@dataclass(slots=True)
class Engine:
    """The parts, put together once by the facade."""

    settings: Settings
    clock: Clock
    facts: Facts
    codec: Codec
    connection: Connection
    publisher: Publisher
    signals: Signals
    watchdog: Watchdog
    policy: Policy
    middleware: list[Middleware] = field(default_factory=list)
