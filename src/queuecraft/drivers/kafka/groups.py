"""What the groups of very many queues say, asked no more than it takes.

Kafka is asked about one group at a time, and spends half a millisecond on each. Which groups there
are, and which have members, it tells of all at once: most need not be asked any further.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from time import monotonic
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from queuecraft.drivers.kafka.answers import WITHIN, answer

T = TypeVar("T")
Spot: TypeAlias = tuple[str, int]
Offsets: TypeAlias = Mapping[Spot, TopicPartition]

FEW: Final = 20  # groups that are asked anew each time
_GONE: Final = (KafkaError.GROUP_ID_NOT_FOUND,)
GOOD_FOR: Final = 10.0  # seconds for which of more than a few is believed what they said last


class Calling(Protocol):
    """Does what blocks in another thread."""

    def __call__(self, operation: str, work: Callable[[], T]) -> Awaitable[T]: ...


class Groups:
    """How far groups are and how many are in them, as they said last."""

    def __init__(self, admin: AdminClient, call: Calling) -> None:
        self._admin = admin
        self._call = call
        self._offsets: dict[str, tuple[float, Offsets]] = {}
        self._members: dict[str, tuple[float, int]] = {}

    async def at_work(self, groups: Collection[str]) -> dict[str, bool]:
        """Those of the groups that exist, and whether each has members. A few are all taken for
        existing: who asks about them is told if the user may not."""
        if len(groups) <= FEW:
            return dict.fromkeys(groups, True)
        told = await self._call("inspect", self._listed)
        if told is None:
            return dict.fromkeys(groups, True)
        return {group: told[group] for group in groups if group in told}

    async def members(self, groups: Collection[str]) -> dict[str, int]:
        """How many are in each of these; of very many, seconds old."""
        known = _fresh(self._members)
        asked = [group for group in groups if len(groups) <= FEW or group not in known]
        now = monotonic()
        found = await self._call("inspect", lambda: self._counted(asked)) if asked else {}
        self._members = known | {group: (now, count) for group, count in found.items()}
        return {group: self._members[group][1] for group in groups}

    async def committed(
        self, groups: Mapping[str, bool], drained: Callable[[str, Offsets], bool]
    ) -> dict[str, Offsets]:
        """How far each of these is, by whether it has members. One without stays where it is,
        unless somebody moves it by hand, and so does one that is `drained`, as far as it was seen
        last: of very many, they are asked again only after a while."""
        known = _fresh(self._offsets)
        asked = [
            group
            for group, busy in groups.items()
            if len(groups) <= FEW
            or group not in known
            or (busy and not drained(group, known[group][1]))
        ]
        now = monotonic()
        found = await self._call("inspect", lambda: self._told(asked)) if asked else {}
        self._offsets = known | {group: (now, offsets) for group, offsets in found.items()}
        return {group: self._offsets[group][1] for group in groups}

    def forget(self, group: str) -> None:
        """It was moved: what it said last is not so any more."""
        self._offsets.pop(group, None)

    # -- in a thread ---------------------------------------------------------------------------

    def _listed(self) -> dict[str, bool] | None:
        """None if not every broker has told."""
        told = self._admin.list_consumer_groups(request_timeout=WITHIN).result(WITHIN)
        if told.errors:
            return None
        still = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
        return {each.group_id: each.state not in still for each in told.valid}

    def _counted(self, groups: Collection[str]) -> dict[str, int]:
        told = self._admin.describe_consumer_groups(list(groups), request_timeout=WITHIN)
        answers = {group: answer(future, fine=_GONE) for group, future in told.items()}
        return {group: 0 if it is None else len(it.members) for group, it in answers.items()}

    def _told(self, groups: Iterable[str]) -> dict[str, Offsets]:
        asked = {
            group: self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            for group in groups
        }
        return {
            group: _offsets(answer(futures[group], fine=_GONE)) for group, futures in asked.items()
        }


def _offsets(told: Any) -> Offsets:
    places = () if told is None else told.topic_partitions
    return {(each.topic, each.partition): each for each in places if each.offset >= 0}


def _fresh(known: Mapping[str, tuple[float, T]]) -> dict[str, tuple[float, T]]:
    oldest = monotonic() - GOOD_FOR
    return {group: said for group, said in known.items() if said[0] > oldest}
