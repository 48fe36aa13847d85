"""What the matrix was run with: without it, its numbers mean little."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

import confluent_kafka

from tests.checkout import commit

PACKAGES: Final = ("apsw", "pamqp", "hiredis", "confluent-kafka", "msgspec")


def ours() -> Mapping[str, str]:
    """Of everything but the brokers; ask before the run, during which a commit may be made."""
    return {
        "QueueCraft": version("queuecraft"),
        "Commit": commit(),
        **{each: version(each) for each in PACKAGES},
        "librdkafka": str(confluent_kafka.libversion()[0]),
        "Python": platform.python_version(),
        "Linux": platform.release(),
        "Machine": f"{os.cpu_count()} cores, shared",
    }
