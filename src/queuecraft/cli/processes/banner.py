"""The first lines of `queuecraft run`: which broker, which workers, where to ask for health."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from queuecraft import __version__
from queuecraft.cli.processes.line import Hello

AT_MOST = 12  # workers shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """What a person wants to see confirmed at the start.

    >>> hello = Hello("amqp://shop:***@rabbit", {"billing": ("order.placed",)}, 30.0)
    >>> print(Banner(processes=2).text(hello, version="1.0"))
    QueueCraft 1.0 on amqp://shop:***@rabbit, 2 processes
      billing ← order.placed
    """

    processes: int = 1
    reload: bool = False
    health: str | None = None

    def text(self, hello: Hello, version: str = __version__) -> Text:
        """The lines, with their colours."""
        first = Text.assemble(
            ("QueueCraft", "bold cyan"), f" {version} on ", (hello.broker, "bold")
        )
        if self.processes > 1:
            first.append(f", {self.processes} processes")
        if self.reload:
            first.append(", reloading on changes")
        if self.health is not None:
            first.append(f", health at {self.health}")
        shown = list(hello.workers.items())[:AT_MOST]
        parts = [
            Text.assemble((name, "bold green"), " ← ", (", ".join(events), "dim"))
            for name, events in shown
        ]
        if len(shown) < len(hello.workers):
            parts.append(Text(f"and {len(hello.workers) - len(shown)} more", "dim"))
        return Text.assemble(first, "\n  ", Text("   ").join(parts))

    def show(self, hello: Hello) -> None:
        """Print them, beside the log."""
        console = Console(stderr=True, highlight=False)
        # Wrapped by the terminal, not by us: piped into a file, a line stays a line.
        console.print(self.text(hello), soft_wrap=True)
