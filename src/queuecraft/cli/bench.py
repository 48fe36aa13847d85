"""`queuecraft bench`: how fast this broker is, from here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import quantiles
from time import perf_counter
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from queuecraft.app import QueueCraft
from queuecraft.cli.broker import Url, craft, entered, run
from queuecraft.cli.duration import seconds
from queuecraft.cli.leftover import advice, removed
from queuecraft.cli.output import AsJson, note, on_terminal, say, say_json, show
from queuecraft.cli.progress import progress
from queuecraft.model.errors import ConfigError, ConnectionLost
from queuecraft.model.masking import masked
from queuecraft.model.policy import NoDeadLetter, NoRetry
from queuecraft.model.queue import Queue
from queuecraft.runtime.worker import Worker

PINGS = 200
ALONE = 2000  # published one at a time: enough to know, and no broker takes long for it
BAR = 16  # columns


@dataclass(frozen=True, slots=True)
class Payload:
    """What is sent: a number, and as much filling as was asked for."""

    number: int
    filling: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one way of using the broker gave.

    >>> Result(what="publish", messages=500, seconds=0.25).rate
    2000.0
    """

    what: str
    messages: int
    seconds: float
    latencies: tuple[float, ...] = ()

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds if self.seconds > 0 else 0.0

    def latency(self, percent: int) -> float | None:
        """Milliseconds that so many of a hundred messages did not pass."""
        if len(self.latencies) < 2:
            return None
        return quantiles(self.latencies, n=100, method="inclusive")[percent - 1] * 1000


def bench(
    *,
    messages: Annotated[
        int, typer.Option("--messages", "-n", min=100, metavar="COUNT", help="How many to send.")
    ] = 10_000,
    size: Annotated[
        int, typer.Option(min=1, max=1_000_000, metavar="BYTES", help="How large each is.")
    ] = 200,
    in_flight: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="Publishes that wait at once.")
    ] = 100,
    concurrency: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="Handlers that run at once.")
    ] = 100,
    timeout: Annotated[
        float, typer.Option(parser=seconds, metavar="TIME", help="The longest a step may take.")
    ] = 60.0,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Measure a broker from here: publishing, consuming, and the time from one to the other.

    Everything goes through a queue of its own, which is removed in the end, also after Ctrl-C.
    Typed payloads, confirmed publishes and acknowledged messages, as an app has them.

    Example: queuecraft bench --url amqp://localhost --messages 50000
    """
    qc = _quick(url)
    plan = Bench(qc, messages, "x" * size, in_flight, concurrency)
    results = run(_measured(plan, timeout))
    broker = masked(qc.settings.url)
    if as_json:
        for each in results:
            say_json({"broker": broker, **_fields(each, size)})
        return
    say(f"{broker}: {messages:,} messages of {size:,} bytes, {concurrency:,} handlers", "bold")
    if on_terminal():
        Console().print(_drawn(results))
    else:
        show(("step", "per second", "p50 ms", "p95 ms", "p99 ms"), map(_row, results))


def _quick(url: str | None) -> QueueCraft:
    """A queue in the memory of this command is welcome here: it is filled by ourselves."""
    try:
        return craft(url, creates=True)
    except ConfigError:
        if url is not None and url.rstrip("/") == "local:":
            return QueueCraft(url)
        raise


class Bench:
    """One queue, and what is sent through it."""

    def __init__(
        self, qc: QueueCraft, messages: int, filling: str, in_flight: int, concurrency: int
    ) -> None:
        self.in_flight = in_flight
        self.alone = min(messages // 10, ALONE)
        self.messages = messages
        self.queue = Queue(f"queuecraft.bench.{os.urandom(4).hex()}", Payload)
        self._qc = qc
        self._filling = filling
        self._concurrency = concurrency
        self._left = 0
        self._done = asyncio.Event()

    @asynccontextmanager
    async def ready(self) -> AsyncGenerator[Worker]:
        """The queue is there, and its worker is made; in the end nothing of it is left, or it is
        said."""
        async with entered(self._qc) as qc:
            await qc.admin.declare(self.queue, dead_letters=False)
            worker = qc.worker(
                self.queue,
                concurrency=self._concurrency,
                prefetch=5 * self._concurrency,
                retry=NoRetry(),
                dead_letter=NoDeadLetter(),
            )
            worker.on(self.queue)(self._handle)
            try:
                yield worker
            finally:
                if not await removed(qc, worker, self.queue.name):
                    note(f"queue {self.queue.name} may be left; {advice(self.queue.name)}")

    def check_connection(self) -> None:
        """Raise `ConnectionLost` if that is what takes so long."""
        health = self._qc.health_check()
        if health.connection_state != "connected":
            raise ConnectionLost(
                f"the broker has gone: {health.last_error or health.connection_state}"
            )

    async def publish(self, in_flight: int, messages: int) -> Result:
        """Publish so many at once: each is confirmed before the next takes its place."""
        numbers = iter(range(messages))

        async def one_after_another() -> None:
            for number in numbers:
                await self._qc.send(self.queue, Payload(number, self._filling))

        started = perf_counter()
        await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
        took = perf_counter() - started
        return Result(what=f"publish, {in_flight:,} at a time", messages=messages, seconds=took)

    async def consume(self, worker: Worker) -> Result:
        """Consume all that waits."""
        self._expect(self.messages)
        started = perf_counter()
        await worker.start()
        await self._done.wait()
        took = perf_counter() - started
        what = f"consume, {self._concurrency:,} at a time"
        return Result(what=what, messages=self.messages, seconds=took)

    async def ping(self, messages: int = PINGS) -> Result:
        """From the call of publish to the handler, one message at a time."""
        latencies: list[float] = []
        begun = perf_counter()
        for number in range(messages):
            self._expect(1)
            started = perf_counter()
            await self._qc.send(self.queue, Payload(number, self._filling))
            await self._done.wait()
            latencies.append(perf_counter() - started)
        took = perf_counter() - begun
        return Result(
            what="publish to handler",
            messages=messages,
            seconds=took,
            latencies=tuple(latencies),
        )

    def _expect(self, count: int) -> None:
        self._left = count
        self._done.clear()

    async def _handle(self, payload: Payload) -> None:
        self._left -= 1
        if self._left == 0:
            self._done.set()


async def _measured(plan: Bench, timeout: float) -> list[Result]:
    results: list[Result] = []
    with progress("measuring", 4) as draw:
        async with plan.ready() as worker:
            steps: tuple[Callable[[], Awaitable[Result]], ...] = (
                lambda: plan.publish(1, plan.alone),
                lambda: plan.publish(plan.in_flight, plan.messages - plan.alone),
                lambda: plan.consume(worker),
                plan.ping,
            )
            for step in steps:
                try:
                    async with asyncio.timeout(timeout):
                        results.append(await step())
                except TimeoutError:
                    plan.check_connection()
                    raise ConfigError(
                        f"a step took longer than {timeout:g} s; give fewer --messages, or more "
                        "time with --timeout"
                    ) from None
                draw(len(results), len(steps))
    return results


def _fields(result: Result, size: int) -> dict[str, object]:
    return {
        "step": result.what,
        "messages": result.messages,
        "bytes": size,
        "seconds": round(result.seconds, 6),
        "per_second": round(result.rate, 1),
        "p50_ms": result.latency(50),
        "p95_ms": result.latency(95),
        "p99_ms": result.latency(99),
    }


def _row(result: Result) -> tuple[str, int, float | None, float | None, float | None]:
    latencies = (result.latency(percent) for percent in (50, 95, 99))
    p50, p95, p99 = (None if each is None else round(each, 2) for each in latencies)
    return result.what, round(result.rate), p50, p95, p99


def _drawn(results: Sequence[Result]) -> Table:
    """The rates as bars, the longest as wide as there is room."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("step")
    drawn.add_column("per second", justify="right")
    drawn.add_column("")
    drawn.add_column("p50 / p95 / p99", justify="right")
    most = max(each.rate for each in results)
    for each in results:
        _, rate, *latencies = _row(each)
        told = " / ".join(f"{value:g}" for value in latencies if value is not None)
        bar = Text("█" * max(1, round(each.rate / most * BAR)), "cyan")
        drawn.add_row(each.what, f"{rate:,}", bar, f"{told} ms" if told else "")
    return drawn
