"""Shipping: sends what was paid for, as long as there is some."""

import logging

from examples.shop.books import Books
from examples.shop.events import Order, parcel_shipped, payment_taken, stock_missing
from queuecraft import channel, consume

log = logging.getLogger("shop.shipping")


@channel("shipping", concurrency=4)
class Shipping:
    """Decides once for each order: a parcel, or the money back."""

    def __init__(self, books: Books) -> None:
        self._books = books

    @consume(payment_taken)
    def ship(self, order: Order) -> None:
        """Take a piece from the shelf and send it, or say that there is none."""
        with self._books.page() as page:
            if not page.begin("ship", order):
                return
            take = "UPDATE stock SET pieces = pieces - 1 WHERE product = ? AND pieces > 0"
            found = page.write(take, order.product)
            if found:
                page.write("INSERT INTO parcels VALUES (?, ?)", order.id, order.product)
            page.publish(parcel_shipped if found else stock_missing, order)
        log.info("%s  %s", order.id, "shipped" if found else f"no {order.product} left")
