"""The story: orders come in, a bank goes down, dead letters pile up, and all come home."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic

from queuecraft import Redrive
from queuecraft.cli.demo.customers import orders, pauses
from queuecraft.cli.demo.shop import Order, Shop
from queuecraft.facts import MessageDeadLettered, MessageRetried, MessagesSucceeded

DOWN, UP = 0.15, 0.55  # parts of the orders after which Moon Bank goes down and comes back
PATIENCE = 25.0  # seconds for everything to come home
ROUND = 25.0  # seconds from one outage to the next, when it goes on and on
REDRIVE = 3.0  # seconds a redrive is stretched over, to be seen


@dataclass(frozen=True, slots=True)
class Happening:
    """Something worth a line."""

    kind: str
    queue: str
    message_id: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Sum:
    """Two numbers that have to be equal."""

    what: str
    expected: float
    found: float

    @property
    def right(self) -> bool:
        """Whether they are, to the cent."""
        return abs(self.expected - self.found) < 0.005


@dataclass
class Story:
    """What has happened in the shop so far."""

    shop: Shop
    total: int | None  # orders; None: until somebody says stop
    rate: float  # orders a second
    chapter: str = "the shop opens"
    placed: dict[str, Order] = field(default_factory=dict)
    handled: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    dead_lettered: int = 0
    redriven: int = 0
    redrive: Redrive | None = None
    recent: deque[Happening] = field(default_factory=lambda: deque(maxlen=50))
    began: float = field(default_factory=monotonic)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        qc = self.shop.qc
        qc.observe(MessagesSucceeded, self._on_success)
        qc.observe(MessageRetried, self._on_retry)
        qc.observe(MessageDeadLettered, self._on_dead_letter)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return monotonic() - self.began

    async def tell(self) -> None:
        """From the first order until all are home."""
        plot = asyncio.ensure_future(self._plot())
        try:
            await self._take_orders()
            await plot
            self.chapter = "closing: the last orders come home"
            await self._come_home()
            self.chapter = "everything is home"
        finally:
            plot.cancel()

    async def close(self) -> None:
        """Take no more orders, mend what is broken, and wait until all are home."""
        self.shop.bank.moon_is_down = False
        self.redrive = None
        self.chapter = "closing: the last orders come home; Ctrl-C again leaves at once"
        await self._come_home()
        self.chapter = "everything is home"

    def sums(self, left: int) -> list[Sum]:
        """What must be equal if nothing was lost; `left` is what the queues still hold."""
        count, shop, endless = len(self.placed), self.shop, self.total is None
        money = sum(order.total for order in self.placed.values())
        return [
            Sum("orders charged", count, len(shop.bank.charged)),
            Sum("money taken", money, sum(shop.bank.charged.values())),
            Sum("parcels packed", count, len(shop.warehouse.packed)),
            Sum("mails sent", 2 * count, len(shop.post_office.sent)),
            Sum("events audited", 3 * count, len(shop.audit.seen)),
            Sum("messages left in queues", 0, left),
            # Closed in the middle of a redrive, nobody knows how far that one had come.
            *([Sum("dead letters sent back", self.dead_lettered, self.redriven)] * (not endless)),
        ]

    async def left(self) -> int:
        """How many messages are still in any queue, dead letters included."""
        counts = [
            (info.ready or 0) + (info.in_flight or 0) + (info.delayed or 0)
            for info in await self.shop.qc.admin.queues()
        ]
        return sum(counts)

    # -- inside --------------------------------------------------------------------------------

    async def _take_orders(self) -> None:
        for order, pause in zip(islice(orders(), self.total), pauses(self.rate), strict=False):
            self.placed[order.id] = order
            await asyncio.shield(self.shop.place(order))  # one that has begun is not given up
            self._news.set()
            await asyncio.sleep(pause)

    async def _plot(self) -> None:
        """What befalls the shop while it takes orders: once, or again and again."""
        await self._outage(self.total or ROUND * self.rate)
        while self.total is None:
            await self._outage(ROUND * self.rate)

    async def _outage(self, length: float) -> None:
        """Among so many orders, a part that meets a bank that is down."""
        bank, placed, dead = self.shop.bank, len(self.placed), self.dead_lettered
        self.chapter = "all is well; what fails now and then is tried again"
        await self._until(lambda: len(self.placed) >= placed + DOWN * length)
        bank.moon_is_down = True
        self.chapter = "Moon Bank is down: its orders are retried, then kept as dead letters"
        await self._until(lambda: len(self.placed) >= placed + UP * length)
        await self._until(lambda: self.dead_lettered > dead)
        bank.moon_is_down = False
        self.chapter = "Moon Bank is back: the dead letters are sent home"
        await self._send_back()
        self.chapter = "all is well again"
        if self.total is None:
            await self._until(lambda: len(self.placed) >= placed + length)

    async def _send_back(self) -> None:
        dead_letters = self.shop.qc.dead_letters
        waiting = await dead_letters.count("billing")
        if waiting:
            before = self.redriven
            rate = max(10.0, waiting / REDRIVE)

            def progress(state: Redrive) -> None:
                self.redrive = state
                self.redriven = before + state.moved

            await dead_letters.redrive("billing", rate=rate, on_progress=progress)
            self.redrive = None
            self.recent.append(
                Happening(
                    "redrive", "billing", "", f"{self.redriven - before} dead letters sent back"
                )
            )

    async def _come_home(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while not all(each.right for each in self.sums(await self.left())):
                # One whose last attempt failed just before the bank came back.
                await self._send_back()
                await asyncio.sleep(0.1)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    def _on_success(self, fact: MessagesSucceeded) -> None:
        self.handled[fact.worker] += len(fact.deliveries)

    def _on_retry(self, fact: MessageRetried) -> None:
        self.retried += 1
        error = "" if fact.failure is None else fact.failure.error
        text = f"attempt {fact.attempt}: {error}; again in {fact.delay:.1f} s"
        self.recent.append(Happening("retry", fact.worker, fact.delivery.sent.id, text))

    def _on_dead_letter(self, fact: MessageDeadLettered) -> None:
        self.dead_lettered += 1
        self._news.set()
        text = f"attempt {fact.attempt} was the last; kept in {fact.worker}.dlq"
        self.recent.append(Happening("dead", fact.worker, fact.delivery.sent.id, text))
