"""Publishing from the shell: one message, many copies, or a line of JSON each."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated

import typer

from queuecraft.app import QueueCraft
from queuecraft.cli.broker import Url, craft, entered, run
from queuecraft.cli.completion import queue_names
from queuecraft.cli.duration import seconds
from queuecraft.cli.exits import ExitCode
from queuecraft.cli.outgoing import (
    CorrelationId,
    EventName,
    Given,
    HeaderPairs,
    Id,
    Key,
    sorted_out,
)
from queuecraft.cli.output import AsJson
from queuecraft.cli.pairs import pairs
from queuecraft.cli.payload import lines, opened, parse, read
from queuecraft.cli.progress import progress
from queuecraft.cli.tally import Tally
from queuecraft.drivers.base import Exchange
from queuecraft.model.errors import (
    CircuitOpen,
    ConfigError,
    ConnectionLost,
    PayloadError,
    PublishError,
    QueueError,
    Unroutable,
)
from queuecraft.runtime.options import PublishOptions

AT_ONCE = 500  # messages of one flight


def publish(
    event: EventName = None,
    payload: Given = None,
    *,
    queue: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="Send to this queue alone; then there is no EVENT.",
            autocompletion=queue_names,
        ),
    ] = None,
    header: HeaderPairs = None,
    key: Key = None,
    delay: Annotated[
        float | None, typer.Option(parser=seconds, metavar="TIME", help="Deliver later, as 5m.")
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(parser=seconds, metavar="TIME", help="Expire if not handled by then."),
    ] = None,
    priority: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="0 to 255, where the broker can.")
    ] = None,
    id: Id = None,
    correlation_id: CorrelationId = None,
    exchange: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another exchange than the one set.")
    ] = None,
    drop: Annotated[
        bool, typer.Option("--drop", help="No error when no queue is bound to the event.")
    ] = False,
    count: Annotated[int, typer.Option(min=1, metavar="COUNT", help="So many copies.")] = 1,
    by_line: Annotated[
        bool, typer.Option("--lines", help="Each line of PAYLOAD, or of standard input, is one.")
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Publish an event to every queue bound to it, or send to one queue with --queue.

    Example: queuecraft publish order.placed '{"id": "o-1", "total": 9.5}' --header tenant=t1
    """
    event, payload = sorted_out(event, payload, queue)
    many = by_line or count > 1
    if many and id is not None:
        raise ConfigError("--id is for one message; leave it out with --count and --lines")
    if by_line and count > 1:
        raise ConfigError("give --lines or --count, not both")
    options = PublishOptions()
    if headers := pairs("--header", header):
        options["headers"] = headers
    if key is not None:
        options["key"] = key
    if delay is not None:
        options["delay"] = delay
    if ttl is not None:
        options["ttl"] = ttl
    if priority is not None:
        options["priority"] = priority
    if id is not None:
        options["message_id"] = id
    if correlation_id is not None:
        options["correlation_id"] = correlation_id
    if drop:
        options["unroutable"] = "drop"

    qc = craft(url, creates=True)
    limit = qc.settings.max_message_bytes
    # Read before anything is connected or made: it may be wrong, and it may be typed slowly.
    value = None if by_line else read(payload, limit)

    async def work() -> None:
        async with entered(qc):
            if queue is not None:
                await qc.admin.inspect(queue)  # which says what may have been meant
            if exchange is not None:  # of whatever type it is
                known = (await qc.admin.topology()).exchanges
                options["exchange"] = next((x for x in known if x.name == exchange), exchange)
            target = Target(qc, event, queue, options)
            if by_line:
                await _publish_lines(target, payload, limit, tally)
            elif many:
                await _publish_copies(target, value, count, tally)
            else:
                tally.add(1, [await target.one(value)])

    tally = Tally(as_json=as_json, single=not many)
    try:
        run(work())
    except (KeyboardInterrupt, QueueError):
        tally.close("stopped")
        raise
    tally.close()
    if tally.failed:
        raise typer.Exit(ExitCode.NO)


class Target:
    """Where the messages of one command go."""

    def __init__(
        self, qc: QueueCraft, event: str | None, queue: str | None, options: PublishOptions
    ) -> None:
        self._qc = qc
        self._event = event
        self._queue = queue
        self._options = options

    async def one(self, payload: object) -> str:
        """One message; its id."""
        if self._queue is not None:
            return await self._qc.send(self._queue, payload, **self._options)
        try:
            return await self._qc.publish(self._event or "", payload, **self._options)
        except Unroutable as error:
            raise await self._unroutable(error) from error

    async def many(self, payloads: Sequence[object]) -> list[str | QueueError]:
        """Many in one flight; what became of each."""
        if self._queue is None:
            results = await self._qc.publish_many(
                self._event or "", payloads, return_exceptions=True, **self._options
            )
            lost = next((each for each in results if isinstance(each, Unroutable)), None)
            if lost is None:
                return results
            ours = await self._unroutable(lost)  # the same for all of them
            return [ours if isinstance(each, Unroutable) else each for each in results]
        return await asyncio.gather(*map(self._result, payloads))  # they fly together

    async def _unroutable(self, error: Unroutable) -> Unroutable:
        """The same in the words of the command line, with the event that may have been meant."""
        name, exchange = self._event or "", self._options.get("exchange", "")
        if isinstance(exchange, Exchange):
            exchange = exchange.name
        bound = {
            binding.pattern: queue
            for binding, queue in (await self._qc.admin.topology()).bindings
            if binding.exchange.name == (exchange or self._qc.settings.exchange)
        }
        if name in bound:  # as with pub/sub
            return Unroutable(
                f"queue {bound[name]!r} is bound to event {name!r}, but nobody listens now, and "
                "nothing is kept for those who do not; start its worker, or say --drop",
                broker=error.broker,
            )
        what, where = shlex.quote(name or "EVENT"), ""
        if exchange:
            what += f" --exchange {shlex.quote(exchange)}"
            where = f" of exchange {exchange!r}"
        hint = (
            f"start its worker, make a queue for it (queuecraft declare QUEUE {what}), give it to "
            f"one that exists (queuecraft bind QUEUE {what}), or say --drop"
        )
        if near := get_close_matches(name, bound, 1, cutoff=0.75):
            hint = f"did you mean {near[0]!r}? If not, {hint}"
        return Unroutable(
            f"no queue is bound to event {name!r}{where}; {hint}", broker=error.broker
        )

    async def _result(self, payload: object) -> str | QueueError:
        try:
            return await self.one(payload)
        except QueueError as error:
            return error


async def _publish_copies(target: Target, payload: object, count: int, tally: Tally) -> None:
    with progress("publishing", count) as draw:
        for start in range(0, count, AT_ONCE):
            results = await target.many([payload] * min(AT_ONCE, count - start))
            tally.add(start + 1, results)
            draw(start + len(results), count)
            _stop_at_outage(results)


async def _publish_lines(target: Target, source: str | None, limit: int, tally: Tally) -> None:
    with opened(source) as stream, progress("publishing") as draw:
        async for batch in lines(stream, limit):
            for start in range(0, len(batch), AT_ONCE):
                results: dict[int, str | QueueError] = {}
                good: dict[int, object] = {}
                for number, line in batch[start : start + AT_ONCE]:
                    try:
                        good[number] = parse(line, f"line {number}")
                    except PayloadError as error:
                        results[number] = error
                sent = await target.many(list(good.values()))
                results.update(zip(good, sent, strict=True))
                tally.take(results)
                draw(tally.published + tally.failed, None)
                _stop_at_outage(sent)


def _stop_at_outage(results: Sequence[str | QueueError]) -> None:
    """What comes after would wait just as long, and in vain."""
    for each in results:
        if isinstance(each, ConnectionLost | CircuitOpen):
            raise each
        if isinstance(each, PublishError) and each.outcome == "unknown":
            raise each
