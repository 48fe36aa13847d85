"""What is published, by event, and how long the broker took to take it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from queuecraft.model.envelope import Outgoing
from queuecraft.observers.prometheus.families import OTHER, Families, Sample
from queuecraft.observers.prometheus.spread import Spread
from queuecraft.runtime.facts import MessagesPublished, PublishFailed

AT_ONCE: Final = 500  # durations that wait to be sorted into buckets together
KINDS: Final = 50  # of errors


class Published:
    """Counts by event. A publish takes from the timestamp of its message until the broker has it;
    messages that bring a timestamp of their own, or are delayed, are not timed."""

    def __init__(self, bounds: tuple[float, ...], max_names: int) -> None:
        self.events: dict[str, int] = {}
        self._max_names = max_names
        self._errors: Counter[tuple[str, str]] = Counter()
        self._spread = Spread(bounds)
        self._durations: list[float] = []

    @property
    def total(self) -> int:
        """Of all events."""
        return sum(self.events.values())

    def noting(self) -> Callable[[MessagesPublished], None]:
        """What is to be told of every publish. It is called with each message that is published
        alone, so it looks up nothing twice."""
        events, durations, sort = self.events, self._durations, self._sort
        time = durations.append

        def note(fact: MessagesPublished) -> None:
            messages = fact.messages
            if len(messages) > 1:
                self._note_many(messages, fact.at)
                return
            (first,) = messages
            name = first.routing_key
            if name in events:
                events[name] += 1
            else:
                self._count(name or first.queue or "", 1)
            at, stamp = fact.at, first.timestamp
            if first.due_at is None and at is not None and stamp is not None:
                time(at - stamp)
                if len(durations) >= AT_ONCE:
                    sort()

        return note

    def fail(self, fact: PublishFailed) -> None:
        """These have not."""
        place = fact.name, fact.error_type
        if place not in self._errors and len(self._errors) >= KINDS * self._max_names:
            place = OTHER, place[1]
        self._errors[place] += fact.count

    def _note_many(self, messages: Sequence[Outgoing], at: float | None) -> None:
        first = messages[0].routing_key or messages[0].queue or ""
        names = [each.routing_key or each.queue or "" for each in messages]
        if names.count(first) == len(names):  # as it is with publish_many
            self._count(first, len(names))
        else:
            for name, count in Counter(names).items():
                self._count(name, count)
        if at is not None:
            self._durations += [
                at - each.timestamp
                for each in messages
                if each.due_at is None and each.timestamp is not None
            ]
            if len(self._durations) >= AT_ONCE:
                self._sort()

    def _count(self, name: str, count: int) -> None:
        if name not in self.events and len(self.events) >= self._max_names:
            name = OTHER
        self.events[name] = self.events.get(name, 0) + count

    def _sort(self) -> None:
        durations = self._durations.copy()
        self._durations.clear()
        if durations:
            if min(durations) < 0.0:  # somebody has set the clock
                durations = [max(0.0, each) for each in durations]
            self._spread.add(durations)

    # -- when asked ----------------------------------------------------------------------------

    def shown(self, families: Families, before: int) -> Iterator[Any]:
        """All of it; `before` is what was published before anybody counted."""
        published: list[Sample] = [((name,), count) for name, count in list(self.events.items())]
        if before:
            published.append(((OTHER,), before))
        yield families.counter(
            "messages_published", "Messages the broker has accepted.", ("event",), published
        )
        errors: list[Sample] = list(self._errors.items())
        yield families.counter(
            "publish_errors",
            "Messages the broker has not taken, or not in time.",
            ("event", "error"),
            errors,
        )
        # In a thread of somebody else's what waits is only looked at.
        spread = self._spread.with_(Spread(self._spread.bounds))
        if waiting := [max(0.0, each) for each in self._durations.copy()]:
            spread.add(waiting)
        yield families.histogram(
            "publish_duration_seconds",
            "How long the broker took to accept a message.",
            (),
            [((), spread)],
        )
