"""The files of an application, watched for changes by looking at them now and then."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TypeAlias

LOOK = 0.25  # seconds between two looks, at least
SHARE = 0.1  # of one core, at most, where looking takes long
SETTLE = 0.2  # seconds without a further change; an editor may save many files

SUFFIXES = (".py", ".toml", ".env")
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})

Stamp: TypeAlias = tuple[int, int, int]
Snapshot: TypeAlias = dict[str, Stamp]


def source_of(module: str) -> Path:
    """The directory that holds a module: that of its package, or the one it lies in."""
    here = os.getcwd()
    spec = PathFinder.find_spec(module.split(".")[0], [here, *sys.path])
    if spec is None:
        return Path(here)
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin).parent if spec.origin is not None else Path(here)


@dataclass(frozen=True, slots=True)
class Files:
    """`*.py`, `*.toml` and `.env` below some directories, and settings beside the program."""

    directories: Sequence[Path]

    def snapshot(self) -> Snapshot:
        """Each file and how it is now."""
        return dict(_stamps(_files(self.directories)))

    async def changed(self, before: Snapshot) -> tuple[list[str], Snapshot]:
        """Wait until something is not as it was before and no further change follows: what
        changed, and how all is now."""
        now = before
        while now == before:
            now = await self._look(LOOK)
        while (later := await self._look(SETTLE)) != now:
            now = later
        return _differences(before, now), now

    async def _look(self, pause: float) -> Snapshot:
        await asyncio.sleep(pause)
        began = time.perf_counter()
        snapshot = await asyncio.to_thread(self.snapshot)
        await asyncio.sleep((time.perf_counter() - began) * (1 / SHARE - 1))
        return snapshot


def _differences(before: Snapshot, now: Snapshot) -> list[str]:
    names = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    return sorted(os.path.relpath(name) for name in names)


def _files(directories: Iterable[Path]) -> Iterator[str]:
    for directory in directories:
        for folder, folders, names in os.walk(directory):
            folders[:] = [each for each in folders if not _skipped(folder, each)]
            yield from (os.path.join(folder, name) for name in names if name.endswith(SUFFIXES))
    here = os.getcwd()  # where settings are read from, whatever is watched
    yield os.path.join(here, ".env")
    yield os.path.join(here, "queuecraft.toml")


def _skipped(folder: str, name: str) -> bool:
    hidden = name.startswith(".") or name in SKIPPED
    return hidden or os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))


def _stamps(files: Iterable[str]) -> Iterator[tuple[str, Stamp]]:
    for name in files:
        try:
            found = os.stat(name)
        except OSError:  # gone meanwhile, or a dead link
            continue
        yield os.path.abspath(name), (found.st_mtime_ns, found.st_size, found.st_ino)
