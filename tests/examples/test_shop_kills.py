"""The shop as five processes, one of which is killed in the middle of its sagas: every order still
comes to exactly one end, and no money and no goods move twice."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from examples.shop.audit import Audit
from examples.shop.bank import Bank
from examples.shop.books import Books
from queuecraft.outbox import Outbox
from tests.examples.programs import Program

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

ORDERS = 60
REFUNDED = 18  # of twenty globes, as there are two
MESSAGES = ORDERS + ORDERS + (ORDERS - REFUNDED) + 2 * REFUNDED
"""Placed, taken, shipped, and missing and refunded."""

FIRST = {"billing": "charge", "shipping": "ship", "orders": "end shipped"}
"""A step that each of the workers does."""


SHARED = ["rabbitmq", "redis lists", "redis streams", "kafka"]


class Street:
    """The workers, the relay and the customers, each a process."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self._url = url
        self._programs = ExitStack()

    def work(self, name: str, **more: str) -> Program:
        """Start a worker, or the relay."""
        if name == "relay":
            database = f"sqlite:///{self.folder}/shop.db"
            return self._start("queuecraft", "outbox", "relay", "--database", database, **more)
        alone = ("--worker", name)
        return self._start("queuecraft", "run", "examples.shop:open_shop", *alone, **more)

    def sell(self) -> Program:
        """Let customers come."""
        patience = ("--patience", "120")
        return self._start("examples.shop", "--no-workers", "--orders", str(ORDERS), *patience)

    def _start(self, *arguments: str, **more: str) -> Program:
        output = self.folder / f"{len(list(self.folder.glob('*.output')))}.output"
        more |= {"QUEUECRAFT_URL": self._url, "SHOP_FOLDER": str(self.folder)}
        return self._programs.enter_context(Program(*arguments, output=output, settings=more))

    def count(self, query: str, file: str = "shop.db") -> int:
        """What a query of the books counts."""
        with closing(sqlite3.connect(self.folder / file, timeout=30)) as db:
            return int(db.execute(query).fetchone()[0])

    def handled(self) -> int:
        """How many messages are noted as done, by `Idempotent`."""
        return self.count("SELECT count(*) FROM claims WHERE owner IS NULL", "claims.db")

    def steps(self, name: str) -> int:
        """How often a worker has done its first step."""
        return self.count(f"SELECT count(*) FROM steps WHERE step = '{FIRST[name]}'")

    def close(self) -> None:
        self._programs.close()


@pytest.fixture
def street(url: str, tmp_path: Path) -> Iterator[Street]:
    street = Street(url, tmp_path)
    try:
        yield street
    finally:
        street.close()


def until(condition: Callable[[], bool], *programs: Program) -> None:
    """Wait for it, while these run."""
    deadline = time.monotonic() + 40
    while not condition():
        for program in programs:
            assert program.running, program.output
        assert time.monotonic() < deadline, [program.output for program in programs]
        time.sleep(0.005)


def says(program: Program, text: str) -> bool:
    return text in program.output


def open_up(street: Street, victim: str, **more: str) -> tuple[Program, Program]:
    """All of them at work; the victim, and the customers."""
    workers = {name: street.work(name, **(more if name == victim else {})) for name in FIRST}
    for name, worker in workers.items():
        until(partial(says, worker, f"worker {name} started"), worker)
    relay = street.work("relay")
    return workers.get(victim, relay), street.sell()


def close_down(street: Street, customers: Program) -> None:
    """The end of the day: everything is as if nobody had been killed."""
    assert customers.wait(130) == 0, customers.output
    # An order may have ended by the hand of the one that died, and its message comes again.
    until(lambda: street.handled() == MESSAGES)
    books = Books(street.folder / "shop.db", Outbox())
    audit = Audit.of(books, Bank(street.folder / "bank.db"))
    assert audit.ends == {"shipped": ORDERS - REFUNDED, "refunded": REFUNDED}
    assert audit.faults == []


@pytest.mark.parametrize(
    ("url", "victim"),
    [*(("file", name) for name in FIRST), *((each, "billing") for each in SHARED)],
    indirect=["url"],
)
def test_a_worker_is_killed_and_another_takes_over(street: Street, victim: str) -> None:
    doomed, customers = open_up(street, victim)
    until(lambda: street.steps(victim) >= 3, doomed, customers)
    doomed.kill()
    done = street.steps(victim)
    assert 3 <= done < ORDERS - REFUNDED, "it was killed too late for anything to be under way"
    street.work(victim)
    close_down(street, customers)


@pytest.mark.parametrize("victim", FIRST)
@pytest.mark.parametrize("url", ["file"], indirect=True)
def test_a_worker_dies_after_its_deed_and_before_the_note_that_it_is_done(
    street: Street, victim: str
) -> None:
    doomed, customers = open_up(street, victim, QUEUECRAFT_FAILPOINT="idempotent.after_handle")
    assert doomed.wait(40) == -9, doomed.output
    assert street.steps(victim) >= 1
    second = street.work(victim)
    close_down(street, customers)
    assert second.running


@pytest.mark.parametrize("url", ["file"], indirect=True)
def test_the_relay_is_killed_and_another_takes_over(street: Street) -> None:
    doomed, customers = open_up(street, "relay")
    until(lambda: street.steps("shipping") >= 3, doomed, customers)
    doomed.kill()
    assert street.count("SELECT count(*) FROM ends") < ORDERS
    street.work("relay")
    close_down(street, customers)
