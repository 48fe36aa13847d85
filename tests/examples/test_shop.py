"""The shop: on every broker, each order comes to exactly one end."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from examples.shop.audit import Audit
from examples.shop.billing import Billing
from examples.shop.events import Order
from examples.shop.orders import Orders, place
from examples.shop.shipping import Shipping
from examples.shop.shop import Shop
from tests.examples.programs import Program

ENDS = "12 orders: 10 shipped, 2 refunded"  # there are two globes, and four are ordered


def test_every_order_ends_once_whatever_the_broker(url: str, tmp_path: Path) -> None:
    plain = url.partition("&refresh=")[0]  # without what makes Kafka notice the dead sooner
    arguments = ("examples.shop", "--orders", "12", "--url", plain)
    with Program(*arguments, output=tmp_path / "story") as shop:
        assert shop.wait(50) == 0, shop.output
    assert ENDS in shop.output
    assert "every order came to exactly one end" in shop.output


def test_the_broker_and_other_settings_may_come_from_the_environment(tmp_path: Path) -> None:
    queue = tmp_path / "queue.db"
    arguments = ("--orders", "3", "--patience", "20")
    settings = {"QUEUECRAFT_URL": f"local://{queue}", "QUEUECRAFT_EXCHANGE": "shop"}
    story = tmp_path / "story"
    with Program("examples.shop", *arguments, output=story, settings=settings) as shop:
        assert shop.wait(50) == 0, shop.output
    assert queue.exists()


def test_orders_that_do_not_end_are_told_and_exit_with_1(tmp_path: Path) -> None:
    waiting = ("--orders", "2", "--no-workers", "--folder", str(tmp_path), "--patience", "0.2")
    with Program("examples.shop", *waiting, output=tmp_path / "story") as shop:
        assert shop.wait(50) == 1, shop.output
    assert "not all orders have ended within 0.2 s" in shop.output
    assert shop.output.count("came to 0 ends") == 2


def test_a_broker_that_is_not_there_is_told_and_exits_with_1(tmp_path: Path) -> None:
    nobody = ("--url", "redis://127.0.0.1:1")
    with Program("examples.shop", *nobody, output=tmp_path / "story") as shop:
        assert shop.wait(50) == 1, shop.output
    assert "127.0.0.1:1" in shop.output
    assert "Traceback" not in shop.output


# -- one saga, by hand -----------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(random, "random", lambda: 1.0)  # the bank always answers
    return Shop.at(tmp_path, "local://")


def change(shop_folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(shop_folder / "shop.db")) as db, db:
        db.execute(statement)


def waiting(shop: Shop, folder: Path) -> int:
    with closing(sqlite3.connect(folder / "shop.db")) as db:
        return shop.books.outbox.waiting(db)


def go_through(shop: Shop, order: Order, *, times: int = 1, stock: bool = True) -> None:
    """The steps of one saga, each of them so many times."""
    billing, shipping = Billing(shop.books, shop.bank), Shipping(shop.books)
    orders = Orders(shop.books)
    steps = [billing.charge, shipping.ship]
    steps += [orders.ship] if stock else [billing.refund, orders.refund]
    place(shop.books, order)
    for step in steps:
        for _ in range(times):
            step(order)


@pytest.mark.parametrize("stock", [True, False])
def test_steps_that_are_repeated_change_and_publish_nothing_more(
    shop: Shop, tmp_path: Path, stock: bool
) -> None:
    if not stock:
        change(tmp_path, "INSERT INTO parcels VALUES ('a', 'globe'), ('b', 'globe')")
        change(tmp_path, "UPDATE stock SET pieces = 0 WHERE product = 'globe'")
    go_through(shop, Order("o-1", "globe", 8900), times=3, stock=stock)
    audit = Audit.of(shop.books, shop.bank)
    assert (audit.ends, audit.faults) == ({"shipped" if stock else "refunded": 1}, [])
    assert waiting(shop, tmp_path) == (3 if stock else 4)


def test_an_order_that_was_found_missing_stays_so_when_stock_comes_in(
    shop: Shop, tmp_path: Path
) -> None:
    order = Order("o-1", "globe", 8900)
    place(shop.books, order)
    change(tmp_path, "UPDATE stock SET pieces = 0 WHERE product = 'globe'")
    shipping = Shipping(shop.books)
    shipping.ship(order)
    change(tmp_path, "UPDATE stock SET pieces = 2 WHERE product = 'globe'")
    shipping.ship(order)
    assert shop.books.read("SELECT * FROM parcels") == []


def test_a_step_whose_transaction_fails_leaves_nothing_behind(shop: Shop, tmp_path: Path) -> None:
    change(tmp_path, "DROP TABLE parcels")
    with pytest.raises(sqlite3.OperationalError, match="parcels"):
        Shipping(shop.books).ship(Order("o-1", "globe", 8900))
    assert shop.books.read("SELECT pieces FROM stock WHERE product = 'globe'") == [(2,)]
    assert shop.books.read("SELECT * FROM steps") == []
    assert waiting(shop, tmp_path) == 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("INSERT INTO ends VALUES ('o-1', 'refunded')", "o-1 came to 2 ends"),
        ("DELETE FROM ends", "o-1 came to 0 ends"),
        ("UPDATE ends SET state = 'refunded'", "o-1 was refunded, with 1 parcels"),
        ("DELETE FROM parcels", "o-1 was shipped, with 0 parcels"),
        ("UPDATE stock SET pieces = 0 WHERE product = 'globe'", "2 globes became 0, and 1 parcels"),
    ],
)
def test_the_audit_sees(shop: Shop, tmp_path: Path, wrong: str, told: str) -> None:
    go_through(shop, Order("o-1", "globe", 8900))
    assert Audit.of(shop.books, shop.bank).faults == []
    change(tmp_path, wrong)
    assert told in Audit.of(shop.books, shop.bank).faults[0]


def test_the_audit_sees_money_that_moved_twice(shop: Shop) -> None:
    go_through(shop, Order("o-1", "globe", 8900))
    shop.bank.move("charge o-1", "o-1", 8900)
    assert Audit.of(shop.books, shop.bank).faults == []  # the bank knows the reference
    shop.bank.move("charge o-1 again", "o-1", 8900)
    assert "[8900, 8900] cents moved" in Audit.of(shop.books, shop.bank).faults[0]
