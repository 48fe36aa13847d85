"""Tables into queues: every message is confirmed by the broker before its task is done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from queuecraft.clock import Clock
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import QueueError
from queuecraft.pipeline.connections import connected
from queuecraft.pipeline.source.form import Form
from queuecraft.pipeline.source.messages import Messages, Target
from queuecraft.pipeline.source.outlet import Outlet
from queuecraft.pipeline.source.pace import Pace
from queuecraft.pipeline.source.place import Place

log = logging.getLogger("queuecraft")

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # as Spark tells its tasks


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has done."""

    partition: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    """What every task of a write is to do."""

    place: Place
    target: Target
    form: Form
    seed: str = ""
    rate: float | None = None  # messages a second, for one task
    drop: bool = False  # events that nobody is bound to

    def run(
        self, batches: Iterator[pa.RecordBatch], partition: int, salt: str, *, apart: bool
    ) -> Written:
        """Send everything there is, over one connection."""
        return asyncio.run(self._run(batches, partition, salt, apart))

    async def _run(
        self, batches: Iterator[pa.RecordBatch], partition: int, salt: str, apart: bool
    ) -> Written:
        settings, clock = self.place.settings(), Clock()
        pace = Pace(self.rate, clock, most=settings.max_pending)
        size = 0
        async with connected(settings) as connection:
            messages = Messages(
                self.form,
                self.target,
                settings,
                connection.traits,
                salt=salt,
                now=clock.now(),
                apart=apart,
            )
            outlet = Outlet(connection, settings, clock, self.target, drop=self.drop)
            try:
                # Rows are waited for in a thread: the connection wants its heartbeats meanwhile.
                while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                    made = messages.of(batch)
                    for start in range(0, len(made), pace.size):
                        some = made[start : start + pace.size]
                        await pace.wait(len(some))
                        await outlet.send(some)
                        failpoint("sink.after_send")
                    size += sum(len(each.body) for each in made)
            finally:
                await outlet.close()
            return Written(partition, outlet.sent, size)


class QueueWriter(DataSourceArrowWriter):
    """Writes a table once. Without ids of its own, a row gets the same one however often it is
    written."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        return self.job.run(iterator, partition, self.job.seed, apart=False)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info("%s", _told(self.job, messages, "written"))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning("%s", _told(self.job, messages, "of the tasks that did not fail written"))


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a query. Without ids of its own, a row gets one by its query, batch and
    partition: the same when the batch is tried again, another when the row comes again later."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        if context is None or (batch := context.getLocalProperty(BATCH)) is None:
            raise QueueError("Spark does not say which batch of the query this is", queue=None)
        partition = context.partitionId()
        salt = repr((self.job.seed, context.getLocalProperty(QUERY), batch, partition))
        return self.job.run(iterator, partition, salt, apart=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        log.info("batch %d: %s", batchId, _told(self.job, messages, "written"))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        told = _told(self.job, messages, "of the tasks that did not fail written")
        log.warning("batch %d: %s", batchId, told)


def _told(job: Job, messages: Sequence[WriterCommitMessage | None], done: str) -> str:
    tasks = [each for each in messages if isinstance(each, Written)]
    count, size = sum(each.messages for each in tasks), sum(each.bytes for each in tasks)
    where = job.target.queue or job.target.event or job.target.exchange or "events"
    return f"{count:,} messages {done} to {where!r} ({size:,} bytes, {len(tasks)} tasks)"
