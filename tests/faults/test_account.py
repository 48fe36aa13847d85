"""An account that does not add up is found out: a check that cannot fail would prove nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queuecraft.drivers.base import QueueInfo
from tests.faults.account import Account
from tests.faults.page import Line, Page, What, read

EMPTY = [QueueInfo(name="jobs", ready=0, in_flight=0, delayed=0, dead=0)]


class Story:
    """What happened, line by line: each a moment after the one before."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def then(self, what: What, id: str = "", *, pid: int = 1, **more: Any) -> Story:
        self.lines.append(Line(len(self.lines) + 1, pid, what, id, **more))
        return self

    def published(self, id: str = "a", temper: str = "ok") -> Story:
        return self.then("publishing", id, temper=temper).then("published", id)

    def run(self, id: str = "a", attempt: int = 1, end: What = "handled", **more: Any) -> Story:
        self.then("started", id, attempt=attempt, **more)
        return self.then(end, id, attempt=attempt, pid=more.get("pid", 1))

    def failed(self, id: str = "a", attempt: int = 1, **more: Any) -> Story:
        return self.run(id, attempt, "failed", **more)

    def killed(self, victim: int, allowed: int) -> Story:
        return self.then("killing", victim=victim, allowed=allowed)

    def check(self, queues: list[QueueInfo] = EMPTY) -> None:
        Account(self.lines).check(queues)

    def wrong(self, match: str, queues: list[QueueInfo] = EMPTY) -> None:
        with pytest.raises(AssertionError, match=match):
            self.check(queues)


def test_what_was_published_and_handled_once_adds_up() -> None:
    Story().published("a").published("b").run("b").run("a").check()


def test_a_message_that_was_published_and_never_handled_is_lost() -> None:
    Story().published("a").published("b").run("a").wrong("published, never handled: b")


def test_a_message_that_only_failed_is_lost() -> None:
    Story().published().failed().wrong("published, never handled: a")


def test_a_message_whose_publish_never_returned_may_be_handled_or_not() -> None:
    Story().then("publishing", "a").then("publishing", "b").run("b").check()


def test_a_message_nobody_has_published_comes_out_of_nowhere() -> None:
    Story().run("a").wrong("handled, never published: a")


def test_a_message_that_was_rejected_must_not_be_handled() -> None:
    story = Story().then("publishing", "a").then("refused", "a", reason="rejected")
    story.check()
    story.run("a").wrong("said to be rejected, handled all the same: a")


def test_a_message_whose_fate_is_unknown_may_be_handled() -> None:
    Story().then("publishing", "a").then("refused", "a", reason="unknown").run("a").check()


def test_a_second_run_is_a_duplicate() -> None:
    Story().published().run().run().wrong("1 duplicates, at most 0 allowed: a attempt 1")


def test_a_second_run_of_a_failed_attempt_is_a_duplicate() -> None:
    story = Story().published().failed(attempt=1).failed(attempt=1).run(attempt=2)
    story.wrong("1 duplicates, at most 0 allowed: a attempt 1")


def test_a_death_pays_for_as_many_duplicates_as_were_held_and_no_more() -> None:
    story = Story().published("a").published("b").then("started", "a", attempt=1, pid=7)
    story.run("b", pid=7).killed(7, allowed=2).run("a").run("b")
    story.check()
    story.run("b").wrong("3 duplicates, at most 2 allowed")


def test_attempts_rise_by_one_with_each_failure() -> None:
    Story().published().failed(attempt=1).failed(attempt=2).run(attempt=3).check()
    Story().published().run(attempt=2).wrong("a: attempt 2 and never failed before")
    story = Story().published().failed(attempt=1).run(attempt=3)
    story.wrong(r"a: attempt 3 after failures \[1\]")
    Story().published().run(attempt=0).wrong("a: attempt 0")


def test_a_death_is_no_failure() -> None:
    story = Story().published().then("started", "a", attempt=1, pid=7).killed(7, allowed=1)
    story.run(attempt=2).wrong("a: attempt 2 and never failed before")


def test_a_message_comes_again_only_because_a_process_is_gone() -> None:
    Story().published().run(redeliveries=1).wrong("a: 1 redeliveries after 0 losses")
    Story().published().killed(7, allowed=0).run(redeliveries=1).check()
    Story().published().then("died", victim=7).run(redeliveries=1).check()
    Story().published().then("cut", pid=7).run(redeliveries=1).check()


def test_a_dead_letter_is_explained_by_all_its_failures() -> None:
    story = Story().published(temper="fails").failed(attempt=1).failed(attempt=2)
    Story.then(story, "dead", "a", reason="handler-error", attempt=3).wrong("with 3 failures of 3")
    story = Story().published(temper="fails").failed(attempt=1).failed(attempt=2).failed(attempt=3)
    story.then("dead", "a", reason="handler-error", attempt=3).check()


def test_a_dead_letter_that_counts_fewer_failures_than_there_were_is_wrong() -> None:
    story = Story().published(temper="fails").failed(attempt=1).failed(attempt=2).failed(attempt=3)
    story.then("dead", "a", reason="handler-error", attempt=2).wrong("with 2 failures of 3")


@pytest.mark.parametrize("temper", ["ok", "fails once", "fails"])
def test_a_dead_letter_for_no_reason_of_its_own_is_unexplained(temper: str) -> None:
    story = Story().published(temper=temper).then("dead", "a", reason="crash-loop")
    story.wrong("unexplained dead letter a: crash-loop")


def test_a_dead_letter_is_lost_if_it_is_sent_back_and_never_handled() -> None:
    story = Story().published(temper="fails").failed(attempt=1).failed(attempt=2).failed(attempt=3)
    story.then("dead", "a", reason="handler-error", attempt=3).then("redriving")
    story.wrong("published, never handled: a")
    story.run(attempt=1).check()


def test_a_dead_letter_that_is_sent_back_begins_anew_but_not_in_the_middle() -> None:
    story = Story().published(temper="fails").failed(attempt=1).failed(attempt=2).failed(attempt=3)
    story.then("dead", "a", reason="handler-error", attempt=3).then("redriving")
    story.run(attempt=2).wrong("1 duplicates")


def test_a_job_that_two_processes_have_at_a_time_is_owned_twice() -> None:
    story = Story().published().killed(9, allowed=1)
    story.then("started", "a", attempt=1, pid=7).then("started", "a", attempt=1, pid=8)
    story.then("handled", "a", attempt=1, pid=7).then("handled", "a", attempt=1, pid=8)
    story.wrong("a: taken by process 8 while process 7 was at it")


def test_a_job_is_owned_until_its_process_is_killed_frozen_or_cut_off() -> None:
    def begun() -> Story:
        return Story().published().then("started", "a", attempt=1, pid=7)

    begun().run(pid=8, redeliveries=1).killed(7, allowed=1).wrong("while process 7 was at it")
    begun().killed(7, allowed=1).run(pid=8, redeliveries=1).check()
    thawed = begun().then("freezing", victim=7, allowed=1).run(pid=8, redeliveries=1)
    thawed.then("handled", "a", attempt=1, pid=7).check()
    cut_off = begun().then("cut", pid=7, allowed=1).run(pid=8, redeliveries=1)
    cut_off.then("handled", "a", attempt=1, pid=7).check()


@pytest.mark.parametrize("place", ["ready", "in_flight", "delayed", "dead"])
def test_what_is_left_on_the_broker_is_named(place: str) -> None:
    counts: dict[str, Any] = {place: 2}
    left = replace(EMPTY[0], **counts)
    words = place.replace("_", " ")
    Story().published().run().wrong(f"left in jobs: 2 {words}", [left])


def test_what_a_broker_cannot_tell_is_not_held_against_it() -> None:
    Story().published().run().check([QueueInfo(name="jobs")])


def test_all_that_is_wrong_is_told_at_once() -> None:
    story = Story().published("a").published("b").run("b").run("b")
    story.wrong("(?s)never handled: a.*1 duplicates")


def _write_until_killed(folder: str) -> None:
    page = Page(Path(folder))
    while True:
        page.write("started", "x" * 100, attempt=1)


def test_a_kill_leaves_whole_lines_of_all_that_was_written(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_until_killed, args=(str(tmp_path),)) for _ in range(2)]
    for each in writers:
        each.start()
    for each in writers:
        while not read_lines_of(tmp_path, each.pid):
            each.join(0.01)
        each.kill()
        each.join()
        assert each.exitcode == -signal.SIGKILL
    lines = read(tmp_path)
    assert {line.pid for line in lines} == {each.pid for each in writers}
    assert lines == sorted(lines, key=lambda line: line.at)


def read_lines_of(folder: Path, pid: int | None) -> int:
    page = folder / f"{pid}.page"
    return page.stat().st_size if page.exists() else 0


def test_half_a_line_is_not_taken_for_one(tmp_path: Path) -> None:
    page = Page(tmp_path)
    page.write("ready")
    page.close()
    with (tmp_path / f"{os.getpid()}.page").open("ab") as file:
        file.write(b'{"at":1,"pid":2,"what":"ready"}\n')
    with pytest.raises(AssertionError, match="ends in the middle of a line"):
        read(tmp_path)


def test_where_moves_are_not_atomic_a_copy_may_run_once_for_each_of_its_attempts() -> None:
    story = Story().published("a").failed("a", 1).killed(1, allowed=1)
    story.failed("a", 1, pid=2).failed("a", 2, pid=2).failed("a", 2, pid=2)
    story.run("a", 3, pid=2).run("a", 3, pid=2)
    story.wrong("3 duplicates, at most 1 allowed")
    Account(story.lines, atomic_moves=False).check(EMPTY)


def test_where_moves_are_not_atomic_more_copies_than_allowed_are_too_many() -> None:
    story = Story().published("a").run("a").killed(1, allowed=1).run("a", pid=2).run("a", pid=3)
    with pytest.raises(AssertionError, match="2 duplicates, at most 1 allowed"):
        Account(story.lines, atomic_moves=False).check(EMPTY)


def test_what_failed_in_an_ordered_worker_that_stops_begins_anew_elsewhere() -> None:
    story = Story().published(temper="fails once").failed(pid=1).then("stopping", victim=1)
    story.failed(pid=2).run(attempt=2, pid=2).check()
    assert Account(story.lines, atomic_moves=False).copies == 0


def test_what_failed_in_a_worker_that_goes_on_does_not() -> None:
    story = Story().published(temper="fails once").failed(pid=1).then("stopping", victim=3)
    story.failed(pid=2).run(attempt=2, pid=2).wrong("1 duplicates, at most 0 allowed: a attempt 1")


def test_what_was_handled_in_a_worker_that_stops_is_not_to_be_handled_again() -> None:
    story = Story().published().run(pid=1).then("stopping", victim=1).run(pid=2)
    story.wrong("1 duplicates, at most 0 allowed: a attempt 1")
