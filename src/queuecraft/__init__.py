"""Typed events over any broker, with the same guarantees on each."""

import logging

from queuecraft.admin import Admin, PeekedMessage, UnknownQueue
from queuecraft.app import QueueCraft
from queuecraft.config import Settings
from queuecraft.model.batch import BatchFailed
from queuecraft.model.credentials import Credentials
from queuecraft.model.delayed import DelayedSettings
from queuecraft.model.errors import (
    AlreadySettled,
    CircuitOpen,
    ConfigError,
    ConnectionLost,
    PayloadError,
    PublishError,
    QueueError,
    QueueFull,
    RemoteError,
    RequestTimeout,
    TopologyMismatch,
    Unroutable,
    UnsupportedFeature,
)
from queuecraft.model.event import Event
from queuecraft.model.fingerprint import fingerprint
from queuecraft.model.journal import Journal
from queuecraft.model.message import Message
from queuecraft.model.metadata import ConsumeMetadata, ParamMetadata, QueueMetadata
from queuecraft.model.policy import DeadLetter, NoDeadLetter, NoRetry, Policy, Retry
from queuecraft.model.queue import Exchange, Queue
from queuecraft.modules import queue_module, use_queue
from queuecraft.observers.log import ConsoleFormatter, JsonFormatter, LogContext
from queuecraft.runtime.channel import channel, consume
from queuecraft.runtime.counters import Metrics
from queuecraft.runtime.dead_letters import DeadMessage, FailureGroup, Filter, Redrive
from queuecraft.runtime.delayed import (
    CleanupResult,
    CleanupStats,
    Delayed,
    DelayedMessage,
    DelayedPage,
    DelayedStats,
)
from queuecraft.runtime.depends import Depends
from queuecraft.runtime.health import Health
from queuecraft.runtime.worker import Worker
from queuecraft.version import __version__ as __version__

__all__ = [
    "Admin",
    "AlreadySettled",
    "BatchFailed",
    "CircuitOpen",
    "CleanupResult",
    "CleanupStats",
    "ConfigError",
    "ConnectionLost",
    "ConsoleFormatter",
    "ConsumeMetadata",
    "Credentials",
    "DeadLetter",
    "DeadMessage",
    "Delayed",
    "DelayedMessage",
    "DelayedPage",
    "DelayedSettings",
    "DelayedStats",
    "Depends",
    "Event",
    "Exchange",
    "FailureGroup",
    "Filter",
    "Health",
    "Journal",
    "JsonFormatter",
    "LogContext",
    "Message",
    "Metrics",
    "NoDeadLetter",
    "NoRetry",
    "ParamMetadata",
    "PayloadError",
    "PeekedMessage",
    "Policy",
    "PublishError",
    "Queue",
    "QueueCraft",
    "QueueError",
    "QueueFull",
    "QueueMetadata",
    "Redrive",
    "RemoteError",
    "RequestTimeout",
    "Retry",
    "Settings",
    "TopologyMismatch",
    "UnknownQueue",
    "Unroutable",
    "UnsupportedFeature",
    "Worker",
    "channel",
    "consume",
    "fingerprint",
    "queue_module",
    "use_queue",
]

logging.getLogger("queuecraft").addHandler(logging.NullHandler())
