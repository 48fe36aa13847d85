"""What the guides claim about all brokers, errors and secrets, held against the code."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import logging
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs
from pydantic import BaseModel

import queuecraft
from queuecraft import DeadMessage, Event, NoRetry, QueueCraft, Retry
from queuecraft.drivers.base import Driver, Traits
from queuecraft.drivers.kafka.driver import KafkaDriver
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.drivers.local.sqlite.driver import SqliteDriver
from queuecraft.drivers.rabbitmq.driver import RabbitDriver
from queuecraft.drivers.redis import PubsubDriver, RedisDriver
from queuecraft.facts import MessageDeadLettered, Reconnecting
from queuecraft.model import outcome
from queuecraft.model.envelope import Outgoing
from tests.brokers.redis import RedisServer
from tests.test_house import ROOT

SECRET: Final = "4111-1111"
COLUMNS: Final[list[type[Driver]]] = [
    MemoryDriver,
    SqliteDriver,
    RabbitDriver,
    RedisDriver,
    PubsubDriver,
    KafkaDriver,
]


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def row(text: str, begins: str) -> list[str]:
    """The cells of the row of a table that begins so, without that cell."""
    (found,) = [line for line in text.splitlines() if line.startswith(f"| {begins}")]
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def shares(traits: Traits) -> bool:
    """Whether several processes may have one queue."""
    return traits.competing and traits.durable


@pytest.mark.parametrize(
    ("begins", "no", "answers"),
    [
        ("an event that no queue is bound to", "`Unroutable`", lambda t: t.keeps_unrouted),
        ("several processes share a queue", "no", shares),
        ("`redeliveries` are counted", "no", lambda t: t.counts_redeliveries),
        ("priorities", "no", lambda t: t.priority),
        ("`publish_many(atomic=True)`", "no", lambda t: t.atomic_send),
        ("looking into a queue", "changes nothing", lambda t: t.peek == "marks"),
        ("what was handled can be handled again", "no", lambda t: t.replay),
        ("exchanges of type `headers`", "no", lambda t: "headers" in t.exchange_types),
        ("a crash while a message moves", "may double it", lambda t: t.atomic_move),
    ],
)
def test_the_differences_of_brokers_are_the_traits_of_their_drivers(begins, no, answers) -> None:
    cells = row(page("concepts"), begins)
    told = [not cell.startswith(no) for cell in cells]
    assert told == [answers(driver.traits) for driver in COLUMNS]


def test_every_public_error_is_explained() -> None:
    text = page("errors")
    errors = [
        name
        for name in queuecraft.__all__
        if inspect.isclass(kind := getattr(queuecraft, name)) and issubclass(kind, BaseException)
    ]
    assert len(errors) > 10
    assert [name for name in errors if f"`{name}" not in text and f" {name}" not in text] == []


def test_every_reason_of_a_dead_letter_is_explained() -> None:
    reasons = {
        value for name, value in vars(outcome).items() if name.isupper() and isinstance(value, str)
    }
    missing = {each for each in reasons - {outcome.POSTPONED} if f"`{each}`" not in page("errors")}
    assert missing == set()


# -- secrets ---------------------------------------------------------------------------------------

NUMBER: Final = Event("number", int)
RIGHTS: Final = ("~*", "&*", "+@all")
ROTATION: Final = [
    shlex.split(each) for each in re.findall(r"`(ACL SETUSER shop '[<>].*?')`", page("security"))
]


@pytest.mark.parametrize("beside", [True, False], ids=["with two passwords", "with a gap"])
async def test_a_password_is_rotated_as_the_page_says_and_nothing_is_lost(
    tmp_path: Path, beside: bool
) -> None:
    add, remove = ROTATION
    file = tmp_path / "password"
    file.write_text("old-password\n", encoding="utf-8")
    seen: set[int] = set()
    all_seen = asyncio.Event()

    async def note(n: int) -> None:
        seen.add(n)
        if seen == {1, 2, 3}:
            all_seen.set()

    def replace_file() -> None:
        new = tmp_path / "password.new"
        new.write_text("new-password\n", encoding="utf-8")
        new.rename(file)

    with RedisServer() as server:
        server.call("ACL", "SETUSER", "shop", "on", ">old-password", *RIGHTS)
        url = f"redis://shop@127.0.0.1:{server.port()}/0?mode=list"
        qc = QueueCraft(url, credentials=file, reconnect_delay=0.1)
        worker = qc.worker("billing").on(NUMBER, note)
        tries = asyncio.Event()
        qc.observe(Reconnecting, lambda _: tries.set())
        async with qc, asyncio.timeout(30):
            await worker.start()
            await qc.publish(NUMBER, 1)
            assert server.call(*add) == b"OK"
            if beside:
                replace_file()
            assert server.call(*remove) == b"OK"
            await qc.publish(NUMBER, 2)  # by the connection that is open
            server.call("CLIENT", "KILL", "USER", "shop")
            third = asyncio.create_task(qc.publish(NUMBER, 3))  # by a new one
            if not beside:
                await tries.wait()
                replace_file()
            await third
            await all_seen.wait()


@dataclass
class Order:
    id: int
    card: str


class Model(BaseModel):
    id: int
    card: str


async def letters_of(kind: type[Order | Model]) -> list[DeadMessage]:
    """What is left of a payload that cannot be read, and of one whose handler failed."""
    placed: Event[Any] = Event("order.placed", kind)
    qc = QueueCraft("local://", retry=NoRetry())
    worker = qc.worker("billing")
    dead: asyncio.Queue[None] = asyncio.Queue()
    qc.observe(MessageDeadLettered, lambda _: dead.put_nowait(None))

    @worker.on(placed)
    async def charge(order: object) -> None:
        raise ValueError("no money")

    async with qc:
        await worker.start()
        await qc.publish("order.placed", {"id": SECRET, "card": [SECRET]})
        await qc.publish(placed, kind(id=1, card=SECRET))
        for _ in range(2):
            await dead.get()
        return list(await qc.dead_letters.list("billing"))


@pytest.mark.parametrize("kind", [Order, Model])
async def test_a_payload_is_not_logged(
    kind: type[Order | Model], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    letters = await letters_of(kind)
    assert "invalid-payload" in caplog.text
    assert "no money" in caplog.text
    assert SECRET not in caplog.text
    assert not any(SECRET in letter.error for letter in letters)


@pytest.mark.parametrize("kind", [Order, Model])
async def test_a_traceback_does_not_quote_a_payload(kind: type[Order | Model]) -> None:
    assert not any(SECRET in letter.traceback for letter in await letters_of(kind))


# -- hostile messages ------------------------------------------------------------------------------

GOOD: Final = b'{"id": "o-1"}'
LIMIT: Final = 1000


@dataclass
class Placed:
    id: str


@pytest.mark.parametrize(
    ("message", "reason", "failures"),
    [
        pytest.param(Outgoing(b"\xff\xfe", "m"), "invalid-payload", 1, id="no JSON"),
        pytest.param(Outgoing(b'{"id": 5}', "m"), "invalid-payload", 1, id="another type"),
        pytest.param(
            Outgoing(b'{"id": "%s"}' % (b"o" * LIMIT), "m"), "invalid-payload", 1, id="huge"
        ),
        pytest.param(
            Outgoing(
                gzip.compress(b'{"id": "%s"}' % (b"o" * 1_000_000)), "m", content_encoding="gzip"
            ),
            "invalid-payload",
            1,
            id="huge when unpacked",
        ),
        pytest.param(
            Outgoing(gzip.compress(gzip.compress(GOOD)), "m", content_encoding="gzip"),
            "invalid-payload",
            1,
            id="packed twice",
        ),
        pytest.param(
            Outgoing(GOOD, "m", content_encoding="br"), "invalid-payload", 1, id="encoding"
        ),
        pytest.param(
            Outgoing(GOOD, "m", content_type="application/x-python-pickle"),
            "invalid-payload",
            1,
            id="content type",
        ),
        pytest.param(
            Outgoing(GOOD, "m", headers={"x-retry": '{"max_retries": 1000}'}),
            "handler-error",
            2,
            id="more retries than allowed",
        ),
        pytest.param(
            Outgoing(GOOD, "m", reply_to="victim"), "handler-error", 2, id="a reply elsewhere"
        ),
    ],
)
async def test_a_hostile_message_ends_as_the_page_says(
    message: Outgoing, reason: str, failures: int
) -> None:
    driver = MemoryDriver()
    retry = Retry(max_retries=1, initial_delay=0.01)
    qc = QueueCraft(drivers=[driver], retry=retry, max_message_bytes=LIMIT)
    worker = qc.worker("billing")
    dead = asyncio.Event()
    qc.observe(MessageDeadLettered, lambda _: dead.set())

    @worker.on(Event("order.placed", Placed))
    async def charge(order: Placed) -> None:
        raise ValueError("no money")

    async with qc:
        await qc.admin.declare("victim")
        await worker.start()
        sent = structs.replace(message, routing_key="order.placed", queue="billing")
        await driver.send([sent])
        await dead.wait()
        (letter,) = await qc.dead_letters.list("billing")
        assert (letter.reason, letter.failures) == (reason, failures)
        assert (await qc.admin.inspect("victim")).ready == 0
