"""What is declared, as it is written down; and what others have written there."""

from __future__ import annotations

import pytest

from queuecraft.drivers.base import Exchange
from queuecraft.drivers.kafka.names import Names
from queuecraft.drivers.kafka.topology import Registry, described, key_of

DEEP = b'{"more":' + b"[" * 100_000
UNKNOWN = b'{"type":"odd","durable":true,"auto_delete":false,"arguments":{}}'


@pytest.fixture
def registry() -> Registry:
    registry = Registry(Names("", "events"))
    registry.learn(*described(Exchange("audit", "fanout")))
    return registry


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(b"", b"{}", id="no key"),
        pytest.param(key_of("exchange"), b"{}", id="no name"),
        pytest.param(key_of("exchange", ""), described(Exchange("x"))[1], id="empty name"),
        pytest.param(key_of("exchange", "audit"), b"no json", id="no json"),
        pytest.param(key_of("exchange", "audit"), b"{}", id="no properties"),
        pytest.param(key_of("exchange", "audit"), UNKNOWN, id="unknown type"),
        pytest.param(key_of("exchange", "audit"), DEEP, id="deep exchange"),
        pytest.param(key_of("queue", "billing"), b'{"dead":1}', id="no dead letters"),
        pytest.param(key_of("queue", "billing"), DEEP, id="deep queue"),
        pytest.param(key_of("binding", "billing", "", "#"), b"{}", id="binding to nothing"),
        pytest.param(key_of("binding", "billing", "audit", "#"), DEEP, id="deep binding"),
    ],
)
def test_what_cannot_be_read_changes_nothing(registry: Registry, key: bytes, value: bytes) -> None:
    registry.learn(key, value)
    assert registry.exchanges == {"audit": Exchange("audit", "fanout")}
    assert not registry.queues
    assert not registry.bound("billing")
