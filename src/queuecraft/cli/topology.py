"""Making and unmaking: queues, exchanges, bindings, and what is in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

from queuecraft.app import QueueCraft
from queuecraft.cli.broker import Url, check_place, connected, entered, run
from queuecraft.cli.completion import QueueName
from queuecraft.cli.confirmation import Yes, confirm
from queuecraft.cli.mistakes import mistakes_explained
from queuecraft.cli.output import AsJson, note, say, say_json
from queuecraft.cli.pairs import pairs
from queuecraft.cli.processes.application import Application
from queuecraft.drivers.base import Exchange, QueueInfo
from queuecraft.model.errors import ConfigError
from queuecraft.model.queue import EXCHANGE_TYPES, ExchangeType

Events: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="EVENT...", help="Events or patterns, as order.placed or 'order.*'."),
]
ExchangeName: TypeAlias = Annotated[
    str | None,
    typer.Option("--exchange", metavar="NAME", help="Another exchange than the one set."),
]
Match: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--match", metavar="NAME=VALUE", help="A header wanted, on a headers exchange."),
]


def declare(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Its name.", show_default=False)
    ] = None,
    events: Events = None,
    *,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:ATTRIBUTE",
            help="Instead of QUEUE: all that the workers of this application need, at its broker.",
        ),
    ] = None,
    exchange: ExchangeName = None,
    exchange_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Of the exchange, if it is new.")
    ] = None,
    dead_letters: Annotated[bool, typer.Option(help="Make its dead-letter queue as well.")] = True,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a queue, with its dead-letter queue and bindings. Making it again only adds.

    Example: queuecraft declare billing order.placed 'payment.*'

    Example: queuecraft declare --app shop:qc
    """
    if app is not None:
        if queue is not None or exchange or exchange_type or url or not dead_letters:
            raise typer.BadParameter(
                "goes alone: the application says the rest", param_hint="--app"
            )
        made = _declared_by(app)
        _told(as_json, f"Declared {', '.join(map(repr, made))}.", declared=made)
        return
    if queue is None:
        raise typer.BadParameter("name one, or an application: --app shop:qc", param_hint="QUEUE")
    name, patterns = queue, events or []

    async def work() -> None:
        async with connected(url, creates=True) as qc:
            meant: Exchange | str | None = exchange
            if exchange_type is not None:
                meant = Exchange(exchange or qc.settings.exchange, _type(exchange_type))
            await qc.admin.declare(name, *patterns, exchange=meant, dead_letters=dead_letters)

    run(work())
    _told(as_json, f"Declared {name!r}{_to(patterns, ', bound')}.", declared=name, events=patterns)


def _declared_by(app: str) -> list[str]:
    """The queues of an application, made as its workers would."""
    with mistakes_explained():
        found = Application.load(app)
    check_place(found.qc.settings.url, creates=True)

    async def work() -> None:
        async with entered(found.qc):
            pass

    run(work())
    return [worker.queue_name for worker in found.workers]


def bind(
    queue: QueueName,
    events: Events = None,
    *,
    exchange: ExchangeName = None,
    match: Match = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Give a queue more events, from now on.

    Example: queuecraft bind audit 'user.#'
    """
    patterns = events or []
    headers = pairs("--match", match)

    async def work() -> bool:
        async with connected(url) as qc:
            known = {each.name for each in (await qc.admin.topology()).exchanges}
            await qc.admin.bind(queue, *patterns, exchange=exchange, headers=headers)
            return exchange is not None and exchange not in known

    made = run(work())
    if made and not as_json:
        note(f"there was no exchange {exchange!r}; it was made")
    fields = {"exchange_made": made} if made else {}
    text = f"Queue {queue!r} is bound{_to(patterns)}."
    _told(as_json, text, bound=queue, events=patterns, **fields)


def unbind(
    queue: QueueName,
    events: Events = None,
    *,
    exchange: ExchangeName = None,
    match: Match = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Give a queue these events no more; what it has it keeps.

    Example: queuecraft unbind audit 'user.#'
    """
    patterns = events or []
    headers = pairs("--match", match)

    async def work() -> list[str]:
        async with connected(url) as qc:
            bound = await _patterns(qc, queue, exchange)
            await qc.admin.unbind(queue, *patterns, exchange=exchange, headers=headers)
            left = await _patterns(qc, queue, exchange)
            return list((bound - left).elements())

    gone = run(work())
    strange = [each for each in patterns if each not in gone]
    if not as_json and strange:
        note(f"queue {queue!r} was not bound{_to(strange)}")
    if gone or as_json:
        text = f"Queue {queue!r} is not bound{_to([each for each in patterns if each in gone])} any"
        _told(as_json, f"{text} more.", unbound=queue, events=patterns, not_bound=strange)


def purge(queue: QueueName, *, yes: Yes = False, url: Url = None, as_json: AsJson = False) -> None:
    """Forget what is ready in a queue, for good; in-flight and delayed messages stay.

    Example: queuecraft purge scratch --yes
    """
    info = run(_inspect(url, queue))
    if info.ready != 0:
        confirm(f"forget {_messages(info.ready)} in {queue!r} for good", yes=yes)

    async def work() -> int:
        async with connected(url) as qc:
            return await qc.admin.purge(queue)

    purged = run(work())
    _told(as_json, f"Purged {_messages(purged)} from {queue!r}.", queue=queue, purged=purged)


def delete(queue: QueueName, *, yes: Yes = False, url: Url = None, as_json: AsJson = False) -> None:
    """Remove a queue with its bindings and messages; its dead-letter queue stays.

    Example: queuecraft delete scratch --yes
    """
    info = run(_inspect(url, queue))
    if info.consumers and not as_json:
        who = "a worker consumes" if info.consumers == 1 else f"{info.consumers} workers consume"
        note(f"{who} from {queue!r}, and makes the queue again unless stopped first")
    held = [each for each in (info.ready, info.in_flight, info.delayed) if each is not None]
    confirm(f"delete {queue!r} with {_messages(sum(held) if held else None)} for good", yes=yes)

    async def work() -> QueueInfo | None:
        async with connected(url) as qc:
            await qc.admin.delete(queue)
            return next(iter(await qc.admin.queues(f"{queue}.dlq")), None)

    letters = run(work())
    _told(as_json, f"Deleted {queue!r}.", deleted=queue)
    if letters is not None and not as_json:
        kept = f"with {_messages(letters.ready)}" if letters.ready else "empty"
        note(f"{letters.name!r} is still there, {kept}; queuecraft delete {letters.name}")


async def _patterns(qc: QueueCraft, queue: str, exchange: str | None) -> Counter[str]:
    """What a queue is bound to by an exchange, and how often: headers may tell two apart."""
    name = exchange or qc.settings.exchange
    bindings = (await qc.admin.topology()).bindings
    return Counter(
        binding.pattern
        for binding, bound in bindings
        if bound == queue and binding.exchange.name == name
    )


async def _inspect(url: str | None, queue: str) -> QueueInfo:
    async with connected(url) as qc:
        return await qc.admin.inspect(queue)


def _told(as_json: bool, text: str, **fields: object) -> None:
    if as_json:
        say_json(fields)
    else:
        say(text)


def _to(patterns: Sequence[str], verb: str = "") -> str:
    return f"{verb} to {', '.join(map(repr, patterns))}" if patterns else ""


def _messages(count: int | None) -> str:
    if count is None:
        return "all messages"
    return f"{count:,} message{'' if count == 1 else 's'}"


def _type(text: str) -> ExchangeType:
    for known in EXCHANGE_TYPES:
        if known == text:
            return known
    raise ConfigError(f"--type {text!r}: expected one of {', '.join(EXCHANGE_TYPES)}")
