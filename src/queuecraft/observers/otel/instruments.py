"""What is counted and measured, as OpenTelemetry has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from queuecraft.observers.otel.conventions import STATE, Vocabulary
from queuecraft.runtime.counters import Metrics
from queuecraft.runtime.facts import ConnectionState

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


class Counted(Protocol):
    """Whose numbers are told: a QueueCraft."""

    @property
    def connection_state(self) -> ConnectionState: ...
    def get_metrics(self) -> Metrics: ...


class Instruments:
    """The instruments, for any number of QueueCrafts. What those count by themselves is read when
    somebody collects, and costs nothing before."""

    def __init__(self, meter: Meter) -> None:
        self._sources: WeakKeyDictionary[Counted, Vocabulary] = WeakKeyDictionary()
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages given to the broker."
        )
        self._publishing = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long publishing took.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._processing = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long handlers took.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        meter.create_observable_counter(
            "messaging.client.consumed.messages",
            [partial(self._by_queue, attrgetter("messages_received"), "receive")],
            "{message}",
            "Messages received by workers.",
        )
        meter.create_observable_counter(
            "queuecraft.retries",
            [partial(self._by_queue, attrgetter("messages_retried"), "settle")],
            "{message}",
            "Messages sent back for another try.",
        )
        meter.create_observable_counter(
            "queuecraft.dead_letters",
            [partial(self._by_queue, attrgetter("messages_dead_lettered"), "settle")],
            "{message}",
            "Messages that became dead letters.",
        )
        meter.create_observable_up_down_counter(
            "queuecraft.in_flight",
            [partial(self._by_queue, attrgetter("in_flight"), "process")],
            "{message}",
            "Messages received and not settled.",
        )
        meter.create_observable_gauge(
            "queuecraft.connection.state", [self._states], "1", "1 for the state it is in."
        )

    def watches(self, source: Counted) -> bool:
        """Whether the counts of this QueueCraft are told already."""
        return source in self._sources

    def watch(self, source: Counted, words: Vocabulary) -> None:
        """Tell the counts of this QueueCraft, too."""
        self._sources[source] = words

    def sent(
        self,
        words: Vocabulary,
        name: str,
        count: int,
        seconds: float,
        error: str | None = None,
        failed: int = 0,
    ) -> None:
        """A publish has ended: so many were accepted, so many failed by this error."""
        if count:
            self._sent.add(count, words.measured("send", name))
        if failed:
            self._sent.add(failed, words.measured("send", name, error))
        self._publishing.record(seconds, words.measured("send", name, error))

    def processed(
        self, words: Vocabulary, queue: str, seconds: float, error: str | None = None
    ) -> None:
        """A handler has ended."""
        self._processing.record(seconds, words.measured("process", queue, error))

    # -- when asked ----------------------------------------------------------------------------

    def _by_queue(
        self, count: Callable[[Metrics], float], operation: str, options: CallbackOptions
    ) -> Iterable[Observation]:
        observations: list[Observation] = []
        for source, words in list(self._sources.items()):
            found: dict[str, float] = {}
            for queue, metrics in source.get_metrics().queues.items():
                place = words.counted(queue)
                found[place] = found.get(place, 0) + count(metrics)
            observations += [
                Observation(value, words.measured(operation, place))
                for place, value in found.items()
            ]
        return observations

    def _states(self, options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(1, {**words.broker, STATE: source.connection_state})
            for source, words in list(self._sources.items())
        ]
