"""What keeps a job from its work."""

from __future__ import annotations

from queuecraft.model.errors import QueueError


class NotNow(QueueError):
    """A job cannot do its work at the moment. Later it may, and waiting loses nothing."""
