"""Numbers for Prometheus: what is published, handled, retried and dead, and how long it takes."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from queuecraft.drivers.base import Gauge, QueueInfo
from queuecraft.model.errors import ConfigError
from queuecraft.observers.log import printable
from queuecraft.runtime.counters import Metrics
from queuecraft.runtime.facts import (
    CircuitChanged,
    CircuitState,
    ConnectionState,
    Fact,
    MessageFailed,
    MessagesPublished,
    MessagesSucceeded,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds, from a quick handler to one that calls a slow service."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What `PrometheusObserver.text` is, for the header of an answer."""

MAX_NAMES = 200
"""How many queues, and how many events, have a series of their own; the rest share `other`."""

OTHER = "other"

_PREFIX = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_OURS = frozenset(
    {"event", "queue", "outcome", "state", "le", "circuit", "broker", "topic", "partition"}
)
_CIRCUITS: dict[CircuitState, float] = {"closed": 0.0, "half_open": 0.5, "open": 1.0}
_STATES: tuple[ConnectionState, ...] = (
    "disconnected",
    "connecting",
    "connected",
    "reconnecting",
    "circuit_open",
    "closing",
    "closed",
)

F = TypeVar("F", bound=Fact)
Sample = tuple[tuple[str, ...], float]


class Source(Protocol):
    """What is measured: a QueueCraft."""

    @property
    def connection_state(self) -> ConnectionState: ...
    def get_metrics(self) -> Metrics: ...
    def get_broker_gauges(self) -> Sequence[Gauge]: ...
    def observe(self, kind: type[F], observer: Callable[[F], object]) -> Callable[[], None]: ...


class PrometheusObserver:
    """The numbers of one QueueCraft as Prometheus reads them, in a registry of their own.

    What `get_metrics()` counts is read when Prometheus asks and costs nothing before; only what it
    does not keep, publishes by event and how durations are spread, is noted with every batch.

    >>> from queuecraft import QueueCraft
    >>> metrics = PrometheusObserver(labels={"service": "shop"})
    >>> metrics.attach(QueueCraft("local://"))
    >>> print(metrics.text().decode().partition("# HELP")[2].split("# HELP")[0].strip())
    queuecraft_messages_published_total Messages the broker has accepted.
    # TYPE queuecraft_messages_published_total counter
    >>> 'queuecraft_connection_status{service="shop"} 0.0' in metrics.text().decode()
    True
    """

    def __init__(
        self,
        *,
        prefix: str = "queuecraft_",
        labels: Mapping[str, str] | None = None,
        buckets: Sequence[float] = BUCKETS,
        max_names: int = MAX_NAMES,
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigError(
                f"prefix={prefix!r} cannot begin a metric's name; use letters, digits and _, "
                "as in 'shop_'"
            )
        constant = {} if labels is None else dict(labels)
        for name in constant:
            if not _LABEL.fullmatch(name) or name in _OURS:
                raise ConfigError(
                    f"label {name!r} cannot be used; take letters, digits and _, and none of "
                    f"{', '.join(sorted(_OURS))}"
                )
        if list(buckets) != sorted(set(buckets)) or not buckets or max_names < 1:
            raise ConfigError("buckets= must rise, and max_names= be 1 or more")
        self._prefix = prefix
        self._labels = tuple(constant)
        self._values = tuple(str(value) for value in constant.values())
        self._bounds = tuple(buckets)
        self._max_names = max_names
        self._source: Source | None = None
        self._before = 0
        self._published: Counter[str] = Counter()
        self._spreads: dict[tuple[str, str], _Spread] = {}
        self._gauges: Mapping[str, tuple[str, float]] = {}
        self._circuits: dict[str, CircuitState] = {}
        self._depths: Sequence[QueueInfo] = ()
        self._stops: list[Callable[[], None]] = []
        self._core: Any = _package("prometheus_client.core")
        self.registry: CollectorRegistry = self._core.CollectorRegistry()
        """For `prometheus_client.start_http_server(9000, registry=metrics.registry)`."""

    def attach(self, source: Source) -> None:
        """Measure this QueueCraft from now on; what it has counted before is included."""
        if self._source is not None:
            raise ConfigError("this observer has a QueueCraft already; make another for the next")
        self._source = source
        self._before = source.get_metrics().messages_sent
        self._stops = [
            source.observe(MessagesPublished, self._note_published),
            source.observe(MessagesSucceeded, self._note_succeeded),
            source.observe(MessageFailed, self._note_failed),
            source.observe(CircuitChanged, self._note_circuit),
        ]
        self.registry.register(self)

    def detach(self) -> None:
        """Measure no more."""
        if self._source is not None:
            for stop in self._stops:
                stop()
            self.registry.unregister(self)
            self._source = None

    def show(
        self,
        *,
        gauges: Mapping[str, tuple[str, float]] | None = None,
        queues: Sequence[QueueInfo] | None = None,
    ) -> None:
        """Show from now on what has to be asked for: numbers by name, each with its help, and the
        depth of the broker's queues. None leaves what was shown before."""
        if gauges is not None:
            self._gauges = dict(gauges)
        if queues is not None:
            self._depths = tuple(queues)

    def text(self) -> bytes:
        """All numbers, in the text format of Prometheus."""
        rendered: bytes = _package("prometheus_client").generate_latest(self.registry)
        return rendered

    # -- facts, a batch at a time --------------------------------------------------------------

    def _note_published(self, fact: MessagesPublished) -> None:
        messages = fact.messages
        if len(messages) == 1:
            self._count_event(messages[0].routing_key or messages[0].queue or "", 1)
            return
        named = Counter([each.routing_key or each.queue or "" for each in messages])
        for name, count in named.items():
            self._count_event(name, count)

    def _count_event(self, name: str, count: int) -> None:
        published = self._published
        if name not in published and len(published) >= self._max_names:
            name = OTHER
        published[name] += count

    def _note_succeeded(self, fact: MessagesSucceeded) -> None:
        if fact.durations:
            self._spread(fact.deliveries[0].queue, "success").add(fact.durations)

    def _note_circuit(self, fact: CircuitChanged) -> None:
        if fact.name in self._circuits or len(self._circuits) < self._max_names:
            self._circuits[fact.name] = fact.state

    def _note_failed(self, fact: MessageFailed) -> None:
        if fact.duration is not None:
            self._spread(fact.delivery.queue, "failure").add((fact.duration,))

    def _spread(self, queue: str, outcome: str) -> _Spread:
        spread = self._spreads.get((queue, outcome))
        if spread is None:
            if len(self._spreads) >= 2 * self._max_names:
                queue = OTHER
            spread = self._spreads.setdefault((queue, outcome), _Spread(self._bounds))
        return spread

    # -- when asked ----------------------------------------------------------------------------

    def describe(self) -> Iterable[Any]:
        """Nothing in advance; registering asks no broker."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Every series as it is now. The registry calls this, perhaps in a thread of its own."""
        source = self._source
        if source is None:
            return
        published = [((name,), count) for name, count in list(self._published.items())]
        if self._before:
            published.append(((OTHER,), self._before))
        metrics = source.get_metrics()
        yield self._counter(
            "messages_published", "Messages the broker has accepted.", ("event",), published
        )
        for name, text, attribute in _COUNTERS:
            counts = [((q,), getattr(m, attribute)) for q, m in metrics.queues.items()]
            yield self._counter(name, text, ("queue",), counts)
        yield self._histogram()
        in_flight: list[Sample] = [((q,), m.in_flight) for q, m in metrics.queues.items()]
        yield self._gauge("messages_in_flight", "Messages being handled.", ("queue",), in_flight)
        longest: list[Sample] = [((q,), m.handler_seconds_max) for q, m in metrics.queues.items()]
        yield self._gauge(
            "message_processing_duration_seconds_max",
            "The longest a handler took since the start.",
            ("queue",),
            longest,
            merge=max,
        )
        state = source.connection_state
        yield self._gauge(
            "connection_status", "1 while connected.", (), [((), float(state == "connected"))]
        )
        states: list[Sample] = [((each,), float(each == state)) for each in _STATES]
        yield self._gauge("connection_state", "1 for the state it is in.", ("state",), states)
        if self._circuits:
            circuits: list[Sample] = [
                ((name,), _CIRCUITS[state]) for name, state in list(self._circuits.items())
            ]
            yield self._gauge(
                "circuit_open", "1 while open, 0.5 while trying again.", ("circuit",), circuits
            )
        if self._depths:
            yield self._gauge(
                "queue_messages",
                "Messages on the broker, as far as it tells.",
                ("queue", "state"),
                list(_depths(self._depths)),
            )
        for name, gauges in _by_name(source.get_broker_gauges()).items():
            labels = tuple(gauges[0].labels)
            samples: list[Sample] = [
                (tuple(printable(each.labels[label]) for label in labels), each.value)
                for each in gauges
            ]
            yield self._gauge(name, gauges[0].text, labels, samples)
        for name, (text, value) in self._gauges.items():
            family = self._counter if name.endswith("_total") else self._gauge
            yield family(name.removesuffix("_total"), text, (), [((), value)])

    def _counter(
        self, name: str, text: str, labels: tuple[str, ...], samples: Sequence[Sample]
    ) -> Any:
        family = self._core.CounterMetricFamily(
            self._prefix + name, text, labels=(*self._labels, *labels)
        )
        for values, value in self._bounded(samples):
            family.add_metric((*self._values, *values), value)
        return family

    def _gauge(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        samples: Sequence[Sample],
        merge: Callable[[tuple[float, float]], float] = sum,
    ) -> Any:
        family = self._core.GaugeMetricFamily(
            self._prefix + name, text, labels=(*self._labels, *labels)
        )
        for values, value in self._bounded(samples, merge):
            family.add_metric((*self._values, *values), value)
        return family

    def _histogram(self) -> Any:
        family = self._core.HistogramMetricFamily(
            f"{self._prefix}message_processing_duration_seconds",
            "How long handlers took.",
            labels=(*self._labels, "queue", "outcome"),
        )
        merged: dict[tuple[str, str], _Spread] = {}
        for (queue, outcome), spread in list(self._spreads.items()):
            place = (printable(queue), outcome)
            merged[place] = spread.with_(merged[place]) if place in merged else spread
        for labels, spread in merged.items():
            buckets, total = spread.cumulative()
            family.add_metric((*self._values, *labels), buckets=buckets, sum_value=total)
        return family

    def _bounded(
        self,
        samples: Iterable[Sample],
        merge: Callable[[tuple[float, float]], float] = sum,
    ) -> Iterable[Sample]:
        """The samples under names that are safe to print, and not too many of them."""
        found: dict[tuple[str, ...], float] = {}
        names: set[str] = set()
        for labels, value in samples:
            if labels:
                name = printable(labels[0])
                if name not in names and len(names) >= self._max_names:
                    name = OTHER
                else:
                    names.add(name)
                labels = (name, *labels[1:])
            found[labels] = merge((found[labels], value)) if labels in found else value
        return found.items()


_COUNTERS = (
    ("messages_consumed", "Messages received by workers.", "messages_received"),
    ("messages_succeeded", "Messages handled without an error.", "messages_succeeded"),
    ("messages_failed", "Deliveries that failed, retried or not.", "messages_failed"),
    ("retry_count", "Messages sent back for another try.", "messages_retried"),
    ("messages_postponed", "Times a message was put off, no failure.", "messages_postponed"),
    ("dlq_count", "Messages that became dead letters.", "messages_dead_lettered"),
    ("messages_expired", "Messages whose time to live was over.", "messages_expired"),
    ("messages_dropped", "Messages given up without a dead letter.", "messages_dropped"),
    ("ack_timeouts", "Handlers that took longer than the ack timeout.", "ack_timeouts"),
)


@dataclass(slots=True)
class _Spread:
    """How many durations fell below each bound."""

    bounds: tuple[float, ...]
    total: float = 0.0
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, durations: Sequence[float]) -> None:
        bounds, counts = self.bounds, self.counts
        for duration in durations:
            counts[bisect_left(bounds, duration)] += 1
        self.total += sum(durations)

    def with_(self, other: _Spread) -> _Spread:
        counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        return _Spread(self.bounds, self.total + other.total, counts)

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        reached, buckets = 0, list[tuple[str, float]]()
        for bound, count in zip((*map(str, self.bounds), "+Inf"), list(self.counts), strict=True):
            reached += count
            buckets.append((bound, reached))
        return buckets, self.total


def _by_name(gauges: Iterable[Gauge]) -> dict[str, list[Gauge]]:
    found: dict[str, list[Gauge]] = {}
    for each in gauges:
        found.setdefault(each.name, []).append(each)
    return found


def _depths(queues: Iterable[QueueInfo]) -> Iterator[Sample]:
    for info in queues:
        for state in ("ready", "in_flight", "delayed", "dead"):
            value: int | None = getattr(info, state)
            if value is not None:
                yield (info.name, state), value


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "metrics for Prometheus need the package prometheus-client: "
            "pip install 'queuecraft[prometheus]'"
        ) from error
