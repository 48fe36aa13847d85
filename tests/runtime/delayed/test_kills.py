"""A process that dies at the worst instant loses no delayed message; beside the queues, none is
delivered twice either."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from queuecraft import QueueCraft
from queuecraft.failpoints import arm, disarm
from queuecraft.model.delayed import DelayedSettings
from queuecraft.runtime.delayed.delivery import HOLD
from queuecraft.testing import FakeClock
from tests.faults.failpoints import SOURCE, found_in
from tests.runtime.delayed.child import Child, all_added
from tests.runtime.delayed.looking import ids, waiting

IDS = [f"m-{n:02}" for n in range(20)]

ONE_STEP = {
    "file": ("delayed.between", "delayed.move.before_commit", "delayed.move.after_commit"),
    "redis": ("delayed.between", "delayed.after_move"),
}
"""Places in the one step, by where messages and queues are."""

TWO_STEPS = ("delayed.after_take", "delayed.after_send", "delayed.after_forget")


@dataclass
class Scene:
    url: str
    store: str

    def qc(self, clock: FakeClock) -> QueueCraft:
        return QueueCraft(self.url, clock=clock, delayed=DelayedSettings(store=self.store or None))


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    kind, beside = request.param
    file, server = f"local://{tmp_path}/queue.db", ""
    if kind == "redis":
        server = f"{request.getfixturevalue('redis_url')}&mode=list"
    if beside:
        return Scene(server or file, "")
    return Scene(file, server or str(tmp_path / "shelf.db"))


@pytest.fixture
def children() -> Iterator[list[Child]]:
    born: list[Child] = []
    yield born
    for child in born:
        child.close()


async def fill(scene: Scene) -> None:
    clock = FakeClock(start=time.time() - 100)
    async with scene.qc(clock) as qc:
        await qc.admin.declare("billing", "order.*")
        for id in IDS:
            await qc.delayed.add("order.placed", {}, delay=1, message_id=id)


async def moved_by_another(scene: Scene) -> tuple[list[str], list[str]]:
    """What is delivered, and what waits, when a mover came after the hold had lapsed."""
    clock = FakeClock(start=time.time() + HOLD)
    async with scene.qc(clock) as qc:
        await qc.delayed.cleanup()
        return await ids(qc), await waiting(qc)


@pytest.mark.parametrize(
    ("scene", "point", "deed"),
    [
        ((kind, True), point, deed)
        for kind, points in ONE_STEP.items()
        for point in points
        for deed in ("move", "clean")
    ],
    indirect=["scene"],
)
async def test_a_mover_that_dies_beside_the_queues_delivers_each_message_once(
    scene: Scene, point: str, deed: str, children: list[Child]
) -> None:
    await fill(scene)
    children.append(Child(scene.url, deed, dies_at=point))
    assert await children[0].ends() == -9
    delivered, left = await moved_by_another(scene)
    assert (sorted(delivered), left) == (IDS, [])


@pytest.mark.parametrize(
    ("scene", "point"),
    [((kind, False), point) for kind in ("file", "redis") for point in TWO_STEPS],
    indirect=["scene"],
)
async def test_a_mover_that_dies_between_two_places_loses_nothing_and_keeps_the_ids(
    scene: Scene, point: str, children: list[Child]
) -> None:
    await fill(scene)
    children.append(Child(scene.url, "move", store=scene.store, dies_at=point))
    assert await children[0].ends() == -9
    delivered, left = await moved_by_another(scene)
    times = 2 if point == "delayed.after_send" else 1
    assert (Counter(delivered), left) == (Counter(dict.fromkeys(IDS, times)), [])


@pytest.mark.parametrize("scene", [("file", False)], indirect=True)
async def test_what_a_dead_mover_holds_is_left_alone_until_its_hold_lapses(
    scene: Scene, children: list[Child]
) -> None:
    await fill(scene)
    children.append(Child(scene.url, "move", store=scene.store, dies_at="delayed.after_take"))
    await children[0].ends()
    clock = FakeClock(start=time.time())
    async with scene.qc(clock) as qc:
        assert (await qc.delayed.cleanup()).cleaned == 0
        assert not await qc.delayed.cancel(IDS[0])
        async with qc.delayed.running():
            await clock.advance(HOLD + 1)
        assert sorted(await ids(qc)) == IDS


@pytest.mark.parametrize("point", ["delayed.add.before_commit", "delayed.add.after_commit"])
async def test_an_addition_that_dies_is_there_whole_or_not_at_all(
    point: str, tmp_path: Path, children: list[Child]
) -> None:
    url = f"local://{tmp_path}/queue.db"
    children.append(Child(url, "add", "one", "1", dies_at=point))
    assert await children[0].line() == "ready"
    children[0].tell()
    assert await children[0].ends() == -9
    async with QueueCraft(url) as qc:
        stats = await qc.delayed.stats()
        assert stats.size == len(await waiting(qc)) == (point == "delayed.add.after_commit")


@pytest.mark.parametrize(
    "scene", [("file", True), ("file", False), ("redis", True), ("redis", False)], indirect=True
)
async def test_processes_that_add_at_once_never_pass_the_limit(
    scene: Scene, children: list[Child]
) -> None:
    for n in range(5):
        add = ("add", f"process-{n}", "40")
        children.append(Child(scene.url, *add, store=scene.store, limit=100))
    assert await all_added(children) == 100
    for child in children:
        assert await child.ends() == 0
    async with scene.qc(FakeClock(start=time.time())) as qc:
        stats = await qc.delayed.stats()
        assert (stats.size, stats.max_size) == (100, 100)
        assert len(set(await waiting(qc))) == 100


def test_no_failpoint_of_delayed_messages_is_forgotten() -> None:
    points: set[str] = set()
    for folder in ("stores", "runtime/delayed"):
        for path in (SOURCE / folder).rglob("*.py"):
            points |= found_in(path.read_text(encoding="utf-8"))
    tested = {*TWO_STEPS, *(point for some in ONE_STEP.values() for point in some)}
    assert points <= tested


async def test_a_mover_that_fails_as_nobody_foresaw_loses_nothing_either(tmp_path: Path) -> None:
    clock = FakeClock()
    settings = DelayedSettings(store=str(tmp_path / "shelf.db"))
    async with QueueCraft(clock=clock, delayed=settings) as qc:
        await qc.admin.declare("billing", "order.*")
        await qc.delayed.add("order.placed", {}, delay=0, message_id="m-1")

        def fail() -> None:
            disarm("delayed.after_take")
            raise RuntimeError("out of luck")

        arm("delayed.after_take", fail)
        with pytest.raises(RuntimeError, match="out of luck"):
            await qc.delayed.cleanup()
        await clock.advance(HOLD)
        assert (await qc.delayed.cleanup()).cleaned == 1
        assert await ids(qc) == ["m-1"]
