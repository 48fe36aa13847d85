"""What a run of the matrix found, as a page for readers and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from string import Template
from typing import Final

import msgspec

from tests.faults.matrix.brokers import ROWS, SESSION
from tests.faults.matrix.cell import HEARTBEAT, WORKERS
from tests.faults.matrix.faults import FAULTS
from tests.faults.matrix.result import Result

PAGE: Final = Template("""\
# Reliability

What happens to messages when something breaks. Every number on this page was measured: \
publishers, workers and brokers are real processes, really killed, cut off and frozen under load. \
One command does it again, and writes this page:

```sh
make faults                                # the long tests, and the whole matrix
python -m tests.faults.matrix              # the matrix alone: private brokers, about $minutes \
minutes
python -m tests.faults.matrix --broker kafka --fault worker-killed
```

$summary

## The matrix

Each cell: messages lost, of those the broker had acknowledged · messages handled more than once \
· seconds until work went on after the fault.

$matrix

$footnotes
## What you can rely on

- **Lost is 0, or the run fails.** A message counts as acknowledged when `publish()` has \
returned. Each of those has to be handled, or to be a dead letter that can be looked at and sent \
back.
- **Queues end empty.** Nothing is stuck in a queue, in a worker's hands, in a delay or in a \
retry when the load is over.
- **Nobody has to step in.** Publishers and workers find the broker again by themselves. Only \
what was killed, stopped or has given up is started again, as a supervisor does.
- **Dead letters are those that were asked for**: messages whose handler fails every time, and \
the one that kills its workers.

## Why a message may be handled twice

Delivery is at least once. A worker acknowledges a message after its handler has returned. If it \
is killed, or its connection is lost, between the two, the broker cannot know that the work was \
done, and gives the message to somebody else. The other way round would lose it. In the same way \
a publisher that does not hear the broker's answer sends the message again.

So duplicates are few, and bounded: for each process that dies or is cut off, at most what it \
held (`prefetch`) or was publishing; on Kafka also what was just being moved on from retry \
topics, even if a process is stopped in order. The matrix counts duplicates and does not judge \
them; other tests in `tests/faults` hold them to their bounds. What must not happen twice is kept \
from it by [idempotent handling](idempotency.md).

## The faults

$faults

The load is the same in each cell: two processes publish, one message at a time and in batches of \
five; two handle. Of eight messages five succeed, one fails once, one fails twice, and one fails \
every time and becomes a dead letter. The fault comes in the middle, and publishing goes on until \
at least $messages messages are acknowledged. Then the queue is drained, the handlers are mended, \
and the dead letters are sent back and handled too: so "handled" includes them.

One of the two workers has $workers (1 by default, and as many as `concurrency`). Settings are \
the defaults otherwise, but for `heartbeat=$heartbeat` (30 by default), `reconnect_delay=0.05` \
(1), on Kafka `session_timeout=$session` (10), and retries after 0.02 seconds, so that a cell \
takes seconds; and `max_redeliveries=1000` (20) outside the crash loop. With the defaults, a \
network that swallows everything is noticed later, and so is a worker of Kafka that died. Redis \
writes its log before it answers (`appendfsync always`); RabbitMQ and Kafka are one \
node each.

## In detail

- **acknowledged**: messages whose `publish()` returned
- **handled**: messages whose handler returned. It can be more than acknowledged: a publisher \
that was killed, or gave up, did not hear that its message was stored
- **twice**: messages whose handler returned more than once; **begun again**: runs of a handler \
that were begun although the same attempt had been begun before, finished or not
- **dead**: messages that became dead letters, before they were sent back
- **recovered**: seconds from the end of the fault (broker back, connection possible, process \
replaced) until a message was handled; **caught up**: until everything was handled that had been \
acknowledged by then

$details

## Versions

$versions

Run on $date, in $took minutes.
""")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A run: its cells in order, and what it was run with."""

    date: datetime
    messages: int
    seconds: float
    versions: Mapping[str, str]
    results: Sequence[Result]

    @property
    def complaints(self) -> list[tuple[Result, str]]:
        return [(result, text) for result in self.results for text in result.complaints]


def markdown(report: Report) -> str:
    """The page."""
    notes = _notes(report.results)
    footnotes = "".join(f"{number}. {text}\n" for text, number in notes.items())
    minutes = max(1, round(report.seconds / 60))
    return PAGE.substitute(
        summary=_summary(report),
        matrix=_matrix(report.results, notes),
        footnotes=footnotes and f"–: does not apply, or was not run:\n\n{footnotes}",
        faults="\n".join(f"- **{fault.name}.** {fault.what}" for fault in FAULTS.values()),
        workers=", the other ".join(
            ", ".join(f"`{name}={value}`" for name, value in each.items()) for each in WORKERS
        ),
        messages=report.messages,
        heartbeat=f"{HEARTBEAT:g}",
        session=f"{SESSION:g}",
        details=_details(report.results),
        versions=table(("What", "Version"), [*report.versions.items()]),
        date=f"{report.date:%Y-%m-%d}",
        minutes=minutes,
        took=minutes,
    )


def json(report: Report) -> bytes:
    """The same for programs."""
    cells = [
        {**msgspec.to_builtins(each), "verdict": each.verdict, "complaints": each.complaints}
        for each in report.results
    ]
    told = {**msgspec.to_builtins(report), "results": cells}
    return msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n"


def read(data: bytes) -> Report:
    """What `json` has told."""
    return msgspec.json.decode(data, type=Report)


def summary_of(result: Result) -> str:
    """A cell in a few words."""
    tally = result.tally
    if result.verdict == "not applicable":
        return "–"
    if result.failed or tally is None:
        return "FAILED"
    seconds = "?" if tally.recovered is None else f"{tally.recovered:.1f} s"
    text = f"{len(tally.lost)} · {tally.twice} · {seconds}"
    if tally.lost:
        return f"LOST {text}"
    return f"NOT HELD {text}" if result.complaints else text


def _summary(report: Report) -> str:
    run = [each for each in report.results if each.verdict != "not applicable"]
    total = sum(each.tally.acknowledged for each in run if each.tally)
    lost = sum(len(each.tally.lost) for each in run if each.tally)
    if not report.complaints:
        return (
            f"In this run: {len(run)} cells, {total:,} messages acknowledged, **{lost} lost**, all "
            "queues empty at the end."
        )
    failed = sum(each.verdict == "failed" for each in run)
    wrong = "\n".join(
        f"- {ROWS[each.broker].name} × {FAULTS[each.fault].name}: {_one_line(text)}"
        for each, text in report.complaints
    )
    return (
        f"**In this run not everything held**: {len(run)} cells, of which {failed} did not come to "
        f"their end; in the others {total:,} messages acknowledged, **{lost} lost**.\n\n{wrong}"
    )


def _notes(results: Sequence[Result]) -> dict[str, int]:
    """Why cells were not run, each reason once, numbered."""
    reasons = dict.fromkeys(each.excused for each in results if each.excused)
    return {reason: number for number, reason in enumerate(reasons, 1)}


def _matrix(results: Sequence[Result], notes: Mapping[str, int]) -> str:
    cells = {(each.broker, each.fault): each for each in results}
    brokers = [key for key in ROWS if any(each.broker == key for each in results)]
    faults = [key for key in FAULTS if any(each.fault == key for each in results)]
    rows: list[list[str]] = []
    for fault in faults:
        row = [FAULTS[fault].name]
        for broker in brokers:
            cell = cells.get((broker, fault))
            text = "not run" if cell is None else summary_of(cell)
            if cell is not None and cell.excused:
                text += f" ({notes[cell.excused]})"
            row.append(f"**{text}**" if cell is not None and cell.complaints else text)
        rows.append(row)
    return table(["", *(ROWS[key].name for key in brokers)], rows)


def _details(results: Sequence[Result]) -> str:
    head = ["Fault", "acknowledged", "handled", "lost", "twice", "begun again", "dead"]
    head += ["recovered", "caught up", "queues empty"]
    parts: list[str] = []
    for key, broker in ROWS.items():
        rows = [_detail(each) for each in results if each.broker == key and not each.excused]
        if rows:
            parts.append(f"### {broker.name}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _detail(result: Result) -> list[str]:
    tally, name = result.tally, FAULTS[result.fault].name
    if result.failed or tally is None:
        return [name, "**FAILED**", *["?"] * 8]
    counts = (tally.acknowledged, tally.handled, len(tally.lost), tally.twice)
    return [
        name,
        *(f"{number:,}" for number in (*counts, tally.begun_again, tally.dead)),
        _seconds(tally.recovered),
        _seconds(tally.caught_up),
        "**no**" if result.left else "yes",
    ]


def _seconds(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f} s"


def _one_line(text: str, limit: int = 300) -> str:
    line = " ".join(text.split()).replace("|", "/").replace("<", "(").replace(">", ")")
    return line if len(line) <= limit else f"{line[:limit]} …"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
