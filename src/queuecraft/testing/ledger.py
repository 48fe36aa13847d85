"""An account of what was published and what was handled, and whether the two agree."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from queuecraft.model.message import Message

Handler: TypeAlias = Callable[[Any, Message[Any]], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Handled:
    """One call of a handler.

    >>> Handled("billing", "m-1", None, {"id": "o-1"}, 1, 0, failed=False).attempt
    1
    """

    name: str
    id: str
    key: str | None
    payload: Any
    attempt: int
    redeliveries: int
    failed: bool


class Ledger:
    """Keeps account: say what was published, let its handlers say what they were given.

    >>> from queuecraft.testing import message_of
    >>> async def main():
    ...     ledger = Ledger()
    ...     charge = ledger.failing("billing", times=1)
    ...     ledger.published("m-1")
    ...     for attempt in (1, 2):
    ...         try:
    ...             await charge({"id": "o-1"}, message_of({"id": "o-1"}, attempt=attempt))
    ...         except RuntimeError as error:
    ...             print(error)
    ...     await ledger.wait_for(billing=2)
    ...     ledger.check()
    ...     return ledger.attempts("billing")
    >>> asyncio.run(main())
    delivery 1 of m-1 fails, as the test asked
    [1, 2]
    """

    def __init__(self) -> None:
        self.calls: list[Handled] = []
        """Every call of a handler, in order."""
        self._published: dict[str, str | None] = {}
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    # -- what happens --------------------------------------------------------------------------

    def published(self, id: str, *, key: str | None = None) -> None:
        """A publish returned: from now on the message must be handled."""
        self._published[id] = key

    def record(self, name: str, message: Message[Any], *, failed: bool = False) -> None:
        """A handler of your own was called; may come from any thread."""
        self.calls.append(
            Handled(
                name,
                message.id,
                message.key,
                message.payload,
                message.attempt,
                message.redeliveries,
                failed,
            )
        )
        for loop, event in tuple(self._waiting):
            loop.call_soon_threadsafe(event.set)

    def recording(self, name: str) -> Handler:
        """A handler that succeeds, for `worker.on(event, ledger.recording("audit"))`."""

        async def handler(payload: Any, message: Message) -> None:
            self.record(name, message)

        return handler

    def failing(
        self,
        name: str,
        *,
        times: int | None = 1,
        error: BaseException | type[BaseException] | None = None,
    ) -> Handler:
        """A handler that fails the first `times` deliveries of each message; None: all of them."""
        failures: Counter[str] = Counter()

        async def handler(payload: Any, message: Message) -> None:
            failed = times is None or failures[message.id] < times
            self.record(name, message, failed=failed)
            if failed:
                failures[message.id] += 1
                if error is not None:
                    raise error
                nth = failures[message.id]
                raise RuntimeError(f"delivery {nth} of {message.id} fails, as the test asked")

        return handler

    # -- what was seen -------------------------------------------------------------------------

    async def wait_for(self, *, timeout: float = 5.0, **calls: int) -> None:
        """Return once each handler was called that often; tell what was seen if it takes longer.

        `await ledger.wait_for(billing=2, audit=1)`
        """
        with self._changes() as changed:
            try:
                async with asyncio.timeout(timeout):
                    while not self._seen(calls):
                        await changed.wait()
                        changed.clear()
            except TimeoutError:
                wanted = ", ".join(f"{name}={count}" for name, count in calls.items())
                msg = f"waited {timeout:g} s for {wanted}; seen: {self._summary(calls)}"
                raise AssertionError(msg) from None

    def ids(self, name: str | None = None) -> list[str]:
        """The id of each call of one handler, or of all, in order."""
        return [each.id for each in self._of(name)]

    def payloads(self, name: str | None = None) -> list[Any]:
        """What each call was given, in order."""
        return [each.payload for each in self._of(name)]

    def attempts(self, name: str | None = None) -> list[int]:
        """The number of the attempt in each call, in order."""
        return [each.attempt for each in self._of(name)]

    def order(self, key: str, name: str | None = None) -> list[str]:
        """The ids of one key as they were handled with success, each once, in order.

        >>> from queuecraft.testing import message_of
        >>> ledger = Ledger()
        >>> ledger.record("billing", message_of(None, id="m-1", key="a"), failed=True)
        >>> ledger.record("billing", message_of(None, id="m-2", key="b"))
        >>> ledger.record("billing", message_of(None, id="m-1", key="a", attempt=2))
        >>> ledger.order("a")
        ['m-1']
        """
        succeeded = (each for each in self._of(name) if each.key == key and not each.failed)
        return list(dict.fromkeys(each.id for each in succeeded))

    # -- whether it adds up --------------------------------------------------------------------

    def check(
        self,
        *,
        by: Iterable[str] | None = None,
        dead_letters: Iterable[str] = (),
        duplicates_at_most: int = 0,
        ordered: Iterable[str] = (),
    ) -> None:
        """Assert that the account adds up, naming the ids that do not.

        Every publish that returned was handled with success: by each of the handlers `by`, or by
        at least one; the ids in `dead_letters` ended there instead. No more than
        `duplicates_at_most` calls came for a message already handled, or for an attempt already
        made. Attempts rise by one. The handlers `ordered` succeeded in the order of publishing
        within each key.

        >>> ledger = Ledger()
        >>> ledger.published("m-1")
        >>> ledger.check()
        Traceback (most recent call last):
        AssertionError: the ledger does not add up:
        - published, never handled: m-1
        """
        wrong = [
            *self._never_handled(None if by is None else tuple(by), set(dead_letters)),
            *self._too_many(duplicates_at_most),
            *self._jumps(),
            *(line for name in ordered for line in self._out_of_order(name)),
        ]
        if wrong:
            raise AssertionError("the ledger does not add up:\n- " + "\n- ".join(wrong))

    def duplicates(self) -> list[Handled]:
        """The calls for a message already handled, or for an attempt already made.

        >>> from queuecraft.testing import message_of
        >>> ledger = Ledger()
        >>> ledger.record("billing", message_of(None, id="m-1"))
        >>> ledger.record("billing", message_of(None, id="m-1"))
        >>> [each.id for each in ledger.duplicates()]
        ['m-1']
        """
        done: set[tuple[str, str]] = set()
        made: set[tuple[str, str, int]] = set()
        found: list[Handled] = []
        for each in self.calls:
            who, what = (each.name, each.id), (each.name, each.id, each.attempt)
            if who in done or what in made:
                found.append(each)
            made.add(what)
            if not each.failed:
                done.add(who)
        return found

    # -- inside --------------------------------------------------------------------------------

    def _of(self, name: str | None) -> list[Handled]:
        return [each for each in self.calls if name is None or each.name == name]

    def _seen(self, wanted: dict[str, int]) -> bool:
        counts = Counter(each.name for each in self.calls)
        return all(counts[name] >= count for name, count in wanted.items())

    def _summary(self, wanted: dict[str, int]) -> str:
        names = dict.fromkeys([*wanted, *(each.name for each in self.calls)])
        lines: list[str] = []
        for name in names:
            calls = self._of(name)
            which = _some(f"{each.id} attempt {each.attempt}" for each in calls)
            lines.append(f"{name}={len(calls)}" + (f" ({which})" if calls else ""))
        return "; ".join(lines)

    def _never_handled(self, by: tuple[str, ...] | None, excused: set[str]) -> Iterator[str]:
        def missing(calls: list[Handled]) -> list[str]:
            handled = {each.id for each in calls if not each.failed}
            return [id for id in self._published if id not in handled and id not in excused]

        if by is None:
            if lost := missing(self.calls):
                yield f"published, never handled: {_some(lost)}"
            return
        for name in by:
            if lost := missing(self._of(name)):
                yield f"published, never handled by {name}: {_some(lost)}"

    def _too_many(self, allowed: int) -> Iterator[str]:
        found = self.duplicates()
        if len(found) > allowed:
            which = _some(f"{each.id} in {each.name}, attempt {each.attempt}" for each in found)
            yield f"{len(found)} duplicates, at most {allowed} allowed: {which}"

    def _jumps(self) -> Iterator[str]:
        highest: dict[tuple[str, str], int] = {}
        for each in self.calls:
            last = highest.get((each.name, each.id), 0)
            if each.attempt > last + 1:
                yield f"{each.id} in {each.name}: attempt {each.attempt} follows attempt {last}"
            highest[each.name, each.id] = max(last, each.attempt)

    def _out_of_order(self, name: str) -> Iterator[str]:
        for key in dict.fromkeys(key for key in self._published.values() if key is not None):
            handled = [id for id in self.order(key, name) if id in self._published]
            seen = set(handled)
            published = [
                id for id, its_key in self._published.items() if its_key == key and id in seen
            ]
            if handled != published:
                yield (
                    f"key {key!r} in {name}: published {_some(published)}, handled {_some(handled)}"
                )

    @contextmanager
    def _changes(self) -> Generator[asyncio.Event]:
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.append(waiter)
        try:
            yield waiter[1]
        finally:
            self._waiting.remove(waiter)


def _some(items: Iterable[str], limit: int = 20) -> str:
    """The first of many, and how many more there are."""
    listed = list(items)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more
