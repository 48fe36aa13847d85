"""The pytest plugin, and what importing the test utilities costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import queuecraft.testing

TESTS = """
from queuecraft import Event, QueueCraft
from queuecraft.testing import FakeClock, Ledger, MockQueueCraft

greeted = Event("user.greeted", dict)


async def test_a_queue_in_memory(queuecraft):
    assert isinstance(queuecraft, QueueCraft)
    assert queuecraft.connection_state == "connected"
    ledger = Ledger()
    await queuecraft.worker("greeter").on(greeted, ledger.recording("greeter")).start()
    await queuecraft.publish(greeted, {"name": "Ada"})
    await ledger.wait_for(greeter=1)


async def test_a_mock(mock_queuecraft):
    assert isinstance(mock_queuecraft, MockQueueCraft)
    await mock_queuecraft.publish(greeted, {"name": "Ada"})
    assert mock_queuecraft.published(greeted) == [{"name": "Ada"}]


async def test_a_clock(fake_clock):
    assert isinstance(fake_clock, FakeClock)
    before = fake_clock.now()
    await fake_clock.advance(3600)
    assert fake_clock.now() == before + 3600
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_the_fixtures_work_in_a_project(tmp_path: Path, mode: str) -> None:
    mark = "import pytest\npytestmark = pytest.mark.asyncio\n" if mode == "strict" else ""
    (tmp_path / "test_it.py").write_text(mark + TESTS, encoding="utf-8")
    output = run_pytest(
        tmp_path,
        *("-p", "pytest_asyncio.plugin", "-p", "queuecraft.testing.plugin"),
        *("-o", f"asyncio_mode={mode}", "-W", "error"),
        *("-o", "asyncio_default_fixture_loop_scope=function"),
    )
    assert "3 passed" in output, output


def test_the_plugin_does_no_harm_where_there_is_no_asyncio_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n", encoding="utf-8")
    (tmp_path / "pytest_asyncio.py").write_text("raise ImportError\n", encoding="utf-8")
    output = run_pytest(tmp_path, "-p", "queuecraft.testing.plugin", "-W", "error")
    assert "1 passed" in output, output


CONFORMING = """
import pytest
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.testing import DriverConformance


class Forgetful(MemoryDriver):
    async def send(self, messages, *, atomic=False):
        receipts = await super().send(messages, atomic=atomic)
        for inbox in self._inboxes.values():
            inbox.clear()
        return receipts


class TestForgetful(DriverConformance):
    patience, quiet, moment = 0.05, 0.001, 0.01

    @pytest.fixture
    async def driver(self):
        driver = Forgetful()
        await driver.open()
        return driver


class TestNothing(DriverConformance):
    pass
"""


def test_the_suite_finds_a_driver_that_loses_messages_and_tells_how(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(CONFORMING, encoding="utf-8")
    output = run_pytest(
        tmp_path,
        *("-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto"),
        *("-k", "test_an_event_reaches_every or test_the_traits"),
    )
    assert "expected 1 deliveries within 0.05 s, got 0" in output, output
    assert "the suite needs a fixture `driver`" in output, output


@pytest.mark.parametrize("name", queuecraft.testing.__all__)
def test_every_name_can_be_imported_and_shows_an_example(name: str) -> None:
    value = getattr(queuecraft.testing, name)
    assert ">>>" in (value.__doc__ or ""), f"no example in the docstring of {name}"


def test_a_name_that_does_not_exist_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="Ledgre"):
        print(queuecraft.testing.Ledgre)


def test_importing_the_utilities_does_not_import_pytest() -> None:
    program = (
        "import sys, queuecraft.testing as t; t.Ledger, t.MockQueueCraft, t.FaultyDriver; "
        "print('pytest' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8")
    assert done.stdout.split() == ["False"], done.stderr
