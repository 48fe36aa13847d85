"""`queuecraft run --processes`: real children, really killed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from queuecraft import QueueCraft
from tests.cli.running import APP, Running, application, eventually, gone, terminal

pytestmark = pytest.mark.faults  # for the time it takes

INSIDE = r"inside (\d+)"


def pids(program: Running, times: int) -> list[int]:
    return [int(pid) for pid in program.until(INSIDE, times)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_one_signal_to_the_supervisor_drains_every_child(
    tmp_path: Path, number: signal.Signals
) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", "--processes=2", folder=tmp_path) as program:
        assert len(set(pids(program, 2))) == 2
        program.send(number)
        program.until("the supervisor asks: finishing what runs", 2)
        assert "handled" not in program.output
        (tmp_path / "gate").touch()
        assert program.ends() == 0
    assert program.output.count("handled") == 2


def test_one_signal_to_the_whole_group_drains_and_two_force(tmp_path: Path) -> None:
    number = signal.SIGINT
    application(tmp_path)
    with Running("run", "shop:qc", "--processes=2", folder=tmp_path) as program:
        pids(program, 2)
        program.send_to_group(number)  # as Ctrl-C in a terminal, or a service manager
        program.until(r"\[\d\] .*finishing what runs", 2)
        (tmp_path / "gate").touch()
        assert program.ends() == 0
    assert program.output.count("handled") == 2
    assert "stopping at once" not in program.output

    (tmp_path / "gate").unlink()
    with Running("run", "shop:qc", "--processes=2", folder=tmp_path) as program:
        pids(program, 2)
        program.send_to_group(number)
        program.until(r"\[\d\] .*finishing what runs", 2)
        with pytest.raises(subprocess.TimeoutExpired):
            program.process.wait(0.3)  # a person's second is not that fast
        program.send_to_group(number)
        assert program.ends() == 1
    assert "handled" not in program.output


def test_a_child_that_was_killed_is_replaced(tmp_path: Path) -> None:
    application(tmp_path)
    arguments = ["run", "shop:qc", "--processes=2", "--health-port=0"]
    with Running(*arguments, folder=tmp_path) as program:
        victim, other = pids(program, 2)
        eventually(lambda: program.health() == (200, "healthy"))
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: program.health() == (503, "unhealthy"))
        program.until(rf"\(pid {victim}\) was killed by SIGKILL after .*; starting another in")
        successor = pids(program, 3)[2]
        assert successor not in (victim, other)
        eventually(lambda: program.health() == (200, "healthy"))
        program.send(signal.SIGTERM)
        (tmp_path / "gate").touch()
        assert program.ends() == 0


def test_a_child_that_was_stopped_by_hand_finishes_and_is_replaced(tmp_path: Path) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", "--processes=2", folder=tmp_path) as program:
        one = pids(program, 2)[0]
        os.kill(one, signal.SIGTERM)
        program.until("SIGTERM: finishing what runs")
        (tmp_path / "gate").touch()
        program.until(rf"\(pid {one}\) ended with exit code 0 after")
        pids(program, 3)
        program.send(signal.SIGTERM)
        assert program.ends() == 0


def test_children_finish_and_go_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", "--processes=2", folder=tmp_path) as program:
        children = pids(program, 2)
        program.send(signal.SIGKILL)
        program.until("the supervisor is gone: finishing what runs", 2)
        (tmp_path / "gate").touch()
        eventually(lambda: all(map(gone, children)))
    assert program.output.count("handled") == 2


def test_a_hang_up_renews_one_process_after_the_other(tmp_path: Path) -> None:
    application(tmp_path)
    (tmp_path / "gate").touch()
    with Running("run", "shop:qc", "--processes=2", folder=tmp_path) as program:
        old = pids(program, 2)
        program.send(signal.SIGHUP)
        program.until("every process is new")
        new = pids(program, 4)[2:]
        assert not set(old) & set(new)
        assert all(map(gone, old))
        assert not any(map(gone, new))
        program.send(signal.SIGTERM)
        assert program.ends() == 0
    # The successor of each is at work before it is told to go.
    story = program.output
    assert story.index(f"inside {new[0]}") < story.index("the supervisor asks")
    assert "killed" not in story


def test_a_hang_up_with_broken_code_changes_nothing(tmp_path: Path) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", "--processes=2", "--health-port=0", folder=tmp_path) as program:
        old = pids(program, 2)
        application(tmp_path, "import nothing_of_that_name\n")
        program.send(signal.SIGHUP)
        program.until("the others stay as they are")
        assert "shop.py" in program.output
        assert not any(map(gone, old))
        eventually(lambda: program.health() == (200, "healthy"))
        program.send(signal.SIGTERM)
        (tmp_path / "gate").touch()
        assert program.ends() == 0


def test_a_closed_terminal_stops_supervisor_and_children(tmp_path: Path) -> None:
    # What is printed after the terminal is gone can be seen only in a file.
    file = tmp_path / "log"
    own = f"import logging\nlogging.basicConfig(level=20, filename={str(file)!r})\n"
    application(
        tmp_path,
        own + APP.replace("print(", "logging.info('%s %s', *(").replace(", flush=True)", "))"),
    )
    with terminal("run", "shop:qc", "--processes=2", folder=tmp_path) as shown:
        eventually(lambda: file.exists() and file.read_text().count("inside") == 2)
        shown.hang_up()
        eventually(lambda: file.read_text().count("finishing what runs") == 2)
        (tmp_path / "gate").touch()
        assert shown.process.wait(30) == 0
    assert file.read_text().count("handled") == 2


def test_a_mistake_is_told_once_and_ends_all_at_once(tmp_path: Path) -> None:
    application(tmp_path, "import nothing_of_that_name\n")
    with Running("run", "shop:qc", "--processes=3", folder=tmp_path) as program:
        assert program.ends() == 2
    assert program.output.count("No module named 'nothing_of_that_name'") == 2  # stack, and line
    assert "starting another" not in program.output


def test_a_queue_in_memory_is_refused(tmp_path: Path) -> None:
    application(tmp_path, APP.replace("drivers=[Shared()]", '"local://"'))
    with Running("run", "shop:qc", "--processes=2", folder=tmp_path) as program:
        assert program.ends() == 2
    assert "local keeps messages in memory, and each would have its own" in program.output


def test_order_by_key_within_a_worker_is_refused(tmp_path: Path) -> None:
    application(tmp_path, APP.replace('worker("billing")', 'worker("billing", ordering="key")'))
    with Running("run", "shop:qc", "--processes=2", folder=tmp_path) as program:
        assert program.ends() == 2
    assert "ordering='key' holds within one process" in program.output


def test_a_broker_where_each_consumer_gets_everything_is_refused(tmp_path: Path) -> None:
    application(tmp_path, APP.replace("durable=True", "durable=True, competing=False"))
    with Running("run", "shop:qc", "--processes=2", folder=tmp_path) as program:
        assert program.ends() == 2
    assert "gives every message to each of them" in program.output


def test_json_lines_name_their_process(tmp_path: Path) -> None:
    silent = re.sub(r"print\(.*\)", "pass", APP)  # two processes share the pipe
    application(tmp_path, silent)
    arguments = ["run", "shop:qc", "--processes=2", "--log-format=json"]
    with Running(*arguments, folder=tmp_path) as program:
        program.until("worker billing started", 2)
        program.send(signal.SIGTERM)
        (tmp_path / "gate").touch()
        assert program.ends() == 0
    lines = [json.loads(line) for line in program.output.splitlines()]
    started = [line for line in lines if line["message"] == "worker billing started"]
    assert sorted(line["process"] for line in started) == [1, 2]


# -- on a queue that they really share -------------------------------------------------------------

SHARED = """
import asyncio, os
from queuecraft import Event, QueueCraft

number = Event("number", int)
qc = QueueCraft("local://./queue.db", shutdown_timeout=10)
worker = qc.worker("numbers", concurrency=4)

@worker.on(number)
async def handle(n: int) -> None:
    await asyncio.sleep(0.01)
    with open("handled", "a") as file:
        file.write(f"{os.getpid()} {n}\\n")
"""


def handled(folder: Path) -> list[tuple[int, int]]:
    file = folder / "handled"
    if not file.exists():
        return []
    lines = [line.split() for line in file.read_text().splitlines()]
    return [(int(pid), int(n)) for pid, n in lines]


async def publish(folder: Path, count: int) -> None:
    async with QueueCraft(f"local://{folder}/queue.db") as qc:
        await qc.admin.declare("numbers", "number")
        await qc.publish_many("number", range(count))


async def left(folder: Path) -> int:
    async with QueueCraft(f"local://{folder}/queue.db") as qc:
        infos = await qc.admin.queues()
    return sum((each.ready or 0) + (each.in_flight or 0) + (each.delayed or 0) for each in infos)


async def test_work_goes_on_and_nothing_is_lost_when_a_child_is_killed(tmp_path: Path) -> None:
    application(tmp_path, SHARED)
    with Running("run", "shop:qc", "--processes=2", folder=tmp_path) as program:
        await asyncio.to_thread(program.until, "worker numbers started", 2)
        await publish(tmp_path, 400)
        await asyncio.to_thread(eventually, lambda: len({pid for pid, _ in handled(tmp_path)}) == 2)
        victim = handled(tmp_path)[-1][0]
        os.kill(victim, signal.SIGKILL)
        await asyncio.to_thread(
            eventually, lambda: {n for _, n in handled(tmp_path)} == set(range(400))
        )
        program.send(signal.SIGTERM)
        assert await asyncio.to_thread(program.ends) == 0
    assert "was killed by SIGKILL" in program.output
    assert "starting another" in program.output
    repeated = len(handled(tmp_path)) - 400
    assert repeated <= 4, "at most what the victim had in hand comes twice"
    assert await left(tmp_path) == 0


async def test_a_rolling_restart_loses_and_repeats_nothing(tmp_path: Path) -> None:
    application(tmp_path, SHARED)
    await publish(tmp_path, 1500)
    with Running("run", "shop:qc", "--processes=2", folder=tmp_path) as program:
        await asyncio.to_thread(eventually, lambda: len(handled(tmp_path)) > 50)
        program.send(signal.SIGHUP)
        await asyncio.to_thread(program.until, "every process is new")
        await asyncio.to_thread(eventually, lambda: len(handled(tmp_path)) >= 1500)
        program.send(signal.SIGTERM)
        assert await asyncio.to_thread(program.ends) == 0
    assert sorted(n for _, n in handled(tmp_path)) == list(range(1500))
    assert await left(tmp_path) == 0


def test_ctrl_c_in_a_terminal_drains_once_and_forces_twice(tmp_path: Path) -> None:
    application(tmp_path)
    with terminal("run", "shop:qc", "--processes=2", folder=tmp_path) as shown:
        eventually(lambda: shown.drawn.count("inside") == 2)
        shown.press(b"\x03")
        eventually(lambda: shown.drawn.count("finishing what runs") == 2)
        (tmp_path / "gate").touch()
        assert shown.ends() == 0
    assert shown.drawn.count("handled") == 2
    assert "stopping at once" not in shown.drawn
    assert "\x1b[" in shown.drawn, "colours on a terminal"

    (tmp_path / "gate").unlink()
    with terminal("run", "shop:qc", "--processes=2", folder=tmp_path) as shown:
        eventually(lambda: shown.drawn.count("inside") == 2)
        shown.press(b"\x03")
        eventually(lambda: shown.drawn.count("finishing what runs") == 2)
        with pytest.raises(subprocess.TimeoutExpired):
            shown.process.wait(0.3)
        shown.press(b"\x03")
        assert shown.ends() == 1
    assert "handled" not in shown.drawn
