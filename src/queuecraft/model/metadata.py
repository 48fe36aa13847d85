"""What an app handles, for tools to read: its channels, their handlers, and their parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ParamMetadata:
    """One parameter of a handler and what fills it.

    >>> ParamMetadata("order", "payload", dict).source
    'payload'
    """

    name: str
    source: Literal["payload", "message", "dependency", "default"]
    annotation: Any


@dataclass(frozen=True, slots=True)
class ConsumeMetadata:
    """One handler: the pattern it takes, the payload type, the function and its parameters.

    >>> ConsumeMetadata("order.placed", dict, print, ()).pattern
    'order.placed'
    """

    pattern: str
    payload_type: Any
    handler: Callable[..., Any]
    params: tuple[ParamMetadata, ...]
    in_batches: bool = False
    """Whether it takes lists of payloads, many messages at once."""


@dataclass(frozen=True, slots=True)
class QueueMetadata:
    """One channel: the queue, its exchange, and every handler on it.

    >>> QueueMetadata("billing", "events", ()).queue
    'billing'
    """

    queue: str
    exchange: str
    handlers: tuple[ConsumeMetadata, ...]
