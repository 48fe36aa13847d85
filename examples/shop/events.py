"""What happens in the shop, in the words that its services share."""

from dataclasses import dataclass

from queuecraft import Event


@dataclass(frozen=True, slots=True)
class Order:
    """What a customer wants. Every event carries it whole, so no service asks another for it."""

    id: str
    product: str
    cents: int


def _id(order: Order) -> str:
    return order.id


# With the order as the key, the outbox publishes what happens to an order in the order it happened.
order_placed = Event("order.placed", Order, key=_id)
payment_taken = Event("payment.taken", Order, key=_id)
parcel_shipped = Event("parcel.shipped", Order, key=_id)
stock_missing = Event("stock.missing", Order, key=_id)
payment_refunded = Event("payment.refunded", Order, key=_id)
