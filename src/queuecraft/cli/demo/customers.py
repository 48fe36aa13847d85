"""The customers: who orders what, and how fast. The same every time."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from queuecraft.cli.demo.services import MOON
from queuecraft.cli.demo.shop import Order

PRICES = {"teapot": 24.0, "kettle": 39.5, "cup": 7.25, "saucer": 5.0, "spoon": 3.1}
EVERY_MOON = 4  # one in so many pays with a card of Moon Bank
EVERY_SLOW = 9  # one in so many meets a bank that is late
EVERY_BUSY = 6  # one in so many has a mailbox at a busy server


def orders() -> Iterator[Order]:
    """Orders without end.

    >>> first = next(orders())
    >>> first.id, first.card
    ('o-1', 'earth-1')
    """
    chance = random.Random(42)
    products = sorted(PRICES)
    number = 0
    while True:
        number += 1
        product = chance.choice(products)
        quantity = chance.randint(1, 6)
        bank = MOON if number % EVERY_MOON == 0 else "earth"
        host = "busy.example" if number % EVERY_BUSY == 0 else "mail.example"
        yield Order(
            id=f"o-{number}",
            product=product,
            quantity=quantity,
            total=round(PRICES[product] * quantity, 2),
            card=f"{bank}-{number}",
            email=f"customer-{number}@{host}",
            patient=number % EVERY_SLOW != 0,
        )


def pauses(rate: float) -> Iterator[float]:
    """Seconds between one order and the next: so many a second on average, in waves.

    >>> round(sum(pause for pause, _ in zip(pauses(10), range(1000))))
    100
    """
    for number in range(1_000_000_000):
        yield (1 - 0.6 * math.sin(number / rate)) / rate
