"""Topics that were deleted and made again: they end before where a queue was to go on.

Kafka gives such a topic from its beginning, and all that is new in it would be taken for what the
queue had of the old one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import TopicPartition

from queuecraft.drivers.kafka.cluster import Spot
from queuecraft.drivers.kafka.topology import Reach

log: Final = logging.getLogger("queuecraft")


def starts(committed: Iterable[TopicPartition], reaches: Mapping[str, Reach]) -> dict[Spot, int]:
    """Where a queue is to go on, if that is not the beginning: for these partitions, and for all
    others of a topic by whose binding it goes, since one of them tells it of all."""
    given: dict[Spot, int] = {}
    bound: dict[Spot, int] = {}
    for each in committed:
        topic, number, reach = each.topic, each.partition, reaches.get(each.topic) or Reach()
        if reach.until is not None:
            continue  # it has a part of the old one, and nothing of the new one
        if each.offset >= reach.start(number):
            given[topic, number] = each.offset
        else:
            bound |= {(topic, at): start for at, start in enumerate(reach.since)}
    return {spot: start for spot, start in (bound | given).items() if start > 0}


def short(starts: Mapping[Spot, int], ends: Mapping[Spot, int]) -> dict[Spot, int]:
    """The partitions that end before the queue's place in them, and where."""
    return {spot: end for spot, end in ends.items() if end < starts[spot]}


def cut(
    committed: Iterable[TopicPartition],
    reaches: Mapping[str, Reach],
    short: Mapping[Spot, int],
    lows: Mapping[Spot, int],
) -> dict[Spot, int]:
    """Those of them that have only lost their end, in a power cut for instance: a group has said
    how far it is, which Kafka forgets with a topic, and they are old enough to have lost their
    beginning too. All that is left of them was handled."""
    return {
        (each.topic, each.partition): end
        for each in committed
        if (end := short.get((each.topic, each.partition))) is not None
        and each.offset > end >= (reaches.get(each.topic) or Reach()).start(each.partition)
        and lows.get((each.topic, each.partition), 0) > 0
    }


def tell(
    queue: str, starts: Mapping[Spot, int], short: Mapping[Spot, int], cut: Mapping[Spot, int]
) -> None:
    """Write into the log what is done about them."""
    for spot in sorted(short):
        log.warning(
            "kafka: %s: partition %d of topic %r ends at %d, before %d, where this queue was to go "
            "on: %s",
            queue,
            spot[1],
            spot[0],
            short[spot],
            starts[spot],
            "it has lost its end. The queue goes on with what comes"
            if spot in cut
            else "the topic was deleted and made again, or has lost its end. It is read from its "
            "beginning, and what is left of the old one may be handled again",
        )
