"""`queuecraft demo`: the real command, in a pipe and on a terminal."""

from __future__ import annotations

import json
import re
import signal
import termios
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from queuecraft import QueueCraft
from queuecraft.cli import app
from queuecraft.cli.demo import services, story
from queuecraft.cli.demo.shop import Order, Shop, open_shop
from queuecraft.cli.demo.story import Story, Sum
from tests.cli.running import Running, Terminal, terminal

SMALL = ("--orders=12", "--seconds=0.6", "--no-report")  # what that is, test_demo_report tells
URL = r"(local:///\S+/shop\.db)"


def folder_of(url: str) -> Path:
    return Path(url.removeprefix("local://")).parent


def test_the_story_ends_by_itself_and_its_sums_add_up(tmp_path: Path) -> None:
    with Running("demo", *SMALL, folder=tmp_path, TMPDIR=str(tmp_path)) as program:
        assert program.ends() == 0
    told = program.output
    assert "Moon Bank is down" in told
    assert re.search(r"orders charged +12\b", told)
    assert re.search(r"parcels packed +12\b", told)
    assert re.search(r"mails sent +24\b", told)
    assert re.search(r"events audited +36\b", told)
    (dead,) = re.findall(r"dead letters sent back +(\d+)", told)
    assert int(dead) > 0
    assert re.search(r"messages left in queues +0\b", told)
    assert "✗" not in told
    assert "Nothing was lost." in told
    assert "\x1b[" not in told, "no colours where nobody sees them"
    assert not re.search(r"[ \t]$", told, re.MULTILINE), "no spaces at the end of a line"
    assert list(tmp_path.iterdir()) == [], "the database is removed"


def test_the_database_is_kept_if_asked_for(tmp_path: Path) -> None:
    with Running("demo", *SMALL, "--keep", folder=tmp_path, TMPDIR=str(tmp_path)) as program:
        assert program.ends() == 0
    url = program.until(f"queues --url {URL}")[0]
    with Running("queues", "--json", f"--url={url}", folder=tmp_path) as look:
        assert look.ends() == 0
    assert '"billing"' in look.output


def test_it_serves_until_ctrl_c_and_can_be_watched_from_another_shell(tmp_path: Path) -> None:
    with Running("demo", "--serve", folder=tmp_path, TMPDIR=str(tmp_path)) as program:
        (address,) = program.until(r"dashboard: (http://127\.0\.0\.1:\d+)")
        (url,) = program.until(f"from another shell: \\S+ queues --watch 1 --url {URL}")
        program.until("all is well")
        with urllib.request.urlopen(f"{address}/health", timeout=20) as answer:
            assert json.load(answer)["status"] == "healthy"
        with Running("queues", f"--url={url}", folder=tmp_path) as look:
            assert look.ends() == 0
        assert "billing.dlq" in look.output
        program.send(signal.SIGINT)
        assert program.ends() == 0
    assert "Nothing was lost. The shop is closed." in program.output
    (placed,) = re.findall(r"(\d+) orders in", program.output)
    assert int(placed) > 0
    assert re.search(rf"✓ orders charged +{placed}$", program.output, re.MULTILINE)
    assert "✗" not in program.output
    assert "Traceback" not in program.output
    assert not folder_of(url).exists()


def test_stopped_early_it_says_so(tmp_path: Path) -> None:
    with Running("demo", folder=tmp_path, TMPDIR=str(tmp_path)) as program:
        program.until("the shop opens")
        program.send(signal.SIGINT)
        assert program.ends() == 130
    assert "Stopped before the story was over." in program.output
    assert list(tmp_path.iterdir()) == []


def test_something_lost_is_an_exit_code_of_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "PATIENCE", 0.5)
    monkeypatch.setattr(services.Warehouse, "pack", lose)
    result = CliRunner().invoke(app, ["demo", "--orders=10", "--seconds=0.5", "--no-report"])
    assert result.exit_code == 1, result.output
    assert re.search(r"✗ +parcels packed +0 +expected 10", result.output)
    assert "Something was lost." in result.output


async def lose(self: services.Warehouse, product: str, quantity: int, *, reference: str) -> str:
    return "nowhere"


def test_a_sum_that_is_wrong_is_shown_as_such() -> None:
    assert Sum("orders", 3, 3).right
    assert Sum("money", 0.3, 0.1 + 0.2).right
    assert not Sum("orders", 3, 2).right


async def test_an_order_that_was_lost_is_missed() -> None:
    shop = Shop(QueueCraft("local://"))
    told = Story(shop, 10, 10.0)
    told.placed["o-1"] = Order("o-1", "cup", 1, 7.25, "earth-1", "someone@mail.example")
    wrong = {each.what for each in told.sums(left=0) if not each.right}
    assert {"orders charged", "money taken", "mails sent"} <= wrong


def test_the_shop_can_be_run_like_any_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECRAFT_URL", "local://")
    assert [worker.queue_name for worker in open_shop().workers] == [
        "billing",
        "stock",
        "mail",
        "audit",
    ]


# -- on a terminal ---------------------------------------------------------------------------------


LEAVE, SHOW_CURSOR, CTRL_C = "\x1b[?1049l", "\x1b[?25h", b"\x03"


def restored(shown: Terminal) -> bool:
    last = shown.drawn
    return (
        last.rindex(LEAVE) > last.rindex("\x1b[?1049h")
        and last.rindex(SHOW_CURSOR) > last.rindex("\x1b[?25l")
        and termios.tcgetattr(shown.master) == shown.before
    )


def test_on_a_terminal_it_is_drawn_live_and_the_sums_stay(tmp_path: Path) -> None:
    with terminal("demo", *SMALL, folder=tmp_path) as shown:
        for text in ("what goes wrong", "in flight", "Moon Bank is down", "Nothing was lost."):
            shown.until(text)
        assert shown.ends() == 0
        assert restored(shown)
        assert "orders charged" in shown.drawn[shown.drawn.rindex(LEAVE) :]


@pytest.mark.parametrize("arguments", [(), ("--serve",)], ids=["told", "serving"])
def test_ctrl_c_gives_the_terminal_back(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with terminal("demo", *arguments, folder=tmp_path) as shown:
        shown.until("what goes wrong")
        shown.press(CTRL_C)
        assert shown.ends() == (0 if arguments else 130)
        assert restored(shown)
        assert "Traceback" not in shown.drawn
    assert list(tmp_path.iterdir()) == []
