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
from queuecraft.cli.demo.story import Story
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


@pytest.mark.parametrize(("width", "height"), [(160, 50), (80, 24), (40, 10)])
async def test_the_picture_fits_the_terminal(shop: Shop, width: int, height: int) -> None:
    async with shop.qc, running(*shop.qc.workers):
        story = Story(shop, 12, 100.0)
        scene = Scene(story, "local:///tmp/shop.db")
        await story.tell()
        scene.update(await shop.qc.admin.queues())
        lines = drawn(scene, width, height)
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= max(height, 18)
    text = "\n".join(lines)
    assert "QueueCraft" in text
    if width >= 80:
        for word in ("billing", "audit", "everything is home", "sent back"):
            assert word in text


def test_a_skyline_is_as_high_as_its_highest_value() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "  "
    assert sparkline([0, 50, 100]) == " ▄█"
