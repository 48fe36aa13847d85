"""What Kafka says no to, in words that say what to do."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from queuecraft.drivers.base import ConnectionLost, Outgoing, Receipt, Rejected, Unknown
from queuecraft.model.errors import PublishError, QueueError

GONE: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
    }
)
"""The cluster cannot be reached, or has not answered."""

TOO_LATE: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._FATAL,
    }
)
"""The group has gone on without us: a commit will never be taken."""

_PERHAPS: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
_LOST: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._DESTROY})

_HINTS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow this user to use the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow this user to use the group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow this user to do that in the cluster",
    KafkaError.MSG_SIZE_TOO_LARGE: "make it smaller, or raise message.max.bytes of the topic",
    KafkaError.INVALID_REPLICATION_FACTOR: "set replication= in the URL to at most the brokers",
    KafkaError._AUTHENTICATION: "check user and password, and sasl= in the URL",
    KafkaError._SSL: (
        "check cafile= in the URL, that the certificate names this host, and that the port is "
        "one for TLS"
    ),
    KafkaError._ALL_BROKERS_DOWN: (
        "check that they run, and whether this port wants TLS (kafkas://) or a user and password"
    ),
    KafkaError.NON_EMPTY_GROUP: "stop the workers of this queue first",
}


def told(error: KafkaError) -> str:
    """What happened, and what to do about it where that is known."""
    text = error.str() or error.name()
    code = error.code()
    if code == KafkaError._ALL_BROKERS_DOWN:
        text = "no broker can be reached"  # librdkafka's own words count some twice, some never
    elif code == KafkaError._TRANSPORT and "SSL" in text:
        code = KafkaError._SSL
    hint = _HINTS.get(code)
    return f"{text}; {hint}" if hint else text


def failure(error: KafkaError, operation: str, queue: str | None = None) -> QueueError:
    """An answer of Kafka as an error of ours."""
    kind = ConnectionLost if error.code() in GONE else QueueError
    return kind(told(error), broker="kafka", operation=operation, queue=queue)


def receipt(error: KafkaError, message: Outgoing) -> Receipt:
    """What became of a message that Kafka did not take."""
    code = error.code()
    unknown = code in _PERHAPS or code in _LOST
    problem = PublishError(
        told(error),
        outcome="unknown" if unknown else "rejected",
        broker="kafka",
        operation="send",
        queue=message.queue,
        message_id=message.id,
    )
    return Unknown(problem) if unknown else Rejected(problem)


def no_queue(queue: str, operation: str) -> QueueError:
    """A queue is named that was never declared."""
    return QueueError(
        f"there is no queue {queue!r}; declare it first, or start its worker",
        broker="kafka",
        operation=operation,
        queue=queue,
    )
