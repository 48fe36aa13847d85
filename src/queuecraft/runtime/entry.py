"""What one caller publishes, on its way: which messages are answered for, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from queuecraft.drivers.base import Outgoing
from queuecraft.model.errors import PublishError, QueueError
from queuecraft.runtime.recipe import Recipe


class Entry:
    """The messages of one call.

    `results` holds the messages at first, and in their place what became of each in the end.
    """

    __slots__ = (
        "alone",
        "atomic",
        "attempted",
        "deadline",
        "drop",
        "error",
        "flying",
        "future",
        "left",
        "recipe",
        "results",
    )

    def __init__(
        self, recipe: Recipe, messages: Sequence[Outgoing], *, drop: bool, atomic: bool = False
    ) -> None:
        self.recipe = recipe
        self.results: list[Outgoing | str | QueueError] = list(messages)
        self.left = len(messages)
        self.drop = drop
        self.atomic = atomic
        self.alone = atomic  # shares no batch with others
        self.attempted = False  # perhaps stored
        self.flying = False
        self.deadline = 0.0
        self.error: QueueError | None = None
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def share(self) -> Share:
        """What is not yet answered for."""
        if self.left == len(self.results):  # as nearly always
            return Share(self, range(self.left), cast("list[Outgoing]", self.results[:]))
        places = [at for at, each in enumerate(self.results) if isinstance(each, Outgoing)]
        return Share(self, places, [cast("Outgoing", self.results[at]) for at in places])

    def accept(self, share: Share) -> None:
        """All of these are stored; the same as an answer for each, at half the price."""
        results = self.results
        for at, message in zip(share.places, share.messages, strict=True):
            results[at] = message.id
        self.left -= len(share.places)

    def answer(self, at: int, result: str | QueueError) -> None:
        """Say what became of one message."""
        self.results[at] = result
        self.left -= 1

    def refuse(self, at: int, message: Outgoing, error: QueueError) -> None:
        """It was certainly not stored this time, which says nothing of an earlier one."""
        self.answer(at, _doubtful(message, error) if self.attempted else error)

    def end(self, error: QueueError | Callable[[Outgoing], QueueError]) -> None:
        """Answer for everything that is still open: it is refused, or as the function says."""
        share = self.share()
        for at, message in zip(share.places, share.messages, strict=True):
            if isinstance(error, QueueError):
                self.refuse(at, message, error)
            else:
                self.answer(at, error(message))

    @property
    def answers(self) -> list[str | QueueError]:
        """An id or an error for each message, once all are answered for."""
        return cast("list[str | QueueError]", self.results)


class Crowd(Entry):
    """The messages of many calls that came between two flights, each with a future of its own:
    sharing all the rest halves what a publish costs."""

    __slots__ = ("_new_future", "singly", "waiting")

    def __init__(self, recipe: Recipe, *, drop: bool) -> None:
        super().__init__(recipe, (), drop=drop)
        self.waiting: list[asyncio.Future[str | QueueError]] = []
        self._new_future = self.future.get_loop().create_future
        self.singly = False  # one of them is to blame for all: each flies alone

    def join(self, message: Outgoing) -> asyncio.Future[str | QueueError]:
        """Add a message; the future tells what became of it."""
        future: asyncio.Future[str | QueueError] = self._new_future()
        self.results.append(message)
        self.waiting.append(future)
        self.left += 1
        return future

    def share(self) -> Share:
        for at, future in enumerate(self.waiting):
            if future.cancelled() and isinstance(self.results[at], Outgoing) and not self.flying:
                self.answer(at, QueueError("cancelled"))  # nobody asks any more
        share = super().share()
        if self.singly and not self.flying:
            return Share(self, share.places[:1], share.messages[:1])
        return share

    def accept(self, share: Share) -> None:
        super().accept(share)
        waiting = self.waiting
        for at, message in zip(share.places, share.messages, strict=True):
            future = waiting[at]
            if not future.done():
                future.set_result(message.id)

    def answer(self, at: int, result: str | QueueError) -> None:
        self.results[at] = result
        self.left -= 1
        future = self.waiting[at]
        if not future.done():
            future.set_result(result)


class Share:
    """Messages of one entry in a flight, and their places among the messages of the call. Lists
    for all of them rather than a tuple for each, which the garbage collector would look at."""

    __slots__ = ("entry", "messages", "places")

    def __init__(self, entry: Entry, places: Sequence[int], messages: Sequence[Outgoing]) -> None:
        self.entry = entry
        self.places = places
        self.messages = messages


def _doubtful(message: Outgoing, error: QueueError) -> PublishError:
    doubtful = PublishError(
        f"perhaps stored at an earlier try, then refused: {error.message}",
        outcome="unknown",
        broker=error.broker,
        queue=message.queue,
        message_id=message.id,
    )
    doubtful.__cause__ = error
    return doubtful
