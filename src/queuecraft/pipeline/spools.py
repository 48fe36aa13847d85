"""From what the journal has spooled to segments: each line once, whatever dies on the way.

A spool that is closed (`NAME.jsonl`) is complete. One that is not (`NAME.open`) is held with an
flock by the journal that writes it; where the lock can be had, its writer is dead, and it is
adopted. Spools are taken together, up to some 64 MiB, so that many small ones make few segments.
Which ones, and what the segment is to be called, is written down first, in a manifest: whoever
comes after a death finds it, and finishes. While a manifest is there and its segment is not, none
of its spools is gone; once the segment is there, all of them are in it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from queuecraft.failpoints import failpoint
from queuecraft.model.errors import QueueError
from queuecraft.pipeline.arrow import require_arrow
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.segments import SegmentWriter, new_place, sweep, sync

CLOSED, OPEN, ORPHAN = ".jsonl", ".open", ".orphan.jsonl"
TOGETHER = 64 << 20  # bytes of spools in one segment, about; a spool is never divided
MOST = 10_000  # spools in one segment
YOUNG = 60.0  # seconds in which whoever has made an empty spool may not have locked it yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What became of the spools.

    >>> Converted(segments=1, rows=10, unreadable=2)
    Converted(segments=1, rows=10, unreadable=2, adopted=0, torn=0)
    """

    segments: int = 0
    rows: int = 0  # all of them, also the unreadable ones
    unreadable: int = 0  # lines kept as they are, with what is wrong with them
    adopted: int = 0  # spools whose writers died
    torn: int = 0  # lines at the end of those that were never finished


class Manifest(msgspec.Struct, frozen=True):
    """Which spools are becoming which segment."""

    segment: str  # within the folder of segments
    spools: tuple[str, ...]


def convert(lake: Lake, *, progress: Callable[[Converted], object] | None = None) -> Converted:
    """Turn all spools that are not being written into segments, and remove them. `progress` is
    called after each segment. One converter works at a time; others wait for it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     lake = Lake.at(folder)
    ...     lake.spool.mkdir()
    ...     _ = (lake.spool / "one.jsonl").write_text('{"kind":"published","at":1.5}\\n')
    ...     convert(lake)
    Converted(segments=1, rows=1, unreadable=0, adopted=0, torn=0)
    """
    require_arrow()
    if not lake.spool.is_dir():
        return Converted()
    with _alone(lake.spool / ".lock"):
        sweep(lake)
        for draft in lake.spool.glob(".*.draft"):  # of one who died before it said anything
            draft.unlink()
        done = Converted()
        for note in sorted(lake.spool.glob(".*.manifest")):
            done = _finish(lake, note, done)
        done = replace(done, adopted=_adopt_all(lake.spool))
        for spools in _together(lake.spool):
            done = _finish(lake, _begin(lake, spools), done)
            if progress is not None:
                progress(done)
        return done


@contextmanager
def _alone(lock: Path) -> Generator[None]:
    number = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


# -- one segment, in steps -------------------------------------------------------------------------


def _begin(lake: Lake, spools: Sequence[str]) -> Path:
    """Write down what is going to happen."""
    manifest = Manifest(new_place("journal").as_posix(), tuple(spools))
    note = lake.spool / f".{Path(manifest.segment).stem}.manifest"
    draft = note.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(manifest))
    sync(draft)
    failpoint("convert.before_manifest")
    draft.rename(note)
    sync(lake.spool)
    failpoint("convert.after_manifest")
    return note


def _finish(lake: Lake, note: Path, done: Converted) -> Converted:
    """Do what is written down, or what of it is left to do."""
    try:
        manifest = msgspec.json.decode(note.read_bytes(), type=Manifest)
    except msgspec.MsgspecError as error:
        raise QueueError(
            f"{note} tells which spools were becoming a segment, and cannot be read: {error}; "
            "remove it to convert those that are still there, some perhaps for the second time"
        ) from None
    spools = [lake.spool / Path(name).name for name in manifest.spools]
    if not (lake.segments / manifest.segment).exists():
        done = _write(lake, manifest, spools, done)
    failpoint("convert.after_segment")
    for spool in spools:
        spool.unlink(missing_ok=True)
        failpoint("convert.between_removals")
    sync(lake.spool)  # or a power cut might bring spools back, and nobody would know them
    failpoint("convert.after_removals")
    note.unlink()
    return done


def _write(lake: Lake, manifest: Manifest, spools: Sequence[Path], done: Converted) -> Converted:
    from queuecraft.pipeline.lines import Reading

    reading = Reading()
    with SegmentWriter(lake, Path(manifest.segment)) as writer:
        for spool in spools:
            for rows in reading.of(spool, torn=spool.name.endswith(ORPHAN)):
                writer.write(rows)
        for rows in reading.rest():
            writer.write(rows)
    return replace(
        done,
        segments=done.segments + bool(writer.rows),
        rows=done.rows + writer.rows,
        unreadable=done.unreadable + reading.unreadable,
        torn=done.torn + reading.torn,
    )


# -- which spools ----------------------------------------------------------------------------------


def _together(folder: Path) -> Iterator[list[str]]:
    """The closed spools there are now, oldest names first, as many as make one segment."""
    names: list[str] = []
    size = 0
    for name, status in _files(folder, CLOSED):
        names.append(name)
        size += status.st_size
        if size >= TOGETHER or len(names) >= MOST:
            yield names
            names, size = [], 0
    if names:
        yield names


def _adopt_all(folder: Path) -> int:
    return sum(_adopt(folder / name) for name, _ in _files(folder, OPEN))


def _adopt(spool: Path) -> bool:
    """Close a spool for a writer that is dead; False if it lives."""
    try:
        number = os.open(spool, os.O_RDWR)
    except FileNotFoundError:  # its writer has closed it meanwhile
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(number)
        if not status.st_size:
            # Perhaps its writer is about to lock it; with lines in it, it had done so before.
            if time.time() - status.st_mtime > YOUNG:
                spool.unlink()
            return False
        with suppress(FileNotFoundError):
            if spool.stat().st_ino == status.st_ino:
                failpoint("convert.before_adoption")
                spool.rename(spool.with_name(spool.name.removesuffix(OPEN) + ORPHAN))
                failpoint("convert.after_adoption")
                return True
        return False  # closed by its writer, between our looking and our locking
    except BlockingIOError:
        return False
    finally:
        os.close(number)


def _files(folder: Path, suffix: str) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(suffix) and _is_ours(entry.name):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        found.append((entry.name, status))
    return sorted(found, key=lambda each: each[0])


def _is_ours(name: str) -> bool:
    try:
        return bool(name.encode()) and not name.startswith(".")
    except UnicodeEncodeError:  # a name of bytes that are no text: no journal makes any
        return False
