"""What one task does: send its part of a chunk, in order, over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from queuecraft.clock import Clock
from queuecraft.drivers.base import Accepted, Rejected
from queuecraft.failpoints import failpoint
from queuecraft.model.envelope import Outgoing
from queuecraft.model.errors import ConnectionLost, PublishError, QueueError
from queuecraft.model.settings import Settings
from queuecraft.pipeline.connections import connected, connection_settings
from queuecraft.pipeline.replay.message import expired, message_of
from queuecraft.pipeline.source.pace import Pace
from queuecraft.runtime.connection import Connection

TOLD: Final = 20  # refusals that a task tells one by one
PAUSE: Final = 0.2  # seconds before trying again, when an answer is missing
COLUMNS: Final = (
    "sent bigint, refused bigint, expired bigint, size bigint, refusals string, "
    "positions array<bigint>, trouble string, lost boolean"
)

Placed: TypeAlias = tuple[int, Outgoing]
"""A message with its position in the plan."""


class Report(msgspec.Struct, kw_only=True):
    """What became of the messages of a task."""

    sent: int = 0
    refused: int = 0  # certainly not stored
    expired: int = 0  # and not sent
    size: int = 0
    refusals: list[tuple[str, str]] = []  # the first of them: ids and reasons
    positions: list[int] = []  # of all that were refused
    trouble: str | None = None  # why it did not get to the end
    lost: bool = False  # because there is no connection


@dataclass(frozen=True, slots=True)
class Sending:
    """Sends the rows that it is given, and answers with one row: see `COLUMNS`. Made on the driver
    and carried to the executors; where the broker is they know by themselves.

    >>> Sending("shop", local=True)
    Sending(connection='shop', local=True, rate=None, expired=False)
    """

    connection: str
    local: bool
    """Whether they are on this machine."""
    rate: float | None = None
    """Messages a second of this task alone."""
    expired: bool = False
    """Whether messages that have run out of time are sent too, and without an end."""
    environ: Mapping[str, str] | None = field(default=None, repr=False)
    """What this machine knows of brokers, for tasks that run on it too."""
    url: str | None = field(default=None, repr=False)
    """A broker without a name, for the same."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As `mapInArrow` has it."""
        report = asyncio.run(self._send(batches))
        row = msgspec.structs.asdict(report)
        row["refusals"] = msgspec.json.encode(report.refusals).decode()
        yield pa.RecordBatch.from_pylist([row], schema=_SCHEMA)

    async def _send(self, batches: Iterator[pa.RecordBatch]) -> Report:
        report = Report()
        batch = next(batches, None)
        if batch is None:
            return report
        try:
            settings = connection_settings(
                self.connection, self.environ, local=self.local, url=self.url
            )
            async with connected(settings) as connection:
                outlet = Outlet(connection, settings, report)
                pace = Pace(self.rate)
                while batch is not None:
                    for start in range(0, batch.num_rows, pace.size):
                        rows = batch.slice(start, pace.size).to_pylist()
                        messages = self._messages(rows, settings.exchange, outlet)
                        await pace.wait(len(messages))
                        await outlet.send(messages)
                        failpoint("replay.mid_chunk")
                    # Waited for in a thread: the connection wants its heartbeats meanwhile.
                    batch = await asyncio.to_thread(next, batches, None)
        except QueueError as error:
            report.trouble = error.message
            report.lost = isinstance(error, ConnectionLost)
        return report

    def _messages(
        self, rows: Sequence[Mapping[str, Any]], exchange: str, outlet: Outlet
    ) -> list[Placed]:
        now = Clock().now()
        messages: list[Placed] = []
        for row in rows:
            position = row["position"]
            try:
                message = message_of(row, exchange, now)
            except Exception as error:  # headers of any shape; one row must not end a replay
                outlet.refuse(position, str(row.get("message_id")), str(error))
                continue
            if not expired(message, now):
                messages.append((position, message))
            elif self.expired:
                messages.append((position, msgspec.structs.replace(message, expires_at=None)))
            else:
                outlet.report.expired += 1
        return messages


class Outlet:
    """Gives messages to the broker until it has answered for each, in order, also after a lost
    connection."""

    def __init__(self, connection: Connection, settings: Settings, report: Report) -> None:
        self.report = report
        self._connection = connection
        self._patience = settings.publish_timeout

    async def send(self, messages: Sequence[Placed]) -> None:
        """Return when each is stored or refused. Raises `ConnectionLost` or `PublishError` when
        that cannot be known."""
        trouble: QueueError | None = None
        try:
            async with asyncio.timeout(self._patience):
                left = list(messages)
                while left:
                    left, trouble = await self._try(left)
                    if left:
                        await asyncio.sleep(PAUSE)
        except TimeoutError:
            within = f"no answer from the broker within {self._patience:g} s"
            if trouble is None:
                raise PublishError(within, outcome="unknown") from None
            raise ConnectionLost(f"{within}: {trouble.message}", broker=trouble.broker) from None

    def refuse(self, position: int, message_id: str, reason: str) -> None:
        """Take note of one that is certainly not stored."""
        self.report.refused += 1
        self.report.positions.append(position)
        if len(self.report.refusals) < TOLD:
            self.report.refusals.append((message_id, reason))

    async def _try(self, messages: list[Placed]) -> tuple[list[Placed], QueueError | None]:
        """Send once; those that there is no answer for, and why."""
        driver = await self._connection.ready()
        try:
            receipts = await driver.send([message for _, message in messages])
        except ConnectionLost as error:
            self._connection.lost(driver, error)
            return messages, error
        except QueueError as error:  # nothing was sent, because of one of them
            if len(messages) > 1:
                return await self._try_apart(messages)
            ((position, message),) = messages
            self.refuse(position, message.id, error.message)
            return [], None
        left: list[Placed] = []
        trouble: QueueError | None = None
        for (position, message), receipt in zip(messages, receipts, strict=True):
            if isinstance(receipt, Accepted):
                self.report.sent += 1
                self.report.size += len(message.body)
            elif isinstance(receipt, Rejected):
                self.refuse(position, message.id, receipt.error.message)
            else:
                left.append((position, message))
                trouble = receipt.error
        if isinstance(trouble, ConnectionLost):
            self._connection.lost(driver, trouble)
        return left, trouble

    async def _try_apart(self, messages: list[Placed]) -> tuple[list[Placed], QueueError | None]:
        """Send in halves, which shows whose fault it is; in order, so one after the other."""
        half = len(messages) // 2
        left, trouble = await self._try(messages[:half])
        if left:
            return left + messages[half:], trouble
        return await self._try(messages[half:])


_SCHEMA = pa.schema(
    [
        ("sent", pa.int64()),
        ("refused", pa.int64()),
        ("expired", pa.int64()),
        ("size", pa.int64()),
        ("refusals", pa.string()),
        ("positions", pa.list_(pa.int64())),
        ("trouble", pa.string()),
        ("lost", pa.bool_()),
    ]
)
