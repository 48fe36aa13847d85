"""Publish in the transaction of your own database: with it, or not at all."""

from queuecraft.outbox.outbox import Outbox
from queuecraft.outbox.row import Refused

__all__ = ["Outbox", "Refused"]
