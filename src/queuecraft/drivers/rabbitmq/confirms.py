"""Publishing with confirms: many messages in one write, and what became of each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, TypeAlias

from pamqp import commands

from queuecraft.clock import Clock, Timer
from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq.channel import Channel
from queuecraft.drivers.rabbitmq.frames import (
    ACK,
    NACK,
    OVERHEAD,
    RETURN,
    ROUTES,
    Packed,
    content,
    publish,
    read_properties,
    read_returned,
    read_tag,
)
from queuecraft.drivers.rabbitmq.wire import Wire

Parcel: TypeAlias = tuple[str, str, str | None, Packed, bytes]
"""Exchange, routing key, id, properties and body of a message."""

CONFIRMED_WITHIN: Final = 30.0  # seconds; who waits for longer may wait for ever
LOOKS: Final = 10  # in that time, whether more of the oldest flight is confirmed

OPEN, TAKEN, REFUSED, RETURNED = range(4)
_RETURNING: Final = 4  # the broker has sent it back, and is about to confirm that


class Flight:
    """Messages sent together. `states` says of each whether it is taken, refused, or could not be
    routed; those still open when the channel is lost stay so. What AMQP cannot carry is refused
    without being sent; `unfit` says why."""

    __slots__ = ("_places", "done", "error", "first", "left", "parcels", "states", "unfit")

    def __init__(self, first: int, parcels: Sequence[Parcel]) -> None:
        self.first = first
        self.parcels = parcels
        self.left = len(parcels)
        self.states = bytearray(len(parcels))
        self.unfit: dict[int, ValueError] = {}
        self._places: dict[tuple[str, str, str | None], list[int]] | None = None
        self.error: ConnectionLost | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, start: int, end: int, state: int) -> None:
        """So it is with these."""
        states = self.states
        for at in range(max(start, 0), min(end, len(states))):
            before = states[at]
            if before == OPEN:
                states[at] = state
                self.left -= 1
            elif before == _RETURNING:
                states[at] = RETURNED
                self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)

    def came_back(self, exchange: str, routing_key: str, message_id: str | None) -> bool:
        """Note it of the first open one that went that way; whether there is one."""
        if self._places is None:  # few flights need it, and those may have thousands come back
            self._places = {}
            for at in reversed(range(len(self.parcels))):
                self._places.setdefault(self.parcels[at][:3], []).append(at)
        places = self._places.get((exchange, routing_key, message_id))
        while places:
            at = places.pop()
            if self.states[at] == OPEN:
                self.states[at] = _RETURNING
                return True
        return False


class Publishing(Channel):
    """A channel in confirm mode. A queue without a leader never confirms, and the broker does not
    say so: then the connection is given up, so that nobody waits for ever. Not while the broker
    says that it takes no messages: it confirms what it has once there is room again."""

    def __init__(
        self, wire: Wire, *, patience: float = CONFIRMED_WITHIN, clock: Clock | None = None
    ) -> None:
        super().__init__(wire)
        self._patience = patience
        self._clock = clock or Clock()
        self._timer: Timer | None = None
        self._seen = (0, 0)  # of the oldest flight: its first number, and how many were open
        self._looks = 0  # in vain
        self._next = 1
        self._flights: deque[Flight] = deque()
        self._routes: dict[tuple[str, str], bytes] = {}
        self._returned: tuple[str, str] | None = None  # exchange and routing key

    async def open(self) -> None:
        await super().open()
        await self.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)

    async def publish(self, parcels: Sequence[Parcel]) -> Flight:
        """Send, and wait until each is answered for or the channel is lost."""
        await self.wire.drained()
        if self.lost is not None:
            raise self.lost.with_traceback(None)
        most = self.wire.frame_max - OVERHEAD
        out: list[bytes] = []
        routes, number = self._routes, self.number
        unfit: dict[int, ValueError] = {}
        for at, (exchange, routing_key, _, packed, body) in enumerate(parcels):
            try:
                route = routes.get((exchange, routing_key))
                if route is None:
                    route = publish(number, exchange, routing_key)
                    if len(routes) >= ROUTES:
                        routes.clear()
                    routes[exchange, routing_key] = route
                rest = content(number, packed, body, most)
            except ValueError as error:  # one that cannot travel must not keep the others back
                unfit[at] = error
                continue
            out.append(route)
            out += rest
        if unfit:
            parcels = [each for at, each in enumerate(parcels) if at not in unfit]
        flight = Flight(self._next, parcels)
        if parcels:
            self._next += len(parcels)
            self._flights.append(flight)
            self.wire.write(b"".join(out))
            if self._timer is None:
                self._look_later()
            await flight.done
        for at in unfit:
            flight.states.insert(at, REFUSED)
        flight.unfit = unfit
        return flight

    # -- what the connection calls -------------------------------------------------------------

    def hear(self, code: int, payload: bytes) -> bool:
        if code in (ACK, NACK):
            tag, flags = read_tag(payload)
            self._on_confirm(tag, TAKEN if code == ACK else REFUSED, multiple=bool(flags & 1))
        elif code == RETURN:
            self._returned = read_returned(payload)
        else:
            return False
        return True

    def on_header(self, payload: bytes) -> None:
        if self._returned is not None:
            _, properties = read_properties(payload)
            self._on_return(*self._returned, properties.message_id)
            self._returned = None  # the body that follows is of no interest

    def on_lost(self, error: ConnectionLost) -> None:
        super().on_lost(error)
        if self._timer is not None:
            self._timer.cancel()
        while self._flights:
            flight = self._flights.popleft()
            flight.error = error
            flight.states = flight.states.replace(b"%c" % _RETURNING, b"%c" % RETURNED)
            if not flight.done.done():
                flight.done.set_result(None)

    # -- inside --------------------------------------------------------------------------------

    def _look_later(self) -> None:
        self._timer = self._clock.call_later(self._patience / LOOKS, self._look)

    def _look(self) -> None:
        """Costs a publish nothing, unlike a deadline for each. Those behind the oldest flight may
        have to wait for it, and have their own time after it."""
        self._timer = None
        if not self._flights:
            return
        oldest = self._flights[0]
        seen = oldest.first, oldest.left
        self._looks = self._looks + 1 if seen == self._seen and not self.wire.blocked else 0
        self._seen = seen
        if self._looks < LOOKS:
            self._look_later()
        else:
            self.wire.abort(_unconfirmed(oldest, self._patience))

    def _on_confirm(self, tag: int, state: int, *, multiple: bool) -> None:
        flights = self._flights
        for flight in flights:
            at = tag - flight.first
            if at < 0:
                break
            if multiple:
                flight.settle(0, at + 1, state)
            elif at < len(flight.states):
                flight.settle(at, at + 1, state)
                break
        while flights and not flights[0].left:
            flights.popleft()

    def _on_return(self, exchange: str, routing_key: str, message_id: str | None) -> None:
        """It could not be routed; its confirm is still to come. Returns come in the order of
        publishing, so it is the first open one of that id that went that way: the retries of two
        queues have the same id."""
        for flight in self._flights:
            if flight.left and flight.came_back(exchange, routing_key, message_id):
                return


def _unconfirmed(flight: Flight, patience: float) -> ConnectionLost:
    at = next(at for at, state in enumerate(flight.states) if state in (OPEN, _RETURNING))
    exchange, routing_key, _, _, _ = flight.parcels[at]
    where = f"exchange {exchange!r}" if exchange else f"queue {routing_key!r}"
    return ConnectionLost(
        f"the broker has not confirmed a message to {where} within {patience:g} s; has each quorum "
        "queue there a leader?",
        broker="rabbitmq",
    )
