"""A worker at work: everything that exists from its start to its stop, and not longer."""

from __future__ import annotations

import asyncio
from typing import Any

from queuecraft.model.queue import Queue
from queuecraft.runtime.batch import Batch
from queuecraft.runtime.consumer import Consumer
from queuecraft.runtime.control import ByHand
from queuecraft.runtime.counters import Counters
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.handler import Call, Handler
from queuecraft.runtime.keeper import Keeper
from queuecraft.runtime.plan import Plan
from queuecraft.runtime.replies import Replies
from queuecraft.runtime.router import Router
from queuecraft.runtime.threads import AT_LEAST, FOR_EACH, Threads

IN_LANES = 100  # messages an ordered worker holds by default: what waits must not keep others out


class Shift:
    """The handlers of a plan, compiled, and what feeds them: a consumer, threads, and whatever the
    handlers ask for that is kept open as long as they work."""

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        queue: Queue[Any],
        counters: Counters,
        *,
        of_dead_letters: bool,
    ) -> None:
        limit = max(AT_LEAST, FOR_EACH * plan.concurrency)
        self.threads = Threads(queue.name, limit=limit, log=engine.facts.log)
        self._engine = engine
        self._keeper = Keeper(queue.name, self.threads, engine.overrides, engine.facts.log)
        control = ByHand()
        calls, batches = self._compile(plan, control)
        replies = Replies(calls, engine.publisher, engine.codec, engine.clock)
        ordered = plan.ordering == "key"
        self.consumer = Consumer(
            queue.name,
            queue,
            queue.policy,
            _by_event(calls) if not of_dead_letters else _by_former_event(calls, queue.name),
            engine.connection,
            counters,
            engine.facts,
            engine.clock,
            concurrency=plan.concurrency,
            prefetch=plan.prefetch or max(plan.enough, IN_LANES if ordered else 1),
            ordered=ordered,
            threaded=frozenset(
                each
                for handler, call in calls
                for each in ((call, replies.answers[call]) if handler.sync else ())
            ),
            flush_publishes=engine.publisher.flush,
        )
        control.serve(self.consumer)
        replies.serve(self.consumer)
        for batch in batches:
            batch.serve(self.consumer)

    def _compile(
        self, plan: Plan, control: ByHand
    ) -> tuple[list[tuple[Handler, Call]], list[Batch]]:
        engine, threads, keeper = self._engine, self.threads, self._keeper
        middleware = (*engine.middleware, *plan.middleware)
        engine.adopt(plan.middleware)
        calls: list[tuple[Handler, Call]] = []
        batches: list[Batch] = []
        for handler in plan.handlers:
            if not handler.in_batches:
                call = handler.compile(engine.codec, control, threads, middleware, keeper)
                calls.append((handler, call))
                continue
            read, run = handler.compile_batch(engine.codec, control, threads, middleware, keeper)
            wait = plan.batch_wait if handler.batch_wait is None else handler.batch_wait
            batches.append(Batch(read, run, size=plan.size_of(handler), wait=wait))
            calls.append((handler, batches[-1]))
        return calls, batches

    async def open(self) -> None:
        """Open what is kept open for its handlers."""
        await self._keeper.open()

    async def abandon(self) -> None:
        """End it before it has begun."""
        await self._keeper.close(self._engine.settings.shutdown_timeout)
        self.threads.close()

    def begin(self) -> None:
        """Consume from now on."""
        self._engine.watchdog.start()
        self.consumer.start()

    def hurry(self) -> None:
        """Wait no longer for handlers, nor for what they had open."""
        self.consumer.crew.hurry()
        self._keeper.hurry()

    async def end(self, *, drain: bool, requeue: bool, timeout: float) -> None:
        """Let go of everything, after `timeout` seconds at the latest."""
        consumer, loop = self.consumer, asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            await consumer.stop(drain=drain, requeue=requeue, timeout=timeout)
        finally:
            left = deadline - loop.time() if drain and not consumer.crew.hurried else 0.0
            await self._keeper.close(left)
            self.threads.close()


def _by_event(calls: list[tuple[Handler, Call]]) -> Router[Call]:
    return Router((handler.pattern, call) for handler, call in calls)


def _by_former_event(calls: list[tuple[Handler, Call]], queue: str) -> Router[Call]:
    """Dead letters are told apart by the events they were, so there is no short cut by routing key;
    a handler of the queue itself takes them all."""
    return Router(
        (("#" if handler.pattern == queue else handler.pattern, call) for handler, call in calls),
        remember=False,
    )
