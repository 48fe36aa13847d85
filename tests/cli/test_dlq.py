"""`queuecraft dlq`: dead letters seen, understood, sent back and forgotten."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from queuecraft.drivers.base import Outgoing
from queuecraft.drivers.local.sqlite.driver import SqliteDriver
from queuecraft.runtime.dead_letters import DeadLetters, Redrive
from tests.cli.shell import Shell, Terminal
from tests.cli.test_queues import HOSTILE
from tests.runtime.support import capping, changed, dead_letter, renaming, sparing


def letters(shell: Shell, count: int = 3, **about: Any) -> None:
    shell.declare("billing", "order.*")
    shell.put(*(dead_letter(f"m-{number}", **about) for number in range(count)))


def test_a_list_tells_what_failed_and_why(shell: Shell) -> None:
    letters(shell)
    header, *rows = shell.ok("dlq", "list", "billing").splitlines()
    assert header.split("\t") == [
        *("id", "event", "reason", "error", "failures", "failed at", "group"),
    ]
    assert [row.split("\t")[0] for row in rows] == ["m-0", "m-1", "m-2"]
    assert rows[0].split("\t")[1:6] == [
        *("order.placed", "handler-error", "ValueError: no money", "4", "2025-06-15T15:06:40Z"),
    ]
    assert shell.ids("billing.dlq") == ["m-0", "m-1", "m-2"]


def test_the_queue_may_be_named_either_way(shell: Shell) -> None:
    letters(shell, 1)
    for name in ("billing", "billing.dlq"):
        assert [each["id"] for each in shell.json("dlq", "list", name)] == ["m-0"]


def test_a_list_as_json_has_stable_keys(shell: Shell) -> None:
    letters(shell, 1)
    (letter,) = shell.json("dlq", "list", "billing")
    assert list(letter) == [
        *("id", "queue", "event", "reason", "error_type", "error", "traceback", "failures"),
        *("failed_at", "attempts", "group", "key", "content_type", "headers"),
        *("payload", "body", "body_base64"),
    ]
    assert letter["payload"] == {"id": "o-1", "total": 9.5}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--error", "timeout"), ["slow", "old"]),
        (("--event", "user.*"), ["user"]),
        (("--reason", "expired"), ["late"]),
        (("--id", "slow", "--id", "late"), ["slow", "late"]),
        (("--older-than", "1d"), ["old"]),
        (("--newer-than", "1h"), ["slow", "user", "late"]),
        (("--error", "timeout", "--newer-than", "1h"), ["slow"]),
        (("--limit", "2"), ["slow", "user"]),
    ],
)
def test_some_of_them_may_be_chosen(
    shell: Shell, options: tuple[str, ...], found: list[str]
) -> None:
    shell.declare("billing", "order.*")
    now = time.time()
    shell.put(
        dead_letter("slow", error_type="TimeoutError", failed_at=now),
        dead_letter("user", event="user.created", failed_at=now),
        dead_letter("late", failed_at=now, headers={"x-reason": "expired"}),
        dead_letter("old", error_type="TimeoutError", failed_at=now - 200_000),
    )
    assert [each["id"] for each in shell.json("dlq", "list", "billing", *options)] == found
    shell.ok("dlq", "redrive", "billing", *options)
    assert shell.ids("billing") == found


def test_the_group_of_like_failures_may_be_chosen(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.put(dead_letter("a", error_type="KeyError"), dead_letter("b", error_type="OSError"))
    group = shell.json("dlq", "list", "billing")[1]["group"]
    chosen = shell.json("dlq", "list", "billing", "--group", group)
    assert [each["id"] for each in chosen] == ["b"]


def test_one_is_shown_with_its_whole_story(shell: Shell) -> None:
    letters(shell, headers={"tenant": "acme"})
    printed = shell.ok("dlq", "show", "billing", "m-1")
    for told in (
        *("m-1", "order.placed", "billing", "handler-error", "ValueError: no money"),
        *("Traceback:", "tenant: acme", '{"id": "o-1", "total": 9.5}'),
    ):
        assert told in printed
    (letter,) = shell.json("dlq", "show", "billing", "m-1")
    assert letter["id"] == "m-1"


def test_the_failures_of_a_dead_letter_are_told_each(shell: Shell) -> None:
    shell.declare("billing")
    failed = '[[1500, 1, "Late: 9 s\x1b[0m"], [2500, 2, "Late: 8 s"]]'
    shell.put(dead_letter("m-1", headers={"x-attempts": failed.replace("\x1b", "\\u001b")}))
    printed = shell.ok("dlq", "show", "billing", "m-1")
    assert "attempts\n  1    1970-01-01T00:00:01.500+00:00  Late: 9 s\\x1b[0m\n  2  " in printed
    (letter,) = shell.json("dlq", "show", "billing", "m-1")
    assert letter["attempts"][1] == {
        "at": "1970-01-01T00:00:02Z",
        "attempt": 2,
        "error": "Late: 8 s",
    }


def test_one_far_down_is_found_and_a_list_that_did_not_look_so_far_says_so(shell: Shell) -> None:
    letters(shell, 10_001)
    shell.put(dead_letter("last", error="at the very end"))
    assert shell.json("dlq", "show", "billing", "last")[0]["id"] == "last"
    for option in ((), ("--json",)):
        result = shell("dlq", "list", "billing", "--error", "very end", *option)
        assert result.exit_code == 0
        assert "the first 10,000 of 10,002" in result.stderr
    found = shell.json("dlq", "list", "billing", "--error", "very end", "--limit", "20000")
    assert [each["id"] for each in found] == ["last"]


def test_the_payload_of_a_compressed_dead_letter_is_shown(shell: Shell) -> None:
    shell.declare("billing")
    letter = dead_letter("m-1", body=gzip.compress(b'{"id": "o-1"}'))
    shell.put(changed(letter, content_encoding="gzip"))
    (shown,) = shell.json("dlq", "show", "billing", "m-1")
    assert shown["payload"] == {"id": "o-1"}


def test_one_that_is_not_there_is_exit_code_4(shell: Shell) -> None:
    letters(shell, 1)
    result = shell("dlq", "show", "billing", "m-9\x1b[0m")
    assert (result.exit_code, result.stdout) == (4, "")
    assert r"there is no dead letter 'm-9\x1b[0m'" in result.stderr
    result = shell("dlq", "show", "billing", "m-9", "--json")
    told = json.loads(result.stderr)
    assert (told["kind"], told["message_id"]) == ("UnknownMessage", "m-9")
    for command in ("list", "redrive"):
        assert shell("dlq", command, "billing", "--id", "m-9").exit_code == 4
    assert shell.ids("billing.dlq") == ["m-0"]


def test_the_start_of_an_id_is_enough_where_only_one_begins_so(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.put(*map(dead_letter, ("4f0c1e", "4f0d22", "91aa00", "91aa", "a", "ab")))
    assert shell.json("dlq", "show", "billing", "4f0c")[0]["id"] == "4f0c1e"
    result = shell("dlq", "show", "billing", "4f0")
    assert result.exit_code == 2
    assert "2 dead letters begin with '4f0': '4f0c1e', '4f0d22'" in result.stderr
    shell.ok("dlq", "redrive", "billing", "--id", "4f0d", "--id", "91aa")  # whole, so no beginning
    assert shell.ids("billing") == ["4f0d22", "91aa"]


@pytest.mark.parametrize("option", [(), ("--dry-run",), ("--json",)])
def test_a_redrive_that_chooses_nothing_says_so_and_is_exit_code_1(
    shell: Shell, option: tuple[str, ...]
) -> None:
    letters(shell)
    result = shell("dlq", "redrive", "billing", "--error", "nothing like it", *option)
    assert result.exit_code == 1
    if "--json" not in option:
        assert result.stdout == "No message was chosen; 3 stay where they are.\n"
    shell.ok("dlq", "purge", "billing", "--yes")
    shell.ok("dlq", "redrive", "billing")  # nothing there, and nothing was asked for


def test_a_list_that_is_not_everything_says_how_much_there_is(shell: Shell) -> None:
    letters(shell, 5)
    result = shell("dlq", "list", "billing", "--limit", "2")
    assert result.stderr == "note: 2 of 5 are shown; --limit shows more\n"
    result = shell("dlq", "list", "billing", "--limit", "2", "--json")
    assert json.loads(result.stderr)["note"].startswith("2 of 5 are shown")
    assert shell("dlq", "list", "billing", "--limit", "5").stderr == ""


def test_groups_sum_up_what_failed_alike(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.put(
        dead_letter("a", error_type="KeyError", failed_at=1_000_000),
        dead_letter("b", error_type="TimeoutError", failed_at=2_000_000),
        dead_letter("c", error_type="TimeoutError", failed_at=3_000_000),
    )
    large, small = shell.json("dlq", "groups", "billing")
    assert (large["count"], large["error_type"], large["example_id"]) == (2, "TimeoutError", "c")
    assert (large["first_failed_at"], large["last_failed_at"]) == (
        "1970-01-24T03:33:20Z",
        "1970-02-04T17:20:00Z",
    )
    assert small["count"] == 1
    chosen = shell.json("dlq", "list", "billing", "--group", large["group"])
    assert [each["id"] for each in chosen] == ["b", "c"]
    header, first, _ = shell.ok("dlq", "groups", "billing").splitlines()
    assert header.split("\t")[:2] == ["group", "count"]
    assert first.split("\t")[:2] == [large["group"], "2"]
    assert len(shell.json("dlq", "groups", "billing", "--error", "Key")) == 1


@pytest.mark.parametrize("command", [("list", "billing"), ("show", "billing", HOSTILE)])
@pytest.mark.parametrize("option", [(), ("--json",)])
def test_nothing_in_a_dead_letter_can_steer_the_terminal(
    shell: Shell, command: tuple[str, ...], option: tuple[str, ...]
) -> None:
    shell.declare("billing")
    story = {"x-reason": HOSTILE, "x-traceback": HOSTILE * 3, HOSTILE: HOSTILE}
    shell.put(
        dead_letter(
            HOSTILE,
            event=HOSTILE,
            error=HOSTILE,
            error_type=HOSTILE,
            body=HOSTILE.encode(),
            headers=story,
        )
    )
    printed = shell.ok("dlq", *command, *option)
    assert all(each.isprintable() or each in "\t\n" for each in printed)
    assert "[bold]b[/bold]" in printed


def test_dead_letters_go_back_to_the_queue_that_failed_them(shell: Shell) -> None:
    letters(shell, 250)
    assert shell.ok("dlq", "redrive", "billing") == ("Done: 250 moved, 0 not chosen, 0 refused.\n")
    assert shell.ids("billing.dlq") == []
    assert shell.ids("billing") == [f"m-{number}" for number in range(250)]


def test_a_dry_run_only_counts(shell: Shell) -> None:
    letters(shell)
    assert "3 would move" in shell.ok("dlq", "redrive", "billing", "--dry-run")
    (told,) = shell.json("dlq", "redrive", "billing", "--dry-run", "--limit", "2")
    assert (told["moved"], told["dry_run"]) == (2, True)
    assert len(shell.ids("billing.dlq")) == 3


def test_another_queue_may_be_named_to_send_to(shell: Shell) -> None:
    letters(shell)
    shell.declare("mended")
    shell.ok("dlq", "redrive", "billing", "--to", "mended", "--limit", "1", "--rate", "100")
    assert shell.ids("mended") == ["m-0"]


@pytest.mark.parametrize(
    ("command", "verb"), [(("delete", "--yes"), "deleted"), (("redrive",), "moved")]
)
def test_one_that_is_not_given_everything_does_not_say_that_it_is_done(
    shell: Shell, command: tuple[str, ...], verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters(shell, 5)
    sparing(monkeypatch, SqliteDriver, 3)
    name, *yes = command
    result = shell("dlq", name, "billing", "--id", "m-4", *yes)
    assert result.exit_code == 1
    assert result.stdout == (
        "Stopped: only 3 of 5 could be looked at; run it again.\n"
        f"0 {verb}; the rest is where it was.\n"
    )
    result = shell("dlq", name, "billing", "--id", "m-4", *yes, "--json")
    told = json.loads(result.stdout)
    assert (told[verb], told["kept"]) == (0, 3)
    assert told["stopped"] == "only 3 of 5 could be looked at; run it again"
    assert len(shell.ids("billing.dlq")) == 5


def test_what_is_refused_is_told_and_makes_exit_code_1(shell: Shell) -> None:
    letters(shell, 2)
    shell.put(dead_letter("lost", queue="gone\x1b[31m"))
    result = shell("dlq", "redrive", "billing")
    assert result.exit_code == 1
    assert r"lost: its queue 'gone\x1b[31m' does not exist" in result.stderr
    assert "2 moved, 0 not chosen, 1 refused" in result.stdout
    assert shell.ids("billing.dlq") == ["lost"]


def test_purging_asks_first(shell: Shell) -> None:
    letters(shell)
    result = shell("dlq", "purge", "billing", input="y\n")
    assert result.exit_code == 2
    assert "forget 3 dead letters of 'billing' for good" in result.stderr
    assert shell.json("dlq", "purge", "billing", "--yes") == [{"queue": "billing", "purged": 3}]
    assert shell.ids("billing.dlq") == []
    assert shell.ok("dlq", "purge", "billing") == "'billing' has no dead letters.\n"


def test_a_queue_without_dead_letters_is_never_taken_for_one(shell: Shell) -> None:
    shell.ok("declare", "plain", "order.*", "--no-dead-letters")
    shell.ok("publish", "order.placed", "1")
    for command in (("purge", "plain", "--yes"), ("redrive", "plain"), ("list", "plain")):
        result = shell("dlq", *command)
        assert result.exit_code == 4
        assert "has no dead-letter queue 'plain.dlq'" in result.stderr
    assert len(shell.ids("plain")) == 1


def test_a_dead_letter_queue_of_another_name_is_named_exactly(shell: Shell) -> None:
    shell.declare("billing")
    shell.ok("declare", "graveyard", "--no-dead-letters")
    shell.put(dead_letter("m-1", to="graveyard"))
    shell.put(Outgoing(b"1", "no-origin", queue="graveyard"))
    assert [each["id"] for each in shell.json("dlq", "list", "graveyard", "--exact")] == [
        *("m-1", "no-origin"),
    ]
    result = shell("dlq", "redrive", "graveyard", "--exact")
    assert result.exit_code == 1  # one of them does not tell where it comes from
    assert shell.ids("billing") == ["m-1"]


# -- a canary, and what is forgotten ---------------------------------------------------------


def test_a_canary_that_nobody_handles_stops_the_redrive(shell: Shell) -> None:
    letters(shell, 5)
    result = shell("dlq", "redrive", "billing", "--canary", "2", "--patience", "300ms")
    assert result.exit_code == 1
    assert "2 sent ahead; waiting" in result.stderr
    assert "Stopped: after 0.3 s it is not known what became of the 2 sent ahead" in result.stdout
    assert shell.ids("billing") == ["m-0", "m-1"]
    assert shell.ids("billing.dlq") == ["m-2", "m-3", "m-4"]


def test_why_a_redrive_stopped_is_told_as_json(shell: Shell) -> None:
    letters(shell, 2)
    result = shell("dlq", "redrive", "billing", "--canary", "1", "--patience", "0.1", "--json")
    told = json.loads(result.stdout)
    assert (told["moved"], "nobody consumes" in told["stopped"]) == (1, True)


def test_some_are_forgotten_and_the_rest_stays_in_order(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.put(*(dead_letter(f"m-{n}", error="bank" if n % 2 else "code") for n in range(6)))
    out = shell.ok("dlq", "delete", "billing", "--error", "bank", "--yes")
    assert "3 deleted, 3 not chosen" in out
    assert shell.ids("billing.dlq") == ["m-0", "m-2", "m-4"]
    assert shell.ids("billing") == []


def test_what_dies_while_it_is_asked_stays(shell: Shell, terminal: Callable[..., Terminal]) -> None:
    letters(shell, 3)
    asked = terminal("dlq", "delete", "billing", "--error", "money")
    asked.until("Forget 3 dead letters of 'billing' for good?")
    shell.put(dead_letter("late-1"), dead_letter("late-2"))
    asked.type("y\n")
    code, seen = asked.finish()
    assert (code, "3 deleted" in seen) == (0, True), seen
    assert shell.ids("billing.dlq") == ["late-1", "late-2"]


@pytest.mark.parametrize("options", [("--error", "money"), ("--newer-than", "1d")], ids=str)
def test_nothing_takes_the_place_of_what_was_counted(
    shell: Shell, terminal: Callable[..., Terminal], options: tuple[str, ...]
) -> None:
    now = time.time()
    letters(shell, 3, failed_at=now)
    asked = terminal("dlq", "delete", "billing", *options)
    asked.until("Forget 3 dead letters of 'billing' for good?")
    assert shell.ok("dlq", "redrive", "billing", "--id", "m-0")
    urgent = changed(dead_letter("urgent", failed_at=now), priority=9)
    shell.put(urgent, dead_letter("m-0", failed_at=now + 1))
    asked.type("y\n")
    code, seen = asked.finish()
    assert (code, "2 deleted" in seen) == (0, True), seen
    assert sorted(shell.ids("billing.dlq")) == ["m-0", "urgent"]


def test_what_dies_after_none_was_found_stays(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters(shell, 1, error="code")
    counting = DeadLetters.delete

    async def count(engine: DeadLetters, queue: str, **options: Any) -> Redrive:
        told = await counting(engine, queue, **options)
        driver = engine._connection.current
        assert driver is not None
        await driver.send([dead_letter("late")])
        return told

    monkeypatch.setattr(DeadLetters, "delete", count)
    result = shell("dlq", "delete", "billing", "--error", "money")
    assert (result.exit_code, "No message was chosen" in result.stdout) == (1, True)
    assert shell.ids("billing.dlq") == ["m-0", "late"]


def test_what_came_without_an_id_is_forgotten(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.declare("billing", "order.*")
    late = dead_letter("foreign-f00", headers={"x-reason": "expired"})
    shell.put(late, late, dead_letter("m-1"))
    renaming(monkeypatch, SqliteDriver)
    out = shell.ok("dlq", "delete", "billing", "--reason", "expired", "--yes")
    assert "Done: 2 deleted" in out
    monkeypatch.undo()
    assert shell.ids("billing.dlq") == ["m-1"]


def test_what_nobody_could_look_at_is_not_passed_over_in_silence(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters(shell, 7)
    capping(monkeypatch, SqliteDriver, 3)
    result = shell("dlq", "delete", "billing", "--error", "money", "--yes")
    assert (result.exit_code, "Done" in result.stdout) == (1, False)
    assert "Stopped: only 3 of 7 could be looked at." in result.stdout
    assert "3 deleted; the rest is where it was." in result.stdout
    result = shell("dlq", "delete", "billing", "--error", "money", "--yes", "--json")
    told = json.loads(result.stdout)
    assert (told["deleted"], told["stopped"]) == (3, "only 3 of 4 could be looked at")
    assert shell("dlq", "delete", "billing", "--error", "money", "--yes").exit_code == 0
    assert shell.ids("billing.dlq") == []


@pytest.mark.parametrize(
    ("verb", "would"), [("delete", "3 would be deleted"), ("redrive", "3 would move")]
)
def test_a_dry_run_says_how_far_it_could_look(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, verb: str, would: str
) -> None:
    letters(shell, 7)
    capping(monkeypatch, SqliteDriver, 3)
    dry_run = ("dlq", verb, "billing", "--error", "money", "--dry-run")
    result = shell(*dry_run)
    assert (result.exit_code, result.stderr) == (1, "note: only 3 of 7 could be looked at\n")
    assert f"Dry run: {would}, 0 not chosen, nothing was changed." in result.stdout
    result = shell(*dry_run, "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["stopped"]) == (1, "only 3 of 7 could be looked at")
    assert shell(*dry_run, "--limit", "3").exit_code == 0


def test_what_would_be_forgotten_is_counted_first(shell: Shell) -> None:
    letters(shell, 3)
    assert "2 would be deleted" in shell.ok("dlq", "delete", "billing", "--limit", "2", "--dry-run")
    (told,) = shell.json("dlq", "delete", "billing", "--id", "m-1", "--dry-run")
    assert (told["deleted"], told["kept"]) == (1, 2)
    assert shell.ids("billing.dlq") == ["m-0", "m-1", "m-2"]


def test_nothing_is_forgotten_unless_it_is_said_what(shell: Shell) -> None:
    letters(shell, 2)
    result = shell("dlq", "delete", "billing", "--yes")
    assert result.exit_code == 2
    assert "say which" in result.stderr
    assert len(shell.ids("billing.dlq")) == 2


def test_nothing_is_forgotten_where_nobody_can_be_asked(shell: Shell) -> None:
    letters(shell, 2)
    assert shell("dlq", "delete", "billing", "--id", "m-0").exit_code == 2
    assert len(shell.ids("billing.dlq")) == 2
    assert shell("dlq", "delete", "billing", "--id", "nope", "--yes").exit_code == 4
