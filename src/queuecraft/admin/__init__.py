"""What an operator does: see queues and what lies in them, make them, move, purge and delete."""

from __future__ import annotations

from queuecraft.admin.admin import Admin
from queuecraft.admin.peeked import PeekedMessage
from queuecraft.admin.unknown import UnknownQueue
from queuecraft.admin.watch import Watch

__all__ = ["Admin", "PeekedMessage", "UnknownQueue", "Watch"]
