"""What a virtual host still has to do: messages that wait, are in somebody's hands, or delayed."""

from __future__ import annotations

import time

from queuecraft.drivers.rabbitmq.crashes import PREFIX as NOTES
from tests.brokers.management import Management

OLD = 0.6  # seconds; what RabbitMQ tells of a queue is up to half as old


class Unsettled:
    """Counts them in all queues but those of dead letters, and of notes."""

    def __init__(self, management: Management, url: str) -> None:
        self._management = management
        self._url = url

    def __call__(self) -> int:
        """Zero only if it was zero twice: a message may be between two queues that are counted one
        after the other."""
        if count := self.count():
            return count
        time.sleep(OLD)
        return self.count()

    def count(self) -> int:
        return sum(
            queue.get("messages", 0)
            for queue in self._management.queues(self._url)
            if not queue["name"].endswith(".dlq") and not queue["name"].startswith(NOTES)
        )
