"""Commands of ours as the guides show them, read by the command line without being run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from queuecraft.cli import app

ASSIGNMENT = re.compile(r"[A-Z_]+=")


def parsed(words: Sequence[str]) -> None:
    """Have the command line read these words, without carrying them out."""
    command: Any = typer.main.get_command(app)
    context: Any = None
    rest = list(words)
    while True:
        context = command.make_context(command.name, rest, parent=context)
        if not hasattr(command, "resolve_command"):
            return
        _, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )


def ours(block: str) -> Iterator[list[str]]:
    """What comes after `queuecraft` in each of its calls in a block of a shell.

    >>> list(ours("A=1 queuecraft peek billing | head  # the next\\nqueuecraft top && ls"))
    [['peek', 'billing'], ['top']]
    """
    for line in block.replace("\\\n", " ").splitlines():
        reader = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        reader.whitespace_split = True
        call: list[str] = []
        for word in [*reader, ";"]:
            if set(word) <= set("|&;<>()"):
                yield from _after_our_name(call)
                call = []
            else:
                call.append(word)


def _after_our_name(call: Sequence[str]) -> Iterator[list[str]]:
    words = list(call)
    while words and ASSIGNMENT.match(words[0]):
        del words[0]
    if words and Path(words[0]).name == "queuecraft":
        yield words[1:]
    elif [Path(each).name for each in words[:1]] + words[1:3] == ["python", "-m", "queuecraft"]:
        yield words[3:]
