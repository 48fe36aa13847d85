"""Whether all is well, and if not, since when and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from queuecraft.runtime.facts import ConnectionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The answer of `health_check()`.

    >>> Health(status="healthy", connection_state="connected").ok
    True
    """

    status: Literal["healthy", "unhealthy"]
    connection_state: ConnectionState
    last_message_at: datetime | None = None
    last_error: str | None = None
    disconnected_at: datetime | None = None
    blocked: str | None = None
    """Why the broker takes no messages, if it says so: publishes wait."""
    paused: Mapping[str, str] = field(default_factory=dict)
    """Queues that are not consumed though they should be, and why."""

    @property
    def ok(self) -> bool:
        """Whether the status is healthy."""
        return self.status == "healthy"
