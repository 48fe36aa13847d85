"""Publishing: a payload in, and its id out once the broker has confirmed it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice

from queuecraft.clock import Clock
from queuecraft.codec import Codec
from queuecraft.drivers.base import ACCEPTED, Driver, Outgoing, Receipt
from queuecraft.model.errors import PublishError, QueueError, UnsupportedFeature
from queuecraft.model.settings import Settings
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.entry import Entry
from queuecraft.runtime.facts import Facts, MessagesPublished, PublishFailed
from queuecraft.runtime.options import Details, PublishOptions, drops
from queuecraft.runtime.recipe import Recipe, Recipes
from queuecraft.runtime.sender import BATCH, Sender

YIELD_EVERY = 64  # publishes without giving up the loop, so that workers are not starved


class Publisher:
    """Turns payloads into messages and gets them to the broker.

    On an inline driver, with nothing waiting, they are sent at once, without a turn of the loop.
    Everything else goes through the sender.
    """

    def __init__(
        self,
        connection: Connection,
        codec: Codec,
        settings: Settings,
        clock: Clock,
        facts: Facts,
    ) -> None:
        self.sent = 0
        self.last_success: float | None = None
        self._connection = connection
        self._now = clock.now
        self._facts = facts
        self._observers = facts.observers
        self._tell = facts.tell
        self._recipes = Recipes(connection, codec, settings, clock)
        self._sender = Sender(connection, settings, clock, self._count)
        self._reply = Recipe("", bytes, codec, clock.now, queue="")
        self._replying = Sender(connection, settings, clock, lambda _: None)
        self._unanswered = self._sender.entries
        self._budget = YIELD_EVERY
        self._drop = settings.unroutable == "drop"
        self._chunk = min(BATCH, settings.max_pending)

    async def publish(self, target: object, payload: object, options: PublishOptions) -> str:
        """One message; returns its id once the broker has it."""
        try:
            recipe = self._recipes[target]
        except TypeError:
            recipe = self._recipes.of(target)  # which says what is wrong with it
        drop = self._drop
        if options:
            recipe = self._recipes.through(recipe, options.get("exchange"))
            drop = drops(options, otherwise=drop)
            details = Details.of(options, self._now(), self._connection.traits)
            message = recipe.make_with(payload, details)
        else:
            message = recipe.make(payload)
        driver = self._connection.current
        result: Sequence[Receipt] | Exception | None = None
        if driver is not None and driver.traits.inline and recipe.prepared and not self._unanswered:
            try:
                result = await driver.send((message,))
            except Exception as error:
                result = error
            else:
                if len(result) == 1 and result[0] is ACCEPTED:
                    self._count((message,))
                    self._budget -= 1
                    if self._budget <= 0:
                        await self._give_way()
                    return message.id
        if result is None:
            answer = await self._sender.submit_one(recipe, message, drop=drop)
        else:
            entry = Entry(recipe, (message,), drop=drop)
            (answer,) = await self._settle(driver, entry, result)
        if isinstance(answer, str):
            return answer
        if self._facts.wants(PublishFailed):
            self._tell_failures(recipe.name, [answer])
        raise answer

    async def reply(self, message: Outgoing) -> None:
        """A reply, made already; raises as `publish` does. It is nothing that the application has
        published, so it is neither counted nor told of."""
        answer = await self._replying.submit_one(self._reply, message, drop=False)
        if not isinstance(answer, str):
            raise answer

    async def publish_many(
        self,
        target: object,
        payloads: Iterable[object],
        options: PublishOptions,
        *,
        atomic: bool = False,
    ) -> list[str | QueueError]:
        """Many messages in as few flights as possible; an id or an error for each."""
        traits = self._connection.traits
        if atomic and not traits.atomic_send:
            raise UnsupportedFeature(
                "this broker cannot store a batch as a whole; leave out atomic=True",
                broker=traits.name,
                operation="publish_many",
            )
        recipe = self._recipes.through(self._recipes.of(target), options.get("exchange"))
        drop = drops(options, otherwise=self._drop)
        details = Details.of(options, self._now(), traits) if options else None
        results: list[str | QueueError] = []
        source = iter(payloads)
        while chunk := list(source if atomic else islice(source, self._chunk)):
            if results and options:
                details = Details.of(options, self._now(), traits)
            messages, errors = recipe.make_many(chunk, details)
            if atomic and errors:
                return [errors.get(at) or self._let_down() for at in range(len(chunk))]
            answers = await self._send_many(recipe, messages, drop, atomic) if messages else ()
            if errors:
                rest = iter(answers)
                answers = [errors.get(at) or next(rest) for at in range(len(chunk))]
            results += answers
            unheard = messages and not any(isinstance(each, str) for each in answers)
            if unheard and self._connection.current is None:
                # It was waited for once: each further chunk would wait as long for nothing.
                results += [self._not_sent() for _ in source]
            await asyncio.sleep(0)
        if self._facts.wants(PublishFailed):
            self._tell_failures(recipe.name, results)
        return results

    async def flush(self) -> None:
        """Wait until everything accepted from callers so far has been answered for."""
        await self._sender.flush()

    async def close(self) -> None:
        """Give up what is still waiting; call `flush` first to wait for it."""
        await self._replying.close()
        await self._sender.close()

    # -- inside --------------------------------------------------------------------------------

    async def _send_many(
        self, recipe: Recipe, messages: list[Outgoing], drop: bool, atomic: bool
    ) -> Sequence[str | QueueError]:
        driver = self._connection.current
        result: Sequence[Receipt] | Exception | None = None
        if driver is not None and driver.traits.inline and recipe.prepared and not self._unanswered:
            try:
                result = await driver.send(messages, atomic=atomic)
            except Exception as error:
                result = error
            else:
                if result.count(ACCEPTED) == len(result) == len(messages):
                    self._count(messages)
                    return [message.id for message in messages]
        entry = Entry(recipe, messages, drop=drop, atomic=atomic)
        return await self._settle(driver, entry, result)

    async def _settle(
        self,
        driver: Driver | None,
        entry: Entry,
        result: Sequence[Receipt] | Exception | None,
    ) -> Sequence[str | QueueError]:
        """The answers for messages that were not all accepted, if they were sent at all."""
        if driver is not None and result is not None:
            self._sender.land(driver, self._connection.generation, [entry.share()], result)
            if entry.future.done():
                self._budget -= 1
                if self._budget <= 0:
                    await self._give_way()
                return entry.answers
        return await self._sender.submit(entry)

    def _count(self, accepted: Sequence[Outgoing]) -> None:
        self.sent += len(accepted)
        self.last_success = now = self._now()
        try:
            observers = self._observers[MessagesPublished]
        except KeyError:
            self._facts.wants(MessagesPublished)  # which finds out
            observers = self._observers[MessagesPublished]
        if observers:
            self._tell(observers, MessagesPublished(messages=accepted, at=now))

    def _tell_failures(self, name: str, results: Sequence[str | QueueError]) -> None:
        failed = [each for each in results if isinstance(each, QueueError)]
        if failed:
            kind, text = type(failed[0]).__name__, failed[0].message
            self._facts.emit(
                PublishFailed(name=name, count=len(failed), error_type=kind, error=text)
            )

    async def _give_way(self) -> None:
        self._budget = YIELD_EVERY
        await asyncio.sleep(0)

    def _not_sent(self) -> PublishError:
        return PublishError(
            "not sent: the broker has answered for none of those before it, and is not connected",
            broker=self._connection.traits.name,
            operation="publish_many",
        )

    def _let_down(self) -> PublishError:
        return PublishError(
            "another message of the atomic batch cannot be published",
            broker=self._connection.traits.name,
            operation="publish_many",
        )
