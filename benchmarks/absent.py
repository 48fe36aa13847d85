"""Who is not measured on a broker, and why: a reader who looks for a library finds an answer."""

from __future__ import annotations

PEERS = ("FastStream", "Celery", "Dramatiq", "Taskiq")

_NO_FILE = "no broker of its own is a file"
_NO_STREAMS = "on Redis it has lists alone"

ABSENT: dict[str, dict[str, str]] = {
    "memory": {
        "Celery": "its `memory://` is Kombu's transport, which is here",
        "FastStream": "nothing of it runs in memory but `TestBroker`, which is for tests alone",
    },
    "file": {
        "FastStream": _NO_FILE,
        "Dramatiq": _NO_FILE,
        "Taskiq": _NO_FILE,
        "Celery": "Kombu has transports for a folder and for SQL; neither gives back what a worker "
        "held when it died",
    },
    "redis-streams": {"Celery": _NO_STREAMS, "Dramatiq": _NO_STREAMS},
    "kafka": {
        "Celery": "Kombu's transport for Kafka does not look at the broker's answer to a publish, "
        "and one acknowledgement commits all that was fetched",
        "Dramatiq": "it has brokers for RabbitMQ and Redis alone",
    },
}
