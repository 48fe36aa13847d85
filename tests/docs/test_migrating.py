"""The programs of other libraries on the pages for who comes from them, run by these libraries."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from queuecraft import QueueCraft
from queuecraft.admin import PeekedMessage
from queuecraft.testing import Ledger
from tests.brokers.fixtures import PEER_MISSING
from tests.brokers.process import Process, usual_environment
from tests.brokers.rabbitmq import RabbitMQ
from tests.docs.blocks import changed, left_to
from tests.rabbitmq.place import Order, order_paid, order_placed, running, until
from tests.test_house import BLOCKS, Block, run

PATIENCE = 30.0
PLACED = [{"id": "o-1", "total": 9.5}, {"id": "o-2", "total": 5.0}]


def needs(peer: str) -> pytest.MarkDecorator:
    reason = f"{PEER_MISSING}{peer} is not installed, and its programs are not run: make bench"
    return pytest.mark.skipif(find_spec(peer.lower()) is None, reason=reason)


def beginning(block: Block, end: str) -> str:
    """A program as far as the line that begins so."""
    found, line, _ = block.code.partition(f"\n{end}")
    assert line, f"{block} has no line {end!r}"
    return found + "\n"


def ours(page: str) -> Block:
    """The same in QueueCraft, which is beside the other library's."""
    (found,) = (block for block in BLOCKS if block.page == page and block.runs)
    return found


@asynccontextmanager
async def working(
    *command: str, program: Block, folder: Path, **settings: str
) -> AsyncGenerator[Process]:
    """A worker of another library on the program as `shop.py`; it has to end well."""
    place = folder / "shop"
    place.mkdir()
    (place / "shop.py").write_text(program.code, encoding="utf-8")
    environment = {**usual_environment(place), "PYTHONUNBUFFERED": "1", **settings}
    log = folder / "worker.log"
    worker = Process(
        [sys.executable, "-m", *command], folder=place, log=log, environment=environment
    )
    worker.start()
    try:
        yield worker
        os.kill(worker.pid, signal.SIGTERM)  # and no process of its own: it tells them itself
        assert worker.wait(PATIENCE) == 0, worker.output
    finally:
        worker.close()


async def said(worker: Process, *lines: str) -> None:
    """Return once it has printed lines that end so."""

    async def printed() -> str:
        return worker.output

    def all_of_them(output: str) -> bool:
        return all(re.search(f"{re.escape(line)}$", output, re.MULTILINE) for line in lines)

    await until(printed, all_of_them, PATIENCE)


async def arrived(qc: QueueCraft, queue: str, messages: int) -> list[PeekedMessage]:
    """So many messages, once they wait in a queue, in the order of their payloads."""
    await until(lambda: qc.admin.inspect(queue), lambda info: info.ready == messages, PATIENCE)
    return sorted(await qc.admin.peek(queue), key=lambda each: str(each.payload))


async def bound(rabbitmq: RabbitMQ, url: str, queue: str) -> None:
    """Return once a queue gets what is published to an exchange that is not the default one."""
    await until(
        lambda: asyncio.to_thread(rabbitmq.management.bindings, url),
        lambda bindings: any(each["destination"] == queue for each in bindings),
        PATIENCE,
    )


CELERY = ("celery", "-A", "shop", "worker", "--concurrency", "1", "--loglevel", "INFO")
WHOLE_LINES = "app.conf.worker_redirect_stdouts = False\n"  # its log has a line for each word


@needs("Celery")
async def test_celery_does_what_the_program_beside_ours_does(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    program, _ = left_to(__file__, "docs/migrating-from-celery.md")
    code = changed(program, {"amqp://rabbit": rabbitmq_url}).code + WHOLE_LINES
    async with working(*CELERY, program=replace(program, code=code), folder=tmp_path) as worker:
        await said(worker, "charging o-1 try 1", "charging o-2 try 1")


@needs("Celery")
async def test_what_waits_for_celery_is_forwarded_with_its_id(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    old, forwarder = left_to(__file__, "docs/migrating-from-celery.md")
    old = changed(old, {"amqp://rabbit": rabbitmq_url})
    status, output = run(old, tmp_path)
    assert status == 0, output
    event = beginning(ours(old.page), "qc = ")
    new = replace(forwarder, code=event + beginning(old, "@app.task") + forwarder.code)
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare("billing", "order.placed")
        async with working(
            *CELERY, program=new, folder=tmp_path, QUEUECRAFT_URL=rabbitmq_url
        ) as worker:
            messages = await arrived(qc, "billing", 2)
            received = re.findall(r"shop\.charge\[(\S+)\] received", worker.output)
    assert [each.payload for each in messages] == PLACED
    assert {each.id for each in messages} == set(received)


DRAMATIQ = ("dramatiq", "shop", "--processes", "1", "--threads", "1")


@needs("Dramatiq")
async def test_dramatiq_does_what_the_program_beside_ours_does(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    program, _ = left_to(__file__, "docs/migrating-from-dramatiq.md")
    program = changed(program, {"amqp://rabbit": rabbitmq_url})
    async with working(*DRAMATIQ, program=program, folder=tmp_path) as worker:
        await said(worker, "charging o-1", "charging o-2")


@needs("Dramatiq")
async def test_what_waits_for_dramatiq_is_forwarded_to_a_queue_beside_it(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    old, forwarder = left_to(__file__, "docs/migrating-from-dramatiq.md")
    old = changed(old, {"amqp://rabbit": rabbitmq_url})
    status, output = run(old, tmp_path)
    assert status == 0, output
    event = beginning(ours(old.page), "qc = ")
    new = replace(forwarder, code=event + beginning(old, "@dramatiq.actor") + forwarder.code)
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare("charging", "order.placed")
        async with working(*DRAMATIQ, program=new, folder=tmp_path, QUEUECRAFT_URL=rabbitmq_url):
            messages = await arrived(qc, "charging", 2)
    assert [each.payload for each in messages] == PLACED


FASTSTREAM = ("faststream", "run", "shop:app")


@needs("FastStream")
async def test_faststream_does_what_the_program_beside_ours_does(
    rabbitmq: RabbitMQ, rabbitmq_url: str, tmp_path: Path
) -> None:
    program, _ = left_to(__file__, "docs/migrating-from-faststream.md")
    program = changed(program, {"amqp://rabbit": rabbitmq_url})
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url, exchange="shop")
    mail = qc.worker("mail").on(order_paid, seen.recording("mail"))
    async with working(*FASTSTREAM, program=program, folder=tmp_path) as worker, qc, running(mail):
        await bound(rabbitmq, rabbitmq_url, "billing")
        await qc.publish(order_placed, Order("o-1", 9.5))
        await said(worker, "charging o-1")
        await seen.wait_for(mail=1, timeout=PATIENCE)
    assert seen.payloads("mail") == [Order("o-1", 9.5)]


SHARED = """
app = FastStream(broker)


@app.after_startup
async def begin():
    await place(Order(id="o-2", total=5.0))
"""


@needs("FastStream")
async def test_faststream_and_queuecraft_handle_what_the_other_publishes(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    _, sharing = left_to(__file__, "docs/migrating-from-faststream.md")
    here = {"amqp://rabbit": rabbitmq_url, "-> None: ...": '-> None: print("audited", order.id)'}
    order = beginning(ours(sharing.page), "order_placed = ")
    code = f"from faststream import FastStream\n{order}{changed(sharing, here).code}{SHARED}"
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url)
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        async with working(
            *FASTSTREAM, program=replace(sharing, code=code), folder=tmp_path
        ) as worker:
            await seen.wait_for(billing=1, timeout=PATIENCE)
            await qc.publish(order_placed, Order("o-1", 9.5))
            await said(worker, "audited o-1")
        await seen.wait_for(billing=2, timeout=PATIENCE)
    assert seen.payloads("billing") == [Order("o-2", 5.0), Order("o-1", 9.5)]
