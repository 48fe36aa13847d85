"""Of very many groups only those are asked that may have something new to say."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from confluent_kafka import ConsumerGroupState, TopicPartition

from queuecraft.drivers.kafka import groups as module
from queuecraft.drivers.kafka.groups import Groups

T = TypeVar("T")
MANY = [f"g-{n}" for n in range(30)]


def answered(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


class Admin:
    """Kafka, as far as it is asked; notes what it was asked for."""

    def __init__(self, states: dict[str, ConsumerGroupState], errors: tuple[str, ...] = ()) -> None:
        self.states = states
        self.errors = errors
        self.described: list[str] = []
        self.fetched: list[str] = []

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        valid = [SimpleNamespace(group_id=name, state=s) for name, s in self.states.items()]
        return answered(SimpleNamespace(valid=valid, errors=self.errors))

    def describe_consumer_groups(self, names: list[str], **_: Any) -> dict[str, Future[Any]]:
        self.described += names
        return {name: answered(SimpleNamespace(members=["one", "two"])) for name in names}

    def list_consumer_group_offsets(self, wanted: list[Any]) -> dict[str, Future[Any]]:
        (name,) = (each.group_id for each in wanted)
        self.fetched.append(name)
        places = [TopicPartition("t", 0, 5), TopicPartition("t", 1)]  # the other says nothing
        return {name: answered(SimpleNamespace(topic_partitions=places))}


def asking(admin: Any) -> Groups:
    async def call(operation: str, work: Callable[[], T]) -> T:
        return work()

    return Groups(admin, call)


async def test_groups_are_at_work_unless_they_are_empty_and_the_others_do_not_exist() -> None:
    stable, empty = ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY
    admin = Admin({"g-1": stable, "g-2": empty, "another": stable})
    assert await asking(admin).at_work(MANY) == {"g-1": True, "g-2": False}


async def test_a_broker_that_does_not_tell_leaves_all_groups_to_be_asked() -> None:
    admin = Admin({"g-1": ConsumerGroupState.EMPTY}, errors=("one is down",))
    assert await asking(admin).at_work(MANY) == dict.fromkeys(MANY, True)


async def test_a_few_groups_are_asked_each_time() -> None:
    admin = Admin({})
    groups = asking(admin)
    assert await groups.at_work(["a", "b"]) == {"a": True, "b": True}
    for _ in range(2):
        assert await groups.members(["a"]) == {"a": 2}
        told = await groups.committed({"a": False}, lambda *_: True)
        assert {spot: each.offset for spot, each in told["a"].items()} == {("t", 0): 5}
    assert (admin.described, admin.fetched) == (["a", "a"], ["a", "a"])


async def test_of_many_only_those_are_asked_again_that_may_have_moved() -> None:
    admin = Admin({})
    groups = asking(admin)
    busy = {name: name in ("g-1", "g-2") for name in MANY}
    await groups.committed(busy, lambda *_: False)
    assert admin.fetched == MANY
    admin.fetched.clear()
    await groups.committed(busy, lambda group, _: group == "g-2")
    assert admin.fetched == ["g-1"]  # it has members, and something before it


async def test_what_was_said_is_not_believed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Admin({})
    groups = asking(admin)
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    for moment, asked in ((100.0, 1), (109.0, 1), (111.0, 2)):
        now = moment
        await groups.members(MANY)
        await groups.committed(dict.fromkeys(MANY, False), lambda *_: True)
        assert (len(admin.described), len(admin.fetched)) == (30 * asked, 30 * asked)


async def test_a_group_that_was_moved_from_here_is_asked_at_once() -> None:
    admin = Admin({})
    groups = asking(admin)
    still = dict.fromkeys(MANY, False)
    await groups.committed(still, lambda *_: True)
    admin.fetched.clear()
    groups.forget("g-7")
    await groups.committed(still, lambda *_: True)
    assert admin.fetched == ["g-7"]


async def test_a_look_at_one_group_forgets_nothing_of_the_others() -> None:
    admin = Admin({})
    groups = asking(admin)
    await groups.members(MANY)
    await groups.members(["g-1"])
    admin.described.clear()
    await groups.members(MANY)
    assert admin.described == []
