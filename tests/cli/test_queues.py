"""`queuecraft queues`, `peek` and `topology`: what there is, for people, pipes and programs."""

from __future__ import annotations

import base64

import pytest

from queuecraft.drivers.base import Outgoing
from tests.cli.shell import Shell

HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\n[bold]b[/bold] \u202egnp.exe\u2066 \x7f\u200b"


def test_queues_are_listed_for_a_pipe_in_columns_set_apart_by_tabs(shell: Shell) -> None:
    long = "a-queue-whose-name-is-far-too-long-for-any-table-" * 4
    shell.declare(long)
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", "1", "--count", "3")
    header, *lines = shell.ok("queues").splitlines()
    assert header.split("\t")[:3] == ["queue", "ready", "in flight"]
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in lines}
    assert list(rows) == sorted(["billing", "billing.dlq", long, f"{long}.dlq"])
    assert rows["billing"][0] == "3"
    assert rows["billing"][3] == "0"  # dead


def test_queues_as_json_are_a_line_each_with_stable_keys(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", "1")
    first, second = shell.json("queues")
    assert list(first) == [
        *("name", "ready", "in_flight", "delayed", "dead", "consumers", "oldest_age", "rates"),
    ]
    assert (first["name"], first["ready"], first["dead"]) == ("billing", 1, 0)
    assert second["name"] == "billing.dlq"


def test_peeking_shows_messages_and_takes_none(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    for number in range(3):
        shell.ok("publish", "order.placed", f'{{"n": {number}}}', "--id", f"m-{number}")
    for _ in range(2):
        header, *rows = shell.ok("peek", "billing", "--limit", "2", "--body").splitlines()
        assert header.split("\t")[0] == "id"
        assert [row.split("\t")[0] for row in rows] == ["m-0", "m-1"]
        assert rows[0].split("\t")[1] == "order.placed"
        assert rows[0].split("\t")[-1] == '{"n": 0}'
    assert shell.ids("billing") == ["m-0", "m-1", "m-2"]


def test_a_peeked_message_as_json_has_everything(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", '{"n": 1}', "--id", "m-1", "-H", "tenant=t1", "--key", "k")
    (message,) = shell.json("peek", "billing")
    assert (message["id"], message["event"], message["key"]) == ("m-1", "order.placed", "k")
    assert message["payload"] == {"n": 1}
    assert message["headers"] == {"tenant": "t1"}
    assert message["published_at"].endswith("Z")
    assert (message["attempt"], message["redeliveries"], message["size"]) == (1, 0, 7)
    assert (message["body"], message["body_base64"], message["unreadable"]) == (
        '{"n":1}',
        None,
        None,
    )


def test_a_body_that_is_no_text_is_shown_in_base64(shell: Shell) -> None:
    shell.declare("billing")
    shell.put(Outgoing(b"\xff\x00\x1b[31m", "m-1", queue="billing"))
    (message,) = shell.json("peek", "billing")
    assert (message["payload"], message["body"]) == (None, None)
    assert base64.b64decode(message["body_base64"]) == b"\xff\x00\x1b[31m"
    assert message["unreadable"]
    assert "<7 bytes> ff001b5b33316d" in shell.ok("peek", "billing", "--body")


@pytest.mark.parametrize("option", [(), ("--body",), ("--json",)])
def test_nothing_in_a_message_can_steer_the_terminal(shell: Shell, option: tuple[str, ...]) -> None:
    shell.declare("billing")
    shell.put(
        Outgoing(
            HOSTILE.encode(),
            HOSTILE,
            routing_key=HOSTILE,
            content_type=HOSTILE,
            key=HOSTILE,
            correlation_id=HOSTILE,
            queue="billing",
            headers={HOSTILE: HOSTILE, "bytes": HOSTILE.encode()},
        )
    )
    printed = shell.ok("peek", "billing", *option)
    assert printed.isascii() or option != ("--json",)
    assert all(each.isprintable() or each in "\t\n" for each in printed)
    assert len(printed.splitlines()) == (1 if option == ("--json",) else 2)
    assert "[bold]b[/bold]" in printed


def test_a_huge_body_is_printed_whole_for_a_program(shell: Shell) -> None:
    shell.declare("billing")
    shell.put(Outgoing(b'"' + b"x" * 3_000_000 + b'"', "m-1", queue="billing"))
    (message,) = shell.json("peek", "billing")
    assert len(message["payload"]) == 3_000_000


def test_an_empty_queue_has_nothing_to_show(shell: Shell) -> None:
    shell.declare("billing")
    assert len(shell.ok("peek", "billing").splitlines()) == 1  # the header
    assert shell.json("peek", "billing") == []


@pytest.mark.parametrize("limit", ["0", "-1", "many", "9" * 30])
def test_a_limit_that_makes_no_sense_is_refused(shell: Shell, limit: str) -> None:
    shell.declare("billing")
    assert shell("peek", "billing", "--limit", limit).exit_code == 2


@pytest.mark.parametrize("every", ["0", "0.01", "nan", "inf", "-1", "soon"])
def test_a_pace_that_makes_no_sense_is_refused(shell: Shell, every: str) -> None:
    shell.declare("billing")
    assert shell("queues", "--watch", every).exit_code == 2


def test_a_queue_whose_name_looks_like_an_option_follows_two_dashes(shell: Shell) -> None:
    shell.declare("--json")
    shell.declare("-x")
    shell.ok("publish", "--queue=-x", "1")
    assert len(shell.ok("peek", "--", "-x").splitlines()) == 2
    assert len(shell.ok("peek", "--", "--json").splitlines()) == 1


def test_the_topology_tells_who_is_bound_to_what(shell: Shell) -> None:
    shell.declare("billing", "order.*", "user.created")
    rows = [line.split("\t") for line in shell.ok("topology").splitlines()[1:]]
    assert ["events", "topic", "order.*", "", "billing"] in rows
    assert ["events.dlx", "topic", "billing.dlq", "", "billing.dlq"] in rows
    (told,) = shell.json("topology")
    assert list(told) == ["exchanges", "queues", "bindings", "consumers"]
    assert {"exchange": "events", "pattern": "order.*", "headers": {}, "queue": "billing"} in told[
        "bindings"
    ]
