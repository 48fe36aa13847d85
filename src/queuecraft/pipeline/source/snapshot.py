"""What waits in a queue at this moment: looked at, never taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from queuecraft.admin import UnknownQueue
from queuecraft.clock import Clock
from queuecraft.drivers.base import Delivery, Driver
from queuecraft.model.errors import QueueError, UnsupportedFeature
from queuecraft.model.naming import check_name
from queuecraft.pipeline.archive import archived
from queuecraft.pipeline.connections import connected
from queuecraft.pipeline.source.place import Place

MOST = 100_000  # messages, unless the user sets a limit: they all pass through one process
BATCH = 5_000  # rows handed to Spark at once


class SnapshotReader(DataSourceReader):
    """Peeks at a queue, in one task: each action of Spark's peeks again."""

    def __init__(
        self, place: Place, columns: tuple[str, ...], *, limit: int | None, force: bool
    ) -> None:
        self.place = place
        self.columns = columns
        self.limit = limit
        self.force = force

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        deliveries = asyncio.run(self._peek())
        at = Clock().now()
        for start in range(0, len(deliveries), BATCH):
            batch = archived(deliveries[start : start + BATCH], at)
            yield batch.select(list(self.columns))

    async def _peek(self) -> Sequence[Delivery]:
        async with connected(self.place.settings()) as connection:
            driver = await connection.ready()
            limit = await self._checked(driver)
            return await driver.peek(self.place.queue, limit) if limit else ()

    async def _checked(self, driver: Driver) -> int:
        """How many messages to look at, if it does them no harm."""
        queue = self.place.queue
        check_name("queue", queue, driver.traits.max_name)
        found = await driver.inspect([queue])
        if not found:
            known = [info.name for info in await driver.inspect()]
            raise UnknownQueue.among(queue, known, operation="peek", broker=driver.traits.name)
        (info,) = found
        harmless = driver.traits.peek == "clean" or queue.endswith(".dlq")
        if not (harmless or self.force or info.consumers == 0):
            raise UnsupportedFeature(
                "peeking marks messages as redelivered on this broker, and the queue has "
                "consumers; stop them first, or insist with .option('force', 'true')",
                broker=driver.traits.name,
                operation="peek",
                queue=queue,
            )
        if self.limit is not None:
            return self.limit
        if info.ready is not None and info.ready > MOST:  # better than a part taken for the whole
            raise QueueError(
                f"{info.ready:,} messages wait, and a snapshot looks at no more than {MOST:,} "
                "unless told to; set .option('limit', …), or capture the queue into a lake",
                broker=driver.traits.name,
                operation="peek",
                queue=queue,
            )
        return MOST if info.ready is None else info.ready
