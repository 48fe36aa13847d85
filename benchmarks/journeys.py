"""Groups of the worker-and-publisher pairs: how long and how many, how much memory, how soon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic

from benchmarks.harness import NOT_INSTALLED, RunFailed, rotated
from benchmarks.pairs.entries import ENTRIES, Entry
from benchmarks.place import Site, site
from benchmarks.results import SENT, Row, Section
from benchmarks.travel import ENOUGH, PER, Amount, begin, fill, travel

MEASURES = ("travel", "pending", "start")
BROKERS = tuple(dict.fromkeys(entry.broker for entry in ENTRIES))

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Journeys:
    """One measurement of all pairs on one broker."""

    broker: str
    measure: str

    @property
    def name(self) -> str:
        return f"{self.broker}-{self.measure}"

    @property
    def entries(self) -> list[Entry]:
        return [entry for entry in ENTRIES if entry.broker == self.broker]

    def chosen(self, only: Collection[str] = ()) -> tuple[list[Entry], dict[str, str]]:
        """Those that can be measured here, and why the others cannot."""
        found: list[Entry] = []
        missing: dict[str, str] = {}
        for entry in self.entries:
            if only and entry.contender not in only:
                continue
            if (package := entry.missing) is not None:
                missing[entry.contender] = f"{package} {NOT_INSTALLED}"
            elif self.measure == "pending" and entry.load().publisher is None:
                missing[entry.contender] = "it has no queue: a message is handled as it is sent"
            else:
                found.append(entry)
        return found, missing

    def run(
        self,
        amount: Amount,
        rounds: int,
        *,
        only: Collection[str] = (),
        until: float = float("inf"),
        say: Callable[[str], None] = lambda line: None,
    ) -> tuple[list[Section], str]:
        """Its tables, and the version of the broker. One that fails is left out from then on."""
        entries, missing = self.chosen(only)
        found: dict[str, list[Figures]] = {entry.key: [] for entry in entries}
        turns = min(rounds, 2) if self.measure == "pending" else rounds  # filling takes longest
        with site(self.broker) as place:
            for turn in range(turns):
                if turn and monotonic() > until:
                    break
                for entry in rotated(entries, turn):
                    if entry.key not in found:
                        continue
                    try:
                        found[entry.key].append(self._take_turn(entry, place, amount))
                    except (RunFailed, OSError, AssertionError) as error:
                        del found[entry.key]
                        missing[f"{entry.contender}, {entry.case}"] = f"it failed: {error}"
                        say(f"failed: {error}")
            version = place.version
        measured = [entry for entry in entries if found.get(entry.key)]
        return self._sections(measured, found, missing, amount), version

    def _take_turn(self, entry: Entry, place: Site, amount: Amount) -> Figures:
        match self.measure:
            case "travel":
                trip = asyncio.run(travel(entry, place, amount))
                return {"p50": 1000 * trip.p50, "p99": 1000 * trip.p99, "rate": trip.rate}
            case "pending":
                growth = asyncio.run(fill(entry, place, amount))
                scale = PER / growth.count / 1e6
                figures: Figures = {"process": growth.process * scale, "count": growth.count}
                if growth.broker is not None:
                    figures["broker"] = growth.broker * scale
                return figures
            case _:
                return {"seconds": asyncio.run(begin(entry, place))}

    def _sections(
        self,
        entries: Sequence[Entry],
        found: dict[str, list[Figures]],
        missing: dict[str, str],
        amount: Amount,
    ) -> list[Section]:
        rounds = max((len(found[entry.key]) for entry in entries), default=0)
        section = partial(Section, broker=self.broker, rounds=rounds, missing=missing)

        def rows(figure: str, **more: str) -> list[Row]:
            return [
                Row(
                    contender=entry.contender,
                    case=entry.case,
                    setting=entry.setting,
                    weaker=entry.weaker,
                    against=entry.against,
                    differs=entry.differs_in(self.measure),
                    figures=[each[figure] for each in found[entry.key]],
                    more={
                        name: [each[key] for each in found[entry.key] if key in each]
                        for name, key in more.items()
                    },
                )
                for entry in entries
            ]

        match self.measure:
            case "travel":
                alone = self.broker == "memory"
                where = "in one process" if alone else "in two processes"
                speed = section(
                    name=f"end to end, {where}",
                    unit="msg/s",
                    throughput=True,
                    note=f"{amount.burst:,} orders as fast as the contender sends them.",
                    rows=rows("rate"),
                )
                latency = section(
                    name="latency",
                    unit="p50, ms",
                    digits=2,
                    better="less",
                    note=f"{amount.paced:,} orders at {amount.rate:g} a second, {where}; "
                    "the ratio is that of the medians (p50).",
                    rows=rows("p50", **{"p99, ms": "p99"}),
                )
                # In memory the group of throughput has each contender's fastest way.
                return [latency] if alone else [speed, latency]
            case "pending":
                told = any("broker" in each for e in entries for each in found[e.key])
                weighed, other = ("broker", "process") if told else ("process", "broker")
                more = {f"{other}, MB": other} if told else {}
                return [
                    section(
                        name="memory of 100,000 pending",
                        unit=f"{weighed}, MB",
                        digits=1,
                        better="less",
                        least=1.0,
                        note=f"Filled for at most {amount.fill_seconds:g} s or with "
                        f"{amount.fill:,} orders, whichever came first, and counted up to 100,000 "
                        f"from the orders that were sent; who sent fewer than {ENOUGH:,} is not "
                        f"here. Compared is what the {weighed} took, where both took a megabyte "
                        "or more. The broker's figure is what it says that it uses, where it can "
                        "tell; it may give memory back at moments of its own choosing.",
                        rows=rows(weighed, **more, **{SENT: "count"}),
                    )
                ]
            case _:
                return [
                    section(
                        name="start-up",
                        unit="seconds",
                        digits=2,
                        better="less",
                        rows=rows("seconds"),
                    )
                ]


JOURNEYS = {
    each.name: each
    for each in (Journeys(broker, measure) for broker in BROKERS for measure in MEASURES)
}
