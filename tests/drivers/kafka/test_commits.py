"""Which answer of Kafka is to which commit, and what is done about a no."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from queuecraft.drivers.base import Delivery, Outgoing
from queuecraft.drivers.kafka import commits as module
from queuecraft.drivers.kafka.commits import Commits
from queuecraft.drivers.kafka.driver import KafkaDriver
from queuecraft.drivers.kafka.holding import Holding
from queuecraft.drivers.kafka.offsets import Progress, noted
from queuecraft.drivers.kafka.place import Place
from queuecraft.drivers.kafka.suspects import Suspects
from queuecraft.drivers.kafka.topology import Reach


class Listener:
    """Hears commits as a consumer does, and answers when it is told to."""

    def __init__(self) -> None:
        self.said: list[list[TopicPartition]] = []
        self.refuses: int | None = None

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> Any:
        self.said.append(offsets)
        if asynchronous:
            return None
        if self.refuses is not None:
            raise KafkaException(KafkaError(self.refuses))
        return offsets

    @property
    def marks(self) -> list[int]:
        return [each.offset for offsets in self.said for each in offsets]


class Desk:
    """A partition whose records are in somebody's hands, and what is told of them."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.holding = Holding()
        consumer, driver = cast("Consumer", self.listener), cast("KafkaDriver", None)
        self.commits = Commits(driver, "billing", consumer, self.holding)
        self.place = Place("order.placed", 0, Reach(), "order.placed", Progress(0), Suspects())
        self.deliveries = [self._delivery(offset) for offset in range(10)]
        self.holding.hand_over(self.deliveries)

    def ack(self, *offsets: int) -> None:
        assert not self.holding.finish([self.deliveries[each] for each in offsets])

    @property
    def uncommitted(self) -> int:
        return self.holding.acked - self.holding.told

    def _delivery(self, offset: int) -> Delivery:
        assert self.place.progress.take(offset)
        return Delivery(Outgoing(b"", f"m-{offset}"), "billing", 0, (self.place, offset))


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(module, "AGAIN", 0.0)
    return Desk()


def test_what_is_mentioned_is_told_once_it_is_answered(desk: Desk) -> None:
    desk.ack(0, 1, 2)
    desk.commits.mention()
    assert (desk.uncommitted, desk.commits.behind) == (3, True)
    desk.ack(3)
    desk.commits.answer(None, desk.listener.said[0])
    assert (desk.uncommitted, desk.commits.behind) == (1, True)
    desk.commits.flush()
    assert (desk.uncommitted, desk.commits.behind) == (0, False)
    assert desk.listener.marks == [3, 4]


def test_the_late_answer_to_one_commit_is_not_taken_for_the_answer_to_another(desk: Desk) -> None:
    desk.ack(0, 1)
    desk.commits.mention()
    desk.ack(2)
    desk.commits.flush()
    desk.ack(3, 4)
    desk.commits.mention()
    desk.commits.answer(None, desk.listener.said[0])
    assert (desk.uncommitted, desk.commits.behind) == (2, True)
    desk.commits.answer(None, desk.listener.said[2])
    assert (desk.uncommitted, desk.commits.behind) == (0, False)


def test_commits_that_differ_only_in_their_notes_are_told_apart(desk: Desk) -> None:
    desk.ack(3)
    desk.commits.mention()
    desk.commits.flush()
    desk.ack(5)
    desk.commits.mention()
    desk.commits.answer(None, desk.listener.said[0])
    assert desk.uncommitted == 1
    assert desk.listener.marks == [0, 0, 0]


@pytest.mark.parametrize("code", [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID])
def test_what_is_refused_stays_untold_and_is_said_again(desk: Desk, code: int) -> None:
    desk.ack(0, 1, 2)
    desk.listener.refuses = code
    desk.commits.flush()
    assert (desk.uncommitted, desk.commits.behind) == (3, True)
    desk.commits.mention()
    desk.commits.answer(KafkaError(code), desk.listener.said[1])
    assert (desk.uncommitted, desk.commits.behind) == (3, True)
    desk.listener.refuses = None
    desk.commits.flush()
    assert (desk.uncommitted, desk.commits.behind) == (0, False)
    assert desk.listener.marks == [3, 3, 3]


def test_nobody_waits_to_be_heard_of_a_topic_that_is_gone(desk: Desk) -> None:
    desk.ack(0, 1, 2)
    desk.listener.refuses = KafkaError.UNKNOWN_TOPIC_OR_PART
    desk.commits.flush()
    assert desk.uncommitted == 0


def test_a_kafka_that_takes_no_notes_is_told_the_mark_alone(desk: Desk) -> None:
    desk.ack(0, 5)
    desk.listener.refuses = KafkaError.OFFSET_METADATA_TOO_LARGE
    desk.commits.flush()
    desk.listener.refuses = None
    desk.commits.flush()
    (first,), (second,) = desk.listener.said
    assert noted(1, first.metadata) == [5]
    assert (second.offset, second.metadata) == (1, "")
    assert not desk.commits.behind


def test_what_others_have_by_now_is_told_no_more(desk: Desk) -> None:
    desk.ack(0, 1)
    desk.listener.refuses = KafkaError.REBALANCE_IN_PROGRESS
    desk.commits.flush()
    desk.place.gone = True
    desk.commits.forget([desk.place])
    assert not desk.commits.behind
    desk.commits.flush()
    assert desk.listener.marks == [2]


def test_commits_that_fail_for_long_are_told_of_once(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.ack(0)
    desk.listener.refuses = KafkaError.GROUP_AUTHORIZATION_FAILED
    for _ in range(3 * module.LOUD):
        desk.commits.flush()
    (record,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "billing: could not commit yet" in record.getMessage()
    assert "allow this user to use the group" in record.getMessage()
