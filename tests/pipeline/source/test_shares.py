from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.pipeline.source.shares import Spots, limited, offset_of, shares, spots_of

sizes = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 12)), st.integers(0, 40), min_size=1
)


@given(sizes, st.integers(1, 60))
def test_a_limit_is_used_up_and_never_exceeded(sizes: Spots, rows: int) -> None:
    begins = {spot: 7 * place for place, spot in enumerate(sizes)}
    ends = {spot: begins[spot] + size for spot, size in sizes.items()}
    found = limited(begins, ends, rows)
    given = {spot: found[spot] - begins[spot] for spot in ends}
    assert sum(given.values()) == min(rows, sum(sizes.values()))
    assert all(0 <= given[spot] <= sizes[spot] for spot in sizes)
    waiting = [spot for spot in sizes if sizes[spot]]
    if rows >= len(waiting):
        assert all(given[spot] for spot in waiting), "none is left waiting"


@given(sizes, st.integers(1, 30))
def test_each_record_is_in_one_share(sizes: Spots, size: int) -> None:
    begins = {spot: 7 * place for place, spot in enumerate(sizes)}
    ends = {spot: begins[spot] + size for spot, size in sizes.items()}
    found: list[tuple[str, int, int]] = []
    for start, end in shares(offset_of(begins), offset_of(ends), size):
        starts = spots_of(start)
        part = [
            (*spot, at) for spot, last in spots_of(end).items() for at in range(starts[spot], last)
        ]
        assert 0 < len(part) <= size
        found += part
    expected = [(*spot, at) for spot in ends for at in range(begins[spot], ends[spot])]
    assert sorted(found) == sorted(expected)


def test_a_new_partition_is_read_whole_from_wherever_it_begins() -> None:
    assert shares({"a": {"0": 5}}, {"a": {"0": 5, "1": 300}}, 100) == [({}, {"a": {"1": 300}})]


def test_a_partition_that_is_left_out_or_behind_is_not_read() -> None:
    assert shares({"a": {"0": 5, "1": 9}}, {"a": {"0": 3}}, 100) == []


@pytest.mark.parametrize("rows", [1, 2])
def test_fewer_rows_than_partitions_go_where_most_waits(rows: int) -> None:
    ends = {("a", 0): 3, ("a", 1): 9, ("a", 2): 5}
    found = limited(dict.fromkeys(ends, 0), ends, rows)
    assert sum(found.values()) == rows
