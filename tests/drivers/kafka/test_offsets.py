"""What of a partition is committed, and what is remembered above it."""

from __future__ import annotations

import random
from base64 import b64encode
from zlib import compress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queuecraft.drivers.kafka.offsets import MAX_NOTE, Progress, noted

OFFSETS = st.sets(st.integers(0, 5000), max_size=300)


class Partition(RuleBasedStateMachine):
    """Records come in order, with holes, and are finished in any; now and then the process dies,
    and another goes on with what was committed last."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress(7)
        self.end = 7  # the next record that will come
        self.there: set[int] = set()  # records that exist
        self.again: list[int] = []  # those that come once more, since one has died
        self.held: set[int] = set()
        self.finished: set[int] = set()

    @precondition(lambda self: not self.again)
    @rule(hole=st.integers(0, 3))
    def comes(self, hole: int) -> None:
        offset = self.end + hole
        self.end = offset + 1
        self.there.add(offset)
        assert self.progress.take(offset)
        self.held.add(offset)

    @precondition(lambda self: not self.again)
    @rule(hole=st.integers(0, 3))
    def is_read_to_its_end(self, hole: int) -> None:
        self.end += hole
        self.progress.read_to(self.end)
        assert not self.progress.read_to(self.end)
        assert self.progress.mark == min(self.held, default=self.end)

    @precondition(lambda self: self.again)
    @rule(data=st.data())
    def some_come_again(self, data: st.DataObject) -> None:
        for _ in range(data.draw(st.integers(1, len(self.again)))):
            offset = self.again.pop(0)
            assert self.progress.take(offset) == (offset not in self.finished)
            self.held |= {offset} - self.finished

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def some_are_finished(self, data: st.DataObject) -> None:
        ready = data.draw(st.sets(st.sampled_from(sorted(self.held)), min_size=1))
        self.finish(data.draw(st.permutations(sorted(ready))))

    @precondition(lambda self: self.held)
    @rule()
    def all_are_finished_in_order(self) -> None:
        self.finish(sorted(self.held))

    def finish(self, offsets: list[int]) -> None:
        before = self.progress.mark
        moved = self.progress.finish(offsets)
        assert moved == (self.progress.mark != before)
        self.held -= set(offsets)
        self.finished |= set(offsets)
        if not self.again:
            assert self.progress.mark == min(self.held, default=self.end)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def comes_a_second_time(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.there)))
        if offset not in self.again:
            assert not self.progress.take(offset)

    @rule()
    def dies_and_another_goes_on(self) -> None:
        mark = self.progress.mark
        self.progress = Progress(mark, noted(mark, self.progress.note()))
        self.again = [each for each in sorted(self.there) if each >= mark]
        self.held = set()

    @invariant()
    def nothing_unfinished_is_committed(self) -> None:
        assert all(each >= self.progress.mark for each in self.there - self.finished)

    @invariant()
    def what_is_held_is_counted(self) -> None:
        assert self.progress.held == len(self.held)


TestPartition = Partition.TestCase


@given(st.lists(st.integers(0, 5), min_size=1))
@example([0, 5, 2])
@example([0, 0, 2])
def test_just_what_is_finished_is_passed_in_whatever_order_it_is_named(finished: list[int]) -> None:
    progress = Progress(0)
    assert all(progress.take(offset) for offset in range(6))
    progress.finish(finished)
    left = set(range(6)) - set(finished)
    assert (progress.mark, progress.held) == (min(left, default=6), len(left))
    assert noted(progress.mark, progress.note()) == sorted(
        each for each in set(finished) if each > progress.mark
    )


@given(st.integers(0, 1 << 60), OFFSETS)
def test_a_note_tells_what_is_finished_above_the_mark(mark: int, above: set[int]) -> None:
    finished = sorted(mark + 1 + each for each in above)
    note = Progress(mark, finished).note()
    assert len(note) <= MAX_NOTE
    assert noted(mark, note) == finished


@given(st.integers(0, 1 << 32), st.integers(20_000, 60_000))
@settings(max_examples=10)
def test_of_too_much_for_a_note_the_lowest_are_kept(seed: int, size: int) -> None:
    finished = sorted(random.Random(seed).sample(range(1, 2 * size), size))
    note = Progress(0, finished).note()
    kept = noted(0, note)
    assert len(note) <= MAX_NOTE
    assert kept == finished[: len(kept)]
    assert kept


def test_what_is_too_far_above_the_mark_is_not_noted() -> None:
    assert noted(0, Progress(0, [3, 1 << 40]).note()) == [3]


@given(st.text())
def test_the_note_of_somebody_else_says_nothing(note: str) -> None:
    assert noted(10, note) == []


@given(st.integers(0, 1 << 60), st.binary(max_size=200))
def test_a_note_that_was_tampered_with_is_read_without_harm(mark: int, junk: bytes) -> None:
    for packed in (junk, compress(junk)[:-3], compress(junk) + junk):
        for offset in noted(mark, "qc1:" + b64encode(packed).decode()):
            assert offset >= mark


@pytest.mark.parametrize("note", ["qc1:", "qc1:é", "qc1:====", "qc1:AAAA", "qc2:", None])
def test_a_note_that_cannot_be_read_says_nothing(note: str | None) -> None:
    assert noted(10, note) == []


def test_a_note_that_swells_is_read_only_so_far() -> None:
    note = "qc1:" + b64encode(compress(b"\xff" * (1 << 26))).decode()
    assert len(noted(0, note)) <= 1 << 20


def test_a_partition_of_unknown_beginning_begins_with_its_first_record() -> None:
    progress = Progress(-1)
    assert progress.take(40)
    assert progress.mark == 40
    progress.finish([40])
    assert progress.mark == 41


def test_an_empty_partition_of_unknown_beginning_begins_where_it_ends() -> None:
    progress = Progress(-1)
    assert not progress.read_to(0)
    assert progress.mark == -1
    assert progress.read_to(3)
    assert progress.mark == 3
    assert progress.take(3)
    assert (progress.mark, progress.held) == (3, 1)


def test_an_end_passes_nothing_that_is_held_and_tells_it_to_who_comes_next() -> None:
    progress = Progress(10)
    assert all(progress.take(offset) for offset in (10, 11))
    progress.finish([11])
    assert progress.read_to(14)
    assert (progress.mark, progress.held) == (10, 1)
    assert noted(10, progress.note()) == [11, 12, 13]
    progress.finish([10])
    assert progress.mark == 14


@pytest.mark.parametrize("end", [3, 10, 12])
def test_an_end_that_is_not_beyond_what_was_read_says_nothing(end: int) -> None:
    progress = Progress(10)
    assert all(progress.take(offset) for offset in (10, 11))
    assert not progress.read_to(end)
    assert (progress.mark, progress.held) == (10, 2)
