"""What of a replay is planned, and what is done: files that survive a kill at any moment."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.replay.contents import Content, Contents
from queuecraft.pipeline.replay.destination import Destination
from queuecraft.pipeline.replay.plan import Plan
from queuecraft.pipeline.segments import ABANDONED, make_folder, sync

T = TypeVar("T")

ROWS: Final = 100  # that are decoded at a time: payloads may be large
BUFFER: Final = 1 << 16  # bytes of a column that are read at a time

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that the broker has, as far as it would take it.

    >>> Done(chunk=0, sent=98, refused=2).tried
    100
    """

    chunk: int
    sent: int = 0
    refused: int = 0  # certainly not stored
    expired: int = 0  # and left out
    size: int = 0  # bytes of payloads
    failed: int = 0  # dead letters that the targets got meanwhile
    started_at: float = 0.0
    finished_at: float = 0.0
    refusals: tuple[tuple[str, str], ...] = ()  # the first of them: ids and reasons

    @property
    def tried(self) -> int:
        """Messages that were given to the broker."""
        return self.sent + self.refused


class _Refused(msgspec.Struct):
    """What else is noted with a chunk, read for one chunk at a time: there may be many."""

    positions: list[int] | None = None


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    """Why a replay stopped by itself."""

    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """The folder of one replay."""

    folder: Path

    @classmethod
    def of(cls, lake: Lake, replay_id: str) -> Ledger:
        """That of a replay, which has to be planned."""
        if not _ID.fullmatch(replay_id):
            raise ConfigError(
                f"{replay_id!r} is not the id of a replay; see queuecraft lake replays"
            )
        found = cls(lake.replays / replay_id)
        if not found.planned:
            raise ConfigError(
                f"there is no replay {replay_id!r} in {lake.root}; queuecraft lake replays shows "
                "those there are"
            )
        return found

    @property
    def table(self) -> Path:
        """The messages, in a folder for each chunk."""
        return self.folder / "plan"

    @property
    def broker(self) -> Path:
        """The file that says where it goes."""
        return self.folder / "broker.json"

    @property
    def planned(self) -> bool:
        """Whether the plan is complete: this file is written last."""
        return self._plan.is_file()

    def chunk(self, number: int) -> Path:
        """The messages of one chunk."""
        return self.table / f"chunk={number}"

    def plan(self) -> Plan:
        """What is to be done."""
        return _read(self._plan, Plan)

    def contents(self) -> Contents:
        """What is planned, read to its end. Once is enough: a plan that is complete never changes.
        Raises `QueueError` if it cannot be read."""
        import pyarrow as pa

        try:
            return Contents.of(_contents(sorted(self.table.glob("chunk=*/*.parquet"))))
        except (OSError, LookupError, ValueError, pa.ArrowException) as error:
            raise QueueError(
                f"{self.table} cannot be read: {error}; plan the replay anew"
            ) from None

    def keep(self, plan: Plan) -> None:
        """Say that the plan is complete."""
        _write(self._plan, plan)

    def done(self) -> dict[int, Done]:
        """The chunks that were sent, by number."""
        found = (_read(path, Done) for path in sorted(self._done.glob("[0-9]*.json")))
        return {each.chunk: each for each in found}

    def note(self, done: Done, refused: Sequence[int] = ()) -> None:
        """Say that a chunk was sent, and the positions of all that were refused, in one: when this
        returns, no kill makes it forgotten, and none parts the two."""
        _write(self._noted(done.chunk), {**msgspec.structs.asdict(done), "positions": refused})

    def refused(self, chunk: int) -> list[int] | None:
        """The positions of the messages that were refused of a chunk that was sent; None if it was
        noted without them."""
        return _read(self._noted(chunk), _Refused).positions

    def destination(self) -> Destination | None:
        """Where it goes, once something may have been sent."""
        return _read(self.broker, Destination) if self.broker.is_file() else None

    def begin(self, destination: Destination) -> None:
        """Say where it goes, before anything does."""
        _write(self.broker, destination)

    def paused(self) -> Paused | None:
        """Why it stopped by itself, if it did and was not resumed."""
        return _read(self._paused, Paused) if self._paused.is_file() else None

    def pause(self, reason: str) -> None:
        """Say why it goes no further."""
        _write(self._paused, Paused(reason=reason, at=time.time()))

    def resume(self) -> None:
        """It goes on."""
        self._paused.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Be the only one that plans or executes this replay; the end of the process is the end of
        it."""
        with (self.folder / "lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise QueueError(
                    f"replay {self.folder.name!r} is running already; wait for it, or stop it with "
                    "Ctrl-C and resume it here"
                ) from None
            yield

    @property
    def running(self) -> bool:
        """Whether somebody plans or executes it now."""
        try:
            with (self.folder / "lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    @property
    def _plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def _done(self) -> Path:
        return self.folder / "ledger"

    def _noted(self, chunk: int) -> Path:
        return self._done / f"{chunk:06}.json"

    @property
    def _paused(self) -> Path:
        return self.folder / "paused.json"


def new_id(now: float | None = None) -> str:
    """An id that no other replay has and that sorts by time.

    >>> new_id(1767225600.0)
    '20260101T000000-...'
    """
    moment = datetime.fromtimestamp(time.time() if now is None else now, UTC)
    return f"{moment:%Y%m%dT%H%M%S}-{os.urandom(3).hex()}"


def ledgers(lake: Lake) -> Iterable[Ledger]:
    """Those of all replays that are planned, oldest first."""
    for folder in sorted(lake.replays.glob("*")):
        if (found := Ledger(folder)).planned:
            yield found


def sweep(lake: Lake) -> None:
    """Remove what plannings that died have left unfinished a day ago or longer."""
    oldest = time.time() - ABANDONED
    for folder in lake.replays.glob("[0-9]*T[0-9]*-*"):
        found = Ledger(folder)
        with suppress(OSError):  # somebody else removes it, or may and we may not
            old = folder.stat().st_mtime < oldest
            # In this order: one that ends between the two looks has its plan at the second.
            if old and not found.running and not found.planned:
                shutil.rmtree(folder, ignore_errors=True)


def _contents(files: Iterable[Path]) -> Iterable[Content]:
    """Of messages, a few at a time. Not as a data set, which holds whole row groups, and more."""
    from pyarrow.parquet import ParquetFile

    names = ["message_id", "event", "payload"]
    for path in files:
        with ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            for batch in file.iter_batches(ROWS, columns=names, use_threads=False):
                columns = (batch[name].to_pylist() for name in names)
                for id, event, payload in zip(*columns, strict=True):
                    if id is not None and payload is not None:
                        yield id, event or "", payload


def _write(path: Path, value: object) -> None:
    make_folder(path.parent)
    hidden = path.with_name(f".{path.name}")
    with hidden.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(value)))
        file.flush()
        os.fsync(file.fileno())
    hidden.rename(path)
    sync(path.parent)


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError) as error:  # no JSON, nothing of that kind, or no UTF-8
        raise QueueError(f"{path} cannot be read: {error}; plan the replay anew") from None
