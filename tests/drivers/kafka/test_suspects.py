"""Who is suspected of killing workers, by what the one before has said."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from queuecraft.drivers.kafka.bits import packed, unpacked
from queuecraft.drivers.kafka.offsets import MARK, MAX_NOTE, Progress, noted
from queuecraft.drivers.kafka.suspects import MAX_TEXT, Suspects, is_in_hand

OFFSETS = st.sets(st.integers(0, 2000), max_size=200)
MOST = 6


class Deaths(RuleBasedStateMachine):
    """A partition that goes from one to the next, who finishes what he has, or dies with it. What
    is blamed has to cover what was really in the hands of the dead; and from the first death on,
    nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.end = 0
        self.deaths: dict[int, int] = {}  # by offset, with how many it really was
        self.progress = Progress(0)
        self.suspects = Suspects()
        self.held: set[int] = set()
        self.kept = ""
        self.mark = 0

    def say(self) -> None:
        exactly = any(self.suspects.counts.get(offset) for offset in self.held)
        self.suspects.hand = frozenset(self.held) if exactly else MOST
        self.commit()

    def commit(self) -> None:
        self.mark = self.progress.mark
        text = self.suspects.text(self.mark)
        self.kept = f"{self.progress.note() or MARK}{text}"

    @rule(records=st.integers(1, 3))
    def comes(self, records: int) -> None:
        for _ in range(records):
            if len(self.held) < MOST:
                assert self.progress.take(self.end)
                self.held.add(self.end)
                self.end += 1
        self.say()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def some_are_finished(self, data: st.DataObject) -> None:
        done = data.draw(st.sets(st.sampled_from(sorted(self.held)), min_size=1))
        self.progress.finish(sorted(done))
        self.suspects.clear(done)
        self.held -= done
        self.say()

    @rule(leaves=st.booleans())
    def another_goes_on(self, leaves: bool) -> None:
        before = dict(self.suspects.counts)
        exact = isinstance(self.suspects.hand, frozenset)
        if leaves:
            self.suspects.hand = 0
            self.commit()
        else:
            for offset in self.held:
                self.deaths[offset] = self.deaths.get(offset, 0) + 1
        finished = noted(self.mark, self.kept)
        self.suspects = Suspects.found(self.mark, finished, self.end, self.kept)
        counts = self.suspects.counts
        assert {offset for offset, times in counts.items() if times < 1} == set()
        if leaves:
            assert counts == before
        for offset in self.held:
            assert counts.get(offset, 0) >= self.deaths.get(offset, 0)
        if exact:
            raised = {o for o in counts if counts[o] > before.get(o, 0)}
            assert raised == (set() if leaves else self.held)
        self.progress = Progress(self.mark, finished)
        for offset in range(self.mark, self.end):
            self.progress.take(offset)
        again = Suspects.found(self.mark, finished, self.end, self.kept)
        assert again.counts == counts  # who dies before he has said anything blames nobody
        self.say()


TestDeaths = Deaths.TestCase


@given(OFFSETS)
def test_offsets_survive_being_written_down(offsets: set[int]) -> None:
    assert unpacked(0, packed(0, offsets)) == sorted(offsets)


@given(st.dictionaries(st.integers(0, 100_000), st.integers(1, 25)), OFFSETS)
@example(dict.fromkeys(range(0, 20_000, 7), 3), set(range(0, 2000, 3)))
def test_a_text_is_never_too_long_and_those_who_are_suspected_most_are_kept(
    counts: dict[int, int], hand: set[int]
) -> None:
    text = Suspects(dict(counts), frozenset(hand)).text(0)
    assert len(text) <= MAX_TEXT
    assert len(text) + MAX_NOTE < 4096
    found = Suspects.found(0, (), 0, text.partition(";h")[0] if not hand else "").counts
    if not hand:
        assert found.items() <= counts.items()
        lost = {counts[offset] for offset in counts.keys() - found.keys()}
        assert not lost or max(lost) < min(found.values(), default=99)


@pytest.mark.parametrize(
    "text",
    ["", "somebody else's", ";h:!!", ";hx", ";h-1", ";1e9:AAAA", ";0:AAAA", "qc1:;;;", ";h²"],
)
def test_what_somebody_else_has_written_accuses_nobody(text: str) -> None:
    assert Suspects.found(0, (), 10, text).counts == {}


def test_nobody_is_suspected_who_has_not_come_yet() -> None:
    assert Suspects.found(5, [6], 8, ";h100").counts == {5: 1, 7: 1}


def test_who_has_nothing_says_nothing() -> None:
    assert Suspects().text(0) == Suspects(hand=frozenset()).text(0) == ""
    assert not is_in_hand("qc1:abc")
