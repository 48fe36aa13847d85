"""How long the pages of the HTTP service take, and what the broker pays while somebody looks.

    python -m benchmarks.pages rabbitmq --queues 500 --letters 100000

A broker with a worker's queue and a dead-letter queue for each of them; so many dead letters are
in one of them, and as many in fifty others, of a hundred kinds, each with a traceback. The service
is a real one on a socket of this machine; each page is asked for several times, one request after
another, and the first, the middle and the slowest answer are told, and for how long the loop of
the service was held up at most. Then the processor time of the broker: left alone, served while
nobody looks, with one dashboard open, with two and `queuecraft top`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import sys
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter, thread_time
from typing import Annotated

import httpx
import typer

from benchmarks.crowd import Broker, Crowd, crowd, declare, fill
from queuecraft import QueueCraft
from queuecraft.http import LOCAL, MAX_BODY
from queuecraft.http.secrets import Secrets
from queuecraft.http.server import Server
from queuecraft.http.service import Service

TOKEN = "a-token-for-measuring"
TRIES = 20
IMPATIENT = 15.0  # seconds after which a slow page is asked for no more

PAGES = (
    "/api/overview",
    "/api/queues",
    "/api/queues?limit=1000&dead_letters=true&sort=dead",
    "/api/queues/queue-000",
    "/api/queues/queue-000/messages",
    "/api/queues/queue-000.dlq/messages?limit=500",
    "/api/exchanges",
    "/api/workers",
    "/api/dead-letters/groups",
    "/api/dead-letters/groups?queue=queue-000",
    "/api/dead-letters?queue=queue-000",
    "/api/dead-letters?queue=queue-000&error=kind%2042",
    "/api/dead-letters/queue-000/letter-0",
    "/api/dead-letters/queue-000/letter-1999",
    "/api/dead-letters/queue-000/letter-{last}",
    "/api/audit",
    "/api/jobs",
    "/metrics",
    "/health",
)


@asynccontextmanager
async def served(place: Crowd, queues: int) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of the service, while the block runs."""
    qc = QueueCraft(place.url)
    service = Service(qc, Secrets(token=TOKEN), hosts=LOCAL, max_body=MAX_BODY)
    server = Server(service, patience=5)
    listening = socket.create_server(("127.0.0.1", 0))
    async with qc:
        if place.forgetful:
            await declare(qc, queues)
        serving = asyncio.ensure_future(server.serve_on(listening))
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{listening.getsockname()[1]}",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=60,
        ) as client:
            yield client
        server.stop()
        await serving


class Beat:
    """Notices how long the loop was held up: by the clock, and by what its thread computed, which
    others on the machine cannot lengthen."""

    def __init__(self) -> None:
        self.worst = 0.0
        self.busiest = 0.0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            before, computed = perf_counter(), thread_time()
            await asyncio.sleep(0.001)
            self.worst = max(self.worst, perf_counter() - before)
            self.busiest = max(self.busiest, thread_time() - computed)

    def __str__(self) -> str:
        return f"held up {self.worst:.3f} s, computing {self.busiest:.3f} s"


@asynccontextmanager
async def beating() -> AsyncGenerator[Beat]:
    """A beat, while the block runs."""
    beat = Beat()
    running = asyncio.ensure_future(beat.run())
    try:
        yield beat
    finally:
        running.cancel()


async def ask_for_pages(client: httpx.AsyncClient, last: int) -> None:
    """Ask for each page, and tell how long it took."""
    began = perf_counter()
    async with beating() as beat:
        await client.get("/api/overview")
    took = perf_counter() - began
    print(f"first overview: {took:.3f} s, {beat}", flush=True)
    async with beating() as beat:
        await asyncio.sleep(5)  # the groups are made in the background
    print(f"while groups are made: {beat}", flush=True)
    heads = ("first", "middle", "slowest", "held up", "computing")
    print(f"{'page':<56}{''.join(f'{head:>10}' for head in heads)}{'bytes':>10}")
    for page in PAGES:
        times: list[float] = []
        size, refusal = 0, ""
        async with beating() as beat:
            while len(times) < TRIES and sum(times) < IMPATIENT:
                began = perf_counter()
                answer = await client.get(page.format(last=last))
                times.append(perf_counter() - began)
                size = len(answer.content)
                refusal = "" if answer.is_success else f"  {answer.status_code} {answer.text}"
        figures = (times[0], statistics.median(times), max(times), beat.worst, beat.busiest)
        print(
            f"{page:<56}{''.join(f'{each:>9.3f}s' for each in figures)}{size:>10,}{refusal[:200]}",
            flush=True,
        )


async def look_at_overview(client: httpx.AsyncClient) -> None:
    """What a browser with the overview does."""
    await client.get("/api/overview")
    async with client.stream("GET", "/api/live") as live:
        async for line in live.aiter_lines():
            if line.startswith("event:"):
                await client.get("/api/queues")


async def look_at_queue(client: httpx.AsyncClient) -> None:
    """What a browser with the page of a queue does."""
    last = 0.0
    async with client.stream("GET", "/api/live") as live:
        async for line in live.aiter_lines():
            if line.startswith("event:") and perf_counter() - last > 3.5:
                last = perf_counter()
                await client.get("/api/queues/queue-000")


async def look_by_top(place: Crowd) -> None:
    """What a terminal with `queuecraft top` does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "queuecraft", "top", "--json"),
        env={**os.environ, "QUEUECRAFT_URL": place.url},
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def pay(place: Crowd, what: str, seconds: float, *watching: Awaitable[None]) -> None:
    """Tell what the broker did for those who look."""
    tasks = [asyncio.ensure_future(each) for each in watching]
    await asyncio.sleep(12 if tasks else 0)  # they begin, and look into the dead letters once
    cpu, asked, began = place.cpu(), place.requests and place.requests(), perf_counter()
    async with beating() as beat:
        await asyncio.sleep(seconds)
    took = perf_counter() - began
    used = 100 * (place.cpu() - cpu) / took
    requests = (
        ""
        if asked is None or place.requests is None
        else (f", {(place.requests() - asked) / took:,.0f} commands a second")
    )
    ended = [each for each in tasks if each.done()]
    print(f"{what:<34}{used:6.1f} % of a processor{requests}, {beat}", flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for each in ended:
        print(f"  ended early: {each}")


async def settle(place: Crowd) -> None:
    """Wait until the broker has dealt with what it was given."""
    for _ in range(20):
        before = place.cpu()
        await asyncio.sleep(3)
        if place.cpu() - before < 0.15:
            return


async def measure(place: Crowd, queues: int, last: int, seconds: float) -> None:
    """All figures of one broker."""
    watch = place.pid is not None or place.requests is not None
    if watch:
        await settle(place)
        await pay(place, "left alone", seconds)
    async with served(place, queues) as client:
        await ask_for_pages(client, last)
        if watch:
            await settle(place)
            await asyncio.sleep(16)
            await pay(place, "served, nobody looks", seconds)
            await pay(place, "one dashboard", seconds, look_at_overview(client))
            await pay(place, "one dashboard, page of a queue", seconds, look_at_queue(client))
            await pay(
                place,
                "two dashboards and top",
                seconds,
                look_at_overview(client),
                look_at_overview(client),
                look_by_top(place),
            )
    if watch:
        await pay(place, "left alone again", seconds)


def main(
    broker: Annotated[Broker, typer.Argument(help="What to look at.")] = "file",
    queues: Annotated[
        int, typer.Option(min=51, help="Each has a dead-letter queue as well.")
    ] = 500,
    letters: Annotated[int, typer.Option(help="In one queue, and as many in 50 others.")] = 100_000,
    seconds: Annotated[float, typer.Option(help="For which the broker is watched.")] = 30.0,
    keep: Annotated[Path | None, typer.Option(help="A file to fill once and use again.")] = None,
    url: Annotated[str | None, typer.Option(help="One that is filled already.")] = None,
    pid: Annotated[int | None, typer.Option(help="The process of the broker at --url.")] = None,
) -> None:
    """Fill a broker, serve it, ask for every page, and see what looking costs."""
    if url is not None:
        asyncio.run(measure(Crowd(url, pid), queues, letters - 1, seconds))
        return
    with crowd(broker, keep) as place:
        there = keep is not None and keep.exists()
        one = letters if there else asyncio.run(fill(place.url, queues, letters))[0]
        asyncio.run(measure(place, queues, one - 1, seconds))


if __name__ == "__main__":
    typer.run(main)
