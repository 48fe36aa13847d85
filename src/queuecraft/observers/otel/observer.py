"""OpenTelemetry, the facade: attach it, and every message is part of a trace."""

from __future__ import annotations

import logging
from typing import Protocol

from opentelemetry import metrics, propagate, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import TracerProvider

from queuecraft.model.errors import ConfigError
from queuecraft.observers.otel.carrier import Carrier
from queuecraft.observers.otel.conventions import Vocabulary
from queuecraft.observers.otel.instruments import Counted, Instruments
from queuecraft.observers.otel.processing import Processing
from queuecraft.observers.otel.sending import Sending
from queuecraft.observers.otel.telemetry import Telemetry
from queuecraft.observers.otel.trouble import Trouble
from queuecraft.runtime.handler import Middleware
from queuecraft.runtime.publication import PublishMiddleware

NAME = "queuecraft"

MAX_NAMES = 200
"""How many queues and events are told apart in metrics; the rest share `other`."""


class Traced(Counted, Protocol):
    """What can be traced: a QueueCraft."""

    def use(self, *middleware: Middleware) -> None: ...
    def use_publishing(self, *middleware: PublishMiddleware) -> None: ...


class OpenTelemetry:
    """Traces and metrics of everything that is published and handled. The context of a trace
    travels in the headers of messages, so that publish, handler, and what that publishes again are
    one trace.

    Without providers the global ones are used, and while there are none nothing is recorded. With
    `link=True` a handler begins a trace of its own, linked to the publish, instead of being a
    child of it.

    >>> from queuecraft import QueueCraft
    >>> from queuecraft.observers.otel import OpenTelemetry
    >>> OpenTelemetry().attach(QueueCraft("local://"))
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        *,
        link: bool = False,
        max_names: int = MAX_NAMES,
    ) -> None:
        if max_names < 1:
            raise ConfigError(f"max_names={max_names!r}: expected 1 or more")
        self._telemetry = Telemetry(
            trace.get_tracer(NAME, tracer_provider=tracer_provider),
            Carrier(propagator or propagate.get_global_textmap()),
            Instruments(metrics.get_meter(NAME, meter_provider=meter_provider)),
            Trouble(logging.getLogger("queuecraft")),
        )
        self._link = link
        self._max_names = max_names

    def attach(self, qc: Traced) -> None:
        """Trace this QueueCraft: what it publishes from now on, and the handlers of workers that
        start from now on. Do it before other middleware is added, and that is traced too."""
        if self._telemetry.instruments.watches(qc):
            raise ConfigError("this QueueCraft is traced already")
        words = Vocabulary(self._max_names)
        self._telemetry.instruments.watch(qc, words)
        qc.use_publishing(self._sending(words))
        qc.use(self._processing(words))

    def publishing(self) -> PublishMiddleware:
        """The middleware around publishing alone, as for a sync QueueCraft:
        `QueueCraft(publish_middleware=[telemetry.publishing()])`."""
        return self._sending(Vocabulary(self._max_names))

    def handling(self) -> Middleware:
        """The middleware around handlers alone, for one worker:
        `qc.worker("billing", middleware=[telemetry.handling()])`."""
        return self._processing(Vocabulary(self._max_names))

    def headers(self) -> dict[str, str]:
        """Headers that carry the current trace on, for what does not go through `publish`:
        `Outbox(headers=telemetry.headers)`.

        >>> OpenTelemetry().headers()
        {}
        """
        try:
            return self._telemetry.carrier.write()
        except Exception as error:
            self._telemetry.trouble.tell(error)
            return {}

    def _sending(self, words: Vocabulary) -> Sending:
        return Sending(self._telemetry, words)

    def _processing(self, words: Vocabulary) -> Processing:
        return Processing(self._telemetry, words, link=self._link)
