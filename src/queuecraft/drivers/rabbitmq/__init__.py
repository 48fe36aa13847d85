"""RabbitMQ, by a small AMQP 0-9-1 client made for batches."""

from __future__ import annotations

from collections.abc import Sequence

from queuecraft.drivers.base import Driver
from queuecraft.drivers.rabbitmq.address import addresses
from queuecraft.drivers.rabbitmq.driver import RabbitDriver
from queuecraft.drivers.target import Target

__all__ = ["RabbitDriver", "drivers"]


def drivers(target: Target) -> Sequence[Driver]:
    """A driver for each host of an `amqp://` or `amqps://` URL."""
    return [RabbitDriver(target, address) for address in addresses(target.url)]
