"""Where things are in a lake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Lake:
    """A folder with the life of messages in it.

    >>> Lake.at("./lake").segments.as_posix()
    'lake/segments'
    """

    root: Path

    @classmethod
    def at(cls, place: str | Path) -> Lake:
        """The lake in this folder, which need not exist yet."""
        return cls(Path(place))

    @property
    def spool(self) -> Path:
        """Lines of the journal: `NAME.open` while they are written, then `NAME.jsonl`."""
        return self.root / "spool"

    @property
    def segments(self) -> Path:
        """`date=YYYY-MM-DD/NAME.parquet`: complete when they are there, never changed. What is
        being written has a name that begins with a dot."""
        return self.root / "segments"

    @property
    def tables(self) -> Path:
        """A folder for each table that the jobs keep."""
        return self.root / "tables"

    @property
    def checkpoints(self) -> Path:
        """How far each job has come."""
        return self.root / "checkpoints"

    @property
    def replays(self) -> Path:
        """A folder for each replay: its plan and what of it is done."""
        return self.root / "replays"

    @property
    def horizon(self) -> Path:
        """A file that says what has expired: not with the checkpoints, which may be removed."""
        return self.root / "horizon.json"
