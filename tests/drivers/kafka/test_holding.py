"""What is in a consumer's hands, and what becomes of it there."""

from __future__ import annotations

from queuecraft.drivers.base import Delivery, Outgoing
from queuecraft.drivers.kafka.holding import Holding
from queuecraft.drivers.kafka.offsets import Progress
from queuecraft.drivers.kafka.place import Place
from queuecraft.drivers.kafka.suspects import Suspects
from queuecraft.drivers.kafka.topology import Reach


def place(partition: int = 0) -> Place:
    return Place("order.placed", partition, Reach(), "order.placed", Progress(0), Suspects())


def deliveries(where: Place, count: int) -> list[Delivery]:
    return [Delivery(Outgoing(b"", f"m-{n}"), "billing", 0, (where, n)) for n in range(count)]


def test_what_is_finished_is_noted_by_partition_in_the_order_it_was() -> None:
    holding, one, two = Holding(), place(0), place(1)
    first, second = deliveries(one, 3), deliveries(two, 2)
    holding.hand_over([*first, *second])
    assert holding.finish([first[2], second[0], first[0], second[1]]) == []
    assert holding.note() == [{one: [2, 0], two: [0, 1]}]
    assert (holding.acked, holding.noted, holding.held) == (4, 4, {first[1]})


def test_what_is_not_held_is_stale_and_finished_only_once() -> None:
    holding, where = Holding(), place()
    mine, strange = deliveries(where, 2), deliveries(where, 1)
    holding.hand_over(mine)
    assert holding.finish([mine[0], strange[0], mine[0], mine[1]]) == strange
    assert holding.finish(mine) == mine
    assert holding.note() == [{where: [0, 1]}]


def test_what_is_of_a_partition_that_others_have_is_stale() -> None:
    holding, here, there = Holding(), place(0), place(1)
    mine, lost = deliveries(here, 2), deliveries(there, 2)
    holding.hand_over([*mine, *lost])
    there.gone = True
    assert holding.finish([lost[0], mine[0], lost[1], mine[1]]) == lost
    assert holding.note() == [{here: [0, 1]}]
    assert (holding.acked, holding.held) == (2, set())


def test_what_is_given_back_is_another_delivery_unless_others_get_it() -> None:
    holding, here, there = Holding(), place(0), place(1)
    mine, leaving = deliveries(here, 1), deliveries(there, 1)
    holding.hand_over([*mine, *leaving])
    there.leaving = True
    (back,) = holding.give_back([*mine, *leaving])
    assert back.sent is mine[0].sent
    assert back is not mine[0]
    assert holding.finish([back]) == [back]
    assert not holding.handed([here, there])


def test_nobody_waits_for_what_is_laid_aside_and_it_is_taken_up_unless_others_get_it() -> None:
    holding, here, there = Holding(), place(0), place(1)
    mine, leaving = deliveries(here, 1), deliveries(there, 1)
    holding.hand_over([*mine, *leaving])
    holding.lay_aside([*mine, *leaving])
    assert not holding.handed([here, there])
    there.leaving = True
    assert holding.take_up([*mine, *leaving]) == mine
    assert holding.handed([here])
    assert holding.finish(mine) == []


def test_nobody_waits_for_what_is_expected_and_kafka_is_told_of_it() -> None:
    holding, here, there = Holding(), place(0), place(1)
    mine, leaving = deliveries(here, 1), deliveries(there, 1)
    holding.expect([*mine, *leaving])
    assert not holding.handed([here, there])
    assert holding.hands() == {here: {0}, there: {0}}
    there.leaving = True
    assert holding.take_up([*mine, *leaving]) == mine
    assert holding.handed([here])
    assert (holding.coming, holding.hands()) == (set(), {here: {0}})


def test_what_was_expected_and_is_kept_back_is_ours_unless_others_get_it() -> None:
    holding, here, there = Holding(), place(0), place(1)
    mine, leaving = deliveries(here, 1), deliveries(there, 1)
    holding.expect([*mine, *leaving])
    there.leaving = True
    assert holding.keep_back([*mine, *leaving]) == mine
    assert (holding.coming, holding.held) == (set(), set())
