"""What is declared, as it is kept in Redis: exchanges, queues, bindings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

from queuecraft.drivers.base import Binding, ConsumerInfo, Exchange, Queue, Topology
from queuecraft.drivers.redis.client import Argument, Client
from queuecraft.drivers.redis.envelope import pack, strung, told_apart, unpack, unstrung
from queuecraft.drivers.redis.refusals import no_queue
from queuecraft.model.errors import QueueError, TopologyMismatch
from queuecraft.model.naming import REPLIES
from queuecraft.model.queue import ExchangeType

Kept: TypeAlias = Literal["l", "s", "p"]
"""How a queue is kept: lists, a stream, or lists with pub/sub for events."""

MODES: Final[dict[str, str]] = {"l": "list", "s": "stream", "p": "pubsub"}
_TYPES: Final[dict[str, ExchangeType]] = {
    "t": "topic",
    "d": "direct",
    "f": "fanout",
    "h": "headers",
}
_EXCHANGE: Final = ("durable", "auto_delete", "arguments")
_QUEUE: Final = ("durable", "exclusive", "auto_delete", "max_priority", "arguments")


def described(
    *,
    kept: Kept,
    exchanges: Iterable[Exchange] = (),
    queue: Queue | None = None,
    to: str | None = None,
    bind: Sequence[Binding] = (),
    unbind: Sequence[Binding] = (),
) -> list[Argument]:
    """What is to exist, for the script that makes it. `bind` and `unbind` are for `to`, which has
    to be there already."""
    made = [*exchanges, *(each.exchange for each in bind)]
    bound = [(each, to or "") for each in bind]
    about: list[Argument] = ["", ""]
    dead: list[Argument] = ["", "", ""]
    if queue is not None:
        about = [queue.name, _queue(queue, kept)]
        made += [each.exchange for each in queue.bindings]
        bound += [(each, queue.name) for each in queue.bindings]
        if (target := queue.dead_letters) is not None:
            exchange = Exchange(target.exchange)
            made.append(exchange)
            bound.append((Binding(exchange, target.routing_key), target.queue))
            # Dead letters are kept, whatever becomes of the messages they have been.
            stays: Kept = "l" if kept == "p" else kept
            told = [target.exchange, target.queue, target.routing_key]
            dead = [
                target.queue,
                _queue(Queue(target.queue), stays),
                strung([each.encode() for each in told]),
            ]
    arguments: list[Argument] = [len(made)]
    for each in made:
        arguments += (each.name, _exchange(each))
    arguments += (*about, *dead, to or "")
    for some in (bound, [(each, to or "") for each in unbind]):
        arguments.append(len(some))
        for binding, name in some:
            arguments += (binding.exchange.name, _binding(binding, name))
    return arguments


def check(
    answer: Sequence[bytes], asked: Sequence[Exchange], queue: Queue | None, kept: Kept
) -> None:
    """Raise if the script has made nothing, because of what it found."""
    what, *rest = answer
    if what == b"done":
        return
    name = rest[0].decode()
    if what == b"missing":
        raise no_queue(name, "bind")
    if what == b"exchange":
        exchange = next((each for each in asked if each.name == name), Exchange(name))
        wanted, found = _exchange(exchange), rest[1]
        have = ["type", *_EXCHANGE]
        values = [[_TYPES[chr(each[0])], *unpack(each[1:])] for each in (found, wanted)]
    else:
        assert queue is not None
        found, wanted = rest[1], _queue(queue, "l")
        have = list(_QUEUE)
        values = [unpack(each[3:]) for each in (found, wanted)]
        if values[0] == values[1]:  # then it is kept otherwise
            have, values = ["mode"], [[MODES[chr(found[0])]], [MODES[kept]]]
    raise _mismatch(what.decode(), name, have, values)


async def read(client: Client, base: str) -> Topology:
    """All there is."""
    queues, exchanges, dead = await client.calls(
        [
            ("HKEYS", f"{base}queues"),
            ("HGETALL", f"{base}exchanges"),
            ("HGETALL", f"{base}dead"),
        ]
    )
    names = sorted(each.decode() for each in _sound(queues))
    known = {
        name.decode(): exchange_of(name.decode(), value)
        for name, value in _pairs(_sound(exchanges))
    }
    bound = await client.calls([("SMEMBERS", f"{base}bound:{name}") for name in known])
    consumers = await client.calls([("HGETALL", f"{base}consumers:{name}") for name in names])
    bindings: list[tuple[Binding, str]] = []
    for exchange, members in zip(known.values(), bound, strict=True):
        for member in sorted(_sound(members)):
            queue, pattern, _, headers, *_ = unstrung(member)
            binding = Binding(exchange, pattern.decode(), unpack(headers))
            bindings.append((binding, queue.decode()))
    return Topology(
        exchanges=tuple(known.values()),
        queues=tuple(names),
        bindings=tuple(bindings),
        consumers=tuple(
            ConsumerInfo(name, f"process-{consumer.decode()}", int(prefetch))
            for name, told in zip(names, consumers, strict=True)
            for consumer, prefetch in _pairs(_sound(told))
        ),
        dead_letters=tuple(
            (queue.decode(), unstrung(target)[1].decode()) for queue, target in _pairs(_sound(dead))
        ),
    )


def exchange_of(name: str, value: bytes) -> Exchange:
    """The exchange that is kept as this."""
    durable, auto_delete, arguments = unpack(value[1:])
    return Exchange(name, _TYPES[chr(value[0])], durable, auto_delete, arguments)


def _exchange(exchange: Exchange) -> bytes:
    return exchange.type[0].encode() + pack([getattr(exchange, name) for name in _EXCHANGE])


def _queue(queue: Queue, kept: Kept) -> bytes:
    goes = "-"
    if queue.auto_delete:
        goes = "r" if queue.name.startswith(REPLIES) else "a"
    letters = kept + goes + ("e" if queue.exclusive else "-")
    return letters.encode() + pack([getattr(queue, name) for name in _QUEUE])


def _binding(binding: Binding, queue: str) -> bytes:
    wanted = {name: value for name, value in binding.headers.items() if not name.startswith("x-")}
    mode = binding.headers.get("x-match", "all")
    told = [queue.encode(), binding.pattern.encode(), mode.encode(), pack(binding.headers)]
    return strung([*told, *told_apart(wanted)])


def _mismatch(
    what: str, name: str, have: Sequence[str], values: Sequence[Sequence[Any]]
) -> TopologyMismatch:
    for each, found, wanted in zip(have, *values, strict=True):
        if found != wanted:
            return TopologyMismatch(
                f"{what} {name!r} exists with {each}={found!r}, {wanted!r} is asked for; delete "
                f"the {what} or ask for the same",
                broker="redis",
                operation="declare",
                queue=name if what == "queue" else None,
            )
    return TopologyMismatch(f"{what} {name!r} exists with other properties", broker="redis")


def _sound(reply: Any) -> Any:
    if isinstance(reply, QueueError):
        raise reply
    return reply


def _pairs(flat: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)
