"""Files that take the place of others: all of it happens, or none, whatever dies in between."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from queuecraft.failpoints import failpoint
from queuecraft.model.errors import QueueError
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.segments import make_folder, sync


class Swap(msgspec.Struct, frozen=True):
    """What appears and what goes; paths within the lake."""

    moves: tuple[tuple[str, str], ...] = ()
    removes: tuple[str, ...] = ()


def staging(lake: Lake) -> Path:
    """Where new files wait, seen by nobody."""
    return lake.root / ".staging"


def swap(lake: Lake, moves: Iterable[tuple[Path, Path]], removes: Iterable[Path]) -> None:
    """Move what is in the staging place to where it belongs, then remove what it stands for."""

    def within(path: Path) -> str:
        return path.relative_to(lake.root).as_posix()

    plan = Swap(
        tuple((within(source), within(target)) for source, target in moves),
        tuple(map(within, removes)),
    )
    for source, _ in plan.moves:
        _sync_all(lake.root / source)
    failpoint("swap.before_plan")
    write(_plan(lake), msgspec.json.encode(plan))
    failpoint("swap.after_plan")
    _carry_out(lake, plan)


def finish_swaps(lake: Lake) -> None:
    """Finish what was written down and not done; what was not written down has not happened."""
    plan = _plan(lake)
    if plan.exists():
        _carry_out(lake, msgspec.json.decode(plan.read_bytes(), type=Swap))
    shutil.rmtree(staging(lake), ignore_errors=True)


def write(path: Path, content: bytes) -> None:
    """Put a small file there, whole or not at all, so that a power cut does not undo it."""
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_bytes(content)
    sync(draft)
    draft.replace(path)
    sync(path.parent)


def _carry_out(lake: Lake, plan: Swap) -> None:
    for source, target in plan.moves:
        here, there = lake.root / source, lake.root / target
        if here.exists():
            make_folder(there.parent)
            here.rename(there)
            sync(there.parent)
        elif not there.exists():
            raise QueueError(
                f"{target} was to take the place of {len(plan.removes)} others in the lake at "
                f"{lake.root}, and is gone; the others are kept. Remove {_plan(lake)} to go on"
            )
        failpoint("swap.between_moves")
    failpoint("swap.before_removal")
    for name in plan.removes:
        path = lake.root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        failpoint("swap.between_removals")
    failpoint("swap.after_removal")
    _plan(lake).unlink()


def _plan(lake: Lake) -> Path:
    return lake.checkpoints / "swap.json"


def _sync_all(path: Path) -> None:
    if path.is_file():
        sync(path)
        return
    for folder, _, files in os.walk(path):
        for name in files:
            sync(Path(folder, name))
        sync(Path(folder))
