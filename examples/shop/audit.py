"""The audit: every order has come to exactly one end, and money and goods agree with it."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Self

from examples.shop.bank import Bank
from examples.shop.books import STOCK, Books


@dataclass(frozen=True, slots=True)
class Audit:
    """How many orders ended in which way, and, in sentences, what is not as it should be."""

    orders: int
    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, books: Books, bank: Bank) -> Self:
        """Look into the books, and at what the bank says."""
        moves, ends = defaultdict[str, list[int]](list), defaultdict[str, list[str]](list)
        for order, cents in bank.statement():
            moves[order].append(cents)
        for order, state in books.read("SELECT order_id, state FROM ends"):
            ends[order].append(state)
        parcels = Counter(order for (order,) in books.read("SELECT order_id FROM parcels"))
        orders = books.read("SELECT id, cents FROM orders")

        audit = cls(len(orders))
        for order, cents in orders:
            expected = {"shipped": ([cents], 1), "refunded": ([cents, -cents], 0)}
            match ends[order]:
                case [end]:
                    audit.ends[end] += 1
                    if (moves[order], parcels[order]) != expected[end]:
                        audit.faults.append(
                            f"{order} was {end}, with {parcels[order]} parcels"
                            f" and {moves[order]} cents moved"
                        )
                case several:
                    audit.faults.append(f"{order} came to {len(several)} ends: {several}")
        sent = Counter(product for (product,) in books.read("SELECT product FROM parcels"))
        for product, pieces in books.read("SELECT product, pieces FROM stock"):
            if pieces + sent[product] != STOCK[product]:
                audit.faults.append(
                    f"{STOCK[product]} {product}s became {pieces}, and {sent[product]} parcels"
                )
        return audit
