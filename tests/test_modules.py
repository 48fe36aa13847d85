"""Containers, each with one QueueCraft of its own."""

from __future__ import annotations

import threading
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from queuecraft import ConfigError, Policy, QueueCraft, queue_module, use_queue


def test_nothing_is_made_until_it_is_asked_for() -> None:
    made: list[QueueCraft] = []
    shop = queue_module("local://", setup=made.append)
    assert made == []
    container: dict[str, Any] = {}
    assert made == [use_queue(container, shop)]


@pytest.mark.parametrize("kind", [dict, SimpleNamespace])
def test_a_container_has_one_queuecraft(kind: type[Any]) -> None:
    shop = queue_module("local://", concurrency=3)
    one, other = kind(), kind()
    qc = use_queue(one, shop)
    assert use_queue(one, shop) is use_queue(one) is qc
    assert use_queue(other, shop) is not qc
    assert use_queue(other).settings.concurrency == 3


def test_defaults_are_applied_once() -> None:
    calls: list[QueueCraft] = []
    shop = queue_module(default_queue=Policy(ack_timeout=60), setup=calls.append)
    container: dict[str, Any] = {}
    qc = use_queue(container, shop)
    assert qc.worker("a").policy.ack_timeout == 60
    qc.configure(default_queue=Policy(ack_timeout=5))
    use_queue(container, shop)
    assert qc.worker("b").policy.ack_timeout == 5
    assert calls == [qc]


def test_the_workers_are_set_up_with_it() -> None:
    shop = queue_module(setup=lambda qc: qc.worker("audit").on("#", print))
    assert [each.queue_name for each in use_queue({}, shop).workers] == ["audit"]


def test_settings_may_come_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECRAFT_CONCURRENCY", "7")
    shop = queue_module(make=QueueCraft.from_environment, prefetch=9)
    settings = use_queue({}, shop).settings
    assert (settings.concurrency, settings.prefetch) == (7, 9)


def test_a_container_without_one_says_so() -> None:
    with pytest.raises(ConfigError, match="the dict has no QueueCraft; give it one with use_queue"):
        use_queue({})


def test_another_module_does_not_pass_for_the_one_that_made_it() -> None:
    container: dict[str, Any] = {}
    use_queue(container, queue_module("local://"))
    with pytest.raises(ConfigError, match="has a QueueCraft already, which another module"):
        use_queue(container, queue_module("local://./elsewhere.db"))


def test_what_is_no_queuecraft_is_left_alone() -> None:
    container = {"queuecraft": "mine"}
    with pytest.raises(ConfigError, match="something else under 'queuecraft': str"):
        use_queue(container, queue_module())
    assert container == {"queuecraft": "mine"}


@pytest.mark.parametrize("container", [object(), MappingProxyType({}), 1])
def test_what_can_hold_nothing_is_no_container(container: object) -> None:
    with pytest.raises(ConfigError, match="cannot hold a QueueCraft"):
        use_queue(container, queue_module())


def test_threads_that_ask_at_once_get_the_same() -> None:
    start = threading.Barrier(8)
    made: list[QueueCraft] = []
    got: list[QueueCraft] = []
    shop = queue_module(setup=made.append)
    container: dict[str, Any] = {}

    def ask() -> None:
        start.wait()
        got.append(use_queue(container, shop))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(made) == 1
    assert set(got) == set(made)
