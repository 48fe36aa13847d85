"""`queuecraft run` in one process: signals, mistakes and logs, as a shell meets them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.brokers.fixtures import do_without
from tests.brokers.installation import Unavailable
from tests.brokers.redis import RedisServer
from tests.cli.running import APP, Running, application, eventually

both = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)


def again(program: Running, number: signal.Signals) -> None:
    """A second signal, as far from the first as a person's would be."""
    with pytest.raises(subprocess.TimeoutExpired):
        program.process.wait(0.3)
    program.send(number)


@both
def test_one_signal_lets_a_slow_handler_finish(tmp_path: Path, number: signal.Signals) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", folder=tmp_path) as program:
        program.until("inside")
        program.send(number)
        program.until("finishing what runs")
        assert "handled" not in program.output
        (tmp_path / "gate").touch()
        assert program.ends() == 0
    assert "handled" in program.output


def test_what_a_handler_prints_is_seen_at_once_through_a_pipe(tmp_path: Path) -> None:
    application(tmp_path, APP.replace(", flush=True", ""))
    for more in ((), ("--processes", "2")):
        with Running("run", "shop:qc", *more, folder=tmp_path, PYTHONUNBUFFERED="") as program:
            program.until("inside")


@both
def test_a_second_signal_forces(tmp_path: Path, number: signal.Signals) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", folder=tmp_path) as program:
        program.until("inside")
        program.send(number)
        program.until("finishing what runs")
        again(program, number)
        assert program.ends() == 1
    assert "stopping at once" in program.output
    assert "handled" not in program.output


def test_two_signals_that_come_together_are_one(tmp_path: Path) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", folder=tmp_path) as program:
        program.until("inside")
        program.send(signal.SIGTERM)  # as `timeout` does: to the process, then to its group
        program.send_to_group(signal.SIGTERM)
        program.until("finishing what runs")
        (tmp_path / "gate").touch()
        assert program.ends() == 0


def test_two_signals_end_a_handler_that_keeps_the_loop_from_turning(tmp_path: Path) -> None:
    application(tmp_path, APP.replace("await asyncio.sleep(0.01)", "time.sleep(1000)"))
    with Running("run", "shop:qc", folder=tmp_path) as program:
        program.until("inside")
        program.send(signal.SIGTERM)
        again(program, signal.SIGTERM)
        assert program.ends() == 1


def test_a_handler_that_takes_too_long_is_cut_off_and_the_exit_code_says_so(tmp_path: Path) -> None:
    application(tmp_path, APP.replace("shutdown_timeout=10", "shutdown_timeout=0.1"))
    with Running("run", "shop:qc", folder=tmp_path) as program:
        program.until("inside")
        program.send(signal.SIGTERM)
        assert program.ends() == 1
    assert "stopped before a handler had returned" in program.output


def test_a_closed_terminal_stops_it_like_a_signal(tmp_path: Path) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", folder=tmp_path) as program:
        program.until("inside")
        program.send(signal.SIGHUP)
        program.until("SIGHUP: finishing what runs")
        (tmp_path / "gate").touch()
        assert program.ends() == 0


def test_a_signal_during_the_import_ends_it_at_once(tmp_path: Path) -> None:
    application(tmp_path, "import time\nprint('importing', flush=True)\ntime.sleep(1000)\n")
    with Running("run", "shop:qc", folder=tmp_path) as program:
        program.until("importing")
        program.send(signal.SIGINT)
        assert program.ends() == 0
    assert program.output == "importing\n"


def test_it_ends_when_its_workers_were_stopped(tmp_path: Path) -> None:
    stopping = APP.replace('print("handled", os.getpid(), flush=True)', "await billing.stop()")
    application(tmp_path, stopping)
    (tmp_path / "gate").touch()
    with Running("run", "shop:qc", folder=tmp_path) as program:
        assert program.ends() == 0
    assert "every worker was stopped" in program.output


def test_the_first_lines_tell_broker_workers_and_health_without_the_password(
    tmp_path: Path,
) -> None:
    url = "'amqp://ada:s3cret@rabbit/'"  # the drivers given serve it all the same
    application(tmp_path, APP.replace("QueueCraft(drivers", f"QueueCraft({url}, drivers"))
    with Running("run", "shop:qc", "--health-port=0", folder=tmp_path) as program:
        program.until("inside")
        eventually(lambda: program.health() == (200, "healthy"))
        program.send(signal.SIGTERM)
        program.until("finishing what runs")
        assert program.health() == (503, "unhealthy")
        (tmp_path / "gate").touch()
        assert program.ends() == 0
    first, second, *_ = program.output.splitlines()
    assert "on amqp://ada:***@rabbit/" in first
    assert second.strip() == "billing ← number"
    assert "s3cret" not in program.output
    assert "\x1b[" not in program.output, "no colours where nobody sees them"


def test_every_line_of_the_log_is_json_if_asked_for(tmp_path: Path) -> None:
    application(tmp_path, APP.replace('print("inside", os.getpid(), flush=True)', "1 / 0"))
    with Running("run", "shop:qc", "--log-format=json", folder=tmp_path) as program:
        program.until("ZeroDivisionError")
        program.send(signal.SIGTERM)
        assert program.ends() == 0
    lines = [json.loads(line) for line in program.output.splitlines()]
    assert lines[0]["message"] == "running"
    assert lines[0]["workers"] == {"billing": ["number"]}
    assert any("ZeroDivisionError" in line.get("error", "") for line in lines)


def test_an_application_that_sets_up_logging_keeps_it(tmp_path: Path) -> None:
    own = "import logging\nlogging.basicConfig(level=20, format='mine: %(message)s')\n"
    application(tmp_path, own + APP)
    with Running("run", "shop:qc", folder=tmp_path) as program:
        program.until("mine: worker billing started")
        program.send(signal.SIGTERM)
        (tmp_path / "gate").touch()
        assert program.ends() == 0


AWAY = (
    APP.replace("shutdown_timeout=10", "shutdown_timeout=10, reconnect_delay=0.01, {more}")
    + """
async def away(self):
    if not Path("gate").exists():
        raise ConnectionLost("nobody is at home")
    await MemoryDriver.open(self)
Shared.open = away
"""
)


def test_a_broker_that_is_away_is_waited_for(tmp_path: Path) -> None:
    application(tmp_path, AWAY.replace("{more}", ""))
    with Running("run", "shop:qc", "--health-port=0", folder=tmp_path) as program:
        program.until(r"connecting failed \(2\), again in .* nobody is at home")
        assert program.health() == (503, "unhealthy")
        (tmp_path / "gate").touch()
        program.until("handled")
        eventually(lambda: program.health() == (200, "healthy"))
        program.send(signal.SIGTERM)
        assert program.ends() == 0


def test_a_broker_that_is_away_can_be_given_up(tmp_path: Path) -> None:
    application(tmp_path, AWAY.replace("{more}", "reconnect_attempts=2"))
    with Running("run", "shop:qc", folder=tmp_path) as program:
        assert program.ends() == 3
    assert "nobody is at home" in program.output


def test_a_broker_that_goes_away_can_be_given_up_too(tmp_path: Path) -> None:
    try:
        broker = RedisServer().__enter__()
    except Unavailable as reason:
        do_without(f"Redis: {reason}")
    with broker:
        settings = f'"{broker.url}?mode=list", auto_reconnect=False'
        application(tmp_path, APP.replace("drivers=[Shared()]", settings))
        (tmp_path / "gate").touch()
        with Running("run", "shop:qc", folder=tmp_path) as program:
            program.until("handled")
            broker.kill()
            assert program.ends() == 3
    assert "not connected" in program.output


def test_a_signal_ends_the_wait_for_a_broker(tmp_path: Path) -> None:
    application(tmp_path, AWAY.replace("{more}", ""))
    with Running("run", "shop:qc", folder=tmp_path) as program:
        program.until("connecting failed")
        program.send(signal.SIGTERM)
        assert program.ends() == 0


def test_a_health_port_in_use_is_a_clear_error(tmp_path: Path) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", "--health-port=0", folder=tmp_path) as program:
        program.until("inside")
        port = program.until(r":(\d+)/health")[0]
        for more in ([], ["--processes=2"]):
            with Running(
                "run", "shop:qc", f"--health-port={port}", *more, folder=tmp_path
            ) as other:
                assert other.ends() == 2
            assert f"health port 127.0.0.1:{port} is in use" in other.output
            assert "Traceback" not in other.output


TWO = (
    APP
    + """
mail = qc.worker("mail")

@mail.on(number)
async def post(n: int) -> None:
    print("posted", flush=True)
"""
)


def test_one_worker_can_be_run_alone_and_the_others_still_get_their_messages(
    tmp_path: Path,
) -> None:
    look = """
async def look(fact) -> None:
    await asyncio.sleep(0)
    (info,) = await qc._engine.connection.current.inspect(["mail"])
    print("mail has", info.ready, flush=True)
from queuecraft.facts import MessagesSucceeded
qc.observe(MessagesSucceeded, look)
"""
    application(tmp_path, TWO + look)
    (tmp_path / "gate").touch()
    with Running("run", "shop:qc", "--worker=billing", folder=tmp_path) as program:
        assert program.until(r"mail has (\d)") == ["1"]
        program.send(signal.SIGTERM)
        assert program.ends() == 0
    assert "posted" not in program.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["shop"], "'shop' is no module:attribute; did you mean shop:qc?"),
        (["shpo:qc"], "there is no module shpo; did you mean shop?"),
        (["shop:qcc"], "shop has no 'qcc'; did you mean shop:qc?"),
        (["shop:number"], "shop:number is an Event; expected a QueueCraft"),
        (["shop:qc", "--worker=biling"], "no worker 'biling'; did you mean 'billing'?"),
        (["shop:qc", "--health-port=high"], "expected a port from 0 to 65535"),
        (["shop:qc", "--reload-dir=."], "--reload-dir needs --reload"),
        (["shop:qc", "--processes=0"], "processes"),
        (["shop:qc", "--log-format=xml"], "log-format"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_mistake_is_explained_and_ends_with_2(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    application(tmp_path)
    with Running("run", *arguments, folder=tmp_path, COLUMNS="200") as program:
        assert program.ends() == 2
    assert told in program.output
    assert "Traceback" not in program.output


def test_the_time_of_a_log_line_is_that_of_the_machine(tmp_path: Path) -> None:
    application(tmp_path)
    with Running("run", "shop:qc", folder=tmp_path, TZ="UTC") as program:
        (moment,) = set(program.until(r"(\d\d):\d\d:\d\d INFO +worker billing started"))
        program.send(signal.SIGTERM)
        (tmp_path / "gate").touch()
        assert program.ends() == 0
    assert int(moment) in {time.gmtime().tm_hour, (time.gmtime().tm_hour - 1) % 24}


def test_the_guide_runs_as_it_is_written(tmp_path: Path) -> None:
    docs = Path(__file__).parents[2] / "docs"
    guide = (docs / "running.md").read_text(encoding="utf-8")
    unit = (docs / "deployment" / "queuecraft.service").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (command,) = re.findall(r"ExecStart=\S+/queuecraft (.*)", unit)
    application(tmp_path, code)
    url = f"local://{tmp_path}/queue.db"
    arguments = command.replace("8080", "0").split()
    with Running(*arguments, folder=tmp_path, QUEUECRAFT_URL=url) as program:
        program.until("worker billing started", 4)
        eventually(lambda: program.health() == (200, "healthy"))
        program.send(signal.SIGTERM)
        assert program.ends() == 0
