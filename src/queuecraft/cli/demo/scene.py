"""The live view of the demo: queues, rates and what happens, drawn again and again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import monotonic

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from queuecraft.cli.demo.story import Happening, Story
from queuecraft.drivers.base import QueueInfo
from queuecraft.observers.log import printable

BLOCKS = " ▁▂▃▄▅▆▇█"
BUCKET = 0.5  # seconds of one block in a sparkline
BUCKETS = 24
STYLES = {"handled": "green", "retry": "yellow", "dead": "bold red", "redrive": "bold magenta"}
QUEUES = ("billing", "stock", "mail", "audit")
FRAME = 14  # lines taken by everything but the happenings


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
    """The whole picture; `update` gives it the numbers, rich draws it."""

    def __init__(self, story: Story, url: str) -> None:
        self._story = story
        self._url = url
        self._infos: dict[str, QueueInfo] = {}
        self._paces = {name: Pace() for name in QUEUES}

    def update(self, infos: Sequence[QueueInfo]) -> None:
        """Look again."""
        self._infos = {info.name: info for info in infos}
        for name, pace in self._paces.items():
            pace.look(self._story.handled[name])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, room = options.max_width, max(3, options.max_height - FRAME)
        yield Group(self._head(width), self._queues(width), self._happenings(room), self._foot())

    def _head(self, width: int) -> Table:
        story = self._story
        chapter = f"● {story.chapter}"
        if story.redrive is not None:
            chapter += f" ({story.redrive.moved} of {story.redrive.total})"
        head = Table.grid(expand=True)
        head.add_column(ratio=1, no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        head.add_row(
            Text.assemble(("QueueCraft", "bold cyan"), "  a small shop on ", (self._url, "dim")),
            Text(f"{story.seconds:.0f} s", "dim"),
        )
        down = story.shop.bank.moon_is_down
        head.add_row(Text(chapter, "bold red" if down else "bold green"), "")
        head.add_row(self._progress(min(20, max(6, (width - 58) // 2))), "")
        return head

    def _progress(self, bar: int) -> Table:
        story = self._story
        placed, home = len(story.placed), len(story.shop.bank.charged)
        total = story.total or max(placed, 1)
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            "placed",
            ProgressBar(total=total, completed=placed, width=bar, complete_style="cyan"),
            Text(f"{placed:<4}", "bold cyan"),
            "home",
            ProgressBar(total=total, completed=home, width=bar, complete_style="green"),
            Text(f"{home:<4}", "bold green"),
            Text(f"retries {story.retried} ", "yellow"),
            Text(f"dead {story.dead_lettered - story.redriven} ", "red"),
            Text(f"sent back {story.redriven}", "magenta"),
        )
        return grid

    def _queues(self, width: int) -> Panel:
        buckets = min(BUCKETS, max(6, width - 64))
        table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
        table.add_column("queue", no_wrap=True, min_width=7)
        for name in ("ready", "in flight", "delayed", "dead", "handled", "/s"):
            table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
        table.add_column(f"last {buckets * BUCKET:.0f} s", no_wrap=True, min_width=buckets)
        for name, pace in self._paces.items():
            info = self._infos.get(name, QueueInfo(name=name))
            table.add_row(
                Text(name, "bold"),
                _number(info.ready),
                _number(info.in_flight),
                Text(_number(info.delayed), "yellow" if info.delayed else ""),
                Text(_number(info.dead), "bold red" if info.dead else ""),
                str(self._story.handled[name]),
                f"{pace.now:.1f}",
                Text(sparkline(list(pace.history)[-buckets:]), "cyan"),
            )
        return Panel(table, title="queues", title_align="left", border_style="dim")

    def _happenings(self, room: int) -> Panel:
        lines = [_line(each) for each in list(self._story.recent)[-room:]]
        lines += [Text("")] * (room - len(lines))
        body = Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
        return Panel(body, title="what happens", title_align="left", border_style="dim")

    def _foot(self) -> Text:
        if self._story.total is None:
            return Text.assemble(
                ("from another shell: ", "dim"),
                f"queuecraft queues --watch 1 --url {self._url}",
                ("   Ctrl-C ends", "dim"),
                no_wrap=True,
                overflow="ellipsis",
            )
        return Text("Ctrl-C ends it early", "dim")


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
