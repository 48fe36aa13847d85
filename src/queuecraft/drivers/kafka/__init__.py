"""Kafka, by librdkafka: a topic for each event, a consumer group for each queue."""

from __future__ import annotations

from collections.abc import Sequence

from queuecraft.drivers.base import Driver
from queuecraft.drivers.kafka.address import address_of
from queuecraft.drivers.kafka.driver import KafkaDriver
from queuecraft.drivers.target import Target

__all__ = ["KafkaDriver", "drivers"]


def drivers(target: Target) -> Sequence[Driver]:
    """One driver for all hosts of a `kafka://` or `kafkas://` URL: they are one cluster."""
    return [KafkaDriver(target, address_of(target.url))]
