from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable

import pytest

from queuecraft import DeadLetter, Policy, Queue, QueueCraft
from queuecraft.pipeline.lake import Lake
from tests.cli.shell import Shell, Terminal
from tests.pipeline.segments import rows


@pytest.fixture
def lake(shell: Shell) -> Lake:
    return Lake.at(shell.folder / "lake")


def publish(shell: Shell, count: int) -> None:
    async def send(qc: QueueCraft) -> None:
        await qc.publish_many("order.placed", [{"n": n} for n in range(count)])

    shell.with_broker(send)


def test_a_tap_is_made_and_captured(shell: Shell, lake: Lake) -> None:
    shell.ok("declare", "tap", "order.*", "--no-dead-letters")
    publish(shell, 3)
    told = shell.ok("lake", "capture", "lake", "--queue", "tap", "--once")
    assert told == "Captured 3 messages in 1 file in lake.\n"
    assert [json.loads(row["payload"]) for row in rows(lake)] == [{"n": n} for n in range(3)]
    assert shell.payloads("tap") == []


def test_programs_are_told_in_json(shell: Shell) -> None:
    shell.declare("tap", "order.*")
    publish(shell, 5)
    told = shell.json("lake", "capture", "lake", "--queue", "tap", "--once", "--rows", "2")
    assert told == [{"rows": 5, "segments": 3, "size": 35, "replayed": 0, "interrupted": False}]


def test_a_queue_that_does_not_exist_is_named(shell: Shell) -> None:
    shell.declare("tap")
    result = shell("lake", "capture", "lake", "--queue", "taap", "--once")
    assert result.exit_code == 4
    assert "there is no queue 'taap'; did you mean 'tap'" in result.stderr
    assert not (shell.folder / "lake").exists()


def test_dead_letters_need_force(shell: Shell) -> None:
    shell.declare("billing")
    result = shell("lake", "capture", "lake", "--queue", "billing.dlq", "--once")
    assert result.exit_code == 1
    assert "holds dead letters" in result.stderr
    told = shell.ok("lake", "capture", "lake", "--queue", "billing.dlq", "--once", "--force")
    assert told == "Captured 0 messages in 0 files in lake.\n"


def test_dead_letters_of_another_name_need_force_too(shell: Shell) -> None:
    failed = Policy(dead_letter=DeadLetter(queue="payments.failed"))
    shell.with_broker(lambda qc: qc.admin.declare(Queue("payments", policy=failed)))
    result = shell("lake", "capture", "lake", "--queue", "payments.failed", "--once")
    assert result.exit_code == 1
    assert "holds dead letters" in result.stderr


@pytest.mark.parametrize("option", [("--rows", "0"), ("--rows", "70000"), ("--seconds", "soon")])
def test_numbers_that_make_no_sense_are_refused(shell: Shell, option: tuple[str, str]) -> None:
    shell.declare("tap")
    result = shell("lake", "capture", "lake", "--queue", "tap", "--once", *option)
    assert result.exit_code == 2


def test_a_folder_that_cannot_be_written_is_told_and_costs_nothing(shell: Shell) -> None:
    shell.declare("tap", "order.*")
    publish(shell, 2)
    (shell.folder / "lake").write_text("a file")
    result = shell("lake", "capture", "lake", "--queue", "tap", "--once")
    assert result.exit_code == 2
    assert "lake" in result.stderr
    assert len(shell.payloads("tap")) == 2


def test_without_arrow_it_says_what_to_install(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuecraft.pipeline.arrow.find_spec", lambda name: None)
    result = shell("lake", "capture", "lake", "--queue", "tap", "--once")
    assert result.exit_code == 2
    assert "pip install 'queuecraft[spark]'" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(shell: Shell, lake: Lake, number: signal.Signals) -> None:
    shell.declare("tap", "order.*")
    publish(shell, 3)
    command = ("lake", "capture", "lake", "--queue", "tap", "--seconds", "1h", "--json")
    with shell.process(*command) as process:
        try:
            while shell.with_broker(lambda qc: qc.admin.inspect("tap")).in_flight != 3:
                assert process.poll() is None, process.communicate()
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        except BaseException:
            process.kill()
            raise
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out) == {
        "rows": 3,
        "segments": 1,
        "size": 21,
        "replayed": 0,
        "interrupted": False,
    }
    assert len(rows(lake)) == 3
    assert shell.payloads("tap") == []


def test_asked_twice_it_ends_at_once(shell: Shell) -> None:
    shell.declare("tap")
    program = (
        "import asyncio, queuecraft.cli.lake.capture as command\n"
        "from queuecraft.cli import main\n"
        "async def take(*_, **options):\n"
        "    print('taking', flush=True)\n"
        "    await options['stop'].wait()\n"
        "    print('asked', flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "command.take = take\n"
        "main()\n"
    )
    command = ("lake", "capture", "lake", "--queue", "tap")
    with shell.process(*command, program=("-c", program)) as process:
        try:
            assert process.stdout is not None
            for word in (b"taking\n", b"asked\n"):
                assert process.stdout.readline() == word
                process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=30)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == 130
    assert out.startswith(b"Interrupted: 0 messages")


def test_a_person_sees_how_far_it_is(
    shell: Shell, terminal: Callable[..., Terminal], lake: Lake
) -> None:
    shell.declare("tap", "order.*")
    publish(shell, 4)
    screen = terminal("lake", "capture", "lake", "--queue", "tap", "--seconds", "100ms")
    screen.until("4/?")
    screen.interrupt()
    code, seen = screen.finish()
    assert code == 0
    assert "Captured 4 messages in 1 file in lake." in seen


def test_the_command_line_starts_without_arrow_or_spark(shell: Shell) -> None:
    program = (
        "import sys, queuecraft.cli, queuecraft.pipeline.spools, queuecraft.pipeline.capture; "
        "print(*({'pyarrow', 'pyspark', 'pandas'} & sys.modules.keys()))"
    )
    code, out, err = shell.finished(program=("-c", program), stderr=subprocess.PIPE)
    assert (code, out.split(), err) == (0, [], "")
