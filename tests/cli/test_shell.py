"""Commands as processes of their own: signals, pipes and terminals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from queuecraft.drivers.base import Outgoing
from tests.cli.shell import PATIENCE, Shell, Terminal
from tests.runtime.support import dead_letter

OpenTerminal = Callable[..., Terminal]


def test_a_message_published_by_one_process_is_seen_by_another(shell: Shell) -> None:
    assert shell.finished("declare", "billing", "order.*")[0] == 0
    code, printed, complaints = shell.finished("publish", "order.placed", '{"id": "o-1"}')
    assert (code, complaints) == (0, "")
    code, told, _ = shell.finished("peek", "billing", "--json")
    message = json.loads(told)
    assert (code, message["id"], message["payload"]) == (0, printed.strip(), {"id": "o-1"})


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("queues",), 0),
        (("publish", "nobody.listens", "1"), 1),
        (("publish", "a", "{"), 2),
        (("queues", "--nonsense"), 2),
        (("purge", "billing.dlq"), 2),
        (("queues", "--url", "local://./nowhere.db"), 3),
        (("peek", "missing"), 4),
        (("dlq", "show", "billing", "missing"), 4),
    ],
)
def test_exit_codes_reach_the_shell(shell: Shell, command: tuple[str, ...], code: int) -> None:
    shell.declare("billing")
    shell.put(dead_letter("m-1"))
    ended, _, complaints = shell.finished(*command)
    assert ended == code
    assert bool(complaints) == (code != 0)
    assert "Traceback" not in complaints
    assert "\x1b[" not in complaints


def test_a_pipe_gets_no_colours_and_whole_names(shell: Shell) -> None:
    name = "a-long-name-" * 20
    shell.declare(name)
    _, printed, _ = shell.finished("queues", env={"COLUMNS": "40"})
    assert "\x1b[" not in printed
    assert [line.split("\t")[0] for line in printed.splitlines()[1:]] == [name, f"{name}.dlq"]


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_reader_that_has_enough_is_no_error(shell: Shell, option: tuple[str, ...]) -> None:
    shell.declare("billing")
    shell.put(*(Outgoing(b"x" * 1000, f"m-{n}", queue="billing") for n in range(2000)))
    command = ("peek", "billing", "--limit", "2000", "--body", *option)
    with shell.process(*command) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        complaints = process.stderr.read()
        assert process.wait(PATIENCE) == 0
    assert complaints == b""


def test_publishing_goes_on_when_nobody_reads_the_ids(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    with shell.process("publish", "order.placed", "1", "--count", "20000") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaints = process.stderr.read()
        assert process.wait(PATIENCE) == 0
    assert complaints == b""
    assert len(shell.ids("billing")) == 20_000


def test_an_answer_nobody_reads_keeps_its_exit_code(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.put(dead_letter("m-1"))
    with shell.process("health") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaints = process.stderr.read()
        assert process.wait(PATIENCE) == 1
    assert complaints == b""


def test_lines_are_published_as_they_come(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    with shell.process("publish", "order.placed", "--lines", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(f"{number}\n".encode())
            process.stdin.flush()
            first = process.stdout.readline()  # its id comes before the next line is written
            assert len(first.strip()) == 32
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
    assert shell.payloads("billing") == [0, 1, 2]


def test_interrupted_while_it_waits_for_lines_it_ends_at_once_and_says_what_is_done(
    shell: Shell,
) -> None:
    shell.declare("billing", "order.*")
    with shell.process("publish", "order.placed", "--lines", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"1\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert process.stderr.read().decode() == "stopped: 1 published, 0 failed\n"
    assert shell.payloads("billing") == [1]


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_redrive_that_is_interrupted_says_what_has_moved_and_loses_nothing(
    shell: Shell, as_json: bool, by: signal.Signals
) -> None:
    shell.declare("billing", "order.*")
    names = [f"m-{number:03}" for number in range(200)]
    shell.put(*(dead_letter(name) for name in names))
    option = ("--json",) if as_json else ()
    with shell.process("dlq", "redrive", "billing", "--rate", "20", *option) as process:
        assert process.stdout is not None
        moved = 0
        while moved < 3:  # until it is under way
            moved = len(shell.ids("billing"))
        process.send_signal(by)
        assert process.wait(PATIENCE) == 130
        printed = process.stdout.read().decode()
    back = shell.ids("billing")
    if as_json:
        told = json.loads(printed)
        assert told["interrupted"] is True
        assert told["moved"] == len(back)
    else:
        assert printed == (
            f"Interrupted: {len(back)} moved, 0 not chosen, 0 refused; the rest is where it was.\n"
        )
    assert 3 <= len(back) < 200
    assert back + shell.ids("billing.dlq") == names


def test_a_move_that_is_killed_loses_nothing_and_can_be_finished(shell: Shell) -> None:
    shell.declare("here")
    shell.declare("there")
    names = [f"m-{number:03}" for number in range(250)]
    shell.put(*(Outgoing(b"1", name, queue="here") for name in names))
    code, _, _ = shell.finished(
        "move", "here", "there", env={"QUEUECRAFT_FAILPOINT": "redrive.after_move"}
    )
    assert code == -signal.SIGKILL
    assert shell.ids("there") == names[:100]
    while len(shell.ids("there")) < len(names):  # what it held comes back once it is known dead
        shell.ok("move", "here", "there")
    assert sorted(shell.ids("there")) == names  # each once, none lost
    left = shell.with_broker(lambda qc: qc.admin.inspect("here"))
    assert (left.ready, left.in_flight) == (0, 0)


@pytest.mark.parametrize("command", [("queues",), ("queues", "--json"), ("dlq", "list", "billing")])
def test_output_that_cannot_be_written_is_an_error_of_one_line(
    shell: Shell, command: tuple[str, ...]
) -> None:
    shell.declare("billing")
    with open("/dev/full", "wb") as full:
        code, _, complaints = shell.finished(*command, stdout=full)
    assert code == 2
    assert "No space left on device" in complaints
    assert len(complaints.splitlines()) == 1


def test_letters_the_terminal_does_not_have_are_no_error(shell: Shell) -> None:
    shell.declare("büro-☃")
    code, printed, _ = shell.finished("queues", env={"PYTHONIOENCODING": "ascii"})
    assert code == 0
    assert r"b\xfcro-\u2603" in printed


def test_arguments_that_are_not_text_are_refused(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    odd = os.fsdecode(b"\xff\x1b[31m")
    for command in (
        ("peek", odd),
        ("publish", "order.placed", "1", "--id", odd),
        ("publish", "order.placed", "1", "--key", odd),
        ("publish", "order.placed", "1", "--header", f"a={odd}"),
        ("publish", "order.placed", f'"{odd}"'),
        ("publish", "order.placed", f"@{odd}"),
    ):
        result = shell(*command)
        assert (result.exit_code, result.stdout) == (2, ""), result.stderr
        assert "\x1b[31m" not in result.stderr
        assert "internal error" not in result.stderr
    code, printed, complaints = shell.finished("peek", odd)  # as the bytes they are
    assert (code, printed) == (2, ""), complaints
    assert "\x1b[31m" not in complaints
    assert shell.ids("billing") == []


# -- on a terminal ---------------------------------------------------------------------------


def test_a_table_is_drawn_for_a_person(shell: Shell, terminal: OpenTerminal) -> None:
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", "1", "--count", "1234")
    code, seen = terminal("queues").finish()
    assert code == 0
    assert "1,234" in seen
    assert "\x1b[1m" in seen  # the header, bold
    assert "\t" not in seen


@pytest.mark.parametrize(
    ("env", "colours", "plain"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, True),
    ],
)
def test_a_terminal_is_drawn_on_as_it_can_and_wants(
    shell: Shell, terminal: OpenTerminal, env: dict[str, str], colours: bool, plain: bool
) -> None:
    shell.declare("billing")
    code, seen = terminal("health", env=env).finish()
    assert (code, "healthy" in seen) == (0, True)
    assert ("\x1b[1;32m" in seen) == colours
    _, seen = terminal("queues", env=env).finish()
    assert ("\t" in seen) == plain
    code, seen = terminal("peek", "missing", env=env).finish()
    assert code == 4
    assert ("\x1b[1;31m" in seen) == colours


def test_a_list_of_messages_has_a_line_each_with_an_id_that_can_be_used(
    shell: Shell, terminal: OpenTerminal
) -> None:
    shell.declare("billing", "order.*")
    ids = ["4f0c1e5b77aa4f0c1e5b77aa4f0c1e5b", "91d2c33e0baa91d2c33e0baa91d2c33e"]
    kind, error, when = "shop.errors.CardDeclined", "no money " * 30, time.time() - 125
    shell.put(*(dead_letter(each, error_type=kind, error=error, failed_at=when) for each in ids))
    _, seen = terminal("dlq", "list", "billing", env={"COLUMNS": "80"}).finish()
    header, first, second = re.sub(r"\x1b\[[\d;]*m", "", seen).strip().split("\r\n")
    assert header.split() == ["id", "failed", "event", "failures", "error"]
    assert first.split()[:5] == ["4f0c1e5b", "2m", "ago", "order.placed", "4"]
    assert "CardDeclined: no money" in first
    assert first.rstrip().endswith("…")
    assert shell.json("dlq", "show", "billing", second.split()[0])[0]["id"] == ids[1]
    _, seen = terminal("peek", "billing.dlq", "--body").finish()
    assert "x-traceback:\x1b[0m\r\n" in seen
    assert re.search(r"x-failed-at: \d{4}-\d\d-\d\dT", seen)


def test_dead_letter_queues_that_are_empty_are_left_out_for_a_person(
    shell: Shell, terminal: OpenTerminal
) -> None:
    shell.declare("billing")
    shell.declare("mail")
    shell.put(dead_letter("m-1"))
    _, seen = terminal("queues").finish()
    assert "billing.dlq" in seen
    assert "mail.dlq" not in seen
    assert "mail.dlq" in terminal("queues", "--all").finish()[1]


def test_a_forgotten_payload_is_not_waited_for_at_a_keyboard(
    shell: Shell, terminal: OpenTerminal
) -> None:
    shell.declare("billing", "order.*")
    code, seen = terminal("publish", "order.placed").finish()
    assert code == 2
    assert "there is no payload" in seen
    assert shell.ids("billing") == []


def test_long_names_are_folded_not_cut_on_a_narrow_terminal(
    shell: Shell, terminal: OpenTerminal
) -> None:
    name = "".join(f"{n:03}" for n in range(60))
    shell.ok("declare", name, "--no-dead-letters")
    _, seen = terminal("queues", env={"COLUMNS": "60"}).finish()
    _, *lines = seen.partition("oldest")[2].replace("\r", "").split("\n")
    assert "".join(line.split(" ")[0] for line in lines) == name


def test_nothing_in_a_message_can_steer_the_terminal(shell: Shell, terminal: OpenTerminal) -> None:
    evil = "\x1b]0;owned\x07[red]x[/red]\u202e"
    shell.declare("billing")
    shell.put(
        Outgoing(evil.encode(), evil, routing_key=evil, queue="billing", headers={evil: evil}),
        dead_letter(evil, error=evil, headers={"x-traceback": evil}),
    )
    for command in (
        ("peek", "billing", "--body"),
        ("dlq", "list", "billing"),
        ("dlq", "show", "billing", evil),
        ("dlq", "show", "billing", evil + "?"),
    ):
        _, seen = terminal(*command).finish()
        assert "\x1b]" not in seen
        assert "\x07" not in seen
        assert "\u202e" not in seen
        assert "[red]x" in "".join(seen.split())


def test_a_person_is_asked_before_anything_is_destroyed(
    shell: Shell, terminal: OpenTerminal
) -> None:
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", "1", "--count", "3")
    asked = terminal("purge", "billing")
    asked.until("Forget 3 messages in 'billing' for good? [y/N]")
    asked.type("n\n")
    code, seen = asked.finish()
    assert code == 1
    assert "Nothing was changed." in seen
    assert len(shell.ids("billing")) == 3

    asked = terminal("purge", "billing")
    asked.until("[y/N]")
    asked.interrupt()
    with suppress(subprocess.TimeoutExpired):
        asked.process.wait(5)
    if asked.process.poll() is None:  # Python misses one that comes just before it waits for a key
        asked.interrupt()
    assert asked.finish()[0] == 130
    assert len(shell.ids("billing")) == 3

    asked = terminal("delete", "billing")
    asked.until("Delete 'billing' with 3 messages for good?")
    asked.type("y\n")
    assert asked.finish()[0] == 0
    assert shell("peek", "billing").exit_code == 4


def test_a_watched_list_is_drawn_again_until_ctrl_c(shell: Shell, terminal: OpenTerminal) -> None:
    shell.declare("billing", "order.*")
    watching = terminal("queues", "--watch", "0.1")
    watching.until("billing")
    shell.ok("publish", "order.placed", "1", "--count", "4321")
    watching.until("4,321")
    watching.interrupt()
    code, seen = watching.finish()
    assert code == 130
    assert seen.index("\x1b[?1049h") < seen.index("4,321") < seen.index("\x1b[?1049l")
    assert "\x1b[?25h" in seen  # the cursor is back
    assert "billing" not in seen.partition("\x1b[?1049l")[2]  # nothing is left behind
    assert "Traceback" not in seen


def test_a_watched_list_in_a_pipe_is_printed_again_and_again(shell: Shell) -> None:
    shell.declare("billing")
    with shell.process("queues", "--watch", "0.1", "--json") as process:
        assert process.stdout is not None
        names = [json.loads(process.stdout.readline())["name"] for _ in range(4)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert names == ["billing", "billing.dlq"] * 2


def test_long_work_draws_a_bar(shell: Shell, terminal: OpenTerminal) -> None:
    shell.declare("billing", "order.*")
    code, seen = terminal("publish", "order.placed", "1", "--count", "1500").finish()
    assert code == 0
    assert "1500/1500" in seen
    assert "Published 1,500 messages." in seen
    shell.put(*(dead_letter(f"m-{n}") for n in range(150)))
    code, seen = terminal("dlq", "redrive", "billing").finish()
    assert "150/150" in seen
    assert "Done: 150 moved" in seen


def test_a_bar_on_the_terminal_leaves_redirected_output_alone(
    shell: Shell, terminal: OpenTerminal
) -> None:
    shell.declare("billing", "order.*")
    command = ("publish", "order.placed", "1", "--count", "1500", "--json")
    publishing = terminal(*command, stdout=subprocess.PIPE)
    assert publishing.process.stdout is not None
    with publishing.process.stdout as output:
        told = [json.loads(line) for line in output]
    code, seen = publishing.finish()
    assert (code, len(told)) == (0, 1500)
    assert "1500/1500" in seen
    assert "number" not in seen


def test_a_payload_typed_slowly_can_be_given_up(shell: Shell, terminal: OpenTerminal) -> None:
    shell.declare("billing", "order.*")
    typing = terminal("publish", "order.placed", "-")
    typing.type('{"id":\n')
    typing.until('{"id":')  # the terminal's echo
    typing.interrupt()
    assert typing.finish()[0] != 0
    assert shell.ids("billing") == []


# -- completion ------------------------------------------------------------------------------


INSTALLED = "import sys; sys.argv[0] = 'queuecraft'; from queuecraft.cli import main; main()"
"""As the script that an installation puts in the path."""


def completed(shell: Shell, *words: str, **env: str) -> tuple[int, list[str], str]:
    code, out, err = shell.finished(
        env={
            "_QUEUECRAFT_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("queuecraft", *words)),
            "COMP_CWORD": str(len(words)),
            **env,
        },
        program=("-c", INSTALLED),
    )
    return code, out.split(), err


def test_names_of_queues_are_completed_from_the_broker(shell: Shell) -> None:
    for name in ("billing", "billing-eu", "audit", "$(reboot)", "with space", "`id`"):
        shell.declare(name)
    assert completed(shell, "peek", "bill")[1] == [
        *("billing", "billing-eu", "billing-eu.dlq", "billing.dlq"),
    ]
    assert completed(shell, "dlq", "redrive", "aud")[1] == ["audit", "audit.dlq"]
    assert "$(reboot)" not in completed(shell, "peek", "")[1]


def test_completion_is_silent_where_there_is_no_broker(shell: Shell) -> None:
    code, found, complaints = completed(shell, "peek", "bill")
    assert (code, found, complaints) == (0, [], "")
    assert list(shell.folder.iterdir()) == []
    _, found, complaints = completed(shell, "peek", "bill", QUEUECRAFT_URL="nonsense")
    assert (found, complaints) == ([], "")


def test_completion_can_be_installed(shell: Shell) -> None:
    home = shell.folder / "home"
    home.mkdir()
    code, _, complaints = shell.finished(
        "--install-completion",
        "bash",
        env={"HOME": str(home), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert code == 0, complaints
    assert any("complete" in each.read_text() for each in home.rglob("*") if each.is_file())


def test_a_closed_standard_input_is_no_surprise(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    with open(os.devnull, "rb") as nothing:
        assert shell.finished("publish", "order.placed", "--lines", stdin=nothing)[0] == 0
        code, _, complaints = shell.finished("publish", "order.placed", "-", stdin=nothing)
    assert code == 2
    assert "no JSON" in complaints
