"""How long ingest takes, whether it depends on anything but the number of rows, and how long it
takes to ask for what was ingested, beside DuckDB on the same files.

    python -m benchmarks.lake --rows 1000000 --rows 10000000 --svg docs/images/ingest.svg

A day of a shop for each million of rows: orders with a payload of some 200 bytes, each published
once and handled by one or two queues, a few of them after retries. Spark is started and warmed up
before the clock is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import typer

from benchmarks.plot import Line, chart
from queuecraft.pipeline.jobs.ingest import Step, ingest
from queuecraft.pipeline.jobs.tables import parquet_files
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.report.reading import read_figures
from queuecraft.pipeline.schemas import SEGMENTS
from queuecraft.pipeline.segments import SegmentWriter
from queuecraft.pipeline.session import spark_session

SEGMENT = 100_000  # rows
TRIES = 3  # of each question; the fastest counts
QUESTIONS = {
    "outcomes by queue, of all events": """
        SELECT queue, outcome, count(*) AS n FROM {events} GROUP BY queue, outcome
        ORDER BY queue NULLS FIRST, outcome NULLS FIRST
    """,
    "percentiles of latency by queue, of all messages": """
        SELECT queue, percentile_disc(0.5) WITHIN GROUP (ORDER BY latency) AS p50,
            percentile_disc(0.99) WITHIN GROUP (ORDER BY latency) AS p99
        FROM {lifecycle} WHERE latency IS NOT NULL GROUP BY queue ORDER BY queue
    """,
    "one message of all, by its id": """
        SELECT kind, queue, attempt FROM {events} WHERE message_id = '{id}'
        ORDER BY kind, queue NULLS FIRST, attempt
    """,
    "throughput by queue, from the finished table": """
        SELECT queue, sum(delivered) AS delivered, sum(dead_lettered) AS dead FROM {throughput}
        GROUP BY queue ORDER BY queue NULLS FIRST
    """,
}
"""In words that both understand."""
DAY = 1_000_000  # rows
START = datetime(2026, 3, 2, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Run:
    """One lake, ingested at once."""

    rows: int
    seconds: float
    bronze: float  # seconds, of those
    cpu: float  # seconds, of Spark and its Python workers
    memory_mb: float  # of the Java process, at its peak
    lake_mb: float


def batches(rows: int, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """Rows in the order of time."""
    chance = np.random.default_rng(seed)
    span = 86_400e6 * SEGMENT / DAY
    start = START.timestamp() * 1e6
    for first in range(0, rows, SEGMENT):
        count = min(SEGMENT, rows - first)
        yield _batch(chance, first, count, start + span * first / SEGMENT, span)


def _batch(
    chance: np.random.Generator, first: int, count: int, start: float, span: float
) -> pa.RecordBatch:
    # Of four rows one is a publish, three are deliveries of it.
    number = (first + np.arange(count)) // 4
    part = (first + np.arange(count)) % 4
    born = (start + (np.arange(count) // 4 * 4) / SEGMENT * span).astype("int64")
    is_publish = part == 0
    duration = chance.exponential(0.05, count)
    settled = born + (part * 50_000 + duration * 1e6 + chance.exponential(2e5, count)).astype(int)
    fails = chance.random(count) < 0.05
    retried = np.isin(part, (1,)) & fails
    queue = _where(is_publish, None, _where(part == 3, "shipping", "billing"))
    attempt = _where(is_publish, 0, _where(part == 2, 2, 1))
    outcome = _where(
        is_publish,
        None,
        _where(retried | (part == 1), "retried", _where(fails, "dead-lettered", "succeeded")),
    )
    failed = ~is_publish & (outcome != "succeeded")
    known: dict[str, Any] = {
        "kind": _where(is_publish, "published", "delivered"),
        "at": pa.array(_where(is_publish, born + 900, settled)).cast(
            SEGMENTS.arrow.field("at").type
        ),
        "message_id": [f"{each:032x}" for each in number],
        "queue": queue,
        "exchange": _where(is_publish, "events", None),
        "event": _where(number % 3 == 0, "order.paid", "order.placed"),
        "key": [f"customer-{each % 1000}" for each in number],
        "attempt": attempt,
        "redeliveries": np.zeros(count),
        "outcome": outcome,
        "reason": _where(failed, "error", None),
        "error_type": _where(failed, "TimeoutError", None),
        "error": [
            f"bank did not answer for order {n}" if bad else None
            for n, bad in zip(number, failed, strict=True)
        ],
        "fingerprint": _where(failed, "0123456789ab", None),
        "duration": pa.array(duration, mask=is_publish),
        "published_at": pa.array(born).cast(SEGMENTS.arrow.field("at").type),
        "size": np.full(count, 200),
        "content_type": np.full(count, "application/json"),
        "headers": [[("tenant", "t1")]] * count,
        "payload": [
            b'{"id":"o-%d","customer":"customer-%d","total":%d.5,"currency":"EUR","lines":'
            b'[{"sku":"a-1","price":9.5,"count":2},{"sku":"b-2","price":1.25,"count":%d}],'
            b'"note":"please leave it at the door"}' % (n, n % 1000, n % 500, n % 7)
            for n in number.tolist()
        ],
        "priority": np.zeros(count),
        "process": np.full(count, 7),
        "version": np.ones(count),
        "service": np.full(count, "shop"),
        "host": np.full(count, "host-1"),
    }
    columns = [
        _column(known[field.name], field.type)
        if field.name in known
        else pa.nulls(count, field.type)
        for field in SEGMENTS.arrow
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SEGMENTS.arrow)


def _where(condition: Any, yes: Any, no: Any) -> Any:
    """As NumPy's, but there may be nothing in it."""
    choose: Any = np.where
    return choose(condition, yes, no)


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values.cast(kind)
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        values = values.astype("int64")
    return pa.array(values, kind)


def write(lake: Lake, rows: int) -> None:
    for number, batch in enumerate(batches(rows)):
        date = START + timedelta(days=number * SEGMENT // DAY)
        with SegmentWriter(lake, Path(f"date={date:%Y-%m-%d}", f"{number:06}.parquet")) as writer:
            writer.write(batch)


def java(spark: Any) -> int:
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())


def peak_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1e3


def cpu_seconds(process: int) -> float:
    """Of a process, those it has started, and those that have ended since."""
    total = 0
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        number = int(stat.parent.name)
        parents[number] = int(told[1])
        ticks[number] = sum(map(int, told[11:15]))
    for number in ticks:
        ancestor = number
        while ancestor not in (0, process):
            ancestor = parents.get(ancestor, 0)
        if ancestor == process:
            total += ticks[number]
    return total / os.sysconf("SC_CLK_TCK")


def ask(spark: Any, lake: Lake, rows: int) -> None:
    """Time the same questions on the same files; the answers have to be the same."""
    import duckdb

    files = {
        name: sorted(map(str, parquet_files(lake.tables / name)))
        for name in ("events", "lifecycle", "throughput")
    }
    id = f"{rows // 8:032x}"
    for name in files:
        spark.read.option("basePath", str(lake.tables / name)).parquet(
            str(lake.tables / name)
        ).createOrReplaceTempView(name)
    with duckdb.connect() as connection:
        for question, text in QUESTIONS.items():
            theirs = {each: f"read_parquet({paths})" for each, paths in files.items()}
            slow, one = _fastest(
                lambda text=text: [
                    tuple(row) for row in spark.sql(text.format(**_same(files), id=id)).collect()
                ]
            )
            fast, other = _fastest(
                lambda text=text, theirs=theirs: connection.execute(
                    text.format(**theirs, id=id)
                ).fetchall()
            )
            assert one == other, f"{question}: {one[:3]} and {other[:3]}"
            print(f"{question:<52} Spark {slow:6.2f} s   DuckDB {fast:6.2f} s", flush=True)
    took, _ = _fastest(lambda: read_figures(spark, lake))
    print(f"{'all figures of a report':<52} Spark {took:6.2f} s", flush=True)


def _same(names: Any) -> dict[str, str]:
    return {name: name for name in names}


def _fastest(work: Any) -> tuple[float, Any]:
    times: list[float] = []
    answer: Any = None
    for _ in range(TRIES):
        began = perf_counter()
        answer = work()
        times.append(perf_counter() - began)
    return min(times), answer


def measure(spark: Any, folder: Path, rows: int) -> Run:
    lake = Lake.at(folder)
    write(lake, rows)
    worked = cpu_seconds(java(spark))
    began = perf_counter()
    bronze = 0.0

    def note(step: Step) -> None:
        nonlocal bronze
        if step.what == "reading segments":
            bronze = perf_counter() - began

    done = ingest(spark, lake, progress=note)
    assert done.rows == rows, f"{done.rows} of {rows} rows"
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet")) / 1e6
    worked = cpu_seconds(java(spark)) - worked
    return Run(rows, done.seconds, bronze, worked, peak_mb(java(spark)), size)


def main(
    rows: Annotated[list[int] | None, typer.Option(help="How many rows; repeatable.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Where to draw the plot.")] = None,
    json: Annotated[Path | None, typer.Option(help="Where to keep the numbers.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where there is room.")] = None,
) -> None:
    """Measure how long ingest takes."""
    spark = spark_session(settings={"spark.driver.memory": "2g", "spark.log.level": "ERROR"})
    runs: list[Run] = []
    with TemporaryDirectory(dir=folder, prefix="lake-") as place:
        measure(spark, Path(place, "warm"), 10_000)
        for count in rows or [1_000_000, 3_000_000]:
            run = measure(spark, Path(place, str(count)), count)
            runs.append(run)
            print(
                f"{run.rows:>10,} rows  {run.seconds:7.1f} s ({run.bronze:.1f} s to bronze)  "
                f"{run.cpu:.1f} s of CPU  "
                f"{run.rows / run.seconds:>9,.0f} rows/s  {run.memory_mb:,.0f} MB peak  "
                f"{run.lake_mb:,.0f} MB of files",
                flush=True,
            )
            ask(spark, Lake.at(Path(place, str(count))), count)
            shutil.rmtree(Path(place, str(count)))
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode([asdict(each) for each in runs])))
    if svg is not None:
        points = [(0.0, 0.0), *((float(run.rows), run.seconds) for run in runs)]
        svg.write_text(
            chart("Ingest", [Line("seconds", points)], x="rows", y="seconds"), encoding="utf-8"
        )


if __name__ == "__main__":
    typer.run(main)
