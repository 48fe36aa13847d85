"""The broker: whether it answers, what we may do there, and whether its queues are well."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from time import perf_counter
from typing import Any

from queuecraft.app import QueueCraft
from queuecraft.cli.doctor.finding import Finding, failed, ok, skipped, warning
from queuecraft.cli.exits import sentence
from queuecraft.cli.health import Limits
from queuecraft.cli.leftover import advice, removed
from queuecraft.cli.unreachable import REACH, divided
from queuecraft.drivers.partial import lacking
from queuecraft.model.errors import ConnectionLost, QueueError
from queuecraft.model.policy import NoDeadLetter, NoRetry
from queuecraft.model.queue import Queue

OURS = ("queuecraft.bench.", "queuecraft.doctor.")
RIGHTS = "give the user of the URL this right, or another user"


async def broker(qc: QueueCraft, timeout: float, *, writes: bool) -> AsyncGenerator[Finding]:
    """Look at it: nothing of anybody else's is touched. With `writes`, a queue of our own is made,
    used and removed."""
    started = perf_counter()
    try:
        async with asyncio.timeout(timeout):
            await qc.open()
    except TimeoutError:
        yield failed("connection", f"the broker did not answer within {timeout:g} s", REACH)
        return
    except QueueError as error:
        about = "connection" if isinstance(error, ConnectionLost) else "settings"
        yield failed(about, *divided(error))
        return
    yield ok("connection", f"answered within {_ms(started)}")
    try:
        if qc.health_check().blocked:
            yield warning("blocked", str(qc.health_check().blocked), "free memory or disk there")
        async for finding in _queues(qc, timeout):
            yield finding
        if writes:
            async for finding in _rights(qc, timeout):
                yield finding
        else:
            yield skipped("rights", "not tried, as --no-writes asks")
    finally:
        await qc.shutdown(timeout=timeout)


async def _queues(qc: QueueCraft, timeout: float) -> AsyncGenerator[Finding]:
    started = perf_counter()
    try:
        async with asyncio.timeout(timeout):
            infos, paused = await qc.admin.queues(), await qc.admin.pauses()
    except TimeoutError:
        yield warning("queues", f"not told within {timeout:g} s", "the broker is slow; look there")
        return
    except QueueError as error:
        yield warning("queues", sentence(error), RIGHTS)
        return
    why = lacking(infos)
    if why is None:
        yield ok("queues", f"{len(infos):,}, told within {_ms(started)}")
    else:
        what, _, todo = why.partition("; ")
        yield warning("queues", f"not all can be listed: {what}", todo)
    for info in infos:
        if info.name.startswith(OURS):
            left = "left by a command that did not come to its end"
            yield warning(info.name, left, f"queuecraft delete {info.name} --yes")
        elif problems := Limits().problems(info, paused=info.name in paused):
            what = _ADVICE[_kind(problems[0])].format(info.name.removesuffix(".dlq"))
            yield warning(info.name, "; ".join(problems), what)


async def _rights(qc: QueueCraft, timeout: float) -> AsyncGenerator[Finding]:
    """Everything that an app does, with a queue of our own."""
    name = f"queuecraft.doctor.{os.urandom(4).hex()}"
    worker = qc.worker(name, retry=NoRetry(), dead_letter=NoDeadLetter())
    came = asyncio.Event()

    @worker.on(Queue(name, dict))
    async def receive(message: dict[str, Any]) -> None:
        came.set()

    step = "make a queue"
    trouble: Finding | None = None
    made = True  # or perhaps
    started = perf_counter()
    try:
        async with asyncio.timeout(timeout):
            await qc.admin.declare(name, dead_letters=False)
        step = "publish to it"
        async with asyncio.timeout(timeout):
            await qc.send(name, {})
        step = "consume from it"
        async with asyncio.timeout(timeout):
            await worker.start()
            await came.wait()
    except TimeoutError:
        trouble = failed("rights", f"cannot {step}: no answer within {timeout:g} s", REACH)
    except ConnectionLost as error:
        trouble = failed("connection", f"lost when asked to {step}: {sentence(error)}", REACH)
    except QueueError as error:
        trouble = failed("rights", f"cannot {step}: {sentence(error)}", RIGHTS)
        made = step != "make a queue"
    finally:
        took = _ms(started)
        gone = not made or await removed(qc, worker, name, within=timeout)
    if trouble is not None:
        yield trouble
    if not gone:
        yield failed("left behind", f"queue {name} may still be there", advice(name))
    elif trouble is None:
        yield ok("rights", f"made a queue, published, consumed and removed it; there in {took}")


_ADVICE = {
    "dead": "queuecraft dlq groups {0} shows why, queuecraft dlq redrive {0} sends them back",
    "paused": "queuecraft resume {0} lets its workers go on",
    "nobody": "start its worker: queuecraft run MODULE:ATTRIBUTE",
    "oldest": "see what its workers do: queuecraft top",
}


def _kind(problem: str) -> str:
    return next(kind for kind in _ADVICE if kind in problem)


def _ms(started: float) -> str:
    return f"{(perf_counter() - started) * 1000:,.0f} ms"
