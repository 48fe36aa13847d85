"""Orders: takes them from customers, and writes down how each ends."""

import logging

from examples.shop.books import Books
from examples.shop.events import Order, order_placed, parcel_shipped, payment_refunded
from queuecraft import channel, consume

log = logging.getLogger("shop.orders")


def place(books: Books, order: Order) -> None:
    """Take an order. It is in the books if, and only if, the others hear of it."""
    with books.page() as page:
        page.write("INSERT INTO orders VALUES (?, ?, ?)", order.id, order.product, order.cents)
        page.publish(order_placed, order)
    log.info("%s  placed: a %s for %.2f", order.id, order.product, order.cents / 100)


def count_open(books: Books) -> int:
    """How many orders have not ended yet."""
    query = "SELECT count(*) FROM orders WHERE id NOT IN (SELECT order_id FROM ends)"
    ((count,),) = books.read(query)
    return int(count)


@channel("orders", concurrency=4)
class Orders:
    """Hears of the last step of each saga."""

    def __init__(self, books: Books) -> None:
        self._books = books

    @consume(parcel_shipped)
    def ship(self, order: Order) -> None:
        """The customer gets what was ordered."""
        self._end(order, "shipped")

    @consume(payment_refunded)
    def refund(self, order: Order) -> None:
        """The customer gets the money back."""
        self._end(order, "refunded")

    def _end(self, order: Order, state: str) -> None:
        with self._books.page() as page:
            if not page.begin(f"end {state}", order):
                return
            page.write("INSERT INTO ends VALUES (?, ?)", order.id, state)
        log.info("%s  ended: %s", order.id, state)
