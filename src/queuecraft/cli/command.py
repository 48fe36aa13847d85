"""One command: its help as a person reads it, and wrong options in our own words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup

Context: TypeAlias = Any
"""What the parser passes on: public in no version of typer by one name."""

# What the parser raises for a wrong option: public in no version of typer but by its subclass.
UsageError: type[Exception] = next(
    each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException"
)

_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"expected \1 or more"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"expected \1 or less"),
    (re.compile(r"Input should be greater than (\S+)"), r"expected more than \1"),
    (re.compile(r"Input should be a valid integer.*"), "expected a whole number"),
    (re.compile(r"Unable to parse input string as an integer.*"), "that number is too long"),
    (re.compile(r"Input should be a valid number.*"), "expected a number"),
    (re.compile(r"Input should be a finite number"), "expected a finite number"),
    (re.compile(r"Value error, "), ""),
)


class Group(TyperGroup):
    """Commands under one name."""

    def get_params(self, ctx: Context) -> list[Any]:
        """The options before any command."""
        return _named(super().get_params(ctx))

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Take the options before the command; what is wrong with them is told in our words."""
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            _reword(error, self, ctx)
            raise


class Command(TyperCommand):
    """A command of `queuecraft`."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.help = flowing(self.help or "")

    def get_params(self, ctx: Context) -> list[Any]:
        """Its arguments and options, `--help` among them."""
        return _named(super().get_params(ctx))

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Take the options; what is wrong with them is told in our words."""
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            _reword(error, self, ctx)
            raise


def flowing(text: str) -> str:
    """A docstring as paragraphs that fit any width.

    >>> flowing("List them,\\n    oldest first.\\n\\n    Example: queuecraft queues")
    'List them, oldest first.\\n\\nExample: queuecraft queues'
    """
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _named(params: Iterable[Any]) -> list[Any]:
    """The same, but switches do not name the type of a value that they do not take."""
    told = list(params)
    for param in told:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return told


def _reword(error: Any, command: Any, ctx: Context) -> None:
    """Put an error of the parser into words of ours, in place."""
    option: str | None = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities"):
        error.possibilities = None
        error.message = _no_such_option(option, command, ctx)
        return
    text = str(getattr(error, "message", ""))
    for pattern, ours in _WORDS:
        text = pattern.sub(ours, text)
    error.message = text


def _no_such_option(option: str, command: Any, ctx: Context) -> str:
    if option == "--url" and command.name == "run":
        return (
            "run has no --url: the application names its broker itself, or leaves that to "
            "QUEUECRAFT_URL with QueueCraft.from_environment()"
        )
    shown = "".join(each if each.isprintable() else "?" for each in option)
    if ctx.parent is None and option in ("--url", "--json"):
        return f"{shown} comes after the command, as in: queuecraft queues {shown}" + (
            " local:///data/queue.db" if option == "--url" else ""
        )
    known = [
        each
        for param in command.get_params(ctx)
        if not getattr(param, "hidden", False)
        for each in (*param.opts, *param.secondary_opts)
        if each.startswith("--")
    ]
    near = get_close_matches(option, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"{ctx.command_path} --help names those it has"
    return f"there is no option {shown}; {hint}"
