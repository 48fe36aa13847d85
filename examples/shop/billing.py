"""Billing: takes the money for an order, and gives it back if there is nothing to ship."""

import logging

from examples.shop.bank import Bank
from examples.shop.books import Books
from examples.shop.events import (
    Order,
    order_placed,
    payment_refunded,
    payment_taken,
    stock_missing,
)
from queuecraft import Retry, channel, consume

log = logging.getLogger("shop.billing")


@channel(
    "billing",
    concurrency=4,  # a bank is slow: several wait for it at once
    retry=Retry(max_retries=8, initial_delay=0.2, max_delay=5),
)
class Billing:
    """The first step of the saga, and what undoes it.

    The bank is asked before the transaction begins, so that no lock is held meanwhile. A crash
    in between asks again, with the same reference.
    """

    def __init__(self, books: Books, bank: Bank) -> None:
        self._books = books
        self._bank = bank

    @consume(order_placed)
    def charge(self, order: Order) -> None:
        """Take the money."""
        self._bank.move(f"charge {order.id}", order.id, order.cents)
        with self._books.page() as page:
            if not page.begin("charge", order):
                return
            page.publish(payment_taken, order)
        log.info("%s  charged %.2f", order.id, order.cents / 100)

    @consume(stock_missing)
    def refund(self, order: Order) -> None:
        """Give it back: the compensation."""
        self._bank.move(f"refund {order.id}", order.id, -order.cents)
        with self._books.page() as page:
            if not page.begin("refund", order):
                return
            page.publish(payment_refunded, order)
        log.info("%s  refunded %.2f", order.id, order.cents / 100)
