"""What a soak found, as a page for readers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from string import Template
from typing import Final

import msgspec

from tests.faults.matrix.brokers import ROWS
from tests.faults.matrix.report import table
from tests.faults.soak.course import BEAT, HIGH, LOW, TROUBLES, Outcome
from tests.faults.soak.vitals import DESCRIPTORS, MEMORY, THREADS

PAGE: Final = Template("""\
# Soak

What becomes of messages and processes when load and faults go on for a long time. One command \
does it again, and writes this page:

```sh
make soak                                  # half an hour, all brokers at the same time
python -m tests.faults.soak --minutes 10 --broker kafka
```

$summary

Publishers and workers are real processes. Publishers wait while more than $high messages do, \
until fewer than $low are left; they are not stopped for a fault. Faults come one after the other, \
each at least $beat seconds after work has gone on since the last. They are small forms of those \
on the page of [the fault matrix](reliability.md), which also says what is counted; a broker is \
spared what it cannot have:

$troubles

$table

- **waiting**: the most messages that waited at any time
- **dead**: dead letters, all of messages whose handler fails every time
- **memory, files, threads**: of a publisher and of a worker that nobody kills, in the middle \
third of the time → in the last: the median of memory, and as many files and threads as it had at \
most for nine tenths of the time. The run fails if one grows by more than $memory MiB, $files \
files or $threads threads

## Versions

$versions

Run on $date, for $minutes minutes.
""")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A soak: what came of each broker, and what it was run with."""

    date: datetime
    minutes: float
    versions: Mapping[str, str]
    outcomes: Sequence[Outcome]


def json(run: Run) -> bytes:
    """For programs, and to make the page from again."""
    return msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n"


def read(data: bytes) -> Run:
    """What `json` has told."""
    return msgspec.json.decode(data, type=Run)


def page(run: Run) -> str:
    """The page."""
    head = ["Broker", "faults", "stored", "lost", "twice", "dead", "waiting", "process"]
    head += ["memory, MiB", "files", "threads"]
    return PAGE.substitute(
        summary=_summary(run.outcomes),
        high=f"{HIGH:,}",
        low=LOW,
        beat=f"{BEAT:g}",
        troubles="\n".join(f"- **{each.name}.** {each.what}" for each in TROUBLES.values()),
        table=table(head, [row for each in run.outcomes for row in _rows(each)]),
        memory=f"{MEMORY:g}",
        files=DESCRIPTORS,
        threads=THREADS,
        versions=table(["What", "Version"], [list(each) for each in run.versions.items()]),
        date=f"{run.date:%Y-%m-%d}",
        minutes=f"{run.minutes:g}",
    )


def _summary(outcomes: Sequence[Outcome]) -> str:
    told = [each.tally for each in outcomes if each.tally is not None]
    stored, lost = sum(each.acknowledged for each in told), sum(len(each.lost) for each in told)
    faults = sum(each.troubles for each in outcomes)
    counts = f"{stored:,} messages stored, {faults:,} faults, **{lost} lost**"
    wrong = [
        f"- {ROWS[each.broker].name}: {' '.join(text.split())}"
        for each in outcomes
        for text in each.complaints
    ]
    if wrong:
        return "\n".join([f"**In this run not everything held**: {counts}.", "", *wrong])
    return f"In this run: {counts}, all queues empty at the end, {_growth(outcomes)}."


def _growth(outcomes: Sequence[Outcome]) -> str:
    """By how much, at the most; rounded up, so that it is true."""
    grown = [one for each in outcomes for one in each.growth]
    memory = max([0.0, *(one.after.memory - one.before.memory for one in grown)])
    files = max([0, *(one.after.descriptors - one.before.descriptors for one in grown)])
    threads = max([0, *(one.after.threads - one.before.threads for one in grown)])
    up = math.ceil(round(10 * memory, 2)) / 10
    return f"no process grew by more than {up:.1f} MiB, {files} files or {threads} threads"


def _rows(outcome: Outcome) -> list[list[str]]:
    tally = outcome.tally
    counts = ["?"] * 4
    if tally is not None:
        told = (tally.acknowledged, len(tally.lost), tally.twice, tally.dead)
        counts = [f"{count:,}" for count in told]
    first = [ROWS[outcome.broker].name, f"{outcome.troubles:,}", *counts, f"{outcome.waiting:,}"]
    rows: list[list[str]] = []
    for each in outcome.growth:
        before, after = each.before, each.after
        rows.append(
            [
                *(first if not rows else [""] * len(first)),
                each.name,
                f"{before.memory:.1f} → {after.memory:.1f}",
                f"{before.descriptors} → {after.descriptors}",
                f"{before.threads} → {after.threads}",
            ]
        )
    return rows or [[*first, *["?"] * 4]]
