"""`queuecraft publish`: one message, copies, lines; and everything a person may type wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from queuecraft import PeekedMessage
from tests.cli.shell import Shell


@pytest.fixture
def bound(shell: Shell) -> Shell:
    shell.declare("billing", "order.*")
    return shell


def peeked(shell: Shell, queue: str = "billing") -> list[PeekedMessage]:
    return shell.with_broker(lambda qc: qc.admin.peek(queue, 10_000))


def test_a_payload_on_the_command_line_is_published(bound: Shell) -> None:
    printed = bound.ok("publish", "order.placed", '{"id": "o-1", "total": 9.5}')
    (message,) = peeked(bound)
    assert printed == f"{message.id}\n"
    assert message.routing_key == "order.placed"
    assert message.payload == {"id": "o-1", "total": 9.5}
    assert message.content_type == "application/json"


def test_options_travel_with_the_message(bound: Shell) -> None:
    bound.ok(
        *("publish", "order.placed", "[1]", "--id", "m-1", "--key", "k", "--ttl", "1h"),
        *("--priority", "3", "--correlation-id", "c-1"),
        *("--header", "tenant=t1", "-H", "query=a=b"),
    )
    (message,) = peeked(bound)
    assert (message.id, message.key, message.priority) == ("m-1", "k", 3)
    assert message.correlation_id == "c-1"
    assert message.headers == {"tenant": "t1", "query": "a=b"}
    assert message.published_at is not None
    assert message.expires_at is not None
    assert 3599 < (message.expires_at - message.published_at).total_seconds() <= 3601


def test_a_delayed_message_is_not_ready_yet(bound: Shell) -> None:
    bound.ok("publish", "order.placed", "1", "--delay", "2h")
    (info,) = [each for each in bound.json("queues") if each["name"] == "billing"]
    assert (info["ready"], info["delayed"]) == (0, 1)


@pytest.mark.parametrize("payload", ["null", "true", "0", '"text"', "[]", '{"ü": "\\u0000"}'])
def test_any_json_value_is_a_payload(bound: Shell, payload: str) -> None:
    bound.ok("publish", "order.placed", payload)
    assert bound.payloads("billing") == [json.loads(payload)]


def test_without_a_payload_what_is_piped_in_is_published(bound: Shell) -> None:
    bound.ok("publish", "order.placed", input='{"id": "b"}\n')
    bound.ok("publish", "order.placed", "null")
    assert [each.body for each in peeked(bound)] == [b'{"id":"b"}', b"null"]


@pytest.mark.parametrize("typed", ["", " \n"])
def test_a_forgotten_payload_is_a_mistake(bound: Shell, typed: str) -> None:
    for command in (("publish", "order.placed"), ("publish", "--queue", "billing")):
        result = bound(*command, input=typed)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "there is no payload" in result.stderr
        assert "say null" in result.stderr
    assert peeked(bound) == []


def test_an_event_that_nearly_exists_is_suggested(bound: Shell) -> None:
    bound.ok("bind", "billing", "user.created")
    for more in ((), ("--count", "3")):
        result = bound("publish", "user.craeted", "1", *more)
        assert result.exit_code == 1
        assert "did you mean 'user.created'?" in result.stderr
    assert "did you mean" not in bound("publish", "nothing.like.it", "1").stderr


def test_an_event_nobody_has_is_given_a_queue_by_what_the_error_says(bound: Shell) -> None:
    refused = bound("publish", "user.left", "1")
    assert refused.exit_code == 1
    assert "make a queue for it (queuecraft declare QUEUE user.left)" in refused.stderr
    assert "give it to one that exists (queuecraft bind QUEUE user.left)" in refused.stderr
    bound.ok("declare", "audit", "user.left")
    bound.ok("publish", "user.left", "1")
    assert bound.payloads("audit") == [1]


def test_a_payload_is_read_from_a_file_or_from_standard_input(bound: Shell, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"from": "file"}\n')
    bound.ok("publish", "order.placed", f"@{tmp_path / 'order.json'}")
    bound.ok("publish", "order.placed", "-", input='{"from": "input"}\n')
    assert bound.payloads("billing") == [{"from": "file"}, {"from": "input"}]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("{id: 1}", "the payload is no JSON: Expecting property name"),
        ("hello", "a text needs its quotes"),
        ("", "the payload is no JSON"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5000, "no JSON"),
    ],
)
def test_what_is_no_json_is_refused_with_the_reason(bound: Shell, payload: str, said: str) -> None:
    result = bound("publish", "order.placed", payload)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert len(result.stderr) < 400
    assert bound.ids("billing") == []


def test_input_that_is_not_text_is_refused(bound: Shell) -> None:
    result = bound("publish", "order.placed", "-", input=b'"\xff\xfe"')
    assert result.exit_code == 2
    assert "standard input is no JSON: it is not UTF-8" in result.stderr


def test_a_file_that_is_not_there_is_named(bound: Shell) -> None:
    result = bound("publish", "order.placed", "@missing.json")
    assert result.exit_code == 2
    assert "missing.json: No such file or directory" in result.stderr


def test_a_payload_too_large_is_refused_before_it_is_sent(bound: Shell) -> None:
    small = {"QUEUECRAFT_MAX_MESSAGE_BYTES": "1000"}
    for args in (("-",), ("--lines",)):
        result = bound("publish", "order.placed", *args, input=f'"{"x" * 70_000}"', env=small)
        assert result.exit_code in (1, 2), result.stderr
        assert "1,000" in result.stderr
    assert bound.ids("billing") == []


def test_a_large_payload_within_the_limit_arrives_whole(bound: Shell) -> None:
    bound.ok("publish", "order.placed", "-", input=json.dumps("x" * 5_000_000))
    (message,) = peeked(bound)
    assert message.size == 5_000_002


def test_an_event_nobody_is_bound_to_is_an_error_unless_it_may_be_dropped(bound: Shell) -> None:
    result = bound("publish", "user.created", "1")
    assert result.exit_code == 1
    assert "no queue is bound to event 'user.created'" in result.stderr
    assert "--drop" in result.stderr
    result = bound("publish", "user.created", "--lines", input="1\n2\n")
    assert result.exit_code == 1
    assert result.stderr.count("--drop") == 2
    bound.ok("publish", "user.created", "1", "--drop")


def test_an_event_of_another_exchange_is_told_of_with_that_exchange(bound: Shell) -> None:
    bound.declare("audit", "user.created")
    result = bound("publish", "user.created", "1", "--exchange", "news")
    assert result.exit_code == 1
    assert "no queue is bound to event 'user.created' of exchange 'news'" in result.stderr
    assert "did you mean" not in result.stderr
    bound.ok("bind", "audit", "user.created", "--exchange", "news")  # as it says
    bound.ok("publish", "user.created", "1", "--exchange", "news")
    assert bound.payloads("audit") == [1]


def test_a_queue_is_sent_to_by_name(bound: Shell) -> None:
    bound.declare("audit")
    bound.ok("publish", "--queue", "audit", '{"n": 1}')
    assert bound.payloads("audit") == [{"n": 1}]
    assert bound.ids("billing") == []


def test_a_queue_that_is_not_there_is_named_with_the_one_that_may_be_meant(bound: Shell) -> None:
    result = bound("publish", "--queue", "biling", "1")
    assert result.exit_code == 4
    assert "did you mean 'billing'" in result.stderr


def test_copies_are_messages_of_their_own(bound: Shell) -> None:
    printed = bound.ok("publish", "order.placed", "7", "--count", "1200").split()
    assert bound.ids("billing") == printed
    assert len(set(printed)) == 1200


def test_each_line_is_a_message(bound: Shell) -> None:
    text = "".join(f'{{"n": {number}}}\n' for number in range(1500))
    printed = bound.ok("publish", "order.placed", "--lines", input=text + '\n  \n{"n": "last"}')
    assert [each["n"] for each in bound.payloads("billing")] == [*range(1500), "last"]
    assert bound.ids("billing") == printed.split()


def test_lines_are_read_from_a_file_and_sent_to_a_queue_as_well(
    bound: Shell, tmp_path: Path
) -> None:
    (tmp_path / "orders.jsonl").write_text("1\n2\n")
    bound.ok("publish", "--queue", "billing", "@orders.jsonl", "--lines")
    assert bound.payloads("billing") == [1, 2]


def test_a_bad_line_is_told_by_its_number_and_the_others_are_published(bound: Shell) -> None:
    result = bound("publish", "order.placed", "--lines", input='1\n\n{"a"\n"\xff"\n4\n')
    assert result.exit_code == 1
    assert "message 3: line 3 is no JSON" in result.stderr
    assert "3 published, 1 failed" in result.stderr
    assert bound.payloads("billing") == [1, "\xff", 4]


def test_lines_as_json_tell_what_became_of_each(bound: Shell) -> None:
    result = bound("publish", "order.placed", "--lines", "--json", input="1\n{\n3\n")
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert [each["number"] for each in told] == [1, 2, 3]
    assert [told[0]["id"], told[2]["id"]] == bound.ids("billing")
    assert "no JSON" in told[1]["error"]


def test_many_errors_are_told_up_to_a_bound(bound: Shell) -> None:
    result = bound("publish", "order.placed", "--lines", input="{\n" * 100)
    assert result.exit_code == 1
    assert "80 more" in result.stderr
    assert "message 20:" in result.stderr
    assert "message 21:" not in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "name the event"),
        (("order.placed", "1", "--header", "tenant"), "NAME=VALUE"),
        (("order.placed", "1", "--header", "x-error=1"), "x-error"),
        (("order.placed", "1", "--delay", "soon"), "no length of time"),
        (("order.placed", "1", "--delay", "-5"), "no length of time"),
        (("order.placed", "1", "--priority", "999"), "priority=999"),
        (("order.placed", "1", "--count", "0"), "--count"),
        (("order.placed", "1", "--count", "2", "--id", "m-1"), "--id is for one message"),
        (("order.placed", "--count", "2", "--lines"), "not both"),
        (("order.placed", "1", "--queue", "billing"), "there is no EVENT"),
        (("", "1"), "name"),
        (("a\x1b[31m", "1"), r"a\x1b[31m"),
    ],
)
def test_what_is_typed_wrong_is_told(bound: Shell, args: tuple[str, ...], said: str) -> None:
    result = bound("publish", *args)
    assert (result.exit_code, result.stdout) == (2, ""), result.stderr
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert "\x1b[31m" not in result.stderr
    assert bound.ids("billing") == []


def test_a_payload_that_looks_like_an_option_follows_two_dashes(bound: Shell) -> None:
    bound.ok("publish", "order.placed", "--", "-5")
    assert bound.payloads("billing") == [-5]
