"""What the matrix was run with: without it, its numbers mean little."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

import confluent_kafka

PACKAGES: Final = ("queuecraft", "apsw", "pamqp", "hiredis", "confluent-kafka", "msgspec")


def ours() -> Mapping[str, str]:
    """Of everything but the brokers."""
    names = {"queuecraft": "QueueCraft"}
    told = {names.get(each, each): version(each) for each in PACKAGES}
    return {
        **told,
        "librdkafka": str(confluent_kafka.libversion()[0]),
        "Python": platform.python_version(),
        "Linux": platform.release(),
        "Machine": f"{os.cpu_count()} cores, shared",
    }
