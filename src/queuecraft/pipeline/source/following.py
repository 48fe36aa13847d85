"""Reading a log, once or as long as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from queuecraft.drivers.base import Delivery
from queuecraft.model.errors import ConnectionLost
from queuecraft.pipeline.archive import archived
from queuecraft.pipeline.source.log import LATEST, Log, Offset, log_of
from queuecraft.pipeline.source.place import Place

T = TypeVar("T")


class Range(InputPartition):
    """What one task reads."""

    def __init__(self, start: Offset, end: Offset) -> None:
        super().__init__((start, end))


class _Reading:
    """What both kinds of readers do on the executors."""

    def __init__(self, place: Place, columns: tuple[str, ...], *, strict: bool) -> None:
        self.place = place
        self.columns = columns
        self.strict = strict

    def log(self) -> Log:
        place = self.place
        return log_of(place.settings(), place.queue, event=place.event, strict=self.strict)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # what Spark makes of no partitions
            return
        start, end = partition.value
        with asyncio.Runner() as runner:
            log = self.log()
            try:
                runner.run(log.open())
                messages = log.read(start, end)

                async def some() -> Sequence[Delivery] | None:
                    return await anext(messages, None)

                while (found := runner.run(some())) is not None:
                    yield self._rows(log, found)
            finally:
                runner.run(log.close())

    def _rows(self, log: Log, found: Sequence[Delivery]) -> pa.RecordBatch:
        """As for any capture, but at the moment they came: read again, they are the same."""
        rows = archived(found, 0.0)
        place = rows.schema.get_field_index("at")
        at = rows.schema.field(place)
        moments = pa.array([round(log.moment(each) * 1_000_000) for each in found], pa.int64())
        rows = rows.set_column(place, at, moments.cast(at.type))
        if log.event:  # it has come to no queue
            place = rows.schema.get_field_index("queue")
            queue = rows.schema.field(place)
            rows = rows.set_column(place, queue, pa.nulls(len(found), queue.type))
        return rows.select(list(self.columns))


class LogReader(_Reading, DataSourceReader):
    """Reads a log from one place to another."""

    def __init__(
        self,
        place: Place,
        columns: tuple[str, ...],
        *,
        starting: str,
        ending: str,
        strict: bool,
    ) -> None:
        super().__init__(place, columns, strict=strict)
        self.starting = starting
        self.ending = ending

    def partitions(self) -> list[InputPartition]:
        async def planned() -> list[InputPartition]:
            log = self.log()
            try:
                await log.open()
                start, end = await log.at(self.starting), await log.at(self.ending)
            finally:
                await log.close()
            return [Range(*each) for each in log.ranges(start, end)]

        return asyncio.run(planned())


class FollowingReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a log as it grows. Where it is stands in the checkpoint of the query and nowhere else:
    Spark says that a batch is done only when it plans the next, so nothing hangs on that."""

    def __init__(
        self,
        place: Place,
        columns: tuple[str, ...],
        *,
        starting: str,
        rows: int | None,
        strict: bool,
    ) -> None:
        super().__init__(place, columns, strict=strict)
        self.starting = starting
        self.rows = rows
        self._until: Offset | None = None
        self._runner: asyncio.Runner | None = None
        self._log: Log | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        return self._ask(lambda log: log.at(self.starting))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._ask(lambda log: log.after(start, rows, self._until))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self.rows is None else ReadMaxRows(self.rows)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return self._ask(lambda log: log.at(LATEST))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._ask(lambda log: log.at(LATEST))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [Range(*each) for each in self.log().ranges(start, end)]

    def stop(self) -> None:
        runner, log = self._runner, self._log
        self._runner = self._log = None
        if runner is not None:
            with runner:
                if log is not None:
                    runner.run(log.close())

    def _ask(self, question: Callable[[Log], Awaitable[T]]) -> T:
        """Ask the log, on a connection that is kept: Spark looks for news a hundred times a
        second. One that was lost meanwhile is opened again, once."""

        async def answer() -> T:
            if self._log is None:
                self._log = self.log()
                await self._log.open()
                return await question(self._log)
            try:
                return await question(self._log)
            except ConnectionLost:
                await self._log.open()
                return await question(self._log)

        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(answer())
