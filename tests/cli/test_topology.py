"""`declare`, `bind`, `unbind`, `purge`, `delete` and `move` from the shell."""

from __future__ import annotations

import asyncio
import json

import pytest

from queuecraft import Message, QueueCraft
from queuecraft.drivers.base import Outgoing
from tests.cli.shell import Shell


def names(shell: Shell) -> list[str]:
    return [each["name"] for each in shell.json("queues")]


def test_a_queue_is_declared_and_gets_its_events(shell: Shell) -> None:
    shell.ok("declare", "billing", "order.placed", "order.paid")
    shell.ok("declare", "scratch", "--no-dead-letters")
    assert names(shell) == ["billing", "billing.dlq", "scratch"]
    shell.ok("publish", "order.paid", "1")
    assert shell.payloads("billing") == [1]


SHOP = """
from queuecraft import Queue, QueueCraft

qc = QueueCraft.from_environment()
empty = QueueCraft.from_environment()

@qc.worker(Queue("billing", max_priority=3)).on("order.placed")
async def charge(order: object) -> None: ...

@qc.worker("audit").on("order.#")
async def note(order: object) -> None: ...
"""


def test_all_that_the_workers_of_an_application_need_is_declared(shell: Shell) -> None:
    (shell.folder / "shop.py").write_text(SHOP)
    for _ in range(2):
        code, printed, complaint = shell.finished("declare", "--app", "shop:qc", "--json")
        assert (code, json.loads(printed)) == (0, {"declared": ["billing", "audit"]}), complaint
    assert names(shell) == ["audit", "audit.dlq", "billing", "billing.dlq"]
    shell.ok("publish", "order.placed", "1")
    assert shell.payloads("billing") == shell.payloads("audit") == [1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--app", "shop:q"], "did you mean shop:qc?"),
        (["--app", "shop:empty"], "has no workers"),
        (["billing", "--app", "shop:qc"], "the application says the rest"),
        (["--app", "shop:qc", "--no-dead-letters"], "the application says the rest"),
        ([], "name one, or an application"),
    ],
)
def test_what_is_to_be_declared_has_to_be_said_once(
    shell: Shell, given: list[str], told: str
) -> None:
    (shell.folder / "shop.py").write_text(SHOP)
    code, printed, complaint = shell.finished("declare", *given)
    assert (code, printed) == (2, "")
    assert told in " ".join(complaint.split())
    assert not shell.path.exists()


def test_an_application_in_memory_has_nothing_to_declare_for_others(shell: Shell) -> None:
    (shell.folder / "shop.py").write_text(SHOP)
    code, _, complaint = shell.finished(
        "declare", "--app", "shop:qc", env={"QUEUECRAFT_URL": "local://"}
    )
    assert code == 2
    assert "queue in the memory" in complaint


def test_an_exchange_of_another_type_is_made_and_bound_to(shell: Shell) -> None:
    shell.ok("declare", "everyone", "any", "--exchange", "news", "--type", "fanout")
    shell.ok("declare", "other", "--no-dead-letters")
    shell.ok("bind", "other", "--exchange", "news")
    (told,) = shell.json("topology")
    assert {each["name"]: each["type"] for each in told["exchanges"]}["news"] == "fanout"
    result = shell("declare", "wrong", "--type", "carousel")
    assert result.exit_code == 2
    assert "topic, direct, fanout, headers" in result.stderr


def test_an_exchange_that_asks_for_no_event_needs_none(shell: Shell) -> None:
    shell.ok("declare", "everyone", "--exchange", "news", "--type", "fanout")
    shell.ok("publish", "any", "1", "--exchange", "news")
    assert shell.payloads("everyone") == [1]
    result = shell("declare", "audit", "--exchange", "elsewhere")
    assert result.exit_code == 2
    assert "say which events" in result.stderr


def test_a_new_exchange_for_headers_is_made_as_one(shell: Shell) -> None:
    shell.declare("pdf")
    shell.ok("bind", "pdf", "--exchange", "reports", "--match", "format=pdf")
    (told,) = shell.json("topology")
    assert {each["name"]: each["type"] for each in told["exchanges"]}["reports"] == "headers"
    result = shell("bind", "pdf", "--match", "format=pdf")
    assert result.exit_code == 2
    assert "'events' of type topic; name another exchange" in result.stderr


def test_a_queue_of_other_properties_is_told(shell: Shell) -> None:
    shell.ok("declare", "everyone", "any", "--exchange", "news", "--type", "fanout")
    result = shell("declare", "more", "any", "--exchange", "news", "--type", "direct")
    assert result.exit_code == 2
    assert "'news'" in result.stderr


def test_binding_and_unbinding(shell: Shell) -> None:
    shell.declare("audit")
    assert shell.json("bind", "audit", "user.*", "order.#") == [
        {"bound": "audit", "events": ["user.*", "order.#"]}
    ]
    shell.ok("publish", "user.created", "1")
    shell.ok("unbind", "audit", "user.*")
    assert shell("publish", "user.created", "2").exit_code == 1
    shell.ok("publish", "order.placed", "3")
    assert shell.payloads("audit") == [1, 3]


def test_headers_are_wanted_of_a_headers_exchange(shell: Shell) -> None:
    shell.ok("declare", "pdf", "r", "--exchange", "reports", "--type", "headers")
    shell.ok("unbind", "pdf", "r", "--exchange", "reports")
    shell.ok("bind", "pdf", "r", "--exchange", "reports", "--match", "format=pdf")
    (told,) = shell.json("topology")
    assert [each["headers"] for each in told["bindings"] if each["queue"] == "pdf"] == [
        {"format": "pdf"}
    ]
    assert shell("bind", "pdf", "r", "--exchange", "reports", "--match", "pdf").exit_code == 2


@pytest.mark.parametrize("known", ["billing", "audits"])
def test_binding_a_queue_that_is_not_there_says_what_makes_it(shell: Shell, known: str) -> None:
    shell.declare(known)
    result = shell("bind", "audit", "user.*")
    assert result.exit_code == 4
    assert "declare makes it: queuecraft declare audit EVENT" in result.stderr
    assert "declare makes it" not in shell("unbind", "audit", "user.*").stderr


def test_a_binding_to_nothing_is_refused(shell: Shell) -> None:
    shell.declare("audit")
    assert shell("bind", "audit").exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("peek", "biling"),
        ("purge", "biling", "--yes"),
        ("delete", "biling", "--yes"),
        ("bind", "biling", "a"),
        ("unbind", "biling", "a"),
        ("move", "biling", "billing"),
        ("move", "billing", "biling"),
        ("dlq", "list", "biling"),
        ("dlq", "show", "biling", "m-1"),
        ("dlq", "redrive", "biling"),
        ("dlq", "purge", "biling", "--yes"),
        ("dlq", "redrive", "billing", "--to", "biling"),
    ],
)
def test_a_queue_that_does_not_exist_is_exit_code_4_with_a_hint(
    shell: Shell, command: tuple[str, ...]
) -> None:
    shell.declare("billing")
    result = shell(*command)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "there is no queue 'biling'; did you mean 'billing'" in result.stderr
    result = shell(*command, "--json")
    assert (result.exit_code, result.stdout) == (4, "")
    told = json.loads(result.stderr)
    assert (told["kind"], told["queue"], told["exit_code"]) == ("UnknownQueue", "biling", 4)


@pytest.mark.parametrize("command", [("purge", "billing"), ("delete", "billing")])
def test_what_destroys_asks_first_and_where_nobody_answers_refuses(
    shell: Shell, command: tuple[str, ...]
) -> None:
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", "1", "--count", "3")
    result = shell(*command, input="y\n")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert "'billing'" in result.stderr
    assert "3 messages" in result.stderr
    assert len(shell.ids("billing")) == 3


def test_purging_says_how_many_are_gone(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", "1", "--count", "3")
    assert shell.ok("purge", "billing", "--yes") == "Purged 3 messages from 'billing'.\n"
    assert shell.json("purge", "billing", "-y") == [{"queue": "billing", "purged": 0}]


def test_deleting_leaves_the_dead_letters(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.ok("delete", "billing", "--yes")
    assert names(shell) == ["billing.dlq"]


# -- moving ----------------------------------------------------------------------------------


def filled(shell: Shell) -> None:
    shell.declare("here")
    shell.declare("there")
    shell.put(
        *(
            Outgoing(
                b"1",
                f"m-{number}",
                routing_key="order.placed" if number % 2 else "user.created",
                timestamp=1_700_000_000.0 if number < 5 else 4_000_000_000.0,
                queue="here",
            )
            for number in range(10)
        )
    )


def test_messages_move_and_the_numbers_are_told(shell: Shell) -> None:
    filled(shell)
    (report,) = shell.json("move", "here", "there")
    assert report == {
        "total": 10,
        "moved": 10,
        "kept": 0,
        "refused": 0,
        "dry_run": False,
        "interrupted": False,
        "errors": [],
        "stopped": None,
    }
    assert shell.ids("there") == [f"m-{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("options", "moved"),
    [
        (("--limit", "2"), [0, 1]),
        (("--event", "order.*"), [1, 3, 5, 7, 9]),
        (("--event", "order.*", "--limit", "2"), [1, 3]),
        (("--id", "m-3", "--id", "m-8"), [3, 8]),
        (("--older-than", "1d"), [0, 1, 2, 3, 4]),
        (("--dry-run",), []),
        (("--rate", "1000"), list(range(10))),
    ],
)
def test_some_of_them_may_be_chosen(
    shell: Shell, options: tuple[str, ...], moved: list[int]
) -> None:
    filled(shell)
    shell.ok("move", "here", "there", *options)
    assert shell.ids("there") == [f"m-{number}" for number in moved]
    assert shell.ids("here") == [f"m-{n}" for n in range(10) if n not in moved]


def test_a_queue_is_not_moved_onto_itself(shell: Shell) -> None:
    filled(shell)
    assert shell("move", "here", "here").exit_code == 2


def test_a_move_that_chooses_nothing_says_so_and_is_exit_code_1(shell: Shell) -> None:
    filled(shell)
    result = shell("move", "here", "there", "--older-than", "99999999999999d")
    assert result.exit_code == 1
    assert result.stdout == "No message was chosen; 10 stay where they are.\n"


def test_what_was_not_bound_is_not_said_to_be_unbound(shell: Shell) -> None:
    shell.declare("mail", "user.#", "order.*")
    result = shell("unbind", "mail", "nothing.here", "order.*")
    assert result.exit_code == 0
    assert result.stdout == "Queue 'mail' is not bound to 'order.*' any more.\n"
    assert result.stderr == "note: queue 'mail' was not bound to 'nothing.here'\n"
    result = shell("unbind", "mail", "nothing.here")
    assert (result.exit_code, result.stdout) == (0, "")
    assert shell.json("unbind", "mail", "user.#", "x")[0]["not_bound"] == ["x"]


def test_an_exchange_that_a_binding_makes_is_mentioned(shell: Shell) -> None:
    shell.declare("mail")
    assert (
        "no exchange 'nix'; it was made" in shell("bind", "mail", "a", "--exchange", "nix").stderr
    )
    assert shell("bind", "mail", "b", "--exchange", "nix").stderr == ""


@pytest.mark.parametrize("pattern", ["a..b", "order.*x", "order.#x", ".a"])
def test_a_pattern_that_can_never_match_is_refused(shell: Shell, pattern: str) -> None:
    shell.declare("mail")
    for command in ("bind", "declare"):
        assert shell(command, "mail", pattern).exit_code == 2


def test_a_queue_that_is_deleted_leaves_its_dead_letters_and_says_so(shell: Shell) -> None:
    shell.declare("mail")
    result = shell("delete", "mail", "--yes")
    assert result.stderr == "note: 'mail.dlq' is still there, empty; queuecraft delete mail.dlq\n"
    assert shell("delete", "mail.dlq", "--yes").stderr == ""


def test_a_queue_with_a_worker_is_deleted_with_a_warning(shell: Shell) -> None:
    async def consume(qc: QueueCraft) -> str:
        worker = qc.worker("mail")
        worker.on("user.created")(note)
        await worker.start()
        await qc.publish("user.created", {})
        await consumed.wait()
        # In a thread: the command has a loop of its own.
        result = await asyncio.to_thread(shell, "delete", "mail", "--yes")
        await worker.stop()
        return result.stderr

    async def note(message: Message) -> None:
        consumed.set()

    consumed = asyncio.Event()
    assert "a worker consumes from 'mail', and makes the queue again" in shell.with_broker(consume)


def test_an_empty_queue_is_purged_without_a_question(shell: Shell) -> None:
    shell.declare("mail")
    assert shell.ok("purge", "mail") == "Purged 0 messages from 'mail'.\n"
