"""The page about metrics: Prometheus is answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.brokers.port import Port
from tests.docs.blocks import changed, left_to
from tests.test_house import BLOCKS, run

ASK = """
import asyncio
from urllib.request import urlopen

async def main():
    async with qc:
        await qc.admin.declare("billing", "order.placed")
        await qc.publish("order.placed", {})

asyncio.run(main())
with urlopen("http://localhost:9000/metrics") as answer:
    print("answered:", answer.read().decode())
"""


def test_prometheus_reads_numbers_as_they_are(tmp_path: Path) -> None:
    (serving,) = left_to(__file__, "docs/metrics.md")
    first = next(block for block in BLOCKS if block.page == serving.page)
    whole = replace(serving, code=first.code + serving.code + ASK)
    with Port() as port:
        status, output = run(changed(whole, {"9000": str(port.number)}), tmp_path)
    assert status == 0, output
    before, _, answered = output.partition("answered:")
    published = 'queuecraft_messages_published_total{event="order.placed",service="shop"} 1.0'
    assert published not in before
    assert published in answered
