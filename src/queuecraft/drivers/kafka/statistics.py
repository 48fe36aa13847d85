"""What librdkafka measures, if it is asked to: round trips, what waits to be sent, and lag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import msgspec

from queuecraft.drivers.base import Gauge

STALE = 3  # intervals without news, after which a client is taken for closed

_ROUND_TRIP = "How long a broker takes to answer the producer, on average."
_ROUND_TRIP_P99 = "How long it takes at most, for 99 of 100 answers."
_MESSAGES = "Messages in the producer that no broker has confirmed."
_BYTES = "The size of messages in the producer that no broker has confirmed."
_LAG = "Records of a partition, assigned to this process, that its queue has not finished."


class Window(msgspec.Struct):
    """Microseconds, over the last interval."""

    avg: int = 0
    p99: int = 0
    cnt: int = 0


class Node(msgspec.Struct):
    """A broker, as one client sees it."""

    nodename: str = ""
    nodeid: int = -1
    rtt: Window = msgspec.field(default_factory=Window)


class Partition(msgspec.Struct):
    """A partition, as one client sees it."""

    consumer_lag: int = -1
    fetch_state: str = ""


class Topic(msgspec.Struct):
    """A topic, as one client sees it."""

    partitions: dict[str, Partition] = {}


class Report(msgspec.Struct):
    """One report of librdkafka, as much as we tell of it."""

    msg_cnt: int = 0
    msg_size: int = 0
    brokers: dict[str, Node] = {}
    topics: dict[str, Topic] = {}


class Statistics:
    """The last report of each client.

    >>> statistics = Statistics(5.0)
    >>> settings = statistics.settings("billing")
    >>> settings["stats_cb"](
    ...     '{"topics": {"orders": {"partitions":'
    ...     ' {"0": {"consumer_lag": 7, "fetch_state": "active"}}}}}'
    ... )
    >>> [(each.name, each.value) for each in statistics.gauges()]
    [('kafka_consumer_lag', 7.0)]
    """

    def __init__(self, interval: float | None) -> None:
        self._interval = interval
        self._reports: dict[str | None, tuple[float, Report]] = {}
        self._read = msgspec.json.Decoder(Report).decode

    def settings(self, queue: str | None = None) -> dict[str, Any]:
        """What a client needs to report: the consumer of a queue, or the producer. Nothing, if
        nobody asked for it."""
        if self._interval is None:
            return {}
        return {
            "statistics.interval.ms": round(1000 * self._interval),
            "stats_cb": self._noting(queue),
        }

    def gauges(self) -> list[Gauge]:
        """All numbers of clients that still report."""
        return list(self._gauges())

    def _noting(self, queue: str | None) -> Callable[[str], None]:
        def note(text: str) -> None:
            try:
                self._reports[queue] = (monotonic(), self._read(text))
            except msgspec.MsgspecError:  # another librdkafka may tell of it otherwise
                self._reports.pop(queue, None)

        return note

    def _gauges(self) -> Iterator[Gauge]:
        oldest = monotonic() - STALE * (self._interval or 0)
        for queue, (at, report) in list(self._reports.items()):
            if at < oldest:
                self._reports.pop(queue, None)
                continue
            yield from _sending(report) if queue is None else _lags(queue, report)


def _sending(report: Report) -> Iterator[Gauge]:
    # Not of consumers: what they ask for waits at the broker until there is something.
    for node in report.brokers.values():
        if node.nodeid < 0 or not node.rtt.cnt:
            continue  # an address to begin with, or nothing was asked
        labels = {"broker": node.nodename}
        average, most = node.rtt.avg / 1_000_000, node.rtt.p99 / 1_000_000
        yield Gauge("kafka_round_trip_seconds", _ROUND_TRIP, labels, average)
        yield Gauge("kafka_round_trip_seconds_p99", _ROUND_TRIP_P99, labels, most)
    yield Gauge("kafka_producer_queue_messages", _MESSAGES, {}, float(report.msg_cnt))
    yield Gauge("kafka_producer_queue_bytes", _BYTES, {}, float(report.msg_size))


def _lags(queue: str, report: Report) -> Iterator[Gauge]:
    for name, topic in report.topics.items():
        for number, partition in topic.partitions.items():
            if partition.fetch_state == "active" and partition.consumer_lag >= 0:
                labels = {"topic": name, "partition": number, "queue": queue}
                yield Gauge("kafka_consumer_lag", _LAG, labels, float(partition.consumer_lag))
