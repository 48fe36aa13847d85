"""Series as Prometheus reads them: named, labelled, escaped, and not too many."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

from queuecraft.model.errors import ConfigError
from queuecraft.model.printable import printable
from queuecraft.observers.prometheus.spread import Spread

MAX_NAMES = 200
"""How many queues, and how many events, have a series of their own; the rest share `other`."""

OTHER = "other"

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""The values of its labels, and its own."""

Merge: TypeAlias = Callable[[tuple[float, float]], float]

_PREFIX = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_OURS = frozenset(
    {
        "event",
        "queue",
        "outcome",
        "state",
        "le",
        "circuit",
        "broker",
        "topic",
        "partition",
        "error",
    }
)


class Families:
    """Makes families of series, all with one prefix and the same constant labels."""

    def __init__(self, prefix: str, labels: Mapping[str, str], max_names: int) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigError(
                f"prefix={prefix!r} cannot begin a metric's name; use letters, digits and _, "
                "as in 'shop_'"
            )
        for name in labels:
            if not _LABEL.fullmatch(name) or name in _OURS:
                raise ConfigError(
                    f"label {name!r} cannot be used; take letters, digits and _, and none of "
                    f"{', '.join(sorted(_OURS))}"
                )
        self.constant = tuple(labels)
        self._values = tuple(str(value) for value in labels.values())
        self._prefix = prefix
        self._max_names = max_names
        self._core: Any = package("prometheus_client.core")

    def registry(self) -> Any:
        """A registry of their own."""
        return self._core.CollectorRegistry()

    def counter(
        self, name: str, text: str, labels: tuple[str, ...], samples: Iterable[Sample]
    ) -> Any:
        """What only rises; its name ends in `_total` by itself."""
        family = self._core.CounterMetricFamily(
            self._prefix + name, text, labels=(*self.constant, *labels)
        )
        for values, value in self._bounded(samples, sum):
            family.add_metric((*self._values, *values), value)
        return family

    def gauge(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        samples: Iterable[Sample],
        merge: Merge = sum,
    ) -> Any:
        """What rises and falls; those that share a name are merged."""
        family = self._core.GaugeMetricFamily(
            self._prefix + name, text, labels=(*self.constant, *labels)
        )
        for values, value in self._bounded(samples, merge):
            family.add_metric((*self._values, *values), value)
        return family

    def histogram(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        spreads: Iterable[tuple[tuple[str, ...], Spread]],
    ) -> Any:
        """How durations are spread."""
        family = self._core.HistogramMetricFamily(
            self._prefix + name, text, labels=(*self.constant, *labels)
        )
        merged: dict[tuple[str, ...], Spread] = {}
        for values, spread in spreads:
            place = tuple(map(printable, values))
            merged[place] = spread.with_(merged[place]) if place in merged else spread
        for values, spread in merged.items():
            buckets, total = spread.cumulative()
            family.add_metric((*self._values, *values), buckets=buckets, sum_value=total)
        return family

    def _bounded(self, samples: Iterable[Sample], merge: Merge) -> Iterable[Sample]:
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
                labels = (name, *map(printable, labels[1:]))
            found[labels] = merge((found[labels], value)) if labels in found else value
        return found.items()


def package(name: str) -> Any:
    """A part of prometheus-client, or what to install."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "metrics for Prometheus need the package prometheus-client: "
            "pip install 'queuecraft[prometheus]'"
        ) from error


def by_name(samples: Mapping[str, float]) -> Sequence[Sample]:
    """Samples of one label.

    >>> by_name({"billing": 3.0})
    [(('billing',), 3.0)]
    """
    return [((name,), value) for name, value in samples.items()]
