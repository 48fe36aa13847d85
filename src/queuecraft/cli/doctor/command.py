"""`queuecraft doctor`, as it is called."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from queuecraft.cli.broker import Url, run
from queuecraft.cli.doctor.broker import broker
from queuecraft.cli.doctor.finding import Finding, Verdict
from queuecraft.cli.doctor.machine import machine
from queuecraft.cli.doctor.settings import settings
from queuecraft.cli.duration import seconds
from queuecraft.cli.exits import ExitCode
from queuecraft.cli.output import AsJson, on_terminal, say, say_json
from queuecraft.observers.log import printable

SIGNS: dict[Verdict, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "bold yellow"),
    "failed": ("✗", "bold red"),
    "skipped": ("–", "dim"),
}
WIDTH = 16  # columns for what it is about


def doctor(
    *,
    timeout: Annotated[
        float, typer.Option(parser=seconds, metavar="TIME", help="How long to wait for an answer.")
    ] = 10.0,
    no_writes: Annotated[
        bool,
        typer.Option("--no-writes", help="Make no queue to try the rights, and no database."),
    ] = False,
    lake: Annotated[
        bool,
        typer.Option("--lake", help="The lake is worked on here: Spark and Java must be well."),
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Look at settings, packages, the broker and the rights there, Java and Spark; and say what to
    do about what is wrong.

    It makes a queue of its own at the broker, uses it and removes it; nothing else is changed.

    Exit code 0: nothing is broken, though there may be warnings. 1: something is. 3: the broker
    does not answer.
    """
    findings = run(_told(_findings(url, timeout, writes=not no_writes, lake=lake), as_json=as_json))
    broken = [each for each in findings if each.verdict == "failed"]
    odd = sum(each.verdict == "warning" for each in findings)
    if not as_json:
        _sum_up(len(broken), odd)
    if any(each.about == "connection" for each in broken):
        raise typer.Exit(ExitCode.UNREACHABLE)
    raise typer.Exit(ExitCode.NO if broken else ExitCode.DONE)


async def _told(found: AsyncGenerator[Finding], *, as_json: bool) -> list[Finding]:
    """Everything found, each told as soon as it is."""
    findings: list[Finding] = []
    async for each in found:
        findings.append(each)
        _tell(each, as_json=as_json)
    return findings


async def _findings(
    url: str | None, timeout: float, *, writes: bool, lake: bool
) -> AsyncGenerator[Finding]:
    found, qc = settings(url, writes=writes)
    for each in found:
        yield each
    scheme = "" if qc is None else qc.settings.url.partition("://")[0].lower()
    for each in machine(scheme, lake=lake):
        yield each
    if qc is not None:
        async for each in broker(qc, timeout, writes=writes):
            yield each


def _tell(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "about": finding.about,
                "verdict": finding.verdict,
                "text": finding.text,
                "todo": finding.todo or None,
            }
        )
        return
    sign, style = SIGNS[finding.verdict]
    about = printable(finding.about)
    if on_terminal():
        line = Text.assemble((f"{sign} ", style), (f"{about:<{WIDTH}} ", "bold"))
        console = Console(highlight=False)
        console.print(line + Text(printable(finding.text)), soft_wrap=True)
        if finding.todo:
            console.print(
                Text(f"{'':<{WIDTH + 3}}→ {printable(finding.todo)}", style), soft_wrap=True
            )
        return
    say(f"{sign} {about:<{WIDTH}} {finding.text}")
    if finding.todo:
        say(f"{'':<{WIDTH + 3}}→ {finding.todo}")


def _sum_up(broken: int, odd: int) -> None:
    say("")
    if broken:
        say(f"{broken} broken, {odd} to look into.", "bold red")
    elif odd:
        say(f"Nothing is broken; {odd} to look into.", "bold yellow")
    else:
        say("All is well.", "bold green")
