"""QueueCraft, the one object an application talks to, and what it is put together from."""

from __future__ import annotations

from queuecraft.app.facade import QueueCraft

__all__ = ["QueueCraft"]
