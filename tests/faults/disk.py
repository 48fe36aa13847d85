"""Disks that are full or break while processes work on them; run in a mount namespace of its own.

unshare --mount python -m tests.faults.disk full FOLDER
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import pytest

from queuecraft.drivers.base import ACCEPTED, ConnectionLost, Outgoing, Queue
from queuecraft.drivers.local.sqlite import SqliteDriver
from queuecraft.drivers.local.sqlite.filesystem import Filesystem
from tests.faults.job import QUEUE
from tests.faults.nursery import Nursery
from tests.faults.process import Process
from tests.faults.scene import Broker, Scene

MEGABYTE = 1 << 20


@contextlib.asynccontextmanager
async def scene_on(disk: Path, folder: Path) -> AsyncGenerator[Scene]:
    """A scene whose broker is on the disk, and whose account is elsewhere."""
    (disk / "broker").mkdir()
    nursery = Nursery()
    scene = Scene(Broker(f"local://{disk}/broker/queue.db"), nursery, folder)
    try:
        yield scene
    finally:
        await scene.close()
        nursery.close()


def company(scene: Scene) -> tuple[list[Process], list[Process]]:
    """Two that publish, two that handle."""
    publishers = [
        scene.publisher(timeout=1.0, padding=500),
        scene.publisher(timeout=1.0, padding=500, batch=5, in_flight=2),
    ]
    return publishers, [scene.worker(), scene.worker(concurrency=2, prefetch=20)]


async def refused(scene: Scene, publishers: list[Process], saying: str) -> None:
    """Wait until each publisher is refused, and is told why."""
    since = time.monotonic_ns()

    def told(process: Process) -> bool:
        lines = [each for each in scene.account().by(process.pid, "refused") if each.at > since]
        return len(lines) >= 10 and saying in lines[-1].text

    for each in publishers:
        await scene.until(partial(told, each), f"{each} is told: {saying}")


async def at_work(scene: Scene, processes: list[Process]) -> None:
    """Wait until each has got something done, from now on."""
    since = time.monotonic_ns()

    def done(process: Process) -> bool:
        lines = scene.account().by(process.pid, "published", "handled")
        return sum(each.at > since for each in lines) >= 10

    for each in processes:
        await scene.until(partial(done, each), f"{each} is at work")


async def full(folder: Path) -> None:
    """The disk runs full, and is full; a person frees some space; three times over."""
    disk = folder / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk))
    async with scene_on(disk, folder) as scene:
        await scene.declare()
        publishers, workers = company(scene)
        for _ in range(3):
            await at_work(scene, [*publishers, *workers])
            fill(disk / "filler")
            await refused(scene, publishers, "is full; free some space")
            (disk / "filler").unlink()
        await at_work(scene, [*publishers, *workers])
        await end(scene)


async def known(folder: Path) -> None:
    """The disk breaks, and whoever asks knows it, before anything else is refused."""
    disk = folder / "disk"
    disk.mkdir()
    image = Image(folder / "image", disk)
    image.mount()
    file = disk / "queue.db"
    driver, filesystem = SqliteDriver(file), Filesystem(file)
    await driver.open()
    await driver.declare(Queue(QUEUE))
    assert await driver.send([Outgoing(b"", "m-1", queue=QUEUE)]) == [ACCEPTED]
    filesystem.open()
    assert filesystem.still_writes()
    image.fail()
    assert not filesystem.still_writes()
    filesystem.close()
    await driver.close()
    await driver.open()  # to look at what is there
    assert [each.ready for each in await driver.inspect()] == [1]
    with pytest.raises(ConnectionLost):
        await driver.send([Outgoing(b"", "m-2", queue=QUEUE)])
    await driver.close()
    image.unmount()


async def broken(folder: Path) -> None:
    """The disk breaks, and the system lets nobody write to it any more; a person mends it."""
    disk = folder / "disk"
    disk.mkdir()
    # What is there while the disk is not: a folder of the same name, and nobody may write there.
    mount("-t", "tmpfs", "tmpfs", str(disk))
    (disk / "broker").mkdir()
    mount("-o", "remount,ro", str(disk))
    image = Image(folder / "image", disk)
    image.mount()
    async with scene_on(disk, folder) as scene:
        await scene.declare()
        await scene.look_away()
        publishers, workers = company(scene)
        await at_work(scene, [*publishers, *workers])
        image.fail()
        await refused(scene, publishers, "cannot be written to; see to its permissions")
        image.unmount()
        await scene.until(image.is_unused, "everybody has let go of the broken disk")
        image.mend()
        image.mount()
        await at_work(scene, [*publishers, *workers])
        await end(scene)


class Image:
    """A disk in a file, that can be made to fail as a worn one does."""

    def __init__(self, file: Path, place: Path) -> None:
        self._file = file
        self._place = place
        with file.open("wb") as image:
            image.truncate(64 * MEGABYTE)
        run("mkfs.ext4", "-q", str(file))

    def mount(self) -> None:
        mount("-o", "loop,errors=remount-ro", str(self._file), str(self._place))

    def fail(self) -> None:
        trigger = Path("/sys/fs/ext4", Path(self._device()).name, "trigger_fs_error")
        trigger.write_text("a test", encoding="ascii")

    def unmount(self) -> None:
        """It is gone for whoever opens a file, and stays for those who have one open."""
        run("umount", "--lazy", str(self._place))

    def is_unused(self) -> bool:
        return not self._device()

    def mend(self) -> None:
        subprocess.run(["e2fsck", "-f", "-y", str(self._file)], check=False, capture_output=True)

    def _device(self) -> str:
        return run("losetup", "--noheadings", "--output", "NAME", "-j", str(self._file)).strip()


async def end(scene: Scene) -> None:
    account = await scene.finish()
    refusals = [line for line in account.lines if line.what == "refused"]
    reasons = Counter(f"{line.reason}: …{line.text}" for line in refusals)
    print(f"{account.summary()}, {len(refusals)} refused:")
    for reason, count in reasons.most_common():
        print(f"  {count} × {reason}")


def fill(file: Path) -> None:
    """Leave no room."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (MEGABYTE, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(descriptor, bytes(size))
    finally:
        os.close(descriptor)


def mount(*arguments: str) -> None:
    run("mount", *arguments)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


STORIES = {"full": full, "known": known, "broken": broken}

if __name__ == "__main__":
    asyncio.run(STORIES[sys.argv[1]](Path(sys.argv[2])))
