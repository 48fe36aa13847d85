"""Redis, as a driver: one for each way in which queues are kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Final

from queuecraft.drivers.base import (
    Binding,
    ConnectionLost,
    Delivery,
    Driver,
    Exchange,
    Outgoing,
    Queue,
    QueueInfo,
    Receipt,
    Topology,
    Traits,
)
from queuecraft.drivers.redis import presence, scripts, topology
from queuecraft.drivers.redis.address import Address
from queuecraft.drivers.redis.client import Argument, Client, RedisError, Script
from queuecraft.drivers.redis.envelope import decode
from queuecraft.drivers.redis.lists import ForgetfulSubscription, ListSubscription
from queuecraft.drivers.redis.live import LiveSubscription
from queuecraft.drivers.redis.login import log_in
from queuecraft.drivers.redis.refusals import no_queue, refusal
from queuecraft.drivers.redis.sending import Sending
from queuecraft.drivers.redis.session import BEAT, LEASE, Session
from queuecraft.drivers.redis.streams import StreamSubscription
from queuecraft.drivers.redis.subscription import RedisSubscription
from queuecraft.drivers.redis.topology import Kept
from queuecraft.drivers.redis.watch import Watch
from queuecraft.drivers.target import Target
from queuecraft.failpoints import failpoint
from queuecraft.model.credentials import Credentials
from queuecraft.model.errors import ConfigError, QueueError

log: Final = logging.getLogger("queuecraft")
GOODBYE: Final = 3.0  # seconds for giving everything back
OLDEST: Final = (6, 2)
TURN: Final = 200  # peeked messages that are decoded before others get their turn
INSPECTED: Final = 100  # queues that a script looks at before others get their turn
PURGED: Final = 20_000  # messages that a script forgets before others get their turn


class RedisDriver(Driver):
    """One host, queues in lists. How a queue is kept is a property of the queue: any of these
    drivers can send to any queue and consume it, whatever its own mode is."""

    kept: ClassVar[Kept] = "l"
    traits: ClassVar[Traits] = Traits(
        name="redis",
        durable=True,
        key_order="group",
        priority=True,
        atomic_move=True,
        atomic_send=True,
        counts_redeliveries=True,
    )

    def __init__(self, target: Target, address: Address) -> None:
        self.base = "{" + address.prefix + "}:"
        self.retain = address.retain
        self.clock = target.clock
        self.watch = Watch()
        self.lost: ConnectionLost | None = None
        self._target = target
        self._address = address
        self._credentials: Credentials | None = None
        self._client: Client | None = None
        self._sending: Sending | None = None
        self._session: Session | None = None
        self._joining = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self._subscriptions: dict[RedisSubscription, None] = {}
        self._leaving: dict[tuple[str, str, str], None] = {}  # session, queue, consumer
        self._consumers = 0
        self._ended: list[str] = []  # sessions that the server may still know
        self._warned = False
        self._listening: tuple[int, str] | None = None  # the connection events come by

    async def open(self) -> None:
        await self.close()
        self._joining = asyncio.Lock()  # of this loop
        self._credentials = await self._target.credentials()
        self.watch = Watch()
        self.lost = None
        self._client = await self._log_in()
        self._client.on_lost = self._on_lost
        self._sending = Sending(self._client, self.base, self.clock)
        await self._look_at_server(self._client)
        with suppress(RedisError):  # a server that takes nothing has nothing to lose
            await self._client.eval(scripts.SEAL, [self.base], ())
        if self._ended:
            await self._eval("open", scripts.BURY, self._ended)
            self._ended = []
        await self._end_listening()

    async def close(self) -> None:
        session, self._session = self._session, None
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
        if session is not None:
            self._ended.append(session.name)
            await session.stop()
        client = self._client
        try:
            async with asyncio.timeout(GOODBYE):
                for subscription in tuple(self._subscriptions):
                    with suppress(QueueError):
                        await subscription.close()
                if client is not None and client.lost is None and self._ended:
                    failpoint("close.before_commit")
                    await client.eval(scripts.BURY, [self.base], self._ended)
                    failpoint("close.after_commit")
                    self._ended = []
        except (QueueError, TimeoutError):
            pass  # what we held goes back when the lease ends, or when we are back
        finally:
            self._subscriptions.clear()
            self._leaving.clear()  # they go with their session
            self._client = self._sending = None
            await self.watch.close()
            if client is not None:
                client.on_lost = None
                await client.close()

    # -- what is declared ----------------------------------------------------------------------

    async def prepare(self, exchanges: Sequence[Exchange]) -> None:
        await self._declare("prepare", exchanges, exchanges=exchanges)

    async def declare(self, queue: Queue) -> None:
        asked = [each.exchange for each in queue.bindings]
        await self._declare("declare", asked, queue=queue)

    async def bind(self, queue: str, bindings: Sequence[Binding]) -> None:
        asked = [each.exchange for each in bindings]
        await self._declare("bind", asked, to=queue, bind=bindings)

    async def unbind(self, queue: str, bindings: Sequence[Binding]) -> None:
        await self._declare("unbind", (), to=queue, unbind=bindings)

    async def topology(self) -> Topology:
        client = self._open()
        try:
            return await topology.read(client, self.base)
        except RedisError as error:
            raise refusal(error, "topology") from None

    async def delete(self, queue: str) -> None:
        if not await self._eval("delete", scripts.DELETE, [queue]):
            raise no_queue(queue, "delete")

    # -- messages ------------------------------------------------------------------------------

    async def send(
        self, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        sending = self.sending
        return await sending.send(messages, atomic=atomic) if messages else ()

    async def subscribe(self, queue: Queue, *, prefetch: int) -> RedisSubscription:
        client = self._open()
        async with self._joining:
            session = self._session or await self._begin()
        self._consumers += 1
        consumer = f"{session.name}-{self._consumers}"
        lease = round(LEASE * 1000)
        arguments: list[Argument] = [queue.name, session.name, consumer, lease, prefetch]
        try:
            kept = await self._eval("subscribe", scripts.JOIN, arguments, queue.name)
        except BaseException:  # also of one that is cancelled: the server may know this consumer
            self._leaving[session.name, queue.name, consumer] = None
            raise
        kind = self._kinds()[kept.decode()]
        subscription = kind(self, client, queue, consumer, prefetch)
        self._subscriptions[subscription] = None
        try:
            await subscription.begin()
        except BaseException:
            await subscription.close()
            raise
        return subscription

    async def inspect(self, queues: Sequence[str] | None = None) -> Sequence[QueueInfo]:
        if queues is None:
            known = await self._call("inspect", "HKEYS", f"{self.base}queues")
            queues = sorted(each.decode() for each in known)
        told: list[Any] = []
        for start in range(0, len(queues), INSPECTED):
            some = queues[start : start + INSPECTED]
            told += await self._eval("inspect", scripts.INSPECT, some)
        return [self._info(*each) for each in told]

    async def peek(self, queue: str, limit: int) -> Sequence[Delivery]:
        found = await self._eval("peek", scripts.PEEK, [queue, limit])
        if found == -1:
            raise no_queue(queue, "peek")
        seen: list[Delivery] = []
        for place, value in enumerate(found):
            message, again = decode(value, f"foreign-{place}")
            seen.append(Delivery(message, queue, again))
            if place % TURN == TURN - 1:
                await asyncio.sleep(0)
        return seen

    async def purge(self, queue: str) -> int:
        total, gone = 0, PURGED
        while gone >= PURGED:
            gone = await self._eval("purge", scripts.PURGE, [queue])
            total += max(0, gone)
        if gone < 0:
            raise no_queue(queue, "purge")
        return total

    # -- notes ---------------------------------------------------------------------------------

    async def announce(self, name: str, note: bytes, *, ttl: float) -> None:
        await presence.announce(self._open(), self.base, name, note, ttl)

    async def announced(self) -> Mapping[str, bytes] | None:
        return await presence.announced(self._open(), self.base)

    # -- what subscriptions call ---------------------------------------------------------------

    @property
    def sending(self) -> Sending:
        """How messages are sent."""
        if self._sending is None:
            raise _closed()
        return self._sending

    async def leave(self, subscription: RedisSubscription) -> None:
        """A subscription is closed: what it held is ready again, at once or as soon as the server
        lets it be. As long as the session lives, nobody else sees to that."""
        if self._subscriptions.pop(subscription, self) is self or self._client is None:
            return
        session = subscription.consumer.rpartition("-")[0]
        leaving = (session, subscription.queue.name, subscription.consumer)
        try:
            await self._eval("leave", scripts.LEAVE, leaving)
        except BaseException:  # also of one that is cancelled: nobody knows what the server did
            self._leaving[leaving] = None
            raise

    # -- the session ---------------------------------------------------------------------------

    async def _begin(self) -> Session:
        """Become one of those that consume."""
        session = Session(self.base, self._log_in)
        watching = await self._log_in(self.watch.told, name=f"queuecraft-{session.name}")
        watching.on_lost = self._on_lost
        await self.watch.open(watching)
        (number,) = await watching.calls([("CLIENT", "ID")])
        self._listening = (number, session.name) if isinstance(number, int) else None
        self._session = session
        session.start()
        self._beating = asyncio.get_running_loop().create_task(self._beat(session))
        return session

    async def _beat(self, session: Session) -> None:
        """Say that the loop turns, bury those whose process is gone, and let those of ours go that
        could not leave."""
        while True:
            session.turned()
            try:
                if await self._eval("reap", scripts.REAP, ()):
                    failpoint("reap.after_burial")
            except QueueError:  # a server that is short of something: another time
                if self._client is None or self.lost is not None:
                    return
            for leaving in tuple(self._leaving):
                with suppress(QueueError):  # another time: who has left can leave again
                    await self._eval("leave", scripts.LEAVE, leaving)
                    self._leaving.pop(leaving, None)
            await asyncio.sleep(BEAT)

    async def _end_listening(self) -> None:
        """After a network has swallowed a connection, the server may still think that somebody
        listens there. Numbers of connections begin anew with the server: hence the name."""
        if self._listening is not None:
            number, name = self._listening
            client = self._open()
            (told,) = await client.calls([("CLIENT", "LIST", "ID", number)])
            if isinstance(told, bytes) and f"name=queuecraft-{name} ".encode() in told:
                await client.calls([("CLIENT", "KILL", "ID", number)])
            self._listening = None

    def _on_lost(self, error: ConnectionLost) -> None:
        self.lost = error
        for subscription in self._subscriptions:
            subscription.look_again()

    # -- inside --------------------------------------------------------------------------------

    async def _look_at_server(self, client: Client) -> None:
        """Raise if it is too old; warn if it may throw messages away."""
        (told,) = await client.calls([("INFO",)])
        if not isinstance(told, bytes):  # who may not ask has to know
            return
        lines = told.decode(errors="replace").splitlines()
        info = dict(line.split(":", 1) for line in lines if ":" in line)
        numbers = info.get("redis_version", "").split(".")[:2]
        version = tuple(int(each) for each in numbers if each.isdecimal())
        if len(version) == 2 and version < OLDEST:
            wanted = ".".join(map(str, OLDEST))
            raise ConfigError(
                f"the server is Redis {info['redis_version']}; QueueCraft needs {wanted} or newer",
                broker="redis",
            )
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction" and info.get("maxmemory", "0") != "0" and not self._warned:
            self._warned = True
            log.warning(
                "redis: the server deletes keys when its memory is full, and messages with them; "
                "set maxmemory-policy to noeviction (it is %s)",
                policy,
            )

    def _kinds(self) -> dict[str, type[RedisSubscription]]:
        """Who consumes a queue that is kept in one way or another."""
        return {"l": ListSubscription, "p": LiveSubscription, "s": StreamSubscription}

    async def _log_in(
        self,
        on_push: Callable[[Sequence[Any]], None] | None = None,
        name: str = "queuecraft",
    ) -> Client:
        settings = self._target.settings
        return await log_in(
            self._address,
            self._credentials,
            timeout=settings.timeout,
            heartbeat=settings.heartbeat,
            on_push=on_push,
            name=name,
        )

    async def _declare(
        self,
        operation: str,
        asked: Sequence[Exchange],
        queue: Queue | None = None,
        **what: Any,
    ) -> None:
        wanted = topology.described(kept=self.kept, queue=queue, **what)
        answer = await self._eval(operation, scripts.DECLARE, wanted)
        topology.check(answer, asked, queue, self.kept)

    def _info(self, name: bytes, *numbers_and_heads: Any) -> QueueInfo:
        ready, in_flight, delayed, dead, consumers, *heads = numbers_and_heads
        sent = [decode(value, "")[0] for value in heads]
        since = [each.due_at or each.timestamp for each in sent]
        known = [when for when in since if when is not None]
        return QueueInfo(
            name=name.decode(),
            ready=ready,
            in_flight=in_flight,
            delayed=delayed,
            dead=None if dead < 0 else dead,
            consumers=consumers,
            oldest_age=max(0.0, self.clock.now() - min(known)) if known else None,
        )

    async def _eval(
        self,
        operation: str,
        script: Script,
        arguments: Sequence[Argument],
        queue: str | None = None,
    ) -> Any:
        failpoint(f"{operation}.before_commit")
        try:
            answer = await self._open().eval(script, [self.base], arguments)
        except RedisError as error:
            raise refusal(error, operation, queue) from None
        failpoint(f"{operation}.after_commit")
        return answer

    async def _call(self, operation: str, *command: Argument) -> Any:
        try:
            return await self._open().call(*command)
        except RedisError as error:
            raise refusal(error, operation) from None

    def _open(self) -> Client:
        if self._client is None:
            raise _closed()
        return self._client


class ForgetfulDriver(RedisDriver):
    """The same, each message delivered once at most: what a process holds dies with it."""

    traits: ClassVar[Traits] = replace(
        RedisDriver.traits, atomic_move=False, counts_redeliveries=False
    )

    def _kinds(self) -> dict[str, type[RedisSubscription]]:
        return super()._kinds() | {"l": ForgetfulSubscription}

    def _info(self, name: bytes, *numbers_and_heads: Any) -> QueueInfo:
        told = super()._info(name, *numbers_and_heads)
        return replace(told, in_flight=None)  # the server does not know


class StreamDriver(RedisDriver):
    """The same, queues in streams."""

    kept: ClassVar[Kept] = "s"
    traits: ClassVar[Traits] = replace(RedisDriver.traits, priority=False)


class PubsubDriver(RedisDriver):
    """The same, events by pub/sub: whoever listens gets them, and nobody else. What is sent to a
    queue is kept in its list, and so are retries and dead letters."""

    kept: ClassVar[Kept] = "p"
    traits: ClassVar[Traits] = replace(
        RedisDriver.traits, durable=False, competing=False, key_order="worker", atomic_send=False
    )


def _closed() -> ConnectionLost:
    return ConnectionLost("the connection is closed; open it first", broker="redis")
