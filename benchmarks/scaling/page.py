"""`docs/scaling.md` and its plots, made from what a run has found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.page import BROKERS, when
from benchmarks.page import machine as machine_of
from benchmarks.plot import Line, chart, curves
from benchmarks.scaling.axes import AXES, COMPUTING, DECLARING, WAITING, Axis
from benchmarks.scaling.findings import Curve, Findings

TEMPLATE = Path(__file__).parents[1] / "templates" / "scaling.md"

TEXTS = {
    "size": "Messages of so many bytes of JSON, published with 100 under way and handled by 8 "
    "handlers that hold 8 at a time.",
    "queues": f"So many queues are declared, {DECLARING} at a time, each with its dead-letter "
    "queue and an event of its own; then messages are published to all of them in turn. What it "
    "takes to make a queue is beside it.",
    "backlog": "So many messages wait already; then more are published, and as many handled.",
    "concurrency": "One process with so many handlers at once: handlers that do nothing, and "
    f"handlers that wait for {1000 * WAITING:g} ms, as for a database.",
    "processes": "So many processes share one queue, each with 8 handlers: handlers that do "
    f"nothing, and handlers that compute for {1000 * COMPUTING:g} ms. It is the rate while all of "
    "them were at work. The broker needs its share of the same processors.",
}


def document(found: Findings) -> str:
    """The whole page."""
    template = TEMPLATE.read_text(encoding="utf-8").rstrip()
    parts: list[str] = []
    for axis in AXES:
        its = [curve for curve in found.curves if curve.axis == axis.name]
        if its:
            parts.extend(part(axis, its))
    told = {"when": when(found), "machine": machine_of(found), "curves": "\n\n".join(parts)}
    return template.format(command=found.command, **told) + "\n"


def part(axis: Axis, its: Sequence[Curve]) -> list[str]:
    """One axis: its words, its tables, its plots."""
    parts = [f"## {axis.title}", TEXTS[axis.name]]
    for line, unit in axis.lines.items():
        drawn = [curve for curve in its if curve.line(line)]
        if not drawn:
            continue
        parts.append(f"**{line.capitalize()}**, {unit}:")
        parts.append("\n".join(table(axis, line, its)))
        parts.append(f"![{axis.title}, {line}](images/{image_name(axis, line)})")
    missing = [f"- {BROKERS[curve.broker]}: {curve.missing}" for curve in its if curve.missing] + [
        f"- {BROKERS[curve.broker]}, {point.x:,} {axis.x}: {point.missing}"
        for curve in its
        for point in curve.points
        if point.missing
    ]
    if missing:
        parts.append("Not measured:\n\n" + "\n".join(missing))
    return parts


def table(axis: Axis, line: str, its: Sequence[Curve]) -> list[str]:
    """A row for each place on the axis, a column for each broker: median, and the spread where it
    was measured more than once."""
    places = sorted({point.x for curve in its for point in curve.points})
    heads = [axis.x, *(BROKERS[curve.broker] for curve in its)]
    lines = [f"| {' | '.join(heads)} |", f"|{' --: |' * len(heads)}"]
    for x in places:
        cells = [f"{x:,}"]
        for curve in its:
            point = next((each for each in curve.points if each.x == x), None)
            spread = point.spread(line) if point else None
            if spread is None:
                cells.append("–")
                continue
            digits = 0 if spread.median >= 100 else 1
            cell = f"{spread.median:,.{digits}f}"
            if point is not None and len(point.figures[line]) > 1:
                cell += f" ({spread.low:,.{digits}f}–{spread.high:,.{digits}f})"
            cells.append(cell)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def image_name(axis: Axis, line: str) -> str:
    return f"bench-scaling-{axis.name}-{line}.svg"


def drawing(axis: Axis, line: str, its: Sequence[Curve]) -> str | None:
    lines = [
        Line(BROKERS[curve.broker], curve.line(line)) for curve in its if len(curve.line(line)) > 1
    ]
    if not lines:
        return None
    draw = chart if axis.even else curves
    return draw(f"{axis.title}: {line}", lines, x=axis.x, y=axis.lines[line])


def write(found: Findings, docs: Path) -> list[Path]:
    """The page and its plots; says what was written."""
    images = docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    written = [docs / "scaling.md"]
    written[0].write_text(document(found), encoding="utf-8")
    for axis in AXES:
        its = [curve for curve in found.curves if curve.axis == axis.name]
        for line in axis.lines:
            if (svg := drawing(axis, line, its)) is not None:
                written.append(images / image_name(axis, line))
                written[-1].write_text(svg, encoding="utf-8")
    return written
