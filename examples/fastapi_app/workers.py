"""What happens to orders once the customer has an answer.

In the web process, or in processes of their own:

    SHOP_WORKERS=elsewhere uvicorn examples.fastapi_app.app:app
    queuecraft run examples.fastapi_app.workers:make
"""

import logging

from examples.fastapi_app.events import Order, Price, order_placed, price_asked
from queuecraft import QueueCraft, channel, consume
from queuecraft.middleware import Idempotent, SqliteClaims

PRICES = {"teapot": 2400, "lamp": 3950, "globe": 8900}

log = logging.getLogger(__name__)


@channel("mails", concurrency=4)
class Mails:
    """Writes to customers."""

    @consume(order_placed)
    async def confirm(self, order: Order) -> None:
        """Say thank you."""
        log.info("mail: %d %s, order %s", order.quantity, order.product, order.id)


@channel("prices", concurrency=4)
class Prices:
    """Answers those who ask."""

    @consume(price_asked)
    async def tell(self, product: str) -> Price:
        """What it costs, as far as it is sold."""
        return Price(product=product, cents=PRICES.get(product))


def make() -> QueueCraft:
    """The workers on the broker that QUEUECRAFT_URL names, in memory without it."""
    once = Idempotent(SqliteClaims("claims.db"))  # nobody wants the same mail twice
    qc = QueueCraft.from_environment(publish_timeout=5, middleware=[once])
    qc.include(Mails())
    qc.include(Prices())
    return qc
