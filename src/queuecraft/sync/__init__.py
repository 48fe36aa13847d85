"""QueueCraft for plain code: Django, Flask, scripts, threads."""

from queuecraft.sync.app import QueueCraft

__all__ = ["QueueCraft"]
