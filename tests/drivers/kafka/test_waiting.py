"""What waits in memory until it has to move on."""

from __future__ import annotations

from queuecraft.drivers.base import Delivery, Outgoing
from queuecraft.drivers.kafka.offsets import Progress
from queuecraft.drivers.kafka.place import Place
from queuecraft.drivers.kafka.suspects import Suspects
from queuecraft.drivers.kafka.topology import Reach
from queuecraft.drivers.kafka.waiting import Waiting


def place(tier: int, partition: int = 0) -> Place:
    return Place(f"billing.retry.{tier}", partition, Reach(), "", Progress(0), Suspects())


def delivery(where: Place, number: int, size: int = 0) -> Delivery:
    return Delivery(Outgoing(bytes(size), f"m-{number}"), "delayed", 0, (where, number))


def ids(deliveries: list[Delivery]) -> list[str]:
    return [each.sent.id for each in deliveries]


def test_what_has_to_go_first_goes_first_and_what_came_first_of_those_alike() -> None:
    waiting, where = Waiting(10, 1000), place(1)
    assert waiting.next is None
    for number, until in enumerate((3.0, 1.0, 2.0, 1.0)):
        waiting.put(delivery(where, number), until)
    assert waiting.next == 1.0
    assert ids(waiting.take(0.9, 10)) == []
    assert ids(waiting.take(2.0, 2)) == ["m-1", "m-3"]
    assert ids(waiting.take(2.0, 2)) == ["m-2"]
    assert waiting.next == 3.0
    waiting.clear()
    assert waiting.next is None


def test_one_tier_that_has_all_it_may_leaves_room_for_the_others() -> None:
    waiting, long, short = Waiting(10, 1000), place(5), place(0, partition=3)
    for number in range(10):
        waiting.put(delivery(long, number), 3600.0 + number)
    waiting.put(delivery(short, 10), 0.2)
    assert waiting.full == {5}


def test_a_tier_that_was_full_has_room_again_once_a_tenth_of_it_has_gone() -> None:
    waiting, where = Waiting(20, 1000), place(2)
    for number in range(20):
        waiting.put(delivery(where, number), float(number))
    assert waiting.full == {2}
    waiting.take(0.0, 10)
    assert waiting.full == {2}
    waiting.take(1.0, 10)
    assert waiting.full == frozenset()
    waiting.put(delivery(where, 21), 21.0)
    assert waiting.full == frozenset()
    waiting.put(delivery(where, 22), 22.0)
    assert waiting.full == {2}
    waiting.clear()
    assert waiting.full == frozenset()


def test_what_others_get_waits_here_no_longer_and_takes_no_room() -> None:
    waiting, here, there = Waiting(4, 1000), place(1), place(1, partition=1)
    for number in range(4):
        waiting.put(delivery((here, there)[number % 2], number), float(number))
    assert waiting.full == {1}
    there.leaving = True
    waiting.forget()
    assert waiting.full == frozenset()
    assert ids(waiting.take(9.0, 10)) == ["m-0", "m-2"]


def test_a_tier_is_full_of_a_few_that_are_large_and_has_room_again_once_a_tenth_has_gone() -> None:
    waiting, where, other = Waiting(10, 1000), place(2), place(1)
    for number, size in enumerate((150, 700, 149)):
        waiting.put(delivery(where, number, size), float(number))
        assert waiting.full == frozenset()
    waiting.put(delivery(where, 3, 1), 3.0)
    waiting.put(delivery(other, 4, 999), 4.0)
    assert waiting.full == {2}
    assert ids(waiting.take(0.0, 10)) == ["m-0"]
    assert waiting.full == frozenset()
    waiting.put(delivery(where, 5, 150), 5.0)
    assert waiting.full == {2}
    waiting.clear()
    assert waiting.full == frozenset()


def test_one_that_is_larger_than_all_that_may_wait_has_its_turn_and_then_there_is_room() -> None:
    waiting, where = Waiting(10, 1000), place(2)
    assert waiting.full == frozenset()
    waiting.put(delivery(where, 0, 5000), 1.0)
    assert waiting.full == {2}
    assert ids(waiting.take(1.0, 10)) == ["m-0"]
    assert waiting.full == frozenset()


def test_what_others_get_gives_back_its_bytes() -> None:
    waiting, here, there = Waiting(10, 1000), place(1), place(1, partition=1)
    waiting.put(delivery(here, 0, 500), 1.0)
    waiting.put(delivery(there, 1, 500), 2.0)
    assert waiting.full == {1}
    there.leaving = True
    waiting.forget()
    assert waiting.full == frozenset()
    waiting.put(delivery(here, 2, 500), 3.0)
    assert waiting.full == {1}
