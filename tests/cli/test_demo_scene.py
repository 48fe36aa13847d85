"""The demo's story and its picture, without a terminal."""

from __future__ import annotations

import asyncio
import logging

import pytest
from rich.console import Console

from queuecraft import QueueCraft
from queuecraft.cli.demo import story as telling
from queuecraft.cli.demo.customers import orders
from queuecraft.cli.demo.scene import Scene, sparkline
from queuecraft.cli.demo.shop import Shop
from queuecraft.cli.demo.story import Happening, Story
from queuecraft.drivers.base import QueueInfo
from tests.runtime.support import eventually, running


def drawn(scene: Scene, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height)
    with console.capture() as capture:
        console.print(scene)
    return capture.get().splitlines()


@pytest.fixture
def shop() -> Shop:
    silent = logging.getLogger("queuecraft.demo")
    silent.setLevel(logging.CRITICAL)
    return Shop(QueueCraft("local://", logger=silent))


async def test_every_order_comes_home_and_dead_letters_are_sent_back(shop: Shop) -> None:
    async with shop.qc, running(*shop.qc.workers):
        story = Story(shop, 12, 50.0)
        await story.tell()
        assert all(each.right for each in story.sums(await story.left()))
    assert story.dead_lettered == story.redriven > 0
    assert story.retried > 0
    assert story.chapter == "everything is home"


async def test_it_goes_from_one_outage_to_the_next(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "ROUND", 0.5)
    monkeypatch.setattr(telling, "REDRIVE", 0.1)
    async with shop.qc, running(*shop.qc.workers):
        chapters: list[str] = []

        class Told(Story):
            def __setattr__(self, name: str, value: object) -> None:
                super().__setattr__(name, value)
                if name == "chapter":
                    chapters.append(str(value).partition(":")[0])

        story = Told(shop, None, 40.0)
        task = asyncio.create_task(story.tell())
        await eventually(lambda: chapters.count("Moon Bank is down") == 2, timeout=30)
        task.cancel()
        await asyncio.wait([task])
    assert story.redriven > 0


async def test_what_is_lost_is_waited_for_in_vain(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "PATIENCE", 0.2)
    async with shop.qc, running(*shop.qc.workers):
        story = Story(shop, 10, 100.0)
        story.placed["o-0"] = next(orders())  # nobody ever published it
        with pytest.raises(TimeoutError):
            await story.tell()
        assert not all(each.right for each in story.sums(await story.left()))


async def test_the_picture_fits_the_terminal(shop: Shop) -> None:
    async with shop.qc, running(*shop.qc.workers):
        story = Story(shop, 12, 100.0, chapter="everything is home")
        story.recent.extend([Happening("dead", "billing", "o-1" * 9, "no money " * 30)] * 50)
        scene = Scene(story, "local:///tmp/shop.db")
        scene.update(await shop.qc.admin.queues())
    for width, height in ((160, 50), (80, 24), (40, 12)):
        lines = drawn(scene, width, height)
        assert all(len(line) <= width for line in lines)
        assert len(lines) <= height
        text = "\n".join(lines)
        assert "QueueCraft" in text
        if width >= 80:
            for word in ("billing", "audit", "everything is home", "sent back"):
                assert word in text


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (50, 12)])
async def test_the_command_for_another_shell_is_never_cut_and_no_row_is_lost(
    shop: Shop, width: int, height: int
) -> None:
    async with shop.qc:
        hint = f".venv/bin/queuecraft queues --watch 1 --url local:///tmp/{'x' * 60}/shop.db"
        scene = Scene(Story(shop, None, 10.0), "local:///tmp/shop.db", {"shell": hint})
        scene.update([QueueInfo(name="billing", ready=1, dead=4), QueueInfo(name="stock", dead=3)])
        lines = drawn(scene, width, height)
    assert hint in "".join(lines)
    assert lines[-1].startswith("Ctrl-C ends it")
    text = "\n".join(lines)
    assert "dead 7" in text  # as the table says
    assert "━━" not in text  # where there is no end there is no bar
    for name in ("billing", "stock", "mail", "audit", "handled"):
        assert name in text


async def test_a_shop_that_is_closed_early_brings_all_orders_home(shop: Shop) -> None:
    async with shop.qc, running(*shop.qc.workers):
        story = Story(shop, None, 100.0)
        task = asyncio.create_task(story.tell())
        await eventually(lambda: len(story.placed) > 10)
        shop.bank.moon_is_down = True
        task.cancel()
        await asyncio.wait([task])
        await story.close()
        assert all(each.right for each in story.sums(await story.left()))
    assert len(shop.bank.charged) == len(story.placed)


def test_a_skyline_is_as_high_as_its_highest_value() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "  "
    assert sparkline([0, 50, 100]) == " ▄█"
