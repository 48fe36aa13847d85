"""Fair measurements: contenders take turns, round after round, in one process and one run."""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from time import monotonic
from typing import Protocol, TypeVar

T = TypeVar("T")

NOT_INSTALLED = "is not installed"

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run took, set-up and tear-down excluded."""

    messages: int
    seconds: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to use one contender. `run(n)` handles n messages, or raises if it did not."""

    name: str
    group: str
    contender: str
    run: Callable[[int], Measurement | Awaitable[Measurement]]

    @property
    def key(self) -> str:
        """What claims and results know it by."""
        return f"{self.contender}: {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure: bounded by a count, and for slow contenders by time."""

    rounds: int = 5
    messages: int = 20_000
    seconds: float = 2.0
    warmup: int = 2_000
    deadline: float = 60.0

    def count_for(self, rate: float) -> int:
        """Messages for a run of about `seconds` at the rate of the warm-up, at most `messages`.

        >>> Plan(messages=20_000, seconds=2.0).count_for(3_000.0)
        6000
        """
        return max(1, min(self.messages, int(rate * self.seconds)))


VERY_LONG = 3  # times as long as a run is meant to be


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of several figures, and how far apart they lie."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Collection[float]) -> Spread:
        return cls(statistics.median(figures), min(figures), max(figures))


@dataclass(slots=True)
class Series:
    """All that was measured of one case, a measurement a round."""

    case: Case
    measurements: list[Measurement] = field(default_factory=list[Measurement])

    @property
    def rates(self) -> list[float]:
        return [measurement.rate for measurement in self.measurements]

    @property
    def rate(self) -> Spread:
        return Spread.of(self.rates)

    def ratio(self, to: Series) -> Spread:
        """How many times as fast, round by round: a slow moment of the machine hits both."""
        pairs = zip(self.rates, to.rates, strict=True)
        return Spread.of([ours / theirs for ours, theirs in pairs])


Results = Mapping[str, Series]


def fastest(results: Results, keys: Iterable[str]) -> Series | None:
    """The best of what a contender can do, by its median; None if none of it was measured."""
    measured = [results[key] for key in keys if key in results]
    return max(measured, key=lambda series: series.rate.median, default=None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim, judged: `figure` is None when a side of it was not measured in this run."""

    text: str
    owed: str
    figure: Spread | None
    unit: str
    holds: bool | None
    against: str | None
    limit: float | None = None
    """What the broker itself would have reached."""


class Claim(Protocol):
    """Something that has to hold in every run."""

    def judge(self, results: Results) -> Verdict: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesFaster:
    """`subject` is at least `times` as fast as the fastest of `peers`; `limit` is what nobody is
    faster than."""

    text: str
    subject: str
    peers: Sequence[str]
    times: float
    limit: str = ""

    def judge(self, results: Results) -> Verdict:
        owed = f"at least {self.times:g}×"
        subject, peer = results.get(self.subject), fastest(results, self.peers)
        if subject is None or peer is None:
            return Verdict(self.text, owed, None, "×", None, None)
        figure = subject.ratio(peer)
        holds = figure.median >= self.times
        limit = results.get(self.limit)
        most = None if limit is None else limit.ratio(peer).median
        return Verdict(self.text, owed, figure, "×", holds, peer.case.key, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsAtMost:
    """`subject` reaches all but `percent` of the throughput of `plain`."""

    text: str
    subject: str
    plain: str
    percent: float

    def judge(self, results: Results) -> Verdict:
        owed = f"at most {self.percent:g} %"
        subject, plain = results.get(self.subject), results.get(self.plain)
        if subject is None or plain is None:
            return Verdict(self.text, owed, None, " %", None, None)
        kept = subject.ratio(plain)
        cost = Spread(100 * (1 - kept.median), 100 * (1 - kept.high), 100 * (1 - kept.low))
        return Verdict(self.text, owed, cost, " %", cost.median <= self.percent, plain.case.key)


@dataclass(frozen=True, slots=True)
class Contender:
    """A module with `CASES`, and the packages without which it has to be skipped."""

    name: str
    module: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A contender that is not in this run, and why."""

    contender: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Contenders doing the same work, what they are compared with, and what is owed."""

    name: str
    title: str
    contenders: Sequence[Contender]
    reference: Sequence[str]
    claims: Sequence[Claim]
    messages: int | None = None
    """Of the runs of all cases, where a broker gets slower with what it holds: the fast would
    fill it more, and be measured on a slower one. Only those that take very long stay below."""

    def plan(self, plan: Plan) -> Plan:
        """The plan, as it is followed here."""
        if self.messages is None:
            return plan
        messages = min(plan.messages, self.messages)
        return replace(plan, messages=messages, seconds=VERY_LONG * plan.seconds)

    def load(self, only: Collection[str] = ()) -> tuple[list[Case], list[Skipped]]:
        """The cases of the contenders named (all, if none is), and those that cannot run here."""
        cases: list[Case] = []
        skipped: list[Skipped] = []
        for contender in self.contenders:
            if only and contender.name not in only:
                continue
            try:
                module = import_module(contender.module)
            except ModuleNotFoundError as error:
                if error.name not in contender.needs:
                    raise
                skipped.append(Skipped(contender.name, f"{error.name} {NOT_INSTALLED}"))
            else:
                cases.extend(module.CASES)
        return cases, skipped


def rotated(items: Sequence[T], turns: int) -> list[T]:
    """The order of a round: everyone is first once before anyone is first twice.

    >>> rotated("abc", 1)
    ['b', 'c', 'a']
    """
    start = turns % len(items) if items else 0
    return [*items[start:], *items[:start]]


class RunFailed(Exception):
    """A run that gave no figure, and the case it belongs to."""


def run_once(
    case: Case, messages: int, *, deadline: float, loop_factory: LoopFactory | None = None
) -> Measurement:
    """One run in a fresh event loop, after the garbage of the one before it is gone."""
    gc.collect()
    try:
        outcome = case.run(messages)
        if isinstance(outcome, Measurement):
            return outcome
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(_within(deadline, outcome))
    except TimeoutError as error:
        msg = f"{case.key}: {messages} messages were not handled within {deadline:g} s"
        raise RunFailed(msg) from error
    except Exception as error:
        raise RunFailed(f"{case.key}: {type(error).__name__}: {error}") from error


async def _within(deadline: float, outcome: Awaitable[Measurement]) -> Measurement:
    async with asyncio.timeout(deadline):
        return await outcome


def measure(
    cases: Sequence[Case],
    plan: Plan,
    *,
    loop_factory: LoopFactory | None = None,
    on_run: Callable[[Case, int], None] = lambda case, round_number: None,
    on_failure: Callable[[Case, RunFailed], None] | None = None,
    until: float = float("inf"),
) -> dict[str, Series]:
    """Every case once a round, after a round to warm up; results by the key of the case.

    `on_run` is told of each run before it begins, with 0 as the warm-up round. A case that fails
    is told to `on_failure` and left out from then on, all of it; without `on_failure` it ends the
    run. No round but the first begins after the moment `until` of the monotonic clock.
    """
    counts: dict[str, int] = {}
    results = {case.key: Series(case) for case in cases}

    def attempt(case: Case, messages: int) -> Measurement | None:
        try:
            return run_once(case, messages, deadline=plan.deadline, loop_factory=loop_factory)
        except RunFailed as error:
            if on_failure is None:
                raise
            del results[case.key]
            on_failure(case, error)
            return None

    for case in cases:
        on_run(case, 0)
        trial = attempt(case, min(plan.warmup, plan.messages))
        if trial is not None:
            counts[case.key] = plan.count_for(trial.rate)
    for turn in range(plan.rounds):
        if turn and monotonic() > until:
            break
        for case in rotated(cases, turn):
            if case.key not in results:
                continue
            on_run(case, turn + 1)
            measurement = attempt(case, counts[case.key])
            if measurement is not None:
                results[case.key].measurements.append(measurement)
    return results
