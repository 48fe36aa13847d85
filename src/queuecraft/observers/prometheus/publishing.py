"""What is published, by event, and how long the broker took to take it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from queuecraft.model.envelope import Outgoing
from queuecraft.observers.prometheus.families import OTHER, Families, Sample
from queuecraft.observers.prometheus.spread import Spread
from queuecraft.runtime.facts import MessagesPublished, PublishFailed

KINDS: Final = 50  # of errors


class Published:
    """Counts by event. A publish takes from the timestamp of its message until the broker has it;
    messages that bring a timestamp of their own, or are delayed, are not timed."""

    def __init__(self, bounds: tuple[float, ...], max_names: int) -> None:
        self._events: dict[str, int] = {}
        self._quick: dict[str, int] = {}  # of one message, in time for the first bound
        self._max_names = max_names
        self._errors: Counter[tuple[str, str]] = Counter()
        self._spread = Spread(bounds)

    @property
    def total(self) -> int:
        """Of all events."""
        return sum(self._events.values()) + sum(self._quick.values())

    def noting(self) -> Callable[[MessagesPublished], None]:
        """What is to be told of every publish. It is called with each message that is published
        alone, so it looks up nothing twice."""
        quick, spread = self._quick, self._spread
        quickest = spread.bounds[0]  # which nearly all are as quick as

        def note(fact: MessagesPublished) -> None:
            try:
                (first,) = fact.messages
                took = fact.at - first.timestamp  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
                if 0.0 <= took <= quickest and first.due_at is None:
                    quick[first.routing_key] += 1
                    spread.total += took
                    return
            except (ValueError, TypeError, KeyError):  # many, not timed, or new
                pass
            self._note_many(fact.messages, fact.at)

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
        self._time(messages, at)

    def _time(self, messages: Sequence[Outgoing], at: float | None) -> None:
        durations = [
            max(0.0, at - each.timestamp)  # somebody may have set the clock
            for each in messages
            if at is not None and each.timestamp is not None and each.due_at is None
        ]
        if durations:
            self._spread.add(durations)

    def _count(self, name: str, count: int) -> None:
        if name not in self._events:
            if len(self._events) >= self._max_names:
                name = OTHER
            else:
                self._quick[name] = 0
        self._events[name] = self._events.get(name, 0) + count

    # -- when asked ----------------------------------------------------------------------------

    def shown(self, families: Families, before: int) -> Iterator[Any]:
        """All of it; `before` is what was published before anybody counted."""
        quick = dict(self._quick)
        published: list[Sample] = [
            ((name,), count + quick.get(name, 0)) for name, count in list(self._events.items())
        ]
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
        bounds = self._spread.bounds
        quickest = Spread(bounds, 0.0, [sum(quick.values()), *(0 for _ in bounds)])
        yield families.histogram(
            "publish_duration_seconds",
            "How long the broker took to accept a message.",
            (),
            [((), self._spread.with_(quickest))],
        )
