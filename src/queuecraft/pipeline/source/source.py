"""The data source `queuecraft`: lakes and queues as tables, tables into queues."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.connections import DEFAULT
from queuecraft.pipeline.schemas import SEGMENTS
from queuecraft.pipeline.source.following import FollowingReader, LogReader
from queuecraft.pipeline.source.form import Form
from queuecraft.pipeline.source.lake import FilteringLakeReader, LakeReader, columns_of
from queuecraft.pipeline.source.log import EARLIEST, LATEST
from queuecraft.pipeline.source.messages import Target
from queuecraft.pipeline.source.options import Options
from queuecraft.pipeline.source.place import Place
from queuecraft.pipeline.source.site import Site
from queuecraft.pipeline.source.snapshot import SnapshotReader
from queuecraft.pipeline.source.writers import Job, QueueStreamWriter, QueueWriter

LAKE = ("lake", "path")
SNAPSHOT = ("connection", "queue", "limit", "force")
LOG = ("connection", "stream", "event", "starting", "ending", "fail_on_data_loss")
FOLLOWED = ("connection", "stream", "queue", "event", "starting", "max_rows", "fail_on_data_loss")
WRITTEN = (
    *("connection", "queue", "event", "exchange", "content_type", "unroutable"),
    *("id_seed", "rate", "tasks"),
)


class QueueCraftSource(DataSource):
    """What `spark.read.format("queuecraft")` and `df.write.format("queuecraft")` lead to.

    >>> QueueCraftSource.name()
    'queuecraft'
    """

    site: ClassVar[Site] = Site()

    @classmethod
    def name(cls) -> str:
        return "queuecraft"

    def schema(self) -> StructType:
        return SEGMENTS.spark

    def reader(self, schema: StructType) -> DataSourceReader:
        said = Options(self.options, tuple(dict.fromkeys((*LAKE, *SNAPSHOT, *LOG))))
        kind = said.one_of(*LAKE, "queue", "stream", "event")
        columns = columns_of(schema)
        if kind in LAKE:
            lake = Options(self.options, LAKE)
            made = FilteringLakeReader if self.site.filters else LakeReader
            return made(lake.text(kind) or "", columns)
        if kind == "queue":
            queue = Options(self.options, SNAPSHOT)
            return SnapshotReader(
                self._place(queue, kind),
                columns,
                limit=queue.whole("limit", 1),
                force=queue.flag("force", otherwise=False),
            )
        log = Options(self.options, LOG)
        return LogReader(
            self._place(log, kind),
            columns,
            starting=log.text("starting") or EARLIEST,
            ending=log.text("ending") or LATEST,
            strict=log.flag("fail_on_data_loss", otherwise=True),
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        if any(name in self.options for name in LAKE):
            raise ConfigError(
                "a lake is followed with Spark's own stream of files: "
                "spark.readStream.schema(SEGMENTS.spark)"
                ".option('pathGlobFilter', '[!~]*.parquet').parquet('lake/segments')"
            )
        said = Options(self.options, FOLLOWED)
        return FollowingReader(
            self._place(said, said.one_of("stream", "queue", "event")),
            columns_of(schema),
            starting=said.text("starting") or EARLIEST,
            rows=said.whole("max_rows", 1),
            strict=said.flag("fail_on_data_loss", otherwise=True),
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return QueueWriter(self._job(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return QueueStreamWriter(self._job(schema, overwrite))

    def _place(self, said: Options, kind: str) -> Place:
        name, connection = said.text(kind) or "", said.text("connection") or DEFAULT
        return Place(connection, name, self.site.local, kind == "event")

    def _job(self, schema: StructType, overwrite: bool) -> Job:
        said = Options(self.options, WRITTEN)
        if overwrite:
            raise ConfigError("a queue cannot be overwritten; use .mode('append')")
        form = Form.of(schema)
        target = Target(
            queue=said.text("queue"),
            exchange=said.text("exchange"),
            event=said.text("event"),
            content_type=said.text("content_type"),
        )
        if target.queue is not None and target.exchange is not None:
            raise ConfigError("say the option 'queue' or 'exchange': a message goes to one of them")
        if target.queue is None and target.event is None and "event" not in form.about:
            raise ConfigError(
                "say where the messages go: .option('queue', …), or .option('event', …), or a "
                "column 'event'"
            )
        unroutable = said.text("unroutable") or "error"
        if unroutable not in ("error", "drop"):
            raise ConfigError(f"option unroutable={unroutable!r}: expected 'error' or 'drop'")
        return Job(
            self._place(said, "queue"),
            target,
            form,
            seed=said.text("id_seed") or "",
            rate=self._rate(said),
            drop=unroutable == "drop",
        )

    def _rate(self, said: Options) -> float | None:
        """The share of one task in the rate of all."""
        rate, tasks = said.number("rate", 0), said.whole("tasks", 1) or self.site.slots
        if rate is None:
            return None
        if not rate:
            raise ConfigError("option rate=0 would send nothing; expected messages a second")
        if tasks is None:
            raise ConfigError(
                "the rate is shared by the tasks that run at once, and how many that are is not "
                "known through Spark Connect; say it: .option('tasks', 8)"
            )
        return rate / tasks


def source_for(site: Site) -> type[QueueCraftSource]:
    """The source, with what is known of the Spark it is registered with. A class of its own: one
    that can be imported travels to the executors by its name, without what was found out here.

    >>> source_for(Site(local=True)).site.local
    True
    """

    class Registered(QueueCraftSource):
        pass

    Registered.site = site
    return Registered
