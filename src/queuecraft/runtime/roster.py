"""The workers of one QueueCraft, and what they say together of its queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from queuecraft.model.errors import ConfigError
from queuecraft.model.queue import Queue
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.plan import WorkerOptions
from queuecraft.runtime.worker import Worker


class Roster:
    """Every worker made so far, in that order.

    >>> list(Roster()), Roster().holds_dead_letters("billing.dlq")
    ([], True)
    """

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers)

    def __len__(self) -> int:
        return len(self._workers)

    # -- who is on it --------------------------------------------------------------------------

    def make(
        self, engine: Engine, queue: str | Queue[Any] | None, options: WorkerOptions
    ) -> Worker:
        """A worker that may work beside the others; it is on the roster once it is added."""
        worker = Worker(engine, queue, options, self.holds_dead_letters)
        name = queue.name if isinstance(queue, Queue) else queue
        if name is not None:
            for other in self._workers:
                same = other.named == name
                if same and (worker.ordered or other.ordered) and other.state != "stopped":
                    raise ConfigError(
                        f"queue {name!r} has a worker already; ordering='key' needs to be the only "
                        "one, raise its concurrency instead"
                    )
        return worker

    def add(self, worker: Worker) -> Worker:
        """Put a worker on the roster."""
        self._workers.append(worker)
        return worker

    def stand_in(self, engine: Engine) -> Callable[[], None]:
        """Let all work for another engine, until the function that is returned is called. Those
        added meanwhile are gone then."""
        own = list(self._workers)
        restore = [worker.stand_in(engine) for worker in own]

        def go_back() -> None:
            for each in restore:
                each()
            self._workers[:] = own

        return go_back

    # -- what they say -------------------------------------------------------------------------

    @property
    def named(self) -> list[Worker]:
        """Without those still being built, whose names are not known yet."""
        return [each for each in self._workers if each.handlers or each.named is not None]

    @property
    def handling(self) -> list[Worker]:
        """Those that have handlers."""
        return [each for each in self._workers if each.handlers]

    def check_handlers(self) -> None:
        """Workers that share a queue get each other's messages, so they must handle the same."""
        first: dict[str, Worker] = {}
        for worker in self.handling:
            other = first.setdefault(worker.queue_name, worker)
            ours, theirs = ({each.pattern for each in one.handlers} for one in (worker, other))
            if ours != theirs:
                odd = ", ".join(sorted(ours ^ theirs))
                raise ConfigError(
                    f"two workers share queue {worker.queue_name!r}, and only one of them handles "
                    f"{odd}; put all handlers on one worker, or give each a queue of its own"
                )

    def check_overrides(self, overrides: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
        """Raise `ConfigError` if some handler cannot get what it asks for from these."""
        for worker in self._workers:
            worker.check_overrides(overrides)

    def holds_dead_letters(self, queue: str) -> bool:
        """Whether a queue is one of dead letters, by its name or because a worker says so."""
        return queue.endswith(".dlq") or any(
            worker.dead_letters is not None and worker.dead_letters.queue == queue
            for worker in self.handling
        )

    def dead_letter_queue(self, queue: str) -> str | None:
        """Where the dead letters of a queue are, if a worker says so; a queue of dead letters is
        its own."""
        if self.holds_dead_letters(queue):
            return queue
        for worker in self.handling:
            if worker.queue_name == queue:
                return None if worker.dead_letters is None else worker.dead_letters.queue
        return None
