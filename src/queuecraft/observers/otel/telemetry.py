"""What spans are made with, around publishing as around handlers."""

from __future__ import annotations

from dataclasses import dataclass

from opentelemetry.trace import Span, Status, StatusCode, Tracer

from queuecraft.observers.otel.carrier import Carrier
from queuecraft.observers.otel.conventions import ERROR_TYPE
from queuecraft.observers.otel.instruments import Instruments
from queuecraft.observers.otel.trouble import Trouble


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The parts of one OpenTelemetry."""

    tracer: Tracer
    carrier: Carrier
    instruments: Instruments
    trouble: Trouble


def mark_failed(span: Span, kind: str, text: str) -> None:
    """Let a span be one of an error of this kind."""
    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, text))
