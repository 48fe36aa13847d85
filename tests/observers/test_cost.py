"""What nobody observes costs nothing: no fact is built, and no code of an observer runs."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import queuecraft
from queuecraft import Event, QueueCraft
from queuecraft.observers.prometheus import PrometheusObserver

MESSAGES = 50
PACKAGE = Path(queuecraft.__file__).parent
FACTS = str(PACKAGE / "runtime" / "facts.py")
OBSERVERS = str(PACKAGE / "observers")
TOLD = ("emit", "tell")

ordered = Event("order.placed", int)


@contextmanager
def calls() -> Generator[Counter[str]]:
    """The functions that told facts or observed them meanwhile."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        telling = code.co_filename == FACTS and code.co_name in TOLD
        if event == "call" and (telling or code.co_filename.startswith(OBSERVERS)):
            found[code.co_qualname] += 1

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def work(qc: QueueCraft) -> Counter[str]:
    """Messages from publishing until they are handled."""
    handled: list[int] = []
    done = asyncio.Event()
    worker = qc.worker("billing", concurrency=2)

    @worker.on(ordered)
    async def charge(number: int) -> None:
        handled.append(number)
        if len(handled) == 2 * MESSAGES:
            done.set()

    async with qc:
        await worker.start()
        with calls() as found:
            for number in range(MESSAGES):
                await qc.publish(ordered, number)
            await qc.publish_many(ordered, range(MESSAGES))
            async with asyncio.timeout(30):
                await done.wait()
    return found


async def test_no_fact_is_told_while_nobody_observes() -> None:
    assert await work(QueueCraft("local://", presence=0)) == Counter()


async def test_the_test_would_see_an_observer() -> None:
    qc = QueueCraft("local://", presence=0)
    PrometheusObserver().attach(qc)
    found = await work(qc)
    assert found["Facts.tell"] > MESSAGES
    assert found["Published.noting.<locals>.note"] == MESSAGES + 1
