"""Every broker, for what has to work the same on each."""

from __future__ import annotations

from pathlib import Path

import pytest

BROKERS = ["memory", "file", "rabbitmq", "redis lists", "redis streams", "kafka"]


@pytest.fixture(params=BROKERS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each of the brokers; those that are programs are started when they are asked for."""
    match request.param.split():
        case ["memory"]:
            return "local://"
        case ["file"]:
            return f"local://{tmp_path}/queue.db"
        case ["rabbitmq"]:
            return str(request.getfixturevalue("rabbitmq_url"))
        case ["redis", mode]:
            return f"{request.getfixturevalue('redis_url')}&mode={mode.removesuffix('s')}"
        case _:
            kafka_url = request.getfixturevalue("kafka_url")
            return f"{kafka_url}&refresh=0.2&session_timeout=6&drain_timeout=1"
