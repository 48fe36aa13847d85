"""A URL for those who do not like to wait."""

from __future__ import annotations

import pytest

from tests.kafka.place import BRISK


@pytest.fixture
def url(kafka_url: str) -> str:
    return kafka_url + BRISK
