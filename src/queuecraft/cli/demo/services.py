"""The world around the shop: a bank, a warehouse and a post office, none of them perfect.

Each may be asked for the same thing twice, because messages are delivered at least once. Each
therefore keeps what it has done by its reference, and does it only once.
"""

from __future__ import annotations

import asyncio
from collections import Counter

MOON = "moon"  # the bank whose customers the demo gives a hard time


class Bank:
    """Charges cards. Moon Bank can be down; now and then any bank is late once."""

    def __init__(self) -> None:
        self.moon_is_down = False
        self.charged: dict[str, float] = {}
        self._asked: Counter[str] = Counter()

    async def charge(self, card: str, amount: float, *, reference: str, slow: bool) -> None:
        """Take the money, once for each reference."""
        self._asked[reference] += 1
        await asyncio.sleep(0.03)
        if slow and self._asked[reference] == 1:
            raise TimeoutError("the bank did not answer in time")
        if card.startswith(MOON) and self.moon_is_down:
            raise ConnectionError("Moon Bank is down for maintenance")
        self.charged[reference] = amount


class Warehouse:
    """Packs what was paid for."""

    def __init__(self) -> None:
        self.packed: dict[str, str] = {}

    async def pack(self, product: str, quantity: int, *, reference: str) -> str:
        """Pack it, once for each reference; the number of the parcel."""
        await asyncio.sleep(0.02)
        return self.packed.setdefault(reference, f"P{len(self.packed) + 1:05}")


class PostOffice:
    """Sends mails. A busy server turns some away at first."""

    def __init__(self) -> None:
        self.sent: set[tuple[str, str]] = set()
        self._turned_away: set[tuple[str, str]] = set()

    async def send(self, address: str, subject: str, *, reference: str) -> None:
        """Send a mail, once for each subject and reference."""
        await asyncio.sleep(0.01)
        mail = (subject, reference)
        if address.endswith("@busy.example") and mail not in self._turned_away:
            self._turned_away.add(mail)
            raise ConnectionRefusedError("busy.example says: try again later")
        self.sent.add(mail)
