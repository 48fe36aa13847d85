"""What every test may ask for."""

from __future__ import annotations

from tests.brokers.fixtures import rabbitmq, rabbitmq_url

__all__ = ["rabbitmq", "rabbitmq_url"]
