"""`queuecraft delayed`: add, list, stats, cleanup and cancel, for people, pipes and programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.shell import Shell, Terminal

HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\n[bold]b[/bold] \u202egnp.exe\u2066 \x7f\u200b"


def test_a_message_is_added_seen_and_cancelled(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    id = shell.ok("delayed", "add", "order.placed", '{"n": 1}', "--delay", "2h").strip()
    header, row = shell.ok("delayed", "list").splitlines()
    assert header.split("\t")[:4] == ["id", "due at", "for", "kind"]
    cells = row.split("\t")
    assert (cells[0], cells[2], cells[3]) == (id, "order.placed", "event")
    assert cells[-1] == '{"n":1}'
    assert shell.ok("delayed", "cancel", id) == f"Cancelled {id}.\n"
    assert len(shell.ok("delayed", "list").splitlines()) == 1


def test_a_message_can_be_for_a_queue_at_a_moment_with_all_it_may_carry(shell: Shell) -> None:
    shell.declare("billing")
    at = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    when = at.strftime("%Y-%m-%dT%H:%M:%S+00:00")
    more = ("-H", "tenant=t1", "--key", "k", "--id", "m-1", "--correlation-id", "c")
    (added,) = shell.json("delayed", "add", "--queue", "billing", "[1]", "--at", when, *more)
    assert added == {"id": "m-1"}
    (message,) = shell.json("delayed", "list")
    assert list(message) == [
        *("id", "target", "kind", "due_at", "added_at", "size", "key", "correlation_id"),
        *("headers", "failures", "preview"),
    ]
    assert (message["id"], message["target"], message["kind"]) == ("m-1", "billing", "queue")
    assert message["due_at"] == at.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert (message["headers"], message["key"]) == ({"tenant": "t1"}, "k")


def test_a_long_list_says_how_to_go_on(shell: Shell) -> None:
    for n in range(3):
        shell.ok("delayed", "add", "order.placed", "1", "--delay", f"{n + 1}h", "--id", f"m-{n}")
    first = shell("delayed", "list", "--limit", "2", "--json")
    assert [json.loads(line)["id"] for line in first.stdout.splitlines()] == ["m-0", "m-1"]
    place = json.loads(first.stderr)["note"].rpartition(" ")[2]
    (last,) = shell.json("delayed", "list", "--after", place)
    assert last["id"] == "m-2"


def test_what_is_overdue_is_cleaned_up(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.ok("delayed", "add", "order.placed", "1", "--at", "2020-01-01T00:00Z")
    shell.ok("delayed", "add", "order.placed", "2", "--delay", "1h")
    (result,) = shell.json("delayed", "cleanup")
    assert (result["cleaned"], result["size"], result["policy"]) == (1, 1, "deliver")
    assert result["seconds"] >= 0
    assert shell.payloads("billing") == [1]
    assert "Delivered 0 overdue messages" in shell.ok("delayed", "cleanup")
    (stats,) = shell.json("delayed", "stats")
    assert (stats["size"], stats["max_size"], stats["cleanup"]["runs"]) == (1, 2, 2)
    assert stats["cleanup"]["success_rate"] == 1.0
    assert stats["history"][0]["size"] == 1


def test_at_the_limit_adding_is_refused_and_stats_say_critical(shell: Shell) -> None:
    limited = {"QUEUECRAFT_DELAYED_LIMIT": "1"}
    shell.ok("delayed", "add", "order.placed", "1", "--delay", "1h")
    refused = shell("delayed", "add", "order.placed", "1", "--delay", "1h", env=limited)
    assert refused.exit_code == 1
    assert "1 delayed messages wait already" in refused.stderr
    stats = shell("delayed", "stats", env=limited)
    assert stats.exit_code == 1
    assert "status\tcritical" in stats.stdout


def test_a_policy_of_the_settings_is_followed(shell: Shell) -> None:
    shell.declare("billing")
    shell.ok("delayed", "add", "--queue", "billing", "1", "--at", "2020-01-01T00:00Z")
    result = shell("delayed", "cleanup", env={"QUEUECRAFT_DELAYED_POLICY": "dead_letter"})
    assert "Dead-lettered 1 overdue messages" in result.stdout
    (letter,) = shell.json("dlq", "list", "delayed")
    assert (letter["queue"], letter["reason"]) == ("billing", "overdue")


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_nothing_in_a_message_can_steer_the_terminal(shell: Shell, option: tuple[str, ...]) -> None:
    payload = json.dumps({"text": HOSTILE})
    shell.ok(
        "delayed", "add", "order.placed", payload, "--delay", "1h", "--id", HOSTILE, "-H", "a=\x1b"
    )
    printed = shell.ok("delayed", "list", *option)
    assert printed.isascii() or not option
    assert all(each.isprintable() or each in "\t\n" for each in printed)
    assert len(printed.splitlines()) == (1 if option else 2)


def test_a_person_sees_when_it_is_due(shell: Shell, terminal: Callable[..., Terminal]) -> None:
    shell.ok("delayed", "add", "order.placed", '"[bold]x[/bold]"', "--delay", "2h")
    code, seen = terminal("delayed", "list").finish()
    assert code == 0
    assert "in 1h 59m" in seen
    assert "[bold]x[/bold]" in seen
    code, seen = terminal("delayed", "stats").finish()
    assert code == 0
    assert "healthy" in seen


@pytest.mark.parametrize(
    ("args", "code", "why"),
    [
        (("add", "order.placed", "1"), 2, "say when it is due: --delay or --at"),
        (("add", "order.placed", "1", "--delay", "1", "--at", "2030-01-01T00:00Z"), 2, "one of"),
        (("add", "--delay", "1"), 2, "name the event"),
        (("add", "order.placed", "{", "--delay", "1"), 2, "is no JSON"),
        (("add", "order.placed", "1", "--at", "tomorrow"), 2, "is no moment"),
        (("add", "order.placed", "1", "--at", "2030-01-01T00:00"), 2, "time zone"),
        (("add", "--queue", "biling", "1", "--delay", "1"), 4, "did you mean 'billing'"),
        (("add", "--queue", "billing", "x", "1", "--delay", "1"), 2, "there is no EVENT"),
        (("cancel", "m-1"), 4, "no delayed message 'm-1' waits"),
        (("list", "--after", "there"), 2, "expected the `next` of another page"),
        (("list", "--limit", "0"), 2, "expected 1 or more"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_to_do(
    shell: Shell, args: tuple[str, ...], code: int, why: str
) -> None:
    shell.declare("billing")
    result = shell("delayed", *args)
    assert result.exit_code == code
    assert why in " ".join(result.stderr.replace("│", " ").split())
