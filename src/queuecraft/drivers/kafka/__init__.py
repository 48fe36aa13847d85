"""Kafka, by librdkafka: a topic for each event, a consumer group for each queue."""

from __future__ import annotations

from collections.abc import Sequence

from queuecraft.drivers.base import Driver
from queuecraft.drivers.kafka.address import address_of
from queuecraft.drivers.target import Target
from queuecraft.model.errors import ConfigError

__all__ = ["drivers"]


def drivers(target: Target) -> Sequence[Driver]:
    """One driver for all hosts of a `kafka://` or `kafkas://` URL: they are one cluster."""
    try:
        from queuecraft.drivers.kafka.driver import KafkaDriver
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise ConfigError(
            "kafka:// needs the package confluent-kafka; run: pip install 'queuecraft[kafka]'"
        ) from None
    return [KafkaDriver(target, address_of(target.url))]
