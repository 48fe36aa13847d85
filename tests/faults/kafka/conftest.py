"""Kafka under test: who dies is missed within a second, and a retry is sent before its ack."""

from __future__ import annotations

import pytest

from tests.faults.scene import Broker


@pytest.fixture
def broker(kafka_url: str) -> Broker:
    return Broker(f"{kafka_url}&session_timeout=1&refresh=0.3&drain_timeout=2", atomic_moves=False)
