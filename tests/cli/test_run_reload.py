"""`queuecraft run --reload`: code that changes, breaks and is mended while it runs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.cli.running import APP, Running, application, eventually, gone


def test_changed_code_replaces_the_old_which_finishes_first(tmp_path: Path) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", "--reload", folder=tmp_path) as program:
        (old,) = program.until(r"inside (\d+)")
        application(tmp_path, APP.replace('"inside"', '"anew"'))
        program.until("shop.py changed: reloading")
        program.until("the supervisor asks: finishing what runs")
        assert "anew" not in program.output
        (tmp_path / "gate").touch()
        (new,) = program.until(r"anew (\d+)")
        assert new != old
        assert program.output.index(f"handled {old}") < program.output.index("anew")
        program.send(signal.SIGINT)
        assert program.ends() == 0


def test_a_mistake_in_new_code_is_shown_and_waits_for_the_next_change(tmp_path: Path) -> None:
    application(tmp_path)
    (tmp_path / "gate").touch()
    arguments = ["run", "shop:qc", "--reload", "--health-port=0"]
    with Running(*arguments, folder=tmp_path) as program:
        program.until("handled")
        application(tmp_path, APP + "\nx = (\n")
        program.until("'\\(' was never closed")
        program.until("waiting for a change")
        assert program.health() == (503, "unhealthy")
        application(tmp_path, APP)
        program.until("handled", 2)
        eventually(lambda: program.health() == (200, "healthy"))
        program.send(signal.SIGTERM)
        assert program.ends() == 0


def test_it_can_begin_with_a_mistake(tmp_path: Path) -> None:
    application(tmp_path, "1 / 0\n")
    (tmp_path / "gate").touch()
    with Running("run", "shop:qc", "--reload", folder=tmp_path) as program:
        program.until("ZeroDivisionError")
        program.until("waiting for a change")
        application(tmp_path)
        program.until("handled")
        program.send(signal.SIGTERM)
        assert program.ends() == 0


def test_a_signal_ends_the_wait_for_a_change(tmp_path: Path) -> None:
    application(tmp_path, "1 / 0\n")
    with Running("run", "shop:qc", "--reload", folder=tmp_path) as program:
        program.until("waiting for a change")
        program.send(signal.SIGINT)
        assert program.ends() == 0


def test_a_killed_process_is_replaced_while_reloading_is_on(tmp_path: Path) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", "--reload", folder=tmp_path) as program:
        (old,) = program.until(r"inside (\d+)")
        os.kill(int(old), signal.SIGKILL)
        new = program.until(r"inside (\d+)", 2)[1]
        assert new != old
        program.send(signal.SIGTERM)
        (tmp_path / "gate").touch()
        assert program.ends() == 0


def test_several_processes_reload_together_and_a_mistake_is_shown_once(tmp_path: Path) -> None:
    application(tmp_path)
    (tmp_path / "gate").touch()
    with Running("run", "shop:qc", "--reload", "--processes=2", folder=tmp_path) as program:
        program.until("handled", 2)
        application(tmp_path, "1 / 0\n")
        program.until("waiting for a change")
        application(tmp_path)
        program.until("handled", 4)
        program.send(signal.SIGTERM)
        assert program.ends() == 0
    assert program.output.count("error: shop cannot be imported") == 1


def test_another_directory_and_settings_are_watched_too(tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    inside = tmp_path / "shop"
    beside.mkdir()
    inside.mkdir()
    application(inside, APP, "__init__")
    (tmp_path / "gate").touch()
    arguments = ["run", "shop:qc", "--reload", f"--reload-dir={beside}"]
    with Running(*arguments, folder=tmp_path) as program:
        program.until("handled")
        (beside / "prices.toml").write_text("[prices]\n")
        program.until("handled", 2)
        (tmp_path / ".env").write_text("PRICE=1\n")
        program.until(r"\.env changed: reloading")
        program.until("handled", 3)
        program.send(signal.SIGTERM)
        assert program.ends() == 0


def test_the_process_goes_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", "--reload", folder=tmp_path) as program:
        (child,) = program.until(r"inside (\d+)")
        program.send(signal.SIGKILL)
        program.until("the supervisor is gone")
        (tmp_path / "gate").touch()
        eventually(lambda: gone(int(child)))
    assert "handled" in program.output
