"""`docs/benchmarks.md` and its plots, made from what a run has found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

from benchmarks.absent import ABSENT
from benchmarks.harness import Spread
from benchmarks.plot import Bar, bars
from benchmarks.results import SENT, Row, Run, Section

BROKERS = {
    "memory": "In memory",
    "file": "In a file",
    "rabbitmq": "RabbitMQ",
    "redis-lists": "Redis, lists",
    "redis-streams": "Redis, streams",
    "redis": "Redis",
    "kafka": "Kafka",
    "options": "Options of our own",
}

TEMPLATE = Path(__file__).with_name("templates") / "benchmarks.md"

SUMMARY_NONE = """## Where a peer is ahead

In this run no peer with the same or a stronger guarantee was ahead of ours in throughput."""

SUMMARY = """## Where a peer is ahead

Rows of throughput in which a peer with the same or a stronger guarantee did better than ours:

{rows}"""

INTRODUCTIONS = {
    "publish": "From the first call to the last answer of the broker that the message is stored.",
    "consume": "From the first message in a handler to the last, out of a queue that was filled "
    "before; acknowledged.",
    "end to end": "From the first publish to the last handler's end.",
    "latency": "From before an order is encoded until it is decoded in its handler.",
    "memory": "By how much the process that publishes grows, and the broker, while messages pile "
    "up with no worker there.",
    "start-up": "From starting a fresh Python process until it has handled its first message, "
    "which was waiting: imports, connecting, declaring, subscribing.",
    "cost of options": "What our own options cost in memory, where nothing else takes time.",
}


def number(value: float, digits: int) -> str:
    """
    >>> number(12345.6, 0), number(1.234, 2)
    ('12,346', '1.23')
    """
    return f"{value:,.{digits}f}"


def spread(found: Spread, digits: int) -> str:
    return f"{number(found.low, digits)}–{number(found.high, digits)}"


def difference(row: Row) -> str:
    """What is known of why a peer is ahead: how it differs, which need not be the cause."""
    return f"what differs: {row.differs}" if row.differs else "no reason is known yet"


def remark(section: Section, row: Row) -> str:
    """What the last column says."""
    said = [f"weaker: {row.weaker}"] if row.weaker else []
    if section.ahead(row):
        ratio = section.ratio(row)
        level = ratio is not None and ratio.low <= 1 <= ratio.high
        word = "**ahead**, in some of the rounds" if level else "**ahead**"
        said.append(f"{word}; {difference(row)}")
    return "; ".join(said)


def table(section: Section) -> list[str]:
    """The rows of a section in Markdown."""
    more = list(dict.fromkeys(name for row in section.rows for name in row.more))
    heads = ["contender", "case", section.unit, "spread", *more, "ratio", "setting", "remark"]
    aligned = ["---", "---", "--:", "--:", *("--:" for _ in more), "--:", "---", "---"]
    lines = [_line(heads), _line(aligned)]
    for row in section.rows:
        ours = not row.against
        ratio = section.ratio(row)
        others = [
            number(Spread.of(row.more[name]).median, 0 if name == SENT else section.digits)
            if row.more.get(name)
            else "–"
            for name in more
        ]
        cells = [
            f"**{row.contender}**" if ours else row.contender,
            row.case,
            number(row.spread.median, section.digits),
            spread(row.spread, section.digits),
            *others,
            f"{ratio.median:.2f}×" if ratio else "–",
            row.setting,
            remark(section, row),
        ]
        lines.append(_line(cells))
    return lines


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def image_name(section: Section) -> str:
    """
    >>> image_name(Section(broker="file", name="end to end, two processes", unit="s"))
    'bench-file-end-to-end-two-processes.svg'
    """
    return f"bench-{section.broker}-{re.sub('[,:]', '', section.name).replace(' ', '-')}.svg"


def drawing(section: Section) -> str:
    """Its bars."""
    drawn = [
        Bar(
            f"{row.contender}: {row.case}",
            row.spread.median,
            row.spread.low,
            row.spread.high,
            marked=not row.against,
        )
        for row in section.rows
    ]
    title = f"{BROKERS.get(section.broker, section.broker)}, {section.name}"
    return bars(title, drawn, unit=section.unit)


def beaten(run: Run) -> list[tuple[Section, Row]]:
    """Rows of throughput where a peer that promises as much is ahead."""
    return [
        (section, row)
        for section in run.sections
        if section.throughput
        for row in section.rows
        if section.ahead(row) and not row.weaker
    ]


def summary(run: Run) -> str:
    found = beaten(run)
    if not found:
        return SUMMARY_NONE
    lines: list[str] = []
    for section, row in found:
        ratio = section.ratio(row)
        assert ratio is not None
        where = f"{BROKERS.get(section.broker, section.broker)}, {section.name}"
        lines.append(
            f"- {where}: {row.contender}, {row.case}, {ratio.median:.2f}× "
            f"({ratio.low:.2f}–{ratio.high:.2f}); {difference(row)}."
        )
    return SUMMARY.format(rows="\n".join(lines))


class Told(Protocol):
    """What every run tells of itself."""

    at: str
    quick: bool
    seconds: float
    environment: dict[str, Any]


def machine(run: Told) -> str:
    told = run.environment
    packages = ", ".join(
        f"{name} {version}" for name, version in told["packages"].items() if version
    )
    brokers = ", ".join(f"{name} {version}" for name, version in told.get("brokers", {}).items())
    lines = [
        f"- {told['cpus']} processors ({told['machine']}), {told['platform']}, "
        f"{told['implementation']} {told['python']}, event loop {told['loop']}",
        f"- Brokers, on the same machine over loopback: {brokers}" if brokers else "",
        f"- Packages: {packages}",
        f"- Commit: {told['commit']}" if told.get("commit") else "",
        f"- Load of the machine when the run began and when it ended: {told['load']}"
        if told.get("load")
        else "",
    ]
    return "\n".join(line for line in lines if line)


def when(run: Told) -> str:
    length = f"{run.seconds / 60:.0f} minutes"
    said = f"Run of {run.at}, which took {length}."
    if run.quick:
        said += (
            " It was a **quick** one: few messages and few rounds, on a machine that others used "
            "at the same time. Take the order of magnitude from it and no more."
        )
    return said


def document(run: Run) -> str:
    """The whole page."""
    template = TEMPLATE.read_text(encoding="utf-8").rstrip()
    told = {"when": when(run), "machine": machine(run), "summary": summary(run)}
    parts = [template.format(command=run.command, **told)]
    for broker in dict.fromkeys(section.broker for section in run.sections):
        parts.append(f"## {BROKERS.get(broker, broker)}")
        absent = ABSENT.get(broker, {})
        if absent:
            parts.append("\n".join(f"- Not here: {who}: {why}." for who, why in absent.items()))
        for section in (each for each in run.sections if each.broker == broker):
            parts.extend(part(section))
    if run.claims:
        parts.append("## What we ask of ourselves")
        parts.append(
            "Ratios that we hold ourselves to, judged in every run on the figures of that run: by "
            "the middle of the rounds, with the lowest and the highest beside it. Where it is said "
            "what the broker itself reached, with bytes that were made beforehand, no client gets "
            "further. Why another misses, no measurement has shown. `python -m benchmarks --check` "
            "fails where one does."
        )
        word = {True: "holds", False: "**misses**", None: "not measured"}
        parts.append(
            "\n".join(
                [_line(["group", "claim", ""]), _line(["---", "---", "---"])]
                + [
                    _line([each.group, bare(each.sentence), word[each.holds]])
                    for each in run.claims
                ]
            )
        )
    return "\n\n".join(parts) + "\n"


def bare(sentence: str) -> str:
    """Without the verdict, which has a column of its own.

    >>> bare("misses        publish_many: 2.4×")
    'publish_many: 2.4×'
    """
    return sentence.partition("  ")[2].strip() or sentence


def part(section: Section) -> list[str]:
    """A section of the page."""
    kind = next((name for name in INTRODUCTIONS if section.name.startswith(name)), "")
    parts = [f"### {BROKERS.get(section.broker, section.broker)}: {section.name}"]
    counted = f"Rounds: {section.rounds}." if section.rounds else ""
    said = " ".join(each for each in (INTRODUCTIONS.get(kind, ""), section.note, counted) if each)
    if said:
        parts.append(said)
    if section.rows:
        title = f"{BROKERS.get(section.broker, section.broker)}, {section.name}"
        parts.append("\n".join(table(section)))
        parts.append(f"![{title}](images/{image_name(section)})")
    if section.missing:
        parts.append("\n".join(f"- Not here: {who}: {why}" for who, why in section.missing.items()))
    return parts


def write(run: Run, docs: Path) -> list[Path]:
    """The page and its plots; says what was written."""
    images = docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    written = [docs / "benchmarks.md"]
    written[0].write_text(document(run), encoding="utf-8")
    for section in run.sections:
        if section.rows:
            path = images / image_name(section)
            path.write_text(drawing(section), encoding="utf-8")
            written.append(path)
    return written
