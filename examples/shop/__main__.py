"""Run the whole shop for a number of orders, and see how each ends."""

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from uuid import uuid4

from examples.shop.audit import Audit
from examples.shop.events import Order
from examples.shop.orders import count_open, place
from examples.shop.shop import Shop
from queuecraft import QueueError

log = logging.getLogger("shop")

PRICES = {"teapot": 2400, "lamp": 3950, "globe": 8900}


def customers(count: int) -> Iterator[Order]:
    """So many orders. No two runs have the same ids, as they may share a broker."""
    run = uuid4().hex[:4]
    for number, (product, cents) in enumerate(islice(cycle(PRICES.items()), count), 1):
        yield Order(f"{run}-{number}", product, cents)


async def sell(shop: Shop, orders: int, patience: float) -> None:
    """Place orders, and wait until all of them have ended."""
    for order in customers(orders):
        await asyncio.to_thread(place, shop.books, order)
    unended = orders
    async with asyncio.timeout(patience):
        while unended:
            await asyncio.sleep(0.05)
            unended = await asyncio.to_thread(count_open, shop.books)


async def run(shop: Shop, orders: int, patience: float) -> None:
    """The same, with workers and relay in this process."""
    async with shop.qc, shop.books.outbox.relaying(shop.qc, shop.books.url, poll=0.05):
        for worker in shop.qc.workers:
            await worker.start()
        await sell(shop, orders, patience)


def main() -> int:
    """What to exit with: 0 if every order came to exactly one end."""
    parser = argparse.ArgumentParser(prog="python -m examples.shop", description=__doc__)
    parser.add_argument("--url", help="the broker (default: QUEUECRAFT_URL, or in memory)")
    parser.add_argument("--orders", type=int, default=12, metavar="N")
    parser.add_argument(
        "--folder",
        type=Path,
        default=os.environ.get("SHOP_FOLDER"),
        help="where the books are kept (default: SHOP_FOLDER, or nowhere)",
    )
    parser.add_argument("--patience", type=float, default=60, metavar="SECONDS")
    parser.add_argument(
        "--no-workers", action="store_true", help="leave the work to workers that run elsewhere"
    )
    parser.add_argument("--verbose", action="store_true", help="with the log of QueueCraft")
    given = parser.parse_args()
    if given.no_workers and given.folder is None:
        parser.error("--no-workers needs the folder of the workers: --folder, or SHOP_FOLDER")
    logging.basicConfig(format="%(name)-14s  %(message)s", level=logging.INFO, stream=sys.stdout)
    if not given.verbose:  # the shop tells of failures in a line each, without their stacks
        logging.getLogger("queuecraft").setLevel(logging.CRITICAL)

    with tempfile.TemporaryDirectory() as nowhere:
        try:
            shop = Shop.at(given.folder or Path(nowhere), given.url)
            try:
                asyncio.run((sell if given.no_workers else run)(shop, given.orders, given.patience))
            except TimeoutError:
                log.error("not all orders have ended within %g s", given.patience)
        except QueueError as error:
            log.error("%s", error)
            return 1
        audit = Audit.of(shop.books, shop.bank)
    log.info(
        "%d orders: %d shipped, %d refunded",
        audit.orders,
        audit.ends["shipped"],
        audit.ends["refunded"],
    )
    for fault in audit.faults:
        log.error("WRONG: %s", fault)
    if not audit.faults:
        log.info("every order came to exactly one end")
    return 1 if audit.faults else 0


if __name__ == "__main__":
    sys.exit(main())
