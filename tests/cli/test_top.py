"""`queuecraft top`: everything at a glance, on a terminal or in a pipe."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from rich.console import Console

from queuecraft.admin.overview import Numbers, Overview, QueueRow
from queuecraft.cli.glance import Glance, shown, sparkline
from queuecraft.cli.top import obeyed
from queuecraft.runtime.failure_groups import FailureGroup
from tests.admin.looks import circuit, overview, row
from tests.cli.shell import PATIENCE, Shell, Terminal
from tests.cli.test_queues import HOSTILE
from tests.runtime.support import dead_letter


def drawn(seen: Overview, width: int = 120, height: int = 40, **about: Any) -> list[str]:
    console = Console(width=width, height=height)
    glance = Glance(seen, **about)
    glance.footer = "the footer"
    with console.capture() as capture:
        console.print(glance)
    return [line.rstrip() for line in capture.get().splitlines()]


def group(**about: Any) -> FailureGroup:
    told: dict[str, Any] = {
        "queue": "billing.dlq",
        "fingerprint": "f",
        "count": 4,
        "example": "m-1",
        "error_type": "bank.Refused",
        "error": "no",
        "reason": "",
        "event": "order.placed",
        "first": None,
        "last": None,
        **about,
    }
    return FailureGroup(**told)


def test_all_that_matters_is_on_the_screen() -> None:
    seen = overview(
        QueueRow(name="billing", ready=1234, dead=4, handled_per_second=2.0, p95=0.004, drain=inf),
        status="critical",
        reasons=("'billing' has messages waiting, and nobody consumes it.",),
        workers=(row(state="silent"), row("mail")),
        circuits=(circuit(),),
        groups=(group(),),
        dead=4,
        numbers=Numbers(in_per_second=((0, 1.0), (1, 3.5))),
    )
    text = "\n".join(drawn(seen))
    for part in (
        *("● critical", "2 workers (1 silent)", "1 open circuits", "4 dead", "nobody consumes it."),
        *("in/s 3.5", "1,234", "4ms", "never", "Refused: no", "billing on web-1 (7)  silent"),
        "the footer",
    ):
        assert part in text


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (50, 12), (30, 8)])
def test_it_fits_on_any_screen(width: int, height: int) -> None:
    queues = [QueueRow(name=f"queue-{n:03}", ready=n, drain=inf) for n in range(500)]
    workers = tuple(row(f"queue-{n:03}", process=str(n)) for n in range(50))
    lines = drawn(
        overview(*queues, workers=workers, groups=(group(),) * 30, reasons=("why.",) * 9),
        width,
        height,
    )
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert lines[-1] == "the footer"
    assert any("more; / filters" in line for line in lines)


def test_on_a_small_screen_names_and_numbers_can_still_be_read() -> None:
    numbers = Numbers(
        in_per_second=((0.0, 12.5),),
        handled_per_second=((0.0, 987.0),),
        failure_ratio=((0.0, 0.105),),
        oldest_age=((0.0, 45.0),),
    )
    busy = QueueRow(name="orders.billing", ready=1_234_567, dead=12, drain=90.0)
    text = "\n".join(drawn(overview(busy, numbers=numbers), width=40, height=10))
    for told in ("orders.billing", "1,234,567", "12.5", "987", "10.5%", "45"):
        assert told in text


def test_where_there_is_room_everything_is_shown() -> None:
    queues = [QueueRow(name=f"queue-{n:03}", ready=n) for n in range(100)]
    lines = drawn(overview(*queues, workers=(row(),), groups=(group(),)), height=140)
    assert sum(line.startswith("queue-") for line in lines) == 100


def test_queues_that_the_broker_does_not_tell_of_are_owned_up_to() -> None:
    queues = [QueueRow(name=f"queue-{n:03}", ready=n) for n in range(100)]
    hint = "there may be queues that are not listed: the interface is away; start it"
    lines = drawn(overview(*queues, lacking="the interface is away; start it"), height=20)
    assert len(lines) <= 20
    assert hint in lines
    assert hint not in drawn(overview(*queues), height=20)


def test_nothing_in_a_message_steers_the_terminal() -> None:
    evil = f"[red]{HOSTILE}"
    seen = overview(
        QueueRow(name=evil, ready=1, paused=evil),
        state=evil,
        reasons=(evil,),
        workers=(row(evil, host=evil, paused=evil),),
        groups=(group(queue=evil, error=evil, error_type=evil),),
    )
    text = "\n".join(drawn(seen, width=300))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]" in text


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("drain", "stuck"),
        ("name", "deep"),
        ("ready", "deep"),
        ("dead", "ill"),
        ("oldest", "ill"),
        ("handled", "deep"),
    ],
)
def test_queues_are_sorted(sort: Any, first: str) -> None:
    rows = [
        QueueRow(name="empty", ready=0, drain=0.0),
        QueueRow(name="stuck", ready=1, drain=inf),
        QueueRow(name="deep", ready=99, drain=5.0, handled_per_second=9.0),
        QueueRow(name="ill", ready=2, drain=9.0, dead=3, oldest_age=99.0),
    ]
    assert shown(rows, sort, "")[0].name == first


def test_dead_letters_are_shown_with_their_queue_or_else_by_themselves() -> None:
    rows = [
        QueueRow(name="billing"),
        QueueRow(name="billing.dlq", holds_dead_letters=True),
        QueueRow(name="lost.dlq", holds_dead_letters=True),
    ]
    assert [each.name for each in shown(rows, "name", "")] == ["billing", "lost.dlq"]


def test_keys_sort_filter_and_end() -> None:
    glance = Glance(overview())
    assert obeyed(glance, "s")
    assert glance.sort == "name"
    for key in "/bilk\x7fl\n":
        assert obeyed(glance, key)
    assert (glance.only, glance.typing) == ("bill", False)
    assert "'bill'" in glance.footer
    for key in "/q\x1b":
        assert obeyed(glance, key)  # typed, not obeyed
    assert glance.only == ""
    assert not obeyed(glance, "q")


def test_a_sparkline_of_nothing_is_nothing() -> None:
    assert sparkline([], 10) == ""
    assert sparkline([(0, 1.0)], 0) == ""
    assert sparkline([(0, None), (1, None)], 5) == "  "
    assert len(sparkline([(n, n) for n in range(100)], 10)) == 10


# -- the command -----------------------------------------------------------------------------


def test_an_overview_as_json(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.put(dead_letter("m-1", error=HOSTILE))
    (told,) = shell.json("top", "--once")
    assert (told["status"], told["state"], told["dead"]) == ("healthy", "connected", 1)
    assert [each["name"] for each in told["queues"]] == ["billing", "billing.dlq"]
    assert told["groups"][0]["error"] == HOSTILE
    assert set(told["numbers"]["in_per_second"]) == {"now", "history"}


def test_what_never_ends_is_said_in_json(shell: Shell) -> None:
    shell.declare("billing")
    shell.put(dead_letter("m-1", to="billing"))
    (told,) = shell.json("top", "--once")
    assert told["queues"][0]["drain"] == "never"


def test_in_a_pipe_there_is_a_line_for_each_queue(shell: Shell) -> None:
    for name in ("billing", "mail"):
        shell.declare(name)
    header, *rows = shell.ok("top", "--once", "--filter", "bill").splitlines()
    assert header.split("\t")[:3] == ["time", "queue", "ready"]
    assert [each.split("\t")[1] for each in rows] == ["billing"]


def test_in_a_pipe_it_goes_on_until_it_is_interrupted(shell: Shell) -> None:
    shell.declare("billing")
    with shell.process("top", "--every", "1", "--json") as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert looks[0]["at"] < looks[1]["at"]


def test_it_looks_no_more_often_than_a_broker_is_asked(shell: Shell) -> None:
    shell.declare("billing")
    result = shell("top", "--every", "0.1")
    assert result.exit_code == 2
    assert "expected 1 second or more" in result.stderr


def test_a_broker_that_is_not_there_is_an_error(shell: Shell) -> None:
    assert shell("top", "--once").exit_code == 3


def test_on_a_terminal_keys_are_obeyed_at_once(
    shell: Shell, terminal: Callable[..., Terminal]
) -> None:
    shell.declare("billing")
    opened = terminal("top", "--every", "60")
    opened.until("s sorts by name")
    opened.type("s")
    opened.until("s sorts by ready")
    opened.type("/bill\n")
    opened.until("now 'bill'")
    opened.type("q")
    code, _ = opened.finish()
    assert code == 0
