"""What is declared in the file, remembered by each process for as long as it is true."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from queuecraft.drivers.base import Binding, ConsumerInfo, Exchange, Outgoing, Queue
from queuecraft.drivers.local.exchanges import Exchanges
from queuecraft.drivers.local.refusals import check_same, no_queue
from queuecraft.drivers.local.sqlite.database import rows, value
from queuecraft.drivers.local.sqlite.position import QUEUES, bounds
from queuecraft.drivers.local.sqlite.record import pack, unpack
from queuecraft.model.errors import QueueError
from queuecraft.model.queue import DeadLetterTarget


class Place:
    """A queue: its number in the file, and the other processes that consume it."""

    __slots__ = ("active", "consumers", "first", "last", "number", "queue", "sessions")

    def __init__(self, number: int, queue: Queue) -> None:
        self.number = number
        self.queue = queue
        self.first, self.last = bounds(number)
        self.sessions: set[str] = set()
        self.consumers: list[ConsumerInfo] = []
        self.active: int | None = None  # the only consumer that gets messages, if it is one

    def stands_by(self, consumer: int) -> bool:
        """Whether a consumer has to wait until another one is gone."""
        return self.active is not None and self.active != consumer


class Catalogue:
    """Exchanges, queues, bindings and consumers. `refresh` is to be called in every transaction
    before anything else is: it costs one lookup as long as nobody has changed anything."""

    def __init__(self) -> None:
        self.exchanges = Exchanges[Place]()
        self.places: dict[str, Place] = {}
        self.numbers: dict[int, Place] = {}
        self.session = ""  # our own
        self._version = 0

    def refresh(self, connection: apsw.Connection) -> None:
        """Know what the file says now."""
        version = value(connection, "SELECT topology FROM state")
        if version != self._version:
            self._version = 0  # unless all goes well
            try:
                self._load(connection)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise apsw.CorruptError(f"what is declared cannot be read: {error!r}") from error
            self._version = version

    def forget(self) -> None:
        """Believe nothing: a transaction that changed something did not come to its end."""
        self._version = 0

    def find(self, name: str, operation: str) -> Place:
        """The queue of that name."""
        place = self.places.get(name)
        if place is None:
            raise no_queue(name, self.places, operation)
        return place

    def targets(self, message: Outgoing) -> tuple[Place, ...]:
        """The queues a message goes to."""
        if message.queue is None:
            return self.exchanges.route(message)
        place = self.places.get(message.queue)
        return () if place is None else (place,)

    # -- changing it ---------------------------------------------------------------------------

    def changed(self, connection: apsw.Connection) -> None:
        """Tell all processes to look again. We know already: what is written to the file is
        remembered on the way."""
        connection.execute("UPDATE state SET topology = topology + 1")
        if self._version:
            self._version += 1

    def declare_exchange(self, connection: apsw.Connection, exchange: Exchange) -> None:
        """Add an exchange, or find it as it is asked for."""
        new = exchange.name not in self.exchanges
        self.exchanges.declare(exchange)
        if new:
            connection.execute(
                "INSERT INTO exchange VALUES (?, ?, ?, ?, ?)",
                (
                    exchange.name,
                    exchange.type,
                    exchange.durable,
                    exchange.auto_delete,
                    pack(exchange.arguments),
                ),
            )

    def declare(self, connection: apsw.Connection, queue: Queue) -> None:
        """Add a queue with all that belongs to it, as far as it is not there."""
        place = self.places.get(queue.name)
        if place is not None:
            check_same(place.queue, queue)
        for binding in queue.bindings:
            self.declare_exchange(connection, binding.exchange)
        if (dead := queue.dead_letters) is not None:
            kept = self.places.get(dead.queue) or self._add(connection, Queue(dead.queue))
            self.bind(connection, Binding(Exchange(dead.exchange), dead.routing_key), kept)
        if place is None:
            place = self._add(connection, queue)
        elif dead is not None and place.queue.dead_letters != dead:
            place.queue = queue
            connection.execute(
                "UPDATE queue SET dead_exchange = ?, dead_queue = ?, dead_routing_key = ? "
                "WHERE number = ?",
                (dead.exchange, dead.queue, dead.routing_key, place.number),
            )
        for binding in queue.bindings:
            self.bind(connection, binding, place)

    def bind(self, connection: apsw.Connection, binding: Binding, place: Place) -> None:
        """Give the queue what the binding matches."""
        self.declare_exchange(connection, binding.exchange)
        self.exchanges.bind(binding, place)
        connection.execute(
            "INSERT OR IGNORE INTO binding VALUES (?, ?, ?, ?)", _row(binding, place)
        )

    def unbind(self, connection: apsw.Connection, binding: Binding, place: Place) -> None:
        """Give the queue no more what the binding matches."""
        self.exchanges.unbind(binding, place)
        connection.execute(
            "DELETE FROM binding WHERE exchange = ? AND pattern = ? AND headers = ? AND queue = ?",
            _row(binding, place),
        )

    def remove(self, connection: apsw.Connection, place: Place) -> None:
        """Forget a queue, its bindings and its consumers."""
        number = (place.number,)
        connection.execute("DELETE FROM queue WHERE number = ?", number)
        connection.execute("DELETE FROM counter WHERE queue = ?", number)
        connection.execute("DELETE FROM binding WHERE queue = ?", number)
        connection.execute("DELETE FROM consumer WHERE queue = ?", number)
        self.exchanges.forget(place)
        del self.places[place.queue.name]
        del self.numbers[place.number]

    # -- inside --------------------------------------------------------------------------------

    def _add(self, connection: apsw.Connection, queue: Queue) -> Place:
        number = _free_number(connection)
        dead = queue.dead_letters
        connection.execute(
            "INSERT INTO queue VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                queue.name,
                queue.durable,
                queue.exclusive,
                queue.auto_delete,
                queue.max_priority,
                pack(queue.arguments),
                None if dead is None else dead.exchange,
                None if dead is None else dead.queue,
                None if dead is None else dead.routing_key,
            ),
        )
        connection.execute("INSERT INTO counter (queue) VALUES (?)", (number,))
        return self._know(number, queue)

    def _know(self, number: int, queue: Queue) -> Place:
        place = self.places[queue.name] = self.numbers[number] = Place(number, queue)
        return place

    def _load(self, connection: apsw.Connection) -> None:
        self.exchanges = Exchanges()
        self.places = {}
        self.numbers = {}
        for name, kind, durable, auto_delete, arguments in connection.execute(
            "SELECT * FROM exchange"
        ):
            self.exchanges.declare(
                Exchange(name, kind, bool(durable), bool(auto_delete), unpack(arguments))
            )
        for row in connection.execute("SELECT * FROM queue ORDER BY number"):
            self._know(row[0], _queue_of(row))
        for exchange, pattern, headers, number in connection.execute("SELECT * FROM binding"):
            known = self.exchanges[exchange]
            self.exchanges.bind(Binding(known, pattern, unpack(headers)), self.numbers[number])
        oldest: dict[int, int] = {}
        for session, pid, number, queue, prefetch, single in connection.execute(
            "SELECT session, pid, number, queue, prefetch, single "
            "FROM consumer JOIN session ON session = name ORDER BY number"
        ):
            place = self.numbers[queue]
            oldest.setdefault(queue, number)
            if single:
                place.active = oldest[queue]
            place.consumers.append(
                ConsumerInfo(place.queue.name, f"process-{pid}-{number}", prefetch)
            )
            if session != self.session:
                place.sessions.add(session)


def _free_number(connection: apsw.Connection) -> int:
    highest = value(connection, "SELECT max(number) FROM queue")
    number = 0 if highest is None else highest + 1
    if number < QUEUES:  # numbers of deleted queues are used again, but not before they must be
        return number
    used = {number for (number,) in rows(connection, "SELECT number FROM queue")}
    free = next((number for number in range(QUEUES) if number not in used), None)
    if free is None:
        raise QueueError(f"a file holds at most {QUEUES} queues", broker="local")
    return free


def _queue_of(row: Sequence[apsw.SQLiteValue]) -> Queue:
    _, name, durable, exclusive, auto_delete, max_priority, arguments, *dead = row
    exchange, queue, routing_key = dead
    return Queue(
        str(name),
        durable=bool(durable),
        exclusive=bool(exclusive),
        auto_delete=bool(auto_delete),
        max_priority=max_priority if isinstance(max_priority, int) else None,
        arguments=unpack(arguments) if isinstance(arguments, bytes) else {},
        dead_letters=None
        if exchange is None
        else DeadLetterTarget(str(exchange), str(queue), str(routing_key)),
    )


def _row(binding: Binding, place: Place) -> tuple[str, str, bytes, int]:
    return binding.exchange.name, binding.pattern, pack(binding.headers), place.number
