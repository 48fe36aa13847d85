"""The demo: a small shop whose orders are placed, charged, fail, are kept, mended and sent back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from queuecraft import (
    DeadMessage,
    Event,
    Message,
    QueueCraft,
    Redrive,
    Retry,
    Unroutable,
)
from queuecraft.facts import MessageDeadLettered, MessageRetried, MessagesSucceeded

ORDERS = 12
PATIENCE = 20.0  # seconds after which the story is over whatever happens


@dataclass
class Order:
    """What the shop sells."""

    id: str
    card: str
    total: float


@dataclass
class Invoice:
    """What the customer gets."""

    order_id: str
    total: float


order_placed = Event("order.placed", Order)
order_paid = Event("order.paid", Invoice)


class Shop:
    """Two workers on the embedded queue, and a bank that is not always well."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bank_works = False
        self.invoices: list[Invoice] = []
        self.audited: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._hiccups = {"o-3", "o-7"}  # fail once, then work
        self.qc = QueueCraft("local://")
        self.billing = self.qc.worker(
            "billing", retry=Retry(max_retries=2, initial_delay=0.2), concurrency=4
        )
        self.audit = self.qc.worker("audit")
        self.billing.on(order_placed, self.charge)
        self.audit.on("order.*", self.note)
        self.qc.observe(MessagesSucceeded, self._on_success)
        self.qc.observe(MessageRetried, self._on_retry)
        self.qc.observe(MessageDeadLettered, self._on_dead_letter)

    async def charge(self, order: Order, message: Message[Order]) -> None:
        """Charge the card of an order."""
        await asyncio.sleep(0.02)
        if order.id in self._hiccups:
            self._hiccups.discard(order.id)
            raise TimeoutError(f"the bank did not answer for {order.id}")
        if order.card == "stolen" and not self.bank_works:
            raise ValueError(f"card of {order.id} refused")
        invoice = Invoice(order.id, order.total)
        self.invoices.append(invoice)
        await self.qc.publish(order_paid, invoice, correlation_id=message.id)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the story to come to a point, looking again whenever something happens."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def note(self, message: Message) -> None:
        """Count every event of the shop, whatever it carries."""
        self.audited[message.routing_key] += 1

    def _on_success(self, fact: MessagesSucceeded) -> None:
        self._changed.set()
        if fact.worker == "billing":
            for delivery in fact.deliveries:
                self._say("green", "charged", delivery.sent.id)

    def _on_retry(self, fact: MessageRetried) -> None:
        error = "" if fact.failure is None else fact.failure.error
        text = f"attempt {fact.attempt}: {error}, again in {fact.delay:.1f} s"
        self._say("yellow", "retry", fact.delivery.sent.id, text)

    def _on_dead_letter(self, fact: MessageDeadLettered) -> None:
        self._changed.set()
        text = f"attempt {fact.attempt} was the last: kept in billing.dlq"
        self._say("red", "dead letter", fact.delivery.sent.id, text)

    def _say(self, colour: str, what: str, message_id: str, text: str = "") -> None:
        self.console.print(
            f"  [{colour}]{what:<12}[/]{message_id:<6}[dim]{escape(text)}[/]", highlight=False
        )


def orders() -> Iterator[Order]:
    """A dozen orders, two of them paid with a stolen card."""
    for number in range(1, ORDERS + 1):
        card = "stolen" if number in (5, 9) else "good"
        yield Order(f"o-{number}", card, 9.5 * number)


async def tell(console: Console) -> bool:
    """Tell the story; True when it ended as it should."""
    shop = Shop(console)
    qc = shop.qc

    _chapter(console, "1. An event nobody listens to is an error, not a silent loss")
    try:
        await qc.publish("order.forgotten", {})
    except Unroutable as error:
        console.print(f"  [red]Unroutable[/] {escape(error.message)}", highlight=False)

    async with qc:
        _chapter(console, f"2. {ORDERS} typed orders are published, charged and audited")
        await shop.billing.start()
        await shop.audit.start()
        for order in orders():
            await qc.publish(order_placed, order, message_id=order.id)
        await shop.until(lambda: len(shop.invoices) == ORDERS - 2)
        await shop.until(lambda: qc.get_metrics().messages_dead_lettered == 2)

        _chapter(console, "3. What could not be handled is kept, with its story")
        console.print(_table(await qc.dead_letters.list("billing")))

        _chapter(console, "4. The bank is mended, and the dead letters go back")
        shop.bank_works = True
        await qc.dead_letters.redrive("billing", rate=10, on_progress=_progress(console))
        await shop.until(lambda: len(shop.invoices) == ORDERS)
        await shop.until(lambda: sum(shop.audited.values()) == 2 * ORDERS)
        left = await qc.dead_letters.count("billing")

    metrics = qc.get_metrics()
    _chapter(console, "5. Nothing was lost")
    console.print(
        f"  published {metrics.messages_sent}, failed attempts {metrics.messages_failed}, "
        f"retried {metrics.messages_retried}, dead-lettered {metrics.messages_dead_lettered}\n"
        f"  invoices {len(shop.invoices)} of {ORDERS}, dead letters left {left}, "
        f"events audited {sum(shop.audited.values())}"
    )
    return len(shop.invoices) == ORDERS and left == 0


def demo() -> None:
    """Watch a small shop on the embedded queue: orders, failures, retries, a redrive."""
    logging.getLogger("queuecraft").setLevel(logging.CRITICAL)  # the story is told here instead
    console = Console()
    console.print("[bold]QueueCraft[/]: a small shop on the embedded queue, local://")
    if not asyncio.run(tell(console)):
        console.print("[bold red]The story did not end as it should; please report this.[/]")
        raise SystemExit(1)
    console.print(
        "\n[bold green]Done.[/] The code of this shop is src/queuecraft/cli/demo.py; "
        "the README shows how to write your own."
    )


def _chapter(console: Console, title: str) -> None:
    console.print(f"\n[bold cyan]{escape(title)}[/]")


def _table(letters: list[DeadMessage]) -> Table:
    table = Table("message", "event", "failures", "error", "group", pad_edge=False)
    for letter in letters:
        error = f"{letter.error_type}: {letter.error}"
        table.add_row(
            letter.id,
            escape(letter.event),
            str(letter.failures),
            escape(error),
            letter.fingerprint,
        )
    return table


def _progress(console: Console) -> Callable[[Redrive], None]:
    def tell_progress(state: Redrive) -> None:
        console.print(f"  [magenta]redriven[/]    {state.moved} of {state.total}", highlight=False)

    return tell_progress
