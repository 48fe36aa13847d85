"""The supervisor with children that misbehave in every way."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import pytest

from queuecraft.cli.processes import child, stop, supervisor
from queuecraft.cli.processes.files import Files, source_of
from queuecraft.cli.processes.line import Hello
from queuecraft.cli.processes.supervisor import Supervisor
from tests.cli.running import eventually as eventually_in_thread

log = logging.getLogger("queuecraft.run")

# A child that says it works, then does what the test wants.
CHILD = """
import json, os, pathlib, signal, socket, sys, time
given = dict(each[2:].split("=") for each in sys.argv[1:])
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
with pathlib.Path("starts").open("a") as starts:
    starts.write(given["number"])
line = socket.socket(fileno=int(given["supervised"]))
def tell(**report):
    line.sendall(json.dumps(report).encode() + b"\\n")
def hello():
    tell(type="hello", broker="local://", workers={"billing": ["order.*"]}, shutdown_timeout=0.05)
def work(healthy=True):
    tell(type="state", started=True, healthy=healthy)
"""
OBEDIENT = "hello(); work(); line.recv(100)"


def starts(folder: Path) -> str:
    file = folder / "starts"
    return file.read_text() if file.exists() else ""


@pytest.fixture(autouse=True)
def in_a_hurry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor, "BACKOFF", 0.001)
    for name in ("GRACE", "MARGIN", "LAST"):
        monkeypatch.setattr(child, name, 0.05)


def supervising(code: str, processes: int = 1, files: Files | None = None) -> Supervisor:
    return Supervisor([sys.executable, "-c", CHILD + code], processes, log, files=files)


async def eventually(condition: object) -> None:
    assert callable(condition)
    await asyncio.to_thread(eventually_in_thread, condition)


@pytest.fixture(autouse=True)
def talkative(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "queuecraft.run")


async def test_what_the_first_child_says_is_announced_once(tmp_path: Path) -> None:
    told: list[Hello] = []
    it = supervising(OBEDIENT, 2)
    running = asyncio.create_task(it.run(announce=told.append))
    await eventually(lambda: it.healthy)
    it.stop("the test")
    assert await running == 0
    assert [hello.workers for hello in told] == [{"billing": ("order.*",)}]
    assert sorted(starts(tmp_path)) == ["1", "2"]


@pytest.mark.parametrize(("code", "result"), [(7, 1), (3, 3), (0, 1)])
async def test_children_that_never_come_to_work_are_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int, result: int
) -> None:
    assert await supervising(f"hello(); os._exit({code})").run() == result
    assert len(starts(tmp_path)) == supervisor.TRIES
    assert f"ended with exit code {code}" in caplog.text
    assert "no process has come to work in 5 tries; giving up" in caplog.text


async def test_a_mistake_is_not_tried_again(tmp_path: Path) -> None:
    assert await supervising("os._exit(2)", 3).run() == 2
    assert starts(tmp_path) == "1"


async def test_a_mistake_of_one_does_not_end_those_who_work_and_is_not_tried_again_unasked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = f"""
mended = pathlib.Path("mended")
if given["number"] == "2" and not mended.exists():
    while not pathlib.Path("working").exists():
        time.sleep(0.01)
    os._exit(2)
{OBEDIENT}
"""
    it = supervising(code, 2)
    running = asyncio.create_task(it.run())
    await eventually(lambda: any(child.started for child in it._children))
    (tmp_path / "working").touch()
    await eventually(lambda: "not started again before SIGHUP" in caplog.text)
    assert not it.healthy
    (tmp_path / "mended").touch()
    it.renew("the test")
    await eventually(lambda: it.healthy and "every process is new" in caplog.text)
    it.stop("the test")
    assert await running == 0
    assert starts(tmp_path).count("2") == 2


async def test_a_mistake_before_anybody_works_is_not_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await supervising("hello(); os._exit(2)", 2).run() == 2
    assert starts(tmp_path).count("1") == 1
    assert "the application cannot run as it is; giving up" in caplog.text


async def test_children_that_have_worked_are_replaced_as_often_as_it_takes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    it = supervising("hello(); work(); os.kill(os.getpid(), signal.SIGKILL)")
    running = asyncio.create_task(it.run())
    await eventually(lambda: len(starts(tmp_path)) > 2 * supervisor.TRIES)
    it.stop("the test")
    await running
    assert "was killed by SIGKILL" in caplog.text
    assert "giving up" not in caplog.text


async def test_a_program_that_cannot_be_started_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await Supervisor(["/no/such/program"], 1, log).run() == 1
    assert "process 1 cannot be started: " in caplog.text


async def test_a_child_that_does_not_listen_is_killed_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = supervising("hello(); work(); time.sleep(1000)")
    running = asyncio.create_task(it.run())
    await eventually(lambda: it.healthy)
    it.stop("the test")
    assert await running == 1
    assert "was killed by SIGKILL" in caplog.text


async def test_a_child_that_has_not_come_to_listen_is_ended_by_a_signal(tmp_path: Path) -> None:
    it = supervising("signal.signal(15, lambda *_: os._exit(0)); time.sleep(1000)")
    running = asyncio.create_task(it.run())
    await eventually(lambda: starts(tmp_path))
    it.stop("the test")
    assert await running == 0


async def test_one_that_says_nothing_any_more_is_not_healthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = supervising(OBEDIENT)
    running = asyncio.create_task(it.run())
    await eventually(lambda: it.healthy)
    monkeypatch.setattr(child, "SILENCE", 0.0)
    assert not it.healthy
    monkeypatch.undo()
    it.stop("the test")
    await running


async def test_garbage_from_a_child_is_left_out(tmp_path: Path) -> None:
    garbage = 'line.sendall(b"\\xff\\n{}\\n[1]\\nnull\\n{\\"type\\":\\"state\\"}\\n");'
    it = supervising(garbage + OBEDIENT)
    running = asyncio.create_task(it.run())
    await eventually(lambda: it.healthy)
    it.stop("the test")
    assert await running == 0


async def test_a_second_stop_right_after_the_first_is_the_same_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = supervising(OBEDIENT)
    running = asyncio.create_task(it.run())
    await eventually(lambda: it.healthy)
    it.stop("SIGTERM")
    it.stop("SIGTERM")
    assert await running == 0
    assert "at once" not in caplog.text


async def test_a_later_stop_forces(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "TOGETHER", -1.0)
    it = supervising(OBEDIENT + "; os._exit(1 if line.recv(100) == b'force\\n' else 7)")
    running = asyncio.create_task(it.run())
    await eventually(lambda: it.healthy)
    it.stop("SIGTERM")
    await asyncio.sleep(0)
    it.stop("SIGTERM")
    it.stop("SIGTERM")
    assert await running == 1
    assert caplog.text.count("SIGTERM again: stopping 1 process at once") == 1


async def test_renewed_processes_take_over_from_the_old_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    it = supervising(OBEDIENT, 2)
    running = asyncio.create_task(it.run())
    await eventually(lambda: it.healthy)
    os.kill(os.getpid(), signal.SIGHUP)
    await eventually(lambda: "every process is new" in caplog.text)
    assert it.healthy
    assert sorted(starts(tmp_path)) == ["1", "1", "2", "2"]
    it.stop("the test")
    it.renew("too late")
    assert await running == 0
    assert "too late" not in caplog.text


async def test_a_successor_that_fails_leaves_the_old_ones_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = f"""
if pathlib.Path("broken").exists():
    os._exit(2)
{OBEDIENT}
"""
    it = supervising(code, 2)
    running = asyncio.create_task(it.run())
    await eventually(lambda: it.healthy)
    (tmp_path / "broken").touch()
    it.renew("the test")
    await eventually(lambda: "the others stay as they are" in caplog.text)
    assert it.healthy
    it.stop("the test")
    assert await running == 0


# -- files -----------------------------------------------------------------------------------------


async def test_a_change_is_seen_once_it_is_over(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("1")
    files = Files([tmp_path])
    before = files.snapshot()
    looking = asyncio.create_task(files.changed(before))
    (tmp_path / "shop.py").write_text("12")
    (tmp_path / "new.toml").write_text("")
    names, after = await looking
    assert names == ["new.toml", "shop.py"]
    (tmp_path / "new.toml").unlink()
    assert (await files.changed(after))[0] == ["new.toml"]


def test_what_is_no_source_is_not_watched(tmp_path: Path) -> None:
    for name in ("a.py", "b.txt", ".git/c.py", "__pycache__/d.py", "venv/lib/e.py", "deep/f.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    (tmp_path / "dead.py").symlink_to("nowhere")
    seen = {os.path.relpath(name, tmp_path) for name in Files([tmp_path]).snapshot()}
    assert seen == {"a.py", "deep/f.py"}


def test_the_directory_of_an_application_is_that_of_its_package(tmp_path: Path) -> None:
    (tmp_path / "qc_package").mkdir()
    (tmp_path / "qc_package/__init__.py").write_text("")
    (tmp_path / "qc_module.py").write_text("")
    assert source_of("qc_package.app") == tmp_path / "qc_package"
    assert source_of("qc_module") == tmp_path
    assert source_of("qc_nothing") == tmp_path


async def test_reloading_starts_anew_and_waits_after_a_mistake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = f"""
if pathlib.Path("broken.py").exists():
    os._exit(2)
{OBEDIENT}
"""
    it = supervising(code, 2, Files([tmp_path]))
    running = asyncio.create_task(it.run())
    await eventually(lambda: it.healthy)
    (tmp_path / "broken.py").write_text("")
    await eventually(lambda: "waiting for a change" in caplog.text)
    assert starts(tmp_path).count("2") == 1
    (tmp_path / "broken.py").unlink()
    await eventually(lambda: it.healthy)
    assert starts(tmp_path).count("2") == 2
    it.stop("the test")
    assert await running == 0
