"""How a command ends: the exit codes, and errors as one line for a person or a program."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import typer

from queuecraft.admin import UnknownQueue
from queuecraft.cli.command import Group, UsageError
from queuecraft.cli.extras import lacking
from queuecraft.cli.output import complain, complain_json, flush_output, forget_output
from queuecraft.model.errors import (
    ConfigError,
    ConnectionLost,
    PayloadError,
    QueueError,
    TopologyMismatch,
    UnsupportedFeature,
)


class ExitCode(IntEnum):
    """What the exit code of a command tells.

    >>> ExitCode.of(ConnectionLost("no answer"))
    <ExitCode.UNREACHABLE: 3>
    """

    DONE = 0
    NO = 1  # unhealthy, refused, or failed in part
    USAGE = 2  # a wrong option, setting or payload
    UNREACHABLE = 3  # the broker
    MISSING = 4  # no such queue or message
    PAUSED = 5  # a replay, by itself
    INTERRUPTED = 130

    @classmethod
    def of(cls, error: QueueError) -> ExitCode:
        """The exit code for an error."""
        match error:
            case ConfigError() | PayloadError() | UnsupportedFeature() | TopologyMismatch():
                return cls.USAGE
            case ConnectionLost():
                return cls.UNREACHABLE
            case UnknownQueue() | UnknownMessage():
                return cls.MISSING
            case _:
                return cls.NO


class UnknownMessage(QueueError):
    """There is no message of this id in the queue."""


class Commands(Group):
    """The commands of `queuecraft`, and the one place where their errors are told."""

    def main(self, args: Sequence[str] | None = None, *others: Any, **more: Any) -> Any:
        """Run a command; with `--json`, a wrong option is told as JSON too."""
        given = list(sys.argv[1:] if args is None else args)
        options = given[: given.index("--")] if "--" in given else given
        as_json = "--json" in options
        if "--debug" in options:  # welcome anywhere, as it comes to mind last
            given.remove("--debug")
            given.insert(0, "--debug")
        more.setdefault("obj", {})["json"] = as_json
        if not as_json or not more.get("standalone_mode", True):
            return super().main(given, *others, **more)
        try:
            code = super().main(given, *others, **{**more, "standalone_mode": False})
        except UsageError as error:
            told: Callable[[], str] = getattr(error, "format_message", error.__str__)
            text = told()
            code = int(getattr(error, "exit_code", ExitCode.USAGE))
            _complain_json(text, "UsageError", code)
        except typer.Abort:
            code = ExitCode.INTERRUPTED
        sys.exit(code if isinstance(code, int) else ExitCode.DONE)

    def invoke(self, ctx: Any) -> Any:
        """Carry a command out, and turn what goes wrong into a line and an exit code."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except (UsageError, typer.Exit):
            flush_output()
            raise
        except BrokenPipeError:
            forget_output()  # `| head` has what it wanted
            raise typer.Exit(ExitCode.DONE) from None
        except (KeyboardInterrupt, typer.Abort):
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except Exception as error:
            raise typer.Exit(_tell(error, ctx)) from None


def _tell(error: Exception, ctx: Any) -> ExitCode:
    """Say what went wrong, and give the exit code for it."""
    if ctx.params.get("debug"):
        traceback.print_exc()
    if isinstance(error, ModuleNotFoundError):
        error = lacking(error) or error
    if isinstance(error, QueueError):
        code, text = ExitCode.of(error), sentence(error)
    elif isinstance(error, OSError) and error.strerror is not None:
        about = "" if error.filename is None else f"{error.filename}: "
        code, text = ExitCode.USAGE, f"{about}{error.strerror}"
        forget_output()  # it may be what cannot be written to
    else:
        # Its text is not shown: nobody knows what is in it.
        code = ExitCode.NO
        text = f"internal error, {type(error).__name__}; QUEUECRAFT_DEBUG=1 shows where"
    if ctx.obj["json"]:
        _complain_json(text, type(error).__name__, code, error)
    else:
        complain(text)
    return code


def _complain_json(text: str, kind: str, code: int, error: Exception | None = None) -> None:
    complain_json(
        error=text,
        kind=kind,
        exit_code=int(code),
        queue=getattr(error, "queue", None),
        message_id=getattr(error, "message_id", None),
    )


def sentence(error: QueueError) -> str:
    """What an error says, with the queue and message it is about.

    >>> sentence(QueueError("the disk is full", broker="local", queue="billing"))
    "queue 'billing': the disk is full"
    """
    text = error.message
    told = error.message_id is None or repr(error.message_id)[1:-1] in text
    if not told:
        text = f"message {error.message_id}: {text}"
    if error.queue is not None and repr(error.queue) not in text:
        text = f"queue {error.queue!r}: {text}"
    return text
