"""The arithmetic of the benchmarks, and that every case of theirs handles what it publishes."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace

import msgspec
import pytest
from rich.console import Console

from benchmarks.harness import (
    Case,
    Contender,
    CostsAtMost,
    Group,
    Measurement,
    Plan,
    RunFailed,
    Series,
    Spread,
    TimesFaster,
    fastest,
    measure,
    rotated,
    run_once,
)
from benchmarks.memory import GROUP as MEMORY
from benchmarks.order import Order, OrderRecord, Tally, WrongCount, order_fields, orders
from benchmarks.report import COLUMNS, Outcome, plain, sentence, show
from tests.brokers.fixtures import PEER_MISSING

pytestmark = pytest.mark.faults  # for the time it takes


def case(name: str, run=lambda n: Measurement(n, 1.0), contender: str = "ours") -> Case:
    return Case(name=name, group="test", contender=contender, run=run)


def series(name: str, *rates: float, contender: str = "ours") -> Series:
    return Series(case(name, contender=contender), [Measurement(int(rate), 1.0) for rate in rates])


def by_key(*several: Series) -> dict[str, Series]:
    return {one.case.key: one for one in several}


def group(*claims) -> Group:
    return Group(
        name="test",
        title="A test",
        contenders=(),
        reference=("peer: slow", "peer: quick"),
        claims=claims,
    )


# figures


def test_the_median_and_spread_of_rounds_ignore_their_order():
    assert series("a", 300, 100, 200).rate == Spread(median=200, low=100, high=300)


def test_a_ratio_compares_the_same_round_on_both_sides():
    ours, theirs = series("a", 200, 20, 300), series("b", 100, 10, 100)

    assert ours.ratio(theirs) == Spread(median=2, low=2, high=3)


def test_a_ratio_refuses_series_of_different_length():
    with pytest.raises(ValueError, match="shorter"):
        series("a", 1, 2).ratio(series("b", 1))


def test_the_fastest_of_a_peers_modes_is_the_one_with_the_highest_median():
    results = by_key(series("slow", 1, 9, 1), series("quick", 2, 2, 2))

    best = fastest(results, ["ours: slow", "ours: quick", "ours: never ran"])

    assert best is not None
    assert best.case.name == "quick"
    assert fastest(results, ["ours: never ran"]) is None


# claims


@pytest.mark.parametrize(("rate", "holds"), [(1199, False), (1200, True)])
def test_a_claim_of_speed_is_judged_against_the_faster_peer(rate: int, holds: bool):
    claim = TimesFaster(text="t", subject="ours: a", peers=("peer: slow", "peer: quick"), times=12)
    results = by_key(
        series("a", rate),
        series("slow", 10, contender="peer"),
        series("quick", 100, contender="peer"),
    )

    verdict = claim.judge(results)

    assert verdict.against == "peer: quick"
    assert verdict.holds is holds


def test_a_claim_tells_what_the_broker_itself_has_reached():
    claim = TimesFaster(
        text="t", subject="ours: a", peers=("peer: b",), times=3, limit="the broker: c"
    )
    results = by_key(
        series("a", 240),
        series("b", 100, contender="peer"),
        series("c", 250, contender="the broker"),
    )

    assert sentence(claim.judge(results)) == (
        "misses        t: 2.4× (2.4–2.4; owed: at least 3×; the broker itself: 2.5×; against "
        "peer: b)"
    )


@pytest.mark.parametrize(("rate", "holds"), [(74, False), (75, True), (120, True)])
def test_a_claim_of_cost_is_judged_in_percent_of_throughput_lost(rate: int, holds: bool):
    claim = CostsAtMost(text="t", subject="ours: a", plain="ours: b", percent=25)

    verdict = claim.judge(by_key(series("a", rate), series("b", 100)))

    assert verdict.figure is not None
    assert verdict.figure.median == pytest.approx(100 - rate)
    assert verdict.holds is holds


def test_the_spread_of_a_cost_runs_from_the_cheapest_round_to_the_dearest():
    claim = CostsAtMost(text="t", subject="ours: a", plain="ours: b", percent=25)

    figure = claim.judge(by_key(series("a", 90, 80, 70), series("b", 100, 100, 100))).figure

    assert figure is not None
    assert figure.low == pytest.approx(10)
    assert figure.high == pytest.approx(30)


def test_a_claim_without_its_peer_is_not_measured_rather_than_held():
    claim = TimesFaster(text="t", subject="ours: a", peers=("peer: quick",), times=1)

    verdict = claim.judge(by_key(series("a", 1)))

    assert verdict.holds is None
    assert verdict.figure is None


# rounds


def test_everyone_is_first_once_before_anyone_is_first_twice():
    assert [rotated("abc", turn)[0] for turn in range(6)] == list("abcabc")
    assert rotated([], 3) == []


def test_a_round_has_every_case_once_and_the_next_begins_with_another():
    seen: list[tuple[int, str]] = []
    plan = Plan(rounds=2, messages=10, warmup=5)

    results = measure(
        [case("a"), case("b")], plan, on_run=lambda each, turn: seen.append((turn, each.name))
    )

    assert seen == [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "b"), (2, "a")]
    assert [len(one.measurements) for one in results.values()] == [2, 2]


def test_the_warm_up_is_not_in_the_result_but_bounds_the_time_of_a_run():
    asked: list[int] = []

    def slow(messages: int) -> Measurement:
        asked.append(messages)
        return Measurement(messages, messages / 100)

    measure([case("a", slow)], Plan(rounds=1, messages=1000, seconds=2.0, warmup=50))

    assert asked == [50, 200]


def test_a_case_that_fails_is_left_out_and_the_others_go_on():
    runs = iter([1.0, 1.0, None])

    def breaking(messages: int) -> Measurement:
        seconds = next(runs)
        if seconds is None:
            raise WrongCount("handled 6 messages of 7")
        return Measurement(messages, seconds)

    told: list[str] = []
    results = measure(
        [case("breaks", breaking), case("steady")],
        Plan(rounds=3, messages=10, warmup=5),
        on_failure=lambda each, error: told.append(f"{each.name}: {error}"),
    )

    assert told == ["breaks: ours: breaks: WrongCount: handled 6 messages of 7"]
    assert {key: len(one.measurements) for key, one in results.items()} == {"ours: steady": 3}


def test_no_round_begins_when_the_time_is_over_but_the_first_is_made():
    results = measure([case("a")], Plan(rounds=5, messages=10, warmup=5), until=0.0)

    assert [len(one.measurements) for one in results.values()] == [1]


def test_a_fast_case_is_bounded_by_the_number_of_messages():
    assert Plan(messages=1000, seconds=2.0).count_for(1e9) == 1000
    assert Plan(messages=1000, seconds=2.0).count_for(0.001) == 1


def test_a_case_may_be_a_coroutine_function():
    async def run(messages: int) -> Measurement:
        await asyncio.sleep(0)
        return Measurement(messages, 0.5)

    assert run_once(case("a", run), 7, deadline=5).rate == 14


def test_a_run_that_hangs_ends_at_its_deadline_and_names_its_case():
    async def run(messages: int) -> Measurement:
        await asyncio.Event().wait()
        return Measurement(messages, 1.0)

    with pytest.raises(RunFailed, match="ours: stuck: 7 messages were not handled within"):
        run_once(case("stuck", run), 7, deadline=0.01)


def test_a_run_that_raises_names_its_case():
    def run(messages: int) -> Measurement:
        raise WrongCount("handled 6 messages of 7")

    with pytest.raises(RunFailed, match="ours: lossy: WrongCount: handled 6 messages of 7"):
        run_once(case("lossy", run), 7, deadline=5)


# contenders


def test_a_contender_whose_package_is_missing_is_skipped_with_the_reason():
    missing = Contender("Peer", "no_such_peer.cases", needs=("no_such_peer",))

    cases, skipped = replace(group(), contenders=(missing,)).load()

    assert cases == []
    assert skipped[0].reason == "no_such_peer is not installed"


def test_a_contender_that_breaks_for_another_reason_is_not_skipped():
    broken = Contender("Ours", "no_such_peer.cases")

    with pytest.raises(ModuleNotFoundError):
        replace(group(), contenders=(broken,)).load()


# orders


@pytest.mark.parametrize("kind", [Order, OrderRecord])
def test_an_order_is_225_bytes_of_json_whatever_its_type(kind):
    assert {len(msgspec.json.encode(order)) for order in orders(kind, 600)} == {225}


def test_orders_are_as_many_as_asked_for():
    assert [len(orders(Order, count)) for count in (0, 1, 500, 501)] == [0, 1, 500, 501]


@pytest.mark.parametrize("handled", [1, 3])
def test_a_tally_refuses_lost_and_doubled_messages(handled: int):
    tally = Tally(2)
    for _ in range(handled):
        tally.add(Order(**order_fields(1)))

    with pytest.raises(WrongCount, match=f"handled {handled} messages of 2"):
        tally.verify(Order)


def test_a_tally_refuses_payloads_that_were_not_typed():
    tally = Tally(1)
    tally.add(order_fields(1))

    with pytest.raises(WrongCount, match="handlers got dict, not Order"):
        tally.verify(Order)


# reports


@pytest.fixture
def outcome() -> Outcome:
    claims = (
        TimesFaster(text="fast", subject="ours: a", peers=("peer: quick",), times=12),
        CostsAtMost(text="dear", subject="ours: a", plain="ours: never ran", percent=25),
    )
    results = by_key(series("a", 1000, 1100), series("quick", 100, 110, contender="peer"))
    return Outcome(group(*claims), results, [])


def test_plain_output_has_a_line_a_case_and_a_word_a_claim(outcome: Outcome):
    lines = plain(outcome, Plan(rounds=2))

    assert lines[2].split() == list(COLUMNS)
    assert lines[3].split() == ["ours", "a", "1,050", "1,000–1,100", "10.00×"]
    assert lines[-2].startswith("misses")
    assert "10.0×" in lines[-2]
    assert lines[-1].startswith("not measured")


@pytest.mark.parametrize("terminal", [False, True])
def test_boxes_and_colours_are_for_terminals(outcome: Outcome, terminal: bool):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200)

    show(outcome, Plan(rounds=2), console)

    assert isinstance(console.file, io.StringIO)
    assert ("\x1b[" in console.file.getvalue()) is terminal


# the cases themselves


def memory_cases():
    cases, skipped = MEMORY.load()
    found = [pytest.param(each, id=each.key) for each in cases]
    for peer in skipped:
        reason = f"{PEER_MISSING}{peer.contender} is not measured, {peer.reason}"
        found.append(pytest.param(None, id=peer.contender, marks=pytest.mark.skip(reason=reason)))
    return found


@pytest.mark.parametrize("each", memory_cases())
def test_every_case_in_memory_handles_all_it_publishes(each: Case):
    measurement = run_once(each, 50, deadline=20)

    assert measurement.messages == 50
    assert measurement.seconds > 0
