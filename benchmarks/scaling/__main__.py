"""The command line of scaling."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from benchmarks.command import shown
from benchmarks.harness import rotated
from benchmarks.place import Site, site
from benchmarks.report import environment
from benchmarks.scaling import page
from benchmarks.scaling.axes import AXES, FULL, QUICK, Amount, Axis
from benchmarks.scaling.findings import Curve, Findings, Point
from tests.brokers.installation import Unavailable

BROKERS = ("file", "rabbitmq", "redis-lists", "kafka")
BY_NAME = {axis.name: axis for axis in AXES}
RESULTS = Path("benchmarks/results/scaling.json")
LIMIT = 360.0  # seconds for one point


def measure(
    axis: Axis, broker: str, amount: Amount, *, rounds: int, until: float
) -> tuple[Curve, str]:
    """One axis on one broker, and the broker's version; the points take turns in every round."""
    points = {x: Point(x=x) for x in axis.points(amount)}
    curve = Curve(axis=axis.name, broker=broker, points=list(points.values()))
    try:
        with site(broker) as place:
            for turn in range(rounds):
                # What takes longest comes last, and not at all when there is no time left.
                for x in rotated(list(points), turn) if turn else sorted(points):
                    point = points[x]
                    if point.missing:
                        continue
                    if monotonic() > until and (turn or point is not curve.points[0]):
                        point.missing = "" if point.figures else "no time left"
                        continue
                    try:
                        figures = asyncio.run(limited(axis, place, x, amount))
                    except Exception as error:  # one bad point must not end the run
                        point.missing = f"{type(error).__name__}: {error}"
                        typer.echo(f"{axis.name} {x:,} on {broker}: {point.missing}", err=True)
                        continue
                    for line, figure in figures.items():
                        point.figures.setdefault(line, []).append(figure)
                    told = ", ".join(f"{line} {figure:,.1f}" for line, figure in figures.items())
                    typer.echo(f"{axis.name} {x:,} on {broker}: {told}")
            return curve, place.version
    except Unavailable as error:
        curve.missing = f"no broker: {error}"
        typer.echo(f"SKIPPED {axis.name} on {broker}: {curve.missing}", err=True)
        return curve, ""


async def limited(axis: Axis, place: Site, x: int, amount: Amount) -> dict[str, float]:
    async with asyncio.timeout(LIMIT):
        return await axis.measure(place, x, amount)


def chosen(names: Sequence[str] | None, known: Sequence[str], option: str) -> list[str]:
    for name in names or ():
        if name not in known:
            msg = f"no {name!r}; there is {', '.join(known)}"
            raise typer.BadParameter(msg, param_hint=option)
    return list(names or known)


def main(
    axis: Annotated[
        list[str] | None, typer.Option(help=f"Only this one of {', '.join(BY_NAME)}.")
    ] = None,
    broker: Annotated[
        list[str] | None, typer.Option(help=f"Only this one of {', '.join(BROKERS)}.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each point.")] = 3,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Begin no further point after this long.")
    ] = 45.0,
    quick: Annotated[bool, typer.Option("--quick", help="A rough look: one small round.")] = False,
    json: Annotated[Path | None, typer.Option(help="Also write everything to this file.")] = None,
    docs: Annotated[
        Path | None,
        typer.Option(help="Write page and plots here; a full run does it to docs/."),
    ] = None,
    again: Annotated[
        Path | None, typer.Option(help="Measure nothing: make the page from this file.")
    ] = None,
) -> None:
    """Measure what a message costs as things grow, on each broker."""
    if again is not None:
        told = page.write(Findings.read(again), docs or Path("docs"))
        typer.echo(f"written: {told[0]} and {len(told) - 1} plots")
        return
    axes = [BY_NAME[name] for name in chosen(axis, list(BY_NAME), "--axis")]
    brokers = chosen(broker, BROKERS, "--broker")
    amount = QUICK if quick else FULL
    began, begun = monotonic(), datetime.now(UTC)
    load, told_of = [os.getloadavg()[0]], environment("asyncio")
    parts = [(one, where) for one in axes for where in brokers]
    curves: list[Curve] = []
    versions: dict[str, str] = {}
    for number, (one, where) in enumerate(parts):
        now = monotonic()
        left = max(0.0, began + 60 * minutes - now)
        until = now + left / (len(parts) - number)
        turns = 1 if quick else rounds
        curve, version = measure(one, where, amount, rounds=turns, until=until)
        curves.append(curve)
        if version:
            name, _, which = version.partition(" ")
            versions[name] = which
    load.append(os.getloadavg()[0])
    told_of |= {"brokers": versions, "load": " and ".join(f"{each:.1f}" for each in load)}
    found = Findings(
        at=begun.isoformat(timespec="seconds"),
        command=shlex.join(["python", "-m", "benchmarks.scaling", *shown(sys.argv[1:])]),
        quick=quick,
        seconds=monotonic() - began,
        environment=told_of,
        curves=curves,
    )
    whole = not axis and not broker and not quick
    if json or whole:
        found.save(json or RESULTS)
    if docs or whole:
        told = page.write(found, docs or Path("docs"))
        typer.echo(f"written: {told[0]} and {len(told) - 1} plots")


if __name__ == "__main__":
    typer.run(main)
