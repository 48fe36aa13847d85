"""An overview as it is drawn on a terminal, as large as the terminal is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Final, Literal, TypeAlias, get_args

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from queuecraft.admin.overview import Overview, Point, QueueRow, WorkerRow
from queuecraft.cli.duration import ago, spoken
from queuecraft.cli.letters import cause
from queuecraft.cli.output import Cell, table
from queuecraft.cli.partial import sentence as hint_of
from queuecraft.observers.log import printable

Sort: TypeAlias = Literal["drain", "name", "ready", "dead", "oldest", "handled"]
SORTS: Final[tuple[Sort, ...]] = get_args(Sort)

COLUMNS: Final = (
    *("queue", "ready", "in flight", "delayed", "dead", "consumers"),
    *("in/s", "handled/s", "p95", "oldest", "drain"),
)
NARROW: Final = ("queue", "ready", "dead", "handled/s", "drain")
TINY: Final = ("queue", "ready", "drain")
WIDE = 100  # columns of a screen that has room for every number
SMALL = 60  # columns below which names would have no room beside numbers
BLOCKS = "▁▂▃▄▅▆▇█"
COLOURS = {"healthy": "green", "warning": "yellow", "critical": "bold red"}
REASONS = 3  # told, if there is room; the rest is counted
PARTS = 6  # rows of workers and of groups, at most


class Glance:
    """The whole picture; give it an overview, and rich draws it."""

    def __init__(self, overview: Overview, *, sort: Sort = "drain", only: str = "") -> None:
        self.overview = overview
        self.sort: Sort = sort
        self.only = only
        """What is in the names of the queues that are shown."""
        self.typing = False
        self.footer = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        seen = self.overview
        width, height = options.max_width, options.height or console.height
        reasons = _reasons(seen.reasons, min(REASONS, (height - 6) // 2))
        hint = Text("" if seen.lacking is None else printable(hint_of(seen.lacking)), "yellow")
        wrapped = list(hint.wrap(console, width)) if hint else []
        above = [_strip(seen), *reasons, *wrapped]
        parts: list[RenderableType] = [*above, _numbers(seen, width), Text("")]
        room = height - len(parts) - bool(self.footer)
        workers, groups = self._workers(width), self._groups()
        rows = shown(seen.queues, self.sort, self.only)
        for extra in (groups, workers):
            room -= extra.row_count + 2 if extra is not None else 0
        while room < 5 and (workers is not None or groups is not None):
            # The queues come first: what there is no room for is left out.
            if workers is not None:
                room, workers = room + workers.row_count + 2, None
            elif groups is not None:
                room, groups = room + groups.row_count + 2, None
        parts.append(_queues(rows, width, max(1, room - 1)))
        parts += [part for extra in (groups, workers) if extra for part in (Text(""), extra)]
        if self.typing or self.footer:
            what = f"filter: {self.only}▏" if self.typing else self.footer
            parts.append(Text(printable(what), "dim", no_wrap=True, overflow="ellipsis"))
        yield Group(*parts)

    def _workers(self, width: int) -> Table | None:
        rows = [row for row in self.overview.workers or () if self.only in row.queue]
        if not rows:
            return None
        rows.sort(key=lambda row: (row.state == "running", row.queue, row.host, row.pid))
        cells = [_worker(row) for row in rows[:PARTS]]
        if len(rows) > PARTS:
            cells[-1] = (f"+{len(rows) - PARTS + 1:,} more", *[""] * (len(cells[-1]) - 1))
        names = ("worker", "state", "in flight", "handled", "failed", "/s", "p95")
        kept = range(len(names)) if width >= WIDE else range(4)
        return table(
            [names[at] for at in kept], [[row[at] for at in kept] for row in cells], one_line=True
        )

    def _groups(self) -> Table | None:
        groups = [each for each in self.overview.groups if self.only in each.queue]
        if not groups:
            return None
        return table(
            ("failed alike", "count", "last", "in"),
            [
                (cause(each), each.count, ago(each.last, self.overview.at), each.queue)
                for each in groups[:PARTS]
            ],
            one_line=True,
        )


def shown(rows: Iterable[QueueRow], sort: Sort, only: str) -> list[QueueRow]:
    """The queues with this in their names, in order. Dead letters are told of the queue they
    belong to; where that does not exist, their own queue is shown.

    >>> stuck, done = QueueRow(name="a", ready=5, drain=float("inf")), QueueRow(name="b", ready=0)
    >>> [row.name for row in shown([done, stuck], "drain", "")]
    ['a', 'b']
    """
    rows = list(rows)
    names = {row.name for row in rows}
    kept = [
        row
        for row in rows
        if only in row.name
        and (not row.holds_dead_letters or row.name.removesuffix(".dlq") not in names)
    ]
    return sorted(kept, key=_KEYS[sort])


_KEYS: Final[Mapping[Sort, Callable[[QueueRow], tuple[float | str, ...]]]] = {
    "drain": lambda row: (not row.ready, -(row.drain or 0.0), -(row.ready or 0), row.name),
    "name": lambda row: (row.name,),
    "ready": lambda row: (-(row.ready or 0), row.name),
    "dead": lambda row: (-(row.dead or 0), row.name),
    "oldest": lambda row: (-(row.oldest_age or 0.0), row.name),
    "handled": lambda row: (-(row.handled_per_second or 0.0), row.name),
}


def cells(row: QueueRow) -> tuple[Cell, ...]:
    """A queue as a row of the table."""
    return (
        row.name,
        row.ready,
        row.in_flight,
        row.delayed,
        row.dead,
        row.consumers,
        row.in_per_second,
        row.handled_per_second,
        row.p95,
        row.oldest_age,
        _never(row.drain),
    )


def overview_fields(overview: Overview) -> dict[str, object]:
    """An overview as JSON; what never ends is "never"."""
    told = asdict(overview)
    told["queues"] = [{**each, "drain": _never(each["drain"])} for each in told["queues"]]
    told["numbers"] = {
        name: {"now": points[-1][1] if points else None, "history": points}
        for name, points in told["numbers"].items()
    }
    return told


def sparkline(points: Sequence[Point], width: int) -> str:
    """The last points as a little skyline; a gap where nothing could be measured.

    >>> sparkline([(0, 0.0), (1, None), (2, 4.0), (3, 8.0)], 9)
    '▁ ▅█'
    """
    values = [
        None if value is None or not isfinite(value) else value
        for _, value in (points[-width:] if width > 0 else ())
    ]
    top = max((value for value in values if value is not None), default=0.0)
    steps = len(BLOCKS) - 1
    return "".join(
        " " if value is None else BLOCKS[round(value / top * steps) if top else 0]
        for value in values
    )


def _strip(seen: Overview) -> Text:
    colour = COLOURS[seen.status]
    parts = [
        Text.assemble((f"● {seen.status}", colour)),
        Text(printable(seen.state), "" if seen.state == "connected" else "bold red"),
    ]
    if seen.workers is not None:
        states = [row.state for row in seen.workers]
        told = f"{len(states):,} worker{'' if len(states) == 1 else 's'}"
        others = [
            f"{states.count(each):,} {each}"
            for each in ("silent", "reconnecting", "paused")
            if each in states
        ]
        parts.append(Text(f"{told} ({', '.join(others)})" if others else told))
    opened = sum(row.state == "open" for row in seen.circuits)
    if opened:
        parts.append(Text(f"{opened:,} open circuits", "yellow"))
    if seen.dead:
        parts.append(Text(f"{seen.dead:,} dead", "red"))
    parts.append(Text(f"{seen.at:%H:%M:%S} UTC", "dim"))
    parts.append(Text(printable(f"{seen.broker} {seen.url}"), "dim"))
    line = Text("  ").join(parts)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _reasons(reasons: Sequence[str], most: int) -> list[Text]:
    told = [printable(each) for each in reasons[: max(0, most)]]
    if told and len(reasons) > len(told):
        told[-1] += f" And {len(reasons) - len(told)} more."
    return [Text(f"  {each}", no_wrap=True, overflow="ellipsis") for each in told]


def _numbers(seen: Overview, width: int) -> Table:
    numbers = seen.numbers
    room = max(0, width // 4 - 20)
    grid = Table.grid(expand=True, padding=(0, 1))
    told: list[Text] = []
    names = (
        ("in/s", "handled/s", "failing", "oldest") if width >= SMALL else ("in", "out", "!", "age")
    )
    for name, points, say in (
        (names[0], numbers.in_per_second, _rate),
        (names[1], numbers.handled_per_second, _rate),
        (names[2], numbers.failure_ratio, _share),
        (names[3], numbers.oldest_age, _age),
    ):
        grid.add_column(no_wrap=True, ratio=1)
        now = points[-1][1] if points else None
        told.append(
            Text.assemble(
                (f"{name} ", "dim"), (say(now), "bold"), " ", (sparkline(points, room), "cyan")
            )
        )
    grid.add_row(*told)
    return grid


def _queues(rows: Sequence[QueueRow], width: int, room: int) -> RenderableType:
    if not rows:
        return Text("no queues", "dim")
    left = 0
    if len(rows) > room:
        room = max(1, room - 1)
        left = len(rows) - room
    names = COLUMNS if width >= WIDE else NARROW if width >= SMALL else TINY
    drawn = table(
        names,
        [[cell for name, cell in _drawn(row).items() if name in names] for row in rows[:room]],
        one_line=True,
    )
    if not left:
        return drawn
    return Group(drawn, Text(f"+{left:,} more; / filters", "dim", no_wrap=True))


def _drawn(row: QueueRow) -> dict[str, Cell]:
    """The cells as a person reads them."""
    told = dict(zip(COLUMNS, cells(row), strict=True))
    told["p95"] = None if row.p95 is None else _age(row.p95)
    told["oldest"] = None if row.oldest_age is None else _age(row.oldest_age)
    if row.drain is not None and isfinite(row.drain):
        told["drain"] = _age(row.drain) if row.drain else "–"
    if row.paused is not None:
        told["drain"] = "paused"
    return told


def _worker(row: WorkerRow) -> tuple[Cell, ...]:
    return (
        f"{row.queue} on {row.host} ({row.pid})",
        row.state if row.paused is None else f"paused: {row.paused}"[:40],
        row.in_flight,
        row.handled,
        row.failed,
        row.handled_per_second,
        None if row.p95 is None else _age(row.p95),
    )


def _never(drain: float | None) -> float | str | None:
    return "never" if drain is not None and not isfinite(drain) else drain


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _age(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1000:.3g}ms" if value < 1 else spoken(value)
