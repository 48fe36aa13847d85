"""The command line of the benchmarks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.file import GROUP as FILE
from benchmarks.harness import Case, Group, LoopFactory, Plan, RunFailed, Skipped, measure
from benchmarks.journal import GROUP as JOURNAL
from benchmarks.kafka import CONSUMING as KAFKA_CONSUMING
from benchmarks.kafka import PUBLISHING as KAFKA_PUBLISHING
from benchmarks.memory import GROUP as MEMORY
from benchmarks.middleware import GROUP as MIDDLEWARE
from benchmarks.observers import GROUP as OBSERVERS
from benchmarks.rabbitmq import CONSUMING as RABBITMQ_CONSUMING
from benchmarks.rabbitmq import PUBLISHING as RABBITMQ_PUBLISHING
from benchmarks.redis import CONSUMING as REDIS_CONSUMING
from benchmarks.redis import PUBLISHING as REDIS_PUBLISHING
from benchmarks.report import Outcome, document, show, write
from tests.brokers.installation import Unavailable

ON_RABBITMQ = (RABBITMQ_PUBLISHING, RABBITMQ_CONSUMING)
ON_REDIS = (REDIS_PUBLISHING, REDIS_CONSUMING)
ON_KAFKA = (KAFKA_PUBLISHING, KAFKA_CONSUMING)
GROUPS: dict[str, Group] = {
    group.name: group
    for group in (MEMORY, FILE, JOURNAL, MIDDLEWARE, OBSERVERS, *ON_RABBITMQ, *ON_REDIS, *ON_KAFKA)
}


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


def main(
    group: Annotated[
        list[str] | None, typer.Option(help=f"Only this group; one of: {', '.join(GROUPS)}.")
    ] = None,
    contender: Annotated[
        list[str] | None, typer.Option(help="Only this contender, by the name in the table.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measured runs of each case.")] = 5,
    messages: Annotated[int, typer.Option(min=1, help="Messages of a run, at most.")] = 20_000,
    seconds: Annotated[float, typer.Option(min=0.01, help="Length of a run, at most.")] = 2.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A rough look: 3 rounds of 5,000 messages.")
    ] = False,
    loop: Annotated[Loop, typer.Option(help="Event loop for all contenders.")] = Loop.ASYNCIO,
    json: Annotated[Path | None, typer.Option(help="Also write everything to this file.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if a claim misses or was not measured.")
    ] = False,
) -> None:
    """Measure QueueCraft and its peers side by side, and say which claims hold."""
    unknown = [name for name in group or () if name not in GROUPS]
    if unknown:
        msg = f"no group {unknown[0]!r}; there is {', '.join(GROUPS)}"
        raise typer.BadParameter(msg, param_hint="--group")
    chosen = [GROUPS[name] for name in group or GROUPS]
    known = {each.name for one in chosen for each in one.contenders}
    if strangers := set(contender or ()) - known:
        msg = f"no contender {min(strangers)!r}; there is {', '.join(sorted(known))}"
        raise typer.BadParameter(msg, param_hint="--contender")
    plan = Plan(rounds=rounds, messages=messages, seconds=seconds)
    if quick:
        plan = Plan(rounds=min(rounds, 3), messages=min(messages, 5_000), seconds=seconds)
    factory = loop_factory(loop)
    console = Console()
    outcomes: list[Outcome] = []
    for one in chosen:
        cases, skipped = one.load(contender or ())
        its = one.plan(plan)
        try:
            with ExitStack() as stack:
                if cases and (broker := broker_of(one)) is not None:
                    stack.enter_context(broker)
                runs = len(cases) * (its.rounds + 1)
                on_run = stack.enter_context(progress_bar(console, runs))
                results = measure(cases, its, loop_factory=factory, on_run=on_run)
        except Unavailable as error:
            results = {}
            names = dict.fromkeys(case.contender for case in cases)
            skipped += [Skipped(name, f"no broker: {error}") for name in names]
        except RunFailed as error:
            typer.echo(f"no result: {error}", err=True)
            raise typer.Exit(2) from error
        outcomes.append(Outcome(one, results, skipped))
        show(outcomes[-1], its, console)
    if json:
        write(json, document(outcomes, plan, loop=loop.value))
    if check and not all(verdict.holds for each in outcomes for verdict in each.verdicts):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
