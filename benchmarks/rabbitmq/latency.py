"""How long an order takes from a publisher to a handler in another process, through RabbitMQ.

    python -m benchmarks.rabbitmq.latency

Each contender has one process that publishes 200 orders a second, and one that handles them. The
clock starts before the order is encoded and stops in its handler, with the order decoded. The
contenders take turns, round after round, and a claim is judged round by round: a slow moment of
the machine hits both. aio-pika is used as its documentation says, with confirms, as in the
benchmark of its throughput.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from time import monotonic
from typing import Annotated, Any

import msgspec
import typer

from benchmarks.harness import RunFailed, Spread, rotated
from benchmarks.rabbitmq.broker import place, serving
from benchmarks.rabbitmq.stretch import PREFETCH
from queuecraft import Event, QueueCraft
from tests.brokers.installation import Unavailable

OURS, THEIRS = "QueueCraft", "aio-pika"
READY = b"ready\n"
ENOUGH = 0.2  # seconds before the first order of a round, for what is still going on to end
LIMIT = 30.0  # seconds that a round may take longer than it should


class Sent(msgspec.Struct):
    """An order's place in time, padded to the 225 bytes of an order."""

    at: float
    note: str = "x" * 190


sent = Event("order.sent", Sent)

Handle = Callable[[Sent], None]
Publish = Callable[[Sent], Awaitable[object]]


@asynccontextmanager
async def our_worker(url: str, handle: Handle) -> AsyncGenerator[None]:
    async with QueueCraft(url) as qc:
        worker = qc.worker(OURS, prefetch=PREFETCH)

        @worker.on(sent)
        async def take(order: Sent) -> None:
            handle(order)

        await worker.start()
        yield


@asynccontextmanager
async def our_publisher(url: str) -> AsyncGenerator[Publish]:
    async with QueueCraft(url) as qc:

        async def publish(order: Sent) -> None:
            await qc.publish(sent, order)

        yield publish


@asynccontextmanager
async def their_worker(url: str, handle: Handle) -> AsyncGenerator[None]:
    import aio_pika

    decode = msgspec.json.Decoder(Sent).decode

    async def take(message: Any) -> None:
        async with message.process():
            handle(decode(message.body))

    async with await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.declare_queue(THEIRS, durable=True)
        await queue.consume(take)
        yield


@asynccontextmanager
async def their_publisher(url: str) -> AsyncGenerator[Publish]:
    import aio_pika

    encode = msgspec.json.Encoder().encode
    async with await aio_pika.connect_robust(url) as connection:
        exchange = (await connection.channel()).default_exchange

        async def publish(order: Sent) -> None:
            message = aio_pika.Message(
                encode(order),
                content_type="application/json",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            await exchange.publish(message, routing_key=THEIRS)

        yield publish


WORKERS: dict[str, Callable[[str, Handle], AbstractAsyncContextManager[None]]] = {
    OURS: our_worker,
    THEIRS: their_worker,
}
PUBLISHERS: dict[str, Callable[[str], AbstractAsyncContextManager[Publish]]] = {
    OURS: our_publisher,
    THEIRS: their_publisher,
}


async def work(contender: str, url: str, messages: int) -> None:
    """In another process: prints the seconds that each of so many orders took, then ends."""
    taken: list[float] = []
    done = asyncio.Event()

    def handle(order: Sent) -> None:
        taken.append(monotonic() - order.at)
        if len(taken) == messages:
            done.set()

    async with WORKERS[contender](url, handle):
        print(READY.decode(), end="", flush=True)
        await done.wait()
    print(msgspec.json.encode(taken).decode())


async def send(contender: str, url: str, messages: int, rate: float) -> None:
    """In another process: publishes evenly, whatever becomes of the order before."""
    async with PUBLISHERS[contender](url) as publish, asyncio.TaskGroup() as publishing:
        begin = monotonic() + ENOUGH
        for number in range(messages):
            await asyncio.sleep(max(0.0, begin + number / rate - monotonic()))
            publishing.create_task(_publish(publish))


async def _publish(publish: Publish) -> None:
    await publish(Sent(monotonic()))


async def take_turn(contender: str, url: str, messages: int, rate: float) -> list[float]:
    """One round of one contender, in two processes."""
    try:
        async with asyncio.timeout(LIMIT + messages / rate):
            return await _in_two_processes(contender, url, messages, rate)
    except TimeoutError as error:
        raise RunFailed(f"{contender}: {messages} orders were not handled in time") from error


async def _in_two_processes(contender: str, url: str, messages: int, rate: float) -> list[float]:
    size = ("--messages", str(messages), "--rate", str(rate))
    async with (
        running(contender, url, *size, "--part", "worker") as worker,
        AsyncExitStack() as sending,
    ):
        assert worker.stdout is not None
        if await worker.stdout.readline() != READY:
            raise RunFailed(f"{contender}: its worker did not start")
        await sending.enter_async_context(running(contender, url, *size, "--part", "sender"))
        out, _ = await worker.communicate()
    if worker.returncode:
        raise RunFailed(f"{contender}: its worker ended with status {worker.returncode}")
    return msgspec.json.decode(out, type=list[float])


@asynccontextmanager
async def running(
    contender: str, url: str, *arguments: str
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """This program once more; it has ended when the block is left, and is killed if that failed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.rabbitmq.latency"),
        *("--contender", contender, "--url", url, *arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@dataclass(slots=True)
class Latencies:
    """Milliseconds, a figure a round."""

    p50: list[float] = field(default_factory=list[float])
    p99: list[float] = field(default_factory=list[float])

    def add(self, seconds: list[float]) -> None:
        cuts = statistics.quantiles(seconds, n=100)
        self.p50.append(1000 * cuts[49])
        self.p99.append(1000 * cuts[98])


def later(ours: Latencies, theirs: Latencies) -> Spread:
    """Our p99 in theirs, round by round: below 1 is earlier.

    >>> later(Latencies(p99=[1.0, 2.0, 9.0]), Latencies(p99=[2.0, 4.0, 9.0]))
    Spread(median=0.5, low=0.5, high=1.0)
    """
    return Spread.of([mine / other for mine, other in zip(ours.p99, theirs.p99, strict=True)])


async def measure(rounds: int, messages: int, rate: float) -> dict[str, Latencies]:
    found = {contender: Latencies() for contender in WORKERS}
    with serving(), place() as url:
        for turn in range(rounds):
            for contender in rotated(list(WORKERS), turn):
                found[contender].add(await take_turn(contender, url, messages, rate))
    return found


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each contender.")] = 9,
    messages: Annotated[int, typer.Option(min=100, help="Orders a turn.")] = 1000,
    rate: Annotated[float, typer.Option(min=1, help="Orders a second.")] = 200.0,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if ours are later than aio-pika's.")
    ] = False,
    part: Annotated[str | None, typer.Option(hidden=True)] = None,
    contender: Annotated[str, typer.Option(hidden=True)] = OURS,
    url: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Print the middle and the worst of it, and say whether ours are no later."""
    if part == "worker":
        asyncio.run(work(contender, url, messages))
        return
    if part == "sender":
        asyncio.run(send(contender, url, messages, rate))
        return
    if find_spec("aio_pika") is None:
        print("SKIPPED, aio-pika is not installed")
        raise typer.Exit(int(check))
    try:
        found = asyncio.run(measure(rounds, messages, rate))
    except RunFailed as error:
        typer.echo(f"no result: {error}", err=True)
        raise typer.Exit(2) from error
    except Unavailable as reason:
        print(f"SKIPPED, no broker: {reason}")
        raise typer.Exit(int(check)) from reason
    print(f"{rounds} rounds of {messages:,} orders at {rate:g} a second; medians, low to high")
    for name, latencies in found.items():
        shown: list[str] = []
        for label, figures in (("p50", latencies.p50), ("p99", latencies.p99)):
            spread = Spread.of(figures)
            shown.append(f"{label} {spread.median:.2f} ms ({spread.low:.2f}–{spread.high:.2f})")
        print(f"{name:<12}{'  '.join(shown)}")
    ratio = later(found[OURS], found[THEIRS])
    holds = ratio.median <= 1
    print(
        f"{'holds' if holds else 'misses'}: p99 against aio-pika's: {ratio.median:.2f}×"
        f" ({ratio.low:.2f}–{ratio.high:.2f}; owed: at most 1×)"
    )
    if check and not holds:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
