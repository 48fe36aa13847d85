"""What a soak found, as a page for readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from string import Template
from typing import Final

import msgspec

from tests.faults.matrix.brokers import ROWS
from tests.faults.matrix.faults import FAULTS
from tests.faults.matrix.report import table
from tests.faults.soak.course import TROUBLES, Outcome
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

Publishers and workers are real processes. In turn, and without a pause in the load: $troubles. A \
broker is spared what it cannot have. What each fault is, and what is counted, is on the page of \
[the fault matrix](reliability.md).

$table

- **waiting**: the most messages that waited at any time. Publishers wait while over a thousand do
- **dead**: dead letters, all of messages whose handler fails every time
- **memory, files, threads**: of a publisher and of a worker that nobody kills, in the middle \
third of the time → in the last. The run fails if one grows by more than $memory MiB, \
$files files or $threads threads

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
        troubles=", ".join(FAULTS[key].name.lower() for key in TROUBLES),
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
    return f"In this run: {counts}, all queues empty at the end, nothing grew."


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
