"""The queues on the whole screen: what is in trouble first, and nothing wrapped."""

from __future__ import annotations

import json
import signal

import pytest
from rich.console import Console
from rich.text import Text

from queuecraft.cli.watch import Screen
from queuecraft.drivers.base import QueueInfo
from queuecraft.drivers.partial import Partial
from tests.cli.shell import PATIENCE, Shell


def drawn(screen: Screen, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height)
    with console.capture() as capture:
        console.print(screen)
    return [line.rstrip() for line in capture.get().splitlines()]


def many(count: int) -> list[QueueInfo]:
    return [QueueInfo(name=f"queue-{n:02}", ready=0, dead=0, consumers=1) for n in range(count)]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (50, 10), (30, 4)])
def test_more_queues_than_rows_are_counted_and_the_footer_stays(width: int, height: int) -> None:
    screen = Screen()
    screen.caption = Text("the footer")
    screen.infos = many(100)
    header, *rows, more, footer = drawn(screen, width, height)
    assert header.startswith("queue")
    assert len(rows) == height - 3
    assert more.startswith(f"+{100 - len(rows)} more")
    assert footer == "the footer"


def test_what_is_in_trouble_comes_first_and_all_that_fits_is_shown() -> None:
    screen = Screen()
    screen.infos = [*many(8), QueueInfo(name="zebra", ready=0, dead=3, consumers=1)]
    _, first, *others, footer = drawn(screen, 80, 11)
    assert first.startswith("zebra")
    assert len(others) == 8
    assert "more" not in footer


def test_a_list_that_may_lack_queues_says_so_above_the_footer() -> None:
    screen = Screen()
    screen.caption = Text("the footer")
    screen.infos = Partial(many(100), "the interface is away; start it")
    lines = drawn(screen, 80, 10)
    assert len(lines) == 10
    assert lines[-2:] == [
        "there may be queues that are not listed: the interface is away; start it",
        "the footer",
    ]


def test_a_long_name_is_cut_so_that_a_queue_stays_a_line() -> None:
    screen = Screen()
    screen.infos = [QueueInfo(name="a-long-name-" * 20, ready=1234, dead=0, consumers=1)]
    _, row, _ = drawn(screen, 80, 24)
    assert "…" in row
    assert "1,234" in row


def test_in_a_pipe_there_is_one_header_and_every_line_has_its_time(shell: Shell) -> None:
    shell.declare("billing")
    with shell.process("queues", "--watch", "0.1") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().decode().split("\t") for _ in range(5)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    header, *rows = lines
    assert header[:2] == ["time", "queue"]
    assert [row[1] for row in rows] == ["billing", "billing.dlq"] * 2
    assert all(row[0].endswith("Z") for row in rows)


def test_queues_may_be_named(shell: Shell) -> None:
    for name in ("billing", "mail", "audit"):
        shell.declare(name)
    names = [each["name"] for each in shell.json("queues", "mail", "audit")]
    assert names == ["audit", "audit.dlq", "mail", "mail.dlq"]
    result = shell("queues", "mial", "--json")
    assert result.exit_code == 4
    assert "did you mean 'mail'" in json.loads(result.stderr)["error"]
