"""A small shop: orders, billing and shipping, each a worker of its own, and a saga over all three.

    order.placed ─▶ charge ─ payment.taken ─▶ ship ─ parcel.shipped ─▶ the order ended: shipped
                                               │
                                         stock.missing
                                               ▼
                                            refund ─ payment.refunded ─▶ the order ended: refunded

`python -m examples.shop` runs it whole, `queuecraft run examples.shop:open_shop` its workers.
"""

from examples.shop.shop import Shop, open_shop

__all__ = ["Shop", "open_shop"]
