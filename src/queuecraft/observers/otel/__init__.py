"""Traces and metrics for OpenTelemetry, by its conventions for messaging."""

from queuecraft.model.errors import ConfigError

try:
    from queuecraft.observers.otel.observer import OpenTelemetry
except ModuleNotFoundError as error:
    raise ConfigError(
        "traces need the packages of OpenTelemetry: pip install 'queuecraft[otel]'"
    ) from error

__all__ = ["OpenTelemetry"]
