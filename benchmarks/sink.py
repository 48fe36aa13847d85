"""How fast a table of Spark becomes messages, beside `publish_many` of the same.

    python -m benchmarks.sink --messages 300000 --rounds 5

Both send the same orders as events to one queue in a file, confirmed, with one publisher: the table
has one partition, and `publish_many` is given batches of 500. Spark and its Python worker are
started, and the table is made, before the clock is; each round sends by both, in turns.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer

from benchmarks.order import Order, orders
from queuecraft import Event, QueueCraft
from queuecraft.pipeline import register
from queuecraft.pipeline.session import spark_session

BATCH = 500
QUEUE = "billing"
order_placed = Event("order.placed", Order)
VARIABLE = "QUEUECRAFT_CONNECTION_SINK_CONFIG"


def published(url: str, payloads: list[Order]) -> float:
    """Seconds of `publish_many`."""

    async def run() -> float:
        async with QueueCraft(url) as qc:
            began = perf_counter()
            for start in range(0, len(payloads), BATCH):
                await qc.publish_many(order_placed, payloads[start : start + BATCH])
            return perf_counter() - began

    return asyncio.run(run())


def written(table: Any) -> float:
    """Seconds of the sink."""
    began = perf_counter()
    writer = table.write.format("queuecraft").option("connection", "sink")
    writer.mode("append").save()
    return perf_counter() - began


async def declare(url: str) -> None:
    async with QueueCraft(url) as qc:
        await qc.admin.declare(QUEUE, order_placed.name)


async def emptied(url: str) -> int:
    async with QueueCraft(url) as qc:
        return await qc.admin.purge(QUEUE)


def main(
    messages: Annotated[int, typer.Option(help="Messages of a round.")] = 300_000,
    rounds: Annotated[int, typer.Option(help="Measured rounds.")] = 5,
) -> None:
    """Measure how fast a table becomes messages."""
    payloads = orders(Order, messages)
    with TemporaryDirectory(prefix="sink-") as folder:
        url = f"local://{folder}/queue.db"
        config = Path(folder, "sink.toml")
        config.write_text(f'url = "{url}"\n', encoding="utf-8")
        os.environ[VARIABLE] = str(config)
        spark = spark_session(settings={"spark.log.level": "ERROR"})
        register(spark)
        table = _table(spark, payloads).cache()
        assert table.count() == messages
        asyncio.run(declare(url))
        ways: dict[str, Callable[[], float]] = {
            "publish_many": lambda: published(url, payloads),
            "sink": lambda: written(table),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):  # the first one warms up
            for name, run in ways.items():
                took = run()
                gone = asyncio.run(emptied(url))
                assert gone == messages, f"{name}: {gone} of {messages}"
                if number:
                    rates[name].append(messages / took)
        pairs = zip(rates["sink"], rates["publish_many"], strict=True)
        ratios = [sink / plain for sink, plain in pairs]
        for name, each in rates.items():
            print(f"{name:<13} {median(each):>9,.0f} msg/s  {min(each):,.0f}–{max(each):,.0f}")
        spread = f"{min(ratios):.0%}–{max(ratios):.0%}"
        print(f"sink against publish_many: {median(ratios):.0%} ({spread})")


def _table(spark: Any, payloads: list[Order]) -> Any:
    """A table of one partition, whose rows say what the orders do."""
    import msgspec

    lines = [msgspec.json.encode(each).decode() for each in payloads]
    frame = spark.createDataFrame([(line,) for line in lines], "line string").coalesce(1)
    return frame.selectExpr(
        "cast(line as binary) as payload",
        "'application/json' as content_type",
        f"'{order_placed.name}' as event",
    )


if __name__ == "__main__":
    typer.run(main)
