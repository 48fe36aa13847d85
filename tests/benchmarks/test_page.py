"""The page of the benchmarks: what a row says, who is ahead, and that it can be made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import page
from benchmarks.__main__ import GROUPS, RESULTS, not_installed, ordered
from benchmarks.absent import ABSENT, PEERS
from benchmarks.command import shown
from benchmarks.harness import CostsAtMost, Spread, TimesFaster
from benchmarks.pairs.entries import BY_KEY, ENTRIES, OURS
from benchmarks.report import PLACES
from benchmarks.results import Claim, Row, Run, Section
from benchmarks.scaling import page as scaling
from benchmarks.scaling.__main__ import RESULTS as SCALED
from benchmarks.scaling.findings import Findings
from benchmarks.words import WORDS
from tests.brokers.fixtures import PEER_MISSING

DOCS = Path("docs")


def row(contender: str, *figures: float, against: str = "", **more) -> Row:
    case = "plain" if not against else "peer's"
    return Row(
        contender=contender,
        case=case,
        setting="as usual",
        figures=list(figures),
        against=against,
        **more,
    )


def section(
    *rows: Row, broker: str = "file", name: str = "publish", throughput: bool = True, **more
) -> Section:
    return Section(
        rows=list(rows), broker=broker, name=name, unit="msg/s", throughput=throughput, **more
    )


def run(*sections: Section) -> Run:
    return Run(
        at="2025-11-03T00:00:00+00:00",
        command="python -m benchmarks",
        quick=False,
        seconds=120.0,
        environment={
            "cpus": 2,
            "machine": "x86_64",
            "platform": "Linux",
            "implementation": "CPython",
            "python": "3.11",
            "loop": "asyncio",
            "commit": "1ccf94a",
            "packages": {"queuecraft": "0.1.0", "celery": None},
            "brokers": {"Redis": "7.0"},
        },
        sections=list(sections),
        claims=[Claim(group="file", sentence="it is fast", holds=False)],
    )


def test_a_ratio_is_to_the_row_of_ours_that_does_the_same_round_by_round():
    peer = row("Peer", 50, 30, 10, against="plain")
    found = section(row(OURS, 100, 60, 40), peer)

    assert found.ratio(peer) == Spread(median=0.5, low=0.25, high=0.5)
    assert found.ratio(found.rows[0]) is None


def test_memory_that_shrank_gives_no_ratio():
    peer = row("Peer", -5, against="plain")
    found = section(row(OURS, 10), peer, better="less")

    assert found.ratio(peer) is None
    assert not found.ahead(peer)


@pytest.mark.parametrize(("peer", "ours"), [
    ([0.2], [0.1]), ([8.7], [0.04]), ([0.2], [3.0]), ([3.0, 0.9], [3.0, 3.0]), ([-5.0], [3.0]),
])  # fmt: skip
def test_figures_that_are_noise_give_no_ratio(peer: list[float], ours: list[float]):
    small = row("Peer", *peer, against="plain")
    found = section(row(OURS, *ours), small, better="less", least=1.0)

    assert found.ratio(small) is None
    assert "| – | as usual |" in page.table(found)[-1]


def test_figures_that_are_no_noise_give_a_ratio():
    peer = row("Peer", 1.0, 6.0, against="plain")
    found = section(row(OURS, 2.0, 2.0), peer, better="less", least=1.0)

    assert found.ratio(peer) == Spread(median=1.75, low=0.5, high=3.0)


@pytest.mark.parametrize(("peer", "ours", "ahead"), [
    (0.2, 3.0, True), (0.2, 0.9, False), (8.7, 0.04, False), (-5.0, 3.0, True),
])  # fmt: skip
def test_who_stays_in_the_noise_is_ahead_of_who_does_not(peer: float, ours: float, ahead: bool):
    small = row("Peer", peer, against="plain")

    found = section(row(OURS, ours), small, better="less", least=1.0)

    assert found.ahead(small) is ahead
    assert ("**ahead**" in page.remark(found, small)) is ahead


@pytest.mark.parametrize(("better", "figure", "ahead"), [
    ("more", 120, True), ("more", 80, False), ("less", 80, True), ("less", 120, False),
])  # fmt: skip
def test_a_peer_is_ahead_where_it_does_better(better, figure: int, ahead: bool):
    peer = row("Peer", figure, against="plain")

    assert section(row(OURS, 100), peer, better=better).ahead(peer) is ahead


def test_a_row_says_that_it_is_ahead_how_it_differs_and_what_it_promises_less():
    peer = row("Peer", 120, against="plain", weaker="loses what it took", differs="it is in C")
    found = section(row(OURS, 100), peer)

    said = page.remark(found, peer)

    assert said == "weaker: loses what it took; **ahead**; what differs: it is in C"


def test_the_page_names_the_commit_that_was_measured():
    assert "- Commit: 1ccf94a\n" in page.document(run())


def test_a_peer_that_is_ahead_for_no_known_reason_is_not_passed_over():
    peer = row("Peer", 120, against="plain")
    found = run(section(row(OURS, 100), peer))

    assert "no reason is known yet" in page.document(found)
    assert page.beaten(found) == [(found.sections[0], peer)]


def test_only_throughput_at_the_same_guarantee_is_in_the_summary():
    weaker = row("Weak", 120, against="plain", weaker="forgets")
    sooner = row("Sooner", 50, against="plain")
    found = run(
        section(row(OURS, 100), weaker),
        section(row(OURS, 100), sooner, name="latency", better="less", throughput=False),
    )

    assert page.beaten(found) == []
    assert "no peer with the same or a stronger guarantee" in page.document(found)


def test_the_page_has_a_table_and_a_plot_for_each_section_and_every_claim(tmp_path):
    found = run(
        section(row(OURS, 100, more={"p99, ms": [3.0]}), missing={"Celery": "is not installed"}),
        section(row(OURS, 5), name="start-up"),
    )

    written = page.write(found, tmp_path)
    text = written[0].read_text(encoding="utf-8")

    assert [path.name for path in written] == [
        "benchmarks.md",
        "bench-file-publish.svg",
        "bench-file-start-up.svg",
    ]
    assert "| **QueueCraft** | plain | 100 | 100–100 | 3 | – | as usual |" in text
    assert "(images/bench-file-start-up.svg)" in text
    assert "- Not here: Celery: is not installed" in text
    assert "it is fast | **misses** |" in text
    assert "{" not in text


def test_the_page_and_its_plots_are_what_the_run_has_found(tmp_path):
    pages = page.write(Run.read(RESULTS), tmp_path)

    for path in pages:
        committed = DOCS / path.relative_to(tmp_path)
        assert path.read_text(encoding="utf-8") == committed.read_text(encoding="utf-8"), (
            f"{committed} is not what {RESULTS} says: run python -m benchmarks --again {RESULTS}"
        )


def test_no_plot_is_left_from_another_run(tmp_path):
    drawn = {path.name for path in page.write(Run.read(RESULTS), tmp_path)[1:]}
    drawn |= {path.name for path in scaling.write(Findings.read(SCALED), tmp_path)[1:]}

    assert {path.name for path in DOCS.glob("images/bench-*.svg")} == drawn


def test_a_run_without_the_peers_does_not_replace_the_page():
    here = section(row(OURS, 1), missing={"Celery": "celery is not installed", "X": "it failed"})

    assert not_installed([here]) == ["Celery"]


def test_a_run_can_be_read_again(tmp_path):
    found = run(section(row(OURS, 1.5), row("Peer", 2.5, against="plain")))

    found.save(tmp_path / "run.json")

    assert Run.read(tmp_path / "run.json") == found


def test_tables_that_were_measured_again_take_their_places_and_say_so():
    first = run(section(row(OURS, 100)), section(row(OURS, 7), name="consume"))
    again = run(section(row(OURS, 200), note="Twice."))
    renewed = first.renewed(again)
    assert [each.rows[0].figures for each in renewed.sections] == [[200], [7]]
    assert renewed.sections[0].note.startswith("Twice. Measured after the others, in a run of its")
    assert renewed.sections[1].note == ""
    assert len(renewed.claims) == 1
    with pytest.raises(ValueError, match="nothing to renew of file: latency"):
        first.renewed(run(section(name="latency")))


def test_a_table_that_was_measured_again_names_its_commit_and_other_versions():
    first = run(section(row(OURS, 100)), section(row(OURS, 7), name="consume"))
    again = run(section(row(OURS, 200)))
    again.environment |= {"commit": "237ab86", "brokers": {"Redis": "7.0", "Kafka": "4.3.1"}}

    text = page.document(first.renewed(again))

    assert f"({again.at}, commit 237ab86, Kafka 4.3.1): `python -m benchmarks`." in text
    assert "- Commit: 1ccf94a\n" in text


def test_the_command_on_the_page_leaves_out_where_its_results_went():
    told = shown(["--quick", "--json", "/tmp/a.json", "--docs=/tmp/docs", "--rounds", "2"])

    assert told == ["--quick", "--rounds", "2"]


def test_sections_are_in_the_order_of_the_page():
    mixed = [
        section(broker="kafka", name="publish"),
        section(broker="memory", name="start-up"),
        section(broker="memory", name="end to end"),
        section(broker="options", name="cost of options: the journal"),
    ]

    told = [(each.broker, each.name) for each in ordered(mixed)]

    assert told == [
        ("memory", "end to end"),
        ("memory", "start-up"),
        ("kafka", "publish"),
        ("options", "cost of options: the journal"),
    ]


def test_every_pair_is_compared_with_one_of_ours_on_the_same_broker():
    mine = {(entry.broker, entry.case) for entry in ENTRIES if entry.contender == OURS}

    assert {(entry.broker, entry.against) for entry in ENTRIES if entry.against} <= mine
    assert all(entry.against for entry in ENTRIES if entry.contender != OURS)
    assert len(BY_KEY) == len(ENTRIES)


def compared() -> list[str]:
    return [name for name in GROUPS if PLACES[name][0] != "options"]


@pytest.mark.parametrize("name", compared())
def test_every_case_has_words_and_a_case_of_ours_beside_it(name: str):
    cases, _ = GROUPS[name].load()
    ours = {case.name for case in cases if case.contender == OURS}

    for case in cases:
        words = WORDS[name, case.contender]
        assert words.setting
        assert case.contender == OURS or words.against.get(case.name, case.name) in ours


@pytest.mark.parametrize("name", compared())
def test_words_are_about_cases_that_exist(name: str):
    cases, skipped = GROUPS[name].load()
    here = {(case.contender, case.name) for case in cases}
    absent = {each.contender for each in skipped}

    for (group, contender), words in WORDS.items():
        if group == name and contender not in absent:
            assert {(contender, case) for case in (*words.against, *words.weaker_in)} <= here


@pytest.mark.parametrize("name", GROUPS)
def test_every_claim_and_reference_names_cases_that_exist(name: str):
    cases, skipped = GROUPS[name].load()
    keys = {case.key for case in cases}
    assert len(keys) == len(cases)

    named = set(GROUPS[name].reference)
    for claim in GROUPS[name].claims:
        assert isinstance(claim, TimesFaster | CostsAtMost)
        named |= {claim.subject, *against(claim)}

    assert named - keys == {
        key for key in named if key.startswith(tuple(f"{each.contender}: " for each in skipped))
    }
    if skipped:
        pytest.skip(f"{PEER_MISSING}claims name some that are not installed")


def against(claim: TimesFaster | CostsAtMost) -> set[str]:
    return set(claim.peers) if isinstance(claim, TimesFaster) else {claim.plain}


@pytest.mark.parametrize("name", compared())
def test_a_claim_is_against_every_way_in_which_a_peer_does_the_same(name: str):
    cases, _ = GROUPS[name].load()
    ways = {case.key for case in cases}
    ways |= {  # of those that are not installed
        f"{contender}: {case}"
        for (group, contender), words in WORDS.items()
        if group == name
        for case in words.against
    }
    for claim in GROUPS[name].claims:
        assert isinstance(claim, TimesFaster | CostsAtMost)
        for key in against(claim):
            same = f"{key.partition(', wait=')[0]}, wait="
            assert {way for way in ways if way.startswith(same)} <= against(claim)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("broker", dict.fromkeys(entry.broker for entry in ENTRIES))
def test_whoever_is_not_measured_on_a_broker_is_named_with_the_reason(broker: str, peer: str):
    measured = any((entry.broker, entry.contender) == (broker, peer) for entry in ENTRIES)
    assert measured == (peer not in ABSENT.get(broker, {}))


def test_the_page_says_who_is_not_here():
    text = page.document(run(section(row(OURS, 1.0), broker="file")))
    assert "- Not here: Taskiq: no broker of its own is a file." in text
    assert "Kafka" not in text.partition("## In a file")[2]
