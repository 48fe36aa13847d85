"""A small shop, written as an application would be: events, workers and their policies.

Copy from here. `queuecraft run queuecraft.cli.demo.shop:open_shop` runs it like your own.
"""

from __future__ import annotations

from dataclasses import dataclass

from queuecraft import Event, Message, QueueCraft, Retry, channel, consume
from queuecraft.cli.demo.services import Bank, PostOffice, Warehouse

# -- what happens in the shop ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Order:
    """What a customer wants."""

    id: str
    product: str
    quantity: int
    total: float
    card: str
    email: str
    patient: bool = True  # an impatient one meets a bank that is late


@dataclass(frozen=True, slots=True)
class Payment:
    """What a customer has paid for."""

    order: Order
    amount: float


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is on its way to a customer."""

    order: Order
    number: str


def _product(payment: Payment) -> str:
    return payment.order.product


order_placed = Event("order.placed", Order)
order_paid = Event("order.paid", Payment, key=_product)
order_shipped = Event("order.shipped", Parcel)


# -- who reacts to it ------------------------------------------------------------------------------


@channel(
    "billing",
    concurrency=8,  # a bank is far away: many may wait for it at once
    retry=Retry(max_retries=2, initial_delay=0.4, jitter=0.2),
    ack_timeout=10,
)
class Billing:
    """Charges orders. Out of retries, an order is kept as a dead letter until it is sent back."""

    def __init__(self, qc: QueueCraft, bank: Bank) -> None:
        self._qc = qc
        self._bank = bank

    @consume(order_placed)
    async def charge(self, order: Order) -> None:
        """Take the money, then say so."""
        await self._bank.charge(order.card, order.total, reference=order.id, slow=not order.patient)
        await self._qc.publish(
            order_paid,
            Payment(order, order.total),
            message_id=f"paid-{order.id}",
            correlation_id=order.id,
        )


@channel("stock", concurrency=4, ordering="key")  # payments for one product in order
class Stock:
    """Packs what was paid for."""

    def __init__(self, qc: QueueCraft, warehouse: Warehouse) -> None:
        self._qc = qc
        self._warehouse = warehouse

    @consume(order_paid)
    async def pack(self, payment: Payment) -> None:
        """Pack the order and send it on its way."""
        order = payment.order
        number = await self._warehouse.pack(order.product, order.quantity, reference=order.id)
        await self._qc.publish(
            order_shipped,
            Parcel(order, number),
            message_id=f"shipped-{order.id}",
            correlation_id=order.id,
        )


@channel("mail", concurrency=4, retry=Retry(max_retries=5, initial_delay=0.3))
class Mail:
    """Tells customers what happens to their orders."""

    def __init__(self, post_office: PostOffice) -> None:
        self._post_office = post_office

    @consume(order_paid)
    async def send_receipt(self, payment: Payment) -> None:
        """Thank for the money."""
        order = payment.order
        await self._post_office.send(order.email, "receipt", reference=order.id)

    @consume(order_shipped)
    async def send_notice(self, parcel: Parcel) -> None:
        """Say that a parcel comes."""
        order = parcel.order
        await self._post_office.send(order.email, "notice", reference=order.id)


@channel("audit", prefetch=100)  # quick work: fetch many, handle them one by one
class Audit:
    """Keeps a list of everything that ever happened, whatever it was."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    @consume("order.#")
    async def note(self, message: Message) -> None:
        """One more."""
        self.seen.add((message.routing_key, message.id))


# -- all of it together ----------------------------------------------------------------------------


class Shop:
    """The workers of the shop on one QueueCraft, and the services they use."""

    def __init__(self, qc: QueueCraft) -> None:
        self.qc = qc
        self.bank = Bank()
        self.warehouse = Warehouse()
        self.post_office = PostOffice()
        self.audit = Audit()
        qc.include(Billing(qc, self.bank))
        qc.include(Stock(qc, self.warehouse))
        qc.include(Mail(self.post_office))
        qc.include(self.audit)

    async def place(self, order: Order) -> None:
        """A customer orders."""
        await self.qc.publish(order_placed, order, message_id=order.id)


def open_shop() -> QueueCraft:
    """The shop on the broker that the environment names, for `queuecraft run`."""
    return Shop(QueueCraft.from_environment()).qc
