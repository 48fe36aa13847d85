"""The shop, put together: its books, its bank, and its workers on one QueueCraft."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from examples.shop.bank import Bank
from examples.shop.billing import Billing
from examples.shop.books import Books
from examples.shop.orders import Orders
from examples.shop.shipping import Shipping
from queuecraft import QueueCraft
from queuecraft.facts import MessageDeadLettered, MessageRetried
from queuecraft.middleware import Idempotent, SqliteClaims
from queuecraft.outbox import Outbox

log = logging.getLogger("shop")


@dataclass(frozen=True, slots=True)
class Shop:
    """Everything the shop is made of."""

    qc: QueueCraft
    books: Books
    bank: Bank

    @classmethod
    def at(cls, folder: Path, url: str | None = None) -> Self:
        """The shop with its books in a folder, on the broker of a URL; without one, on that of
        QUEUECRAFT_URL."""
        folder.mkdir(parents=True, exist_ok=True)
        # Keeps a message that comes again away from the handlers. What it cannot rule out, a
        # worker that dies between its deed and the note that it is done, `Page.begin` does.
        once = Idempotent(SqliteClaims(folder / "claims.db"), lease=5)
        qc = QueueCraft.from_environment(url=url, middleware=[once])
        books = Books(folder / "shop.db", Outbox(qc.settings))
        books.create()
        bank = Bank(folder / "bank.db")
        bank.create()
        qc.include(Orders(books))
        qc.include(Billing(books, bank))
        qc.include(Shipping(books))
        qc.observe(MessageRetried, _tell_retry)
        qc.observe(MessageDeadLettered, _tell_end)
        return cls(qc, books, bank)


def open_shop() -> QueueCraft:
    """The workers, for `queuecraft run examples.shop:open_shop`; books in SHOP_FOLDER."""
    return Shop.at(Path(os.environ.get("SHOP_FOLDER", "shop-data"))).qc


def _tell_retry(fact: MessageRetried) -> None:
    why = fact.failure.error if fact.failure else fact.reason
    order = fact.delivery.sent.key
    log.info("%s  %s: %s, again in %.1f s", order, fact.worker, why, fact.delay)


def _tell_end(fact: MessageDeadLettered) -> None:
    order = fact.delivery.sent.key
    log.error("%s  %s gave up: queuecraft dlq list %s", order, fact.worker, fact.worker)
