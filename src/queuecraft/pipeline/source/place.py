"""Which queue, of which broker: what readers and writers carry to the executors."""

from __future__ import annotations

from dataclasses import dataclass

from queuecraft.model.settings import Settings
from queuecraft.pipeline.connections import connection_settings


@dataclass(frozen=True, slots=True)
class Place:
    """A connection by its name, never by its address: that is looked up where it is used.

    >>> Place("shop", "billing")
    Place(connection='shop', queue='billing', local=False, event=False)
    """

    connection: str
    queue: str
    local: bool = False
    """Whether everything runs on one machine."""
    event: bool = False
    """Whether it is not a queue that is named, but an event."""

    def settings(self) -> Settings:
        """Those of the connection, as this machine has them."""
        return connection_settings(self.connection, local=self.local)
