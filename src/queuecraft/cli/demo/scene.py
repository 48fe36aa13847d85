"""The live view of the demo: queues, rates and what happens, drawn again and again."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from queuecraft.cli.demo.story import Happening, Story
from queuecraft.drivers.base import QueueInfo
from queuecraft.observers.log import printable

BLOCKS = " ▁▂▃▄▅▆▇█"
BUCKET = 0.5  # seconds of one block in a sparkline
BUCKETS = 24
STYLES = {"retry": "yellow", "dead": "bold red", "redrive": "bold magenta"}
QUEUES = ("billing", "stock", "mail", "audit")
FRAME = 13  # lines taken by everything but the happenings
NARROW = 66  # columns; below that only the most important numbers


def sparkline(values: Sequence[float]) -> str:
    """Values as a little skyline.

    >>> sparkline([0, 1, 2, 4, 8])
    ' ▁▂▄█'
    """
    top = max([1, *values])
    return "".join(BLOCKS[round(value / top * (len(BLOCKS) - 1))] for value in values)


class Pace:
    """How many messages a queue handles a second, over the last seconds."""

    def __init__(self) -> None:
        self.history: deque[float] = deque([0.0] * BUCKETS, maxlen=BUCKETS)
        self._count = 0
        self._since = monotonic()

    def look(self, count: int) -> None:
        """The count so far."""
        now = monotonic()
        if now - self._since >= BUCKET:
            self.history.append((count - self._count) / (now - self._since))
            self._count, self._since = count, now

    @property
    def now(self) -> float:
        """Of the last two seconds."""
        last = list(self.history)[-4:]
        return sum(last) / len(last)


class Scene:
    """The whole picture; `update` gives it the numbers, rich draws it. `hints` are addresses and
    commands by their labels: never cut, because somebody will copy them."""

    def __init__(self, story: Story, url: str, hints: Mapping[str, str] | None = None) -> None:
        self._story = story
        self._url = url
        self._hints = hints or {}
        self._infos: dict[str, QueueInfo] = {}
        self._paces = {name: Pace() for name in QUEUES}

    def update(self, infos: Sequence[QueueInfo]) -> None:
        """Look again."""
        self._infos = {info.name: info for info in infos}
        for name, pace in self._paces.items():
            pace.look(self._story.handled[name])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        hints = [line for each in self._hints.items() for line in _hint(*each, width)]
        room = options.max_height - FRAME - len(hints)
        parts: list[RenderableType] = [*hints, self._head(width), self._queues(width)]
        if room > 0:
            parts.append(self._happenings(room))
        yield Group(*parts, Text("Ctrl-C ends it", "dim"))

    def _head(self, width: int) -> Table:
        story = self._story
        chapter = f"● {story.chapter}"
        if story.redrive is not None:
            chapter += f" ({story.redrive.moved} of {story.redrive.total})"
        title = Text.assemble(("QueueCraft", "bold cyan"), "  a small shop")
        if not self._hints:
            title.append_text(Text.assemble(" on ", (self._url, "dim")))
        head = Table.grid(expand=True)
        head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        head.add_column(justify="right", no_wrap=True)
        head.add_row(title, Text(f" {story.seconds:.0f} s", "dim"))
        down = story.shop.bank.moon_is_down
        head.add_row(Text(chapter, "bold red" if down else "bold green"), "")
        head.add_row(self._progress(width), "")
        return head

    def _progress(self, width: int) -> Text:
        story = self._story
        placed, home = len(story.placed), len(story.shop.bank.charged)
        dead = sum(info.dead or 0 for info in self._infos.values())  # as the table says
        total, bar = story.total, min(20, (width - 62) // 2)
        if total is None or bar < 6:  # where there is no end, or no room, there is no bar
            bar, total = 0, None
        return Text("  ").join(
            [
                _counter("placed", placed, total, bar, "cyan"),
                _counter("home", home, total, bar, "green"),
                Text(f"retries {story.retried}", "yellow"),
                Text(f"dead {dead}", "red"),
                Text(f"sent back {story.redriven}", "magenta"),
            ]
        )

    def _queues(self, width: int) -> Panel:
        buckets = min(BUCKETS, width - 64)
        names = ["ready", "in flight", "delayed", "dead", "handled", "/s"]
        if width < NARROW:
            names = ["ready", "dead", "handled"]
        table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
        table.add_column("queue", no_wrap=True, min_width=7)
        for name in names:
            table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
        if buckets >= 6:
            table.add_column(f"last {buckets * BUCKET:.0f} s", no_wrap=True, min_width=buckets)
        for name, pace in self._paces.items():
            info = self._infos.get(name, QueueInfo(name=name))
            cells = {
                "ready": Text(_number(info.ready)),
                "in flight": Text(_number(info.in_flight)),
                "delayed": Text(_number(info.delayed), "yellow" if info.delayed else ""),
                "dead": Text(_number(info.dead), "bold red" if info.dead else ""),
                "handled": Text(str(self._story.handled[name])),
                "/s": Text(f"{pace.now:.1f}"),
            }
            row = [Text(name, "bold"), *(cells[each] for each in names)]
            if buckets >= 6:
                row.append(Text(sparkline(list(pace.history)[-buckets:]), "cyan"))
            table.add_row(*row)
        return Panel(table, title="queues", title_align="left", border_style="dim")

    def _happenings(self, room: int) -> Panel:
        lines = [_line(each) for each in list(self._story.recent)[-room:]]
        lines += [Text("")] * (room - len(lines))
        body = Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
        return Panel(body, title="what goes wrong", title_align="left", border_style="dim")


def _hint(label: str, hint: str, width: int) -> list[Text]:
    """On one line if it fits, or else on lines that are full, so that copied they are whole."""
    if len(label) + 2 + len(hint) <= width:
        return [Text.assemble((f"{label}: ", "dim"), hint)]
    cut = [Text(hint[at : at + width]) for at in range(0, len(hint), width)]
    return [Text(f"{label}:", "dim"), *cut]


def _counter(name: str, count: int, total: int | None, bar: int, colour: str) -> Text:
    """A name, a bar where there is a total, and the count."""
    told = Text(f"{name} ")
    if total is not None:
        full = min(bar, round(bar * count / max(1, total)))
        told.append("━" * full, colour).append("━" * (bar - full) + " ", "dim")
    return told.append(f"{count:<4}" if bar else str(count), f"bold {colour}")


def _number(value: int | None) -> str:
    return "–" if value is None else str(value)


def _line(happening: Happening) -> Text:
    style = STYLES[happening.kind]
    return Text.assemble(
        (f"{happening.kind:<8}", style),
        f"{happening.queue:<8} ",
        f"{printable(happening.message_id):<13} ",
        (printable(happening.text), "dim"),
    )
