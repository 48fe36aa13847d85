"""A small shop: a worker that fails while there is a file `broken`, and the service beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from queuecraft import QueueCraft
from tests.cli.running import PATIENCE, Running

OPERATOR = "operator-token-0123456789"
READER = "reader-token-0123456789"

APP = """
from pathlib import Path
from typing import Any
from queuecraft import QueueCraft, Retry

class PaymentDeclined(Exception):
    pass

qc = QueueCraft("local://./queue.db", presence=0.5, shutdown_timeout=5)
billing = qc.worker("billing", retry=Retry(max_retries=1, initial_delay=0.01), concurrency=2)
email = qc.worker("email")

@billing.on("order.#")
async def charge(order: dict[str, Any]) -> None:
    if "error" in order:
        raise type(order["error"], (Exception,), {})(order["error"])
    if Path("broken").exists():
        raise PaymentDeclined("the card was declined by the bank: insufficient funds")

@email.on("order.#")
async def confirm(order: dict[str, Any]) -> None: ...
"""


@dataclass
class Shop:
    """Its broker, where its dashboard is, and the folder it runs in."""

    qc: QueueCraft
    url: str
    folder: Path
    serving: Running

    async def order(self, count: int) -> None:
        """Have so many orders placed."""
        for number in range(count):
            order = {"id": f"o-{number}", "total": 129.9, "customer": {"country": "DE"}}
            await self.qc.publish("order.placed", order, key=f"c-{number % 7}")

    def mend(self) -> None:
        """The bank answers again."""
        (self.folder / "broken").unlink()

    def breaks(self) -> None:
        """The bank is down."""
        (self.folder / "broken").touch()


@asynccontextmanager
async def open_shop(folder: Path, *options: str) -> AsyncGenerator[Shop]:
    """Its worker and its service run as processes of their own, on one file."""
    (folder / "shop.py").write_text(APP, encoding="utf-8")
    (folder / "broken").touch()
    url = f"local://{folder / 'queue.db'}"
    tokens = {"QUEUECRAFT_TOKEN": OPERATOR, "QUEUECRAFT_READ_TOKEN": READER}
    with (
        Running("run", "shop:qc", folder=folder),
        Running("serve", "--url", url, "--port", "0", *options, folder=folder, **tokens) as serving,
    ):
        (site,) = serving.until(r"answering at (http://\S+)")
        async with QueueCraft(url, presence=0) as qc:
            async with asyncio.timeout(PATIENCE):
                await _alive(qc)
            yield Shop(qc, site, folder, serving)


async def _alive(qc: QueueCraft) -> None:
    """Wait for the worker's first sign of life."""
    while not await qc.admin.workers():  # noqa: ASYNC110  (it is told in another process)
        await asyncio.sleep(0.05)
