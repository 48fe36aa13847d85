"""The command line of the benchmarks."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks import page
from benchmarks.command import shown
from benchmarks.file import CONSUMING as FILE_CONSUMING
from benchmarks.file import GROUP as FILE
from benchmarks.file import PUBLISHING as FILE_PUBLISHING
from benchmarks.harness import (
    NOT_INSTALLED,
    Case,
    Group,
    LoopFactory,
    Plan,
    RunFailed,
    Skipped,
    measure,
)
from benchmarks.journal import GROUP as JOURNAL
from benchmarks.journeys import JOURNEYS, Journeys
from benchmarks.kafka import CONSUMING as KAFKA_CONSUMING
from benchmarks.kafka import PUBLISHING as KAFKA_PUBLISHING
from benchmarks.memory import GROUP as MEMORY
from benchmarks.middleware import GROUP as MIDDLEWARE
from benchmarks.observers import GROUP as OBSERVERS
from benchmarks.rabbitmq import CONSUMING as RABBITMQ_CONSUMING
from benchmarks.rabbitmq import PUBLISHING as RABBITMQ_PUBLISHING
from benchmarks.redis import CONSUMING as REDIS_CONSUMING
from benchmarks.redis import PUBLISHING as REDIS_PUBLISHING
from benchmarks.report import Outcome, environment, section, sentence, show
from benchmarks.results import Claim, Run, Section
from benchmarks.travel import Amount
from tests.brokers.installation import Unavailable

ON_RABBITMQ = (RABBITMQ_PUBLISHING, RABBITMQ_CONSUMING)
ON_REDIS = (REDIS_PUBLISHING, REDIS_CONSUMING)
ON_KAFKA = (KAFKA_PUBLISHING, KAFKA_CONSUMING)
GROUPS: dict[str, Group] = {
    group.name: group
    for group in (
        MEMORY,
        FILE_PUBLISHING,
        FILE_CONSUMING,
        FILE,
        *ON_RABBITMQ,
        *ON_REDIS,
        *ON_KAFKA,
        JOURNAL,
        MIDDLEWARE,
        OBSERVERS,
    )
}
NAMES = (*GROUPS, *JOURNEYS)
RESULTS = Path("benchmarks/results/benchmarks.json")
QUICK = Amount(paced=100, burst=1000, fill=20_000, fill_seconds=10.0)
FULL = Amount(paced=600, burst=5000, fill=100_000, fill_seconds=25.0)


class Loop(StrEnum):
    """The event loop that every contender runs on."""

    ASYNCIO = "asyncio"
    UVLOOP = "uvloop"


def loop_factory(loop: Loop) -> LoopFactory:
    if loop is Loop.ASYNCIO:
        return asyncio.new_event_loop
    try:
        import uvloop
    except ModuleNotFoundError:
        raise typer.BadParameter("uvloop is not installed", param_hint="--loop") from None
    return uvloop.new_event_loop


def broker_of(group: Group) -> AbstractContextManager[None] | None:
    """What has to run while the group is measured."""
    if group in ON_RABBITMQ:
        from benchmarks.rabbitmq.broker import serving as serving_rabbitmq

        return serving_rabbitmq()
    if group in ON_REDIS:
        from benchmarks.redis.broker import serving as serving_redis

        return serving_redis()
    if group in ON_KAFKA:
        from benchmarks.kafka.broker import serving as serving_kafka

        return serving_kafka()
    return None


@contextmanager
def progress_bar(console: Console, runs: int) -> Generator[Callable[[Case, int], None]]:
    """What to call before each run; silent unless on a terminal."""
    if not console.is_terminal:
        yield lambda case, round_number: None
        return
    # Drawn only between runs: a bar that refreshes itself would take time from what is measured.
    progress = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=console,
        auto_refresh=False,
        transient=True,
    )
    with progress:
        bar = progress.add_task("", total=runs)
        begun = iter(range(runs))

        def on_run(case: Case, round_number: int) -> None:
            stage = f"round {round_number}" if round_number else "warm-up"
            progress.update(bar, completed=next(begun), description=f"{stage}, {case.key}")
            progress.refresh()

        yield on_run


def measure_group(
    group: Group,
    plan: Plan,
    *,
    only: Sequence[str],
    until: float,
    factory: LoopFactory,
    console: Console,
) -> Outcome:
    """A group of throughput, shown; who fails is left out and told."""
    cases, skipped = group.load(only)
    its = group.plan(plan)

    def failed(case: Case, error: RunFailed) -> None:
        skipped.append(Skipped(case.key, f"it failed: {error}"))
        typer.echo(f"no result: {error}", err=True)

    try:
        with ExitStack() as stack:
            if cases and (broker := broker_of(group)) is not None:
                stack.enter_context(broker)
            runs = len(cases) * (its.rounds + 1)
            on_run = stack.enter_context(progress_bar(console, runs))
            results = measure(
                cases, its, loop_factory=factory, on_run=on_run, on_failure=failed, until=until
            )
    except Unavailable as error:
        results = {}
        names = dict.fromkeys(case.contender for case in cases)
        skipped += [Skipped(name, f"no broker: {error}") for name in names]
    outcome = Outcome(group, results, skipped)
    show(outcome, its, console)
    return outcome


def measure_journeys(
    journeys: Journeys,
    amount: Amount,
    rounds: int,
    *,
    only: Sequence[str],
    until: float,
    console: Console,
) -> tuple[list[Section], str]:
    """A group of pairs, shown, and the version of its broker."""
    try:
        found, version = journeys.run(
            amount, rounds, only=only, until=until, say=lambda line: typer.echo(line, err=True)
        )
    except Unavailable as error:
        found = [
            Section(
                broker=journeys.broker,
                name=journeys.measure,
                unit="",
                missing={"everybody": f"no broker: {error}"},
            )
        ]
        version = ""
    for each in found:
        lines = [f"{each.broker}, {each.name} ({each.unit})", *page.table(each), ""]
        lines += [f"NOT HERE {who}: {why}" for who, why in each.missing.items()]
        for line in lines:
            console.print(line, soft_wrap=True, markup=False, highlight=False)
    return found, version


def main(
    group: Annotated[
        list[str] | None, typer.Option(help=f"Only this group; one of: {', '.join(NAMES)}.")
    ] = None,
    contender: Annotated[
        list[str] | None, typer.Option(help="Only this contender, by the name in the table.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measured runs of each case.")] = 5,
    messages: Annotated[int, typer.Option(min=1, help="Messages of a run, at most.")] = 20_000,
    seconds: Annotated[float, typer.Option(min=0.01, help="Length of a run, at most.")] = 2.0,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Begin no further round after this long.")
    ] = 55.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A rough look: a round or two of few messages.")
    ] = False,
    loop: Annotated[Loop, typer.Option(help="Event loop for all contenders.")] = Loop.ASYNCIO,
    json: Annotated[Path | None, typer.Option(help="Also write everything to this file.")] = None,
    docs: Annotated[
        Path | None,
        typer.Option(help="Write page and plots here; a full run does it to docs/."),
    ] = None,
    again: Annotated[
        Path | None, typer.Option(help="Measure nothing: make the page from this file.")
    ] = None,
    renew: Annotated[
        Path | None, typer.Option(help="Put the tables into this file's, and make the page anew.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if a claim misses or was not measured.")
    ] = False,
) -> None:
    """Measure QueueCraft and its peers side by side, and say which claims hold."""
    if again is not None:
        told = page.write(Run.read(again), docs or Path("docs"))
        typer.echo(f"written: {told[0]} and {len(told) - 1} plots")
        return
    unknown = [name for name in group or () if name not in NAMES]
    if unknown:
        msg = f"no group {unknown[0]!r}; there is {', '.join(NAMES)}"
        raise typer.BadParameter(msg, param_hint="--group")
    groups = [GROUPS[name] for name in group or GROUPS if name in GROUPS]
    journeys = [JOURNEYS[name] for name in group or JOURNEYS if name in JOURNEYS]
    known = {each.name for one in groups for each in one.contenders}
    known |= {each.contender for one in journeys for each in one.entries}
    if strangers := set(contender or ()) - known:
        msg = f"no contender {min(strangers)!r}; there is {', '.join(sorted(known))}"
        raise typer.BadParameter(msg, param_hint="--contender")
    plan = Plan(rounds=rounds, messages=messages, seconds=seconds)
    amount, turns = FULL, min(rounds, 3)
    if quick:
        fewer = min(messages, 2_000)
        plan = Plan(rounds=min(rounds, 2), messages=fewer, seconds=min(seconds, 1.0), warmup=500)
        amount, turns = QUICK, 1
    factory = loop_factory(loop)
    console = Console()
    began = monotonic()
    begun = datetime.now(UTC)
    load, where = [os.getloadavg()[0]], environment(loop.value)
    parts: list[Group | Journeys] = [*groups, *journeys]

    def share(number: int) -> float:
        """Until when this part may begin another round: each has its part of what is left."""
        now = monotonic()
        left = max(0.0, began + 60 * minutes - now)
        return now + left / (len(parts) - number)

    outcomes: list[Outcome] = []
    sections: list[Section] = []
    versions: dict[str, str] = {}
    only = contender or ()
    for number, part in enumerate(parts):
        until = share(number)
        if isinstance(part, Journeys):
            found, version = measure_journeys(
                part, amount, turns, only=only, until=until, console=console
            )
            sections += found
            if version:
                name, _, which = version.partition(" ")
                versions[name] = which
        else:
            outcome = measure_group(
                part, plan, only=only, until=until, factory=factory, console=console
            )
            outcomes.append(outcome)
            sections.append(section(outcome, part.plan(plan)))
    load.append(os.getloadavg()[0])
    where |= {"brokers": versions, "load": " and ".join(f"{each:.1f}" for each in load)}
    run = Run(
        at=begun.isoformat(timespec="seconds"),
        command=shlex.join(["python", "-m", "benchmarks", *shown(sys.argv[1:])]),
        quick=quick,
        seconds=monotonic() - began,
        environment=where,
        sections=ordered(sections),
        claims=[
            Claim(group=each.group.name, sentence=sentence(verdict), holds=verdict.holds)
            for each in outcomes
            for verdict in each.verdicts
        ],
    )
    whole = not group and not contender and not quick
    if whole and (names := not_installed(sections)):
        whole = False
        typer.echo(f"docs/ is left as it is: not installed: {', '.join(names)}; run make bench")
    if renew is not None:
        run = Run.read(renew).renewed(run)
        run.save(renew)
    if json or whole:
        run.save(json or RESULTS)
    if docs or whole or renew:
        told = page.write(run, docs or Path("docs"))
        typer.echo(f"written: {told[0]} and {len(told) - 1} plots")
    if check and not all(verdict.holds for each in outcomes for verdict in each.verdicts):
        raise typer.Exit(1)


def not_installed(sections: Sequence[Section]) -> list[str]:
    """Who is missing from a run and need not be."""
    told = {who: why for each in sections for who, why in each.missing.items()}
    return sorted(who for who, why in told.items() if why.endswith(NOT_INSTALLED))


def ordered(sections: Sequence[Section]) -> list[Section]:
    """By broker, in the order of the page; options of ours at the end."""
    brokers = list(page.BROKERS)
    kinds = list(page.INTRODUCTIONS)

    def place(each: Section) -> tuple[int, int]:
        kind = next(n for n, kind in enumerate(kinds) if each.name.startswith(kind))
        broker = brokers.index(each.broker) if each.broker in brokers else len(brokers)
        return broker, kind

    return sorted(sections, key=place)


if __name__ == "__main__":
    typer.run(main)
