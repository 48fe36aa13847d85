"""PrometheusObserver: the numbers of one QueueCraft, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from queuecraft.drivers.base import Gauge, QueueInfo
from queuecraft.model.errors import ConfigError
from queuecraft.observers.prometheus.families import (
    MAX_NAMES,
    OTHER,
    Families,
    Sample,
    by_name,
    package,
)
from queuecraft.observers.prometheus.publishing import Published
from queuecraft.observers.prometheus.rare import RareFacts
from queuecraft.observers.prometheus.spread import BUCKETS, Spread
from queuecraft.observers.prometheus.workers import Working, shown
from queuecraft.runtime.counters import Metrics
from queuecraft.runtime.facts import (
    CircuitChanged,
    CircuitState,
    ConnectionState,
    Fact,
    MessageFailed,
    MessagesPublished,
    MessagesSucceeded,
    PublishFailed,
)
from queuecraft.version import __version__

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What `PrometheusObserver.text` is, for the header of an answer."""

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

F = TypeVar("F", bound=Fact)


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
        self._families = Families(prefix, {} if labels is None else labels, max_names)
        if list(buckets) != sorted(set(buckets)) or not buckets or max_names < 1:
            raise ConfigError("buckets= must rise, and max_names= be 1 or more")
        self._bounds = tuple(buckets)
        self._max_names = max_names
        self._source: Source | None = None
        self._former: Source | None = None
        self._before = 0
        self._published = Published(self._bounds, max_names)
        self._spreads: dict[tuple[str, str], Spread] = {}
        self._rare = RareFacts()
        self._gauges: Mapping[str, tuple[str, float]] = {}
        self._circuits: dict[str, CircuitState] = {}
        self._depths: Sequence[QueueInfo] = ()
        self._stops: list[Callable[[], None]] = []
        self.registry: CollectorRegistry = self._families.registry()
        """For `prometheus_client.start_http_server(9000, registry=metrics.registry)`."""

    def attach(self, source: Source) -> None:
        """Measure this QueueCraft from now on; what it has counted before is included."""
        if self._source is not None:
            raise ConfigError("this observer has a QueueCraft already; make another for the next")
        if source is not self._former:
            self._begin(source)
        self._source = source
        self._before = source.get_metrics().messages_sent - self._published.total
        self._stops = [
            source.observe(MessagesPublished, self._published.noting()),
            source.observe(PublishFailed, self._published.fail),
            source.observe(MessagesSucceeded, self._note_succeeded),
            source.observe(MessageFailed, self._note_failed),
            source.observe(CircuitChanged, self._note_circuit),
            *self._rare.observe(source),
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
        rendered: bytes = package("prometheus_client").generate_latest(self.registry)
        return rendered

    # -- what happens, a batch at a time -------------------------------------------------------

    def _begin(self, source: Source) -> None:
        """Nothing is known of this one."""
        self._former = source
        self._published = Published(self._bounds, self._max_names)
        self._rare = RareFacts()
        self._spreads.clear()
        self._circuits.clear()

    def _note_succeeded(self, fact: MessagesSucceeded) -> None:
        if fact.durations:
            self._spread(fact.deliveries[0].queue, "success").add(fact.durations)

    def _note_circuit(self, fact: CircuitChanged) -> None:
        if fact.name in self._circuits or len(self._circuits) < self._max_names:
            self._circuits[fact.name] = fact.state

    def _note_failed(self, fact: MessageFailed) -> None:
        if fact.duration is not None:
            self._spread(fact.delivery.queue, "failure").add_one(fact.duration)

    def _spread(self, queue: str, outcome: str) -> Spread:
        spread = self._spreads.get((queue, outcome))
        if spread is None:
            if len(self._spreads) >= 2 * self._max_names:
                queue = OTHER
            spread = self._spreads.setdefault((queue, outcome), Spread(self._bounds))
        return spread

    # -- when asked ----------------------------------------------------------------------------

    def describe(self) -> Iterable[Any]:
        """Nothing in advance; registering asks no broker."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Every series as it is now. The registry calls this, perhaps in a thread of its own."""
        source, families = self._source, self._families
        if source is None:
            return
        metrics = source.get_metrics()
        yield from self._published.shown(families, self._before)
        for name, text, attribute in _COUNTERS:
            counts = [((q,), getattr(m, attribute)) for q, m in metrics.queues.items()]
            yield families.counter(name, text, ("queue",), counts)
        yield families.histogram(
            "message_processing_duration_seconds",
            "How long handlers took.",
            ("queue", "outcome"),
            list(self._spreads.items()),
        )
        in_flight = by_name({q: m.in_flight for q, m in metrics.queues.items()})
        yield families.gauge(
            "messages_in_flight", "Messages received and not settled.", ("queue",), in_flight
        )
        longest = by_name({q: m.handler_seconds_max for q, m in metrics.queues.items()})
        yield families.gauge(
            "message_processing_duration_seconds_max",
            "The longest a handler took since the start.",
            ("queue",),
            longest,
            merge=max,
        )
        yield from self._connection(source)
        yield from self._rare.shown(families)
        for name, text, value in (
            ("journal_written", "Rows of the journal.", metrics.journal_written),
            ("journal_dropped", "Rows the journal had no room for.", metrics.journal_dropped),
        ):
            yield families.counter(name, text, (), [((), value)])
        workers: Sequence[Working] = getattr(source, "workers", ())
        yield from shown([each for each in workers if _is_ready(each)], families)
        yield from self._asked(source)

    def _connection(self, source: Source) -> Iterator[Any]:
        families, state = self._families, source.connection_state
        yield families.gauge(
            "connection_status", "1 while connected.", (), [((), float(state == "connected"))]
        )
        states = by_name({each: float(each == state) for each in _STATES})
        yield families.gauge("connection_state", "1 for the state it is in.", ("state",), states)
        if self._circuits:
            circuits = by_name({n: _CIRCUITS[state] for n, state in list(self._circuits.items())})
            yield families.gauge(
                "circuit_open", "1 while open, 0.5 while trying again.", ("circuit",), circuits
            )
        if "version" not in families.constant:
            yield families.gauge(
                "info", "The version of QueueCraft.", ("version",), [((__version__,), 1.0)]
            )

    def _asked(self, source: Source) -> Iterator[Any]:
        """What has to be asked for, or is measured by others."""
        families = self._families
        if self._depths:
            yield families.gauge(
                "queue_messages",
                "Messages on the broker, as far as it tells.",
                ("queue", "state"),
                list(_depths(self._depths)),
            )
        found: dict[str, list[Gauge]] = {}
        for each in source.get_broker_gauges():
            found.setdefault(each.name, []).append(each)
        for name, gauges in found.items():
            labels = tuple(gauges[0].labels)
            samples: list[Sample] = [
                (tuple(each.labels[label] for label in labels), each.value) for each in gauges
            ]
            yield families.gauge(name, gauges[0].text, labels, samples)
        for name, (text, value) in self._gauges.items():
            family = families.counter if name.endswith("_total") else families.gauge
            yield family(name.removesuffix("_total"), text, (), [((), value)])


def _is_ready(worker: Any) -> bool:
    """Not one that is still being built, whose queue has no name yet."""
    return bool(worker.handlers) or worker.named is not None


def _depths(queues: Iterable[QueueInfo]) -> Iterator[Sample]:
    for info in queues:
        for state in ("ready", "in_flight", "delayed", "dead"):
            value: int | None = getattr(info, state)
            if value is not None:
                yield (info.name, state), value
