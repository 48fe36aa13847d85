"""Gets rows to the disk, in a thread of its own."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from queuecraft.model.journal import Journal
from queuecraft.observers.journal.dropping import Dropping
from queuecraft.observers.journal.lines import Lines, Note
from queuecraft.observers.journal.spool import Spool, name_of

TOGETHER: Final = 256
"""Rows that are encoded at once, so that single publishes cost little more than many."""

EARLY: Final = 2**18
"""Bytes from which on the disk is not kept waiting for the next second. So little is still in the
processor's cache, and its memory is used again: four megabytes cost the loop a tenth more."""

PIECE: Final = 16 * 2**20
"""Bytes that are written at once, about. Fewer would not do: beside a busy loop, a thread waits
for its turn after each call, so that the size of a call is what its speed depends on."""

PATIENCE: Final = 10.0
"""Seconds that the end waits for the disk."""

OVERHEAD: Final = 512
"""Bytes of a row beside its payload, about."""


class _Late(NamedTuple):
    """Rows that the thread is to make, and the bytes they keep until then."""

    note: Note
    size: int


class Writer:
    """Takes rows from the event loop, without ever waiting, and writes them every second.

    Most rows are encoded by who brings them: that is cheaper than to keep them, and a thread that
    computes would hold up the loop all the same. What takes longer is left to the thread. Nothing
    is started, and no file made, before the first row. Whatever happens to the disk, rows are
    dropped and counted, and nothing else happens.
    """

    def __init__(self, journal: Journal, log: logging.Logger) -> None:
        self._journal = journal
        self._folder = Path(journal.path) / "spool"
        self._log = log
        self._spool: Spool | None = None
        self.begin()

    def begin(self) -> None:
        """Begin with nothing: what there is belongs to the process that this one is a fork of."""
        if self._spool is not None:
            self._spool.abandon()
        self._spool = None
        self.written = 0
        self.dropped = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._notes: list[Note] = []
        self._noted = 0
        self._ready: list[Lines | _Late] = []
        self._waiting = 0  # bytes
        self._idle = True
        self._closing = False
        self._thread: threading.Thread | None = None
        self._start = os.urandom(4).hex()
        self._files = 0
        self._told = Dropping(self._journal, self._log)

    # -- in the loop ---------------------------------------------------------------------------

    def note(self, note: Note) -> None:
        """Rows that are quickly made: they are, as soon as there are enough of them."""
        with self._lock:
            if not self._has_room(note.rows):
                return
            self._notes.append(note)
            self._noted += note.rows
            if self._noted < TOGETHER:
                return
            notes = self._take_notes()
        lines = Lines.of(notes)
        with self._lock:
            self._put(lines, len(lines.data))

    def note_late(self, note: Note, size: int = 0) -> None:
        """Rows that the thread is to make; until then, payloads of so many bytes are kept."""
        with self._lock:
            if self._has_room(note.rows):
                size += OVERHEAD * note.rows
                self._put(_Late(note, size), size)

    def _has_room(self, rows: int) -> bool:
        full = self._waiting >= self._journal.max_buffered
        if full or self._closing or not (self._thread or self._begin_thread()):
            self.dropped += rows
            return False
        if self._idle:
            self._idle = False
            self._wake.set()
        return True

    def _put(self, ready: Lines | _Late, size: int) -> None:
        self._ready.append(ready)
        before, self._waiting = self._waiting, self._waiting + size
        if before < EARLY <= self._waiting:
            self._wake.set()

    def _take_notes(self) -> list[Note]:
        notes, self._notes, self._noted = self._notes, [], 0
        return notes

    # -- life ----------------------------------------------------------------------------------

    def _begin_thread(self) -> bool:
        thread = threading.Thread(target=self._run, name="queuecraft-journal", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there are too many, or the interpreter is about to end
            return False
        self._thread = thread
        atexit.register(self.close)  # for who never shuts down
        return True

    def close(self) -> None:
        """Write all there is and let others read it; returns when that is done."""
        with self._lock:
            self._closing = True
            thread = self._thread
        if thread is not None:
            self._wake.set()
            thread.join(PATIENCE)
            atexit.unregister(self.close)

    def _run(self) -> None:
        closing = False
        while not closing:
            self._wake.wait(None if self._idle else self._journal.flush_every)
            self._wake.clear()
            with self._lock:
                closing = self._closing
            self._flush()
            spool = self._spool
            if spool is not None and (closing or spool.age >= self._journal.close_every):
                self._close(spool)
            self._told.tell(self.written, self.dropped)
            with self._lock:
                self._idle = self._spool is None and not (self._notes or self._ready)

    # -- in the thread -------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write what waits, in pieces, so that late rows are not in memory twice."""
        with self._lock:
            ready, self._ready = self._ready, []
            notes = self._take_notes()
        batch: list[Lines] = []
        kept = 0
        for each in ready:
            if isinstance(each, _Late):
                batch.append(Lines.of([each.note]))
                kept += each.size
            else:
                batch.append(each)
                kept += len(each.data)
            if kept >= PIECE:
                self._write(batch, kept)
                batch, kept = [], 0
        if notes:
            batch.append(Lines.of(notes))
        if batch:
            self._write(batch, kept)

    def _write(self, batch: Sequence[Lines], kept: int) -> None:
        rows = sum(each.rows for each in batch)
        lost = sum(each.lost for each in batch)
        error: Exception | None = next((each.error for each in batch if each.error), None)
        try:
            self._append([each.data for each in batch], rows)
        except Exception as failure:  # whatever it is, the next second is another try
            lost, error = lost + rows, failure
        else:
            self.written += rows
        self._count(lost, error)
        with self._lock:
            self._waiting -= kept

    def _append(self, data: Sequence[bytes], rows: int) -> None:
        if self._spool is not None and self._spool.gone:
            self._lose(self._spool, FileNotFoundError(f"{self._spool.path} was removed"))
        if self._spool is not None and self._spool.spoilt:
            self._spool.abandon()
            self._spool = None
        if self._spool is None:
            self._files += 1
            self._spool = Spool.open(self._folder, name_of(self._start, self._files))
        self._spool.write(data, rows)
        if self._spool.size >= self._journal.close_at:
            self._close(self._spool)

    def _close(self, spool: Spool) -> None:
        self._spool = None
        try:
            spool.close()
        except FileNotFoundError as error:
            self._lose(spool, error)
        except OSError as error:
            self._told.trouble(error)  # whoever adopts the file will see what there is

    def _lose(self, spool: Spool, error: OSError) -> None:
        """A file that somebody has taken away, with all that was in it."""
        self._spool = None
        spool.abandon()
        self.written -= spool.rows
        self._count(spool.rows, error)

    def _count(self, lost: int, error: Exception | None) -> None:
        with self._lock:
            self.dropped += lost
        if error is not None:
            self._told.trouble(error)
