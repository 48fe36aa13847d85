"""The file: opened, checked, brought up to date, and written when no other process writes."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, Literal, TypeVar

import apsw

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.local.sqlite.filesystem import REMOTE, Filesystem
from queuecraft.drivers.local.sqlite.schema import APPLICATION_ID, MIGRATIONS
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import ConfigError, QueueError

R = TypeVar("R")

PATIENCE: Final = 10.0  # seconds another process may hold the file before it counts as out of reach
CHECKPOINT: Final = 4000  # pages in the log before they are copied back: 16 MB
LOG_KEPT: Final = 64 * 1024 * 1024  # bytes of the log that stay allocated between checkpoints


class CommitUnknown(ConnectionLost):
    """The disk failed while a transaction was made durable: it may be there after a restart."""


class Synced(apsw.Connection):
    """What is committed here has to be on the disk."""


class Database:
    """One file. Connections are cheap; each transaction is begun, done and committed without
    giving up the event loop, and only waiting for another process's turn gives it up."""

    def __init__(self, path: Path) -> None:
        # One name for one file, by whatever link it is found: the others are beside that.
        self.path = Path(os.path.realpath(path))
        self._filesystem = Filesystem(self.path)
        self._inode: tuple[int, int] | None = None
        self._pages = 0  # in the log
        self._due = CHECKPOINT  # pages with which it is to be copied back
        self._copied = 0  # pages of it that were

    def connect(self, *, synchronous: Literal["FULL", "NORMAL"]) -> apsw.Connection:
        """Open the file, making or upgrading it where needed."""
        self._check_place()
        _make_private(self.path)
        try:
            connection = (Synced if synchronous == "FULL" else apsw.Connection)(str(self.path))
        except apsw.Error as error:
            raise self.explain(error, "open") from error
        try:
            # By itself SQLite would copy the log back in the middle of a commit, and when the last
            # connection goes: before anybody can ask whether all of it is really on the disk.
            connection.set_wal_hook(self._logged)
            connection.set_busy_timeout(int(PATIENCE * 1000))
            self._check_ours(connection)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.execute(f"PRAGMA synchronous={synchronous}")
            connection.execute(f"PRAGMA journal_size_limit={LOG_KEPT}")
            connection.set_busy_timeout(0)
            self._filesystem.open()
            self._inode = self._inode or _inode(self.path)
        except apsw.Error as error:
            self.disconnect(connection)
            raise self.explain(error, "open") from error
        except OSError as error:
            self.disconnect(connection)
            raise self._unopened(error) from error
        except BaseException:
            self.disconnect(connection)
            raise
        return connection

    def disconnect(self, connection: apsw.Connection) -> None:
        """Close a connection. The last one takes the log into the file, if it is on the disk."""
        with suppress(apsw.ConnectionClosedError):
            if self._filesystem.sync():
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            connection.close()

    def close(self) -> None:
        """Let go of the file, after the connections."""
        self._filesystem.close()

    async def write(
        self, connection: apsw.Connection, operation: str, work: Callable[[apsw.Connection], R]
    ) -> R:
        """Do the work in one transaction, as soon as no other process writes.

        A busy timeout of SQLite's own would block the loop, and sleeps longer than needed; with
        short random pauses two processes share the file at a fifth more, at a third of the worst
        wait.
        """
        self._check_present(operation)
        waited_since = 0.0
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                break
            except apsw.BusyError as error:
                now = monotonic()
                waited_since = waited_since or now
                if now - waited_since > PATIENCE:
                    raise self.explain(error, operation) from error
            except apsw.Error as error:
                raise self.explain(error, operation) from error
            await asyncio.sleep(random.uniform(0.0001, 0.002))
        return self._finish(connection, operation, work)

    def write_now(
        self, connection: apsw.Connection, operation: str, work: Callable[[apsw.Connection], R]
    ) -> R:
        """As `write`, for a thread that may block: waits as long as the connection's own timeout
        says."""
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise self.explain(error, operation) from error
        return self._finish(connection, operation, work)

    def read(
        self, connection: apsw.Connection, operation: str, work: Callable[[apsw.Connection], R]
    ) -> R:
        """Do the work on one consistent view; readers wait for nobody."""
        try:
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                self._roll_back(connection)  # nothing was written
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self.explain(error, operation) from error

    def believe(self) -> None:
        """Ask whether what was written is there, and what is written will be."""
        if not self._filesystem.still_writes():
            raise apsw.ReadOnlyError("the file system has failed")

    def copy_back(
        self, connection: apsw.Connection, mode: Literal["PASSIVE", "TRUNCATE"] = "PASSIVE"
    ) -> None:
        """Take the log into the file, as far as nobody reads it, so that it can start anew. A file
        that knew half of what a lost log knew would be damaged, so the log is synced first and its
        disk asked; what others add to it in that moment, SQLite syncs alone."""
        if not self._filesystem.sync():
            return
        try:
            ((busy, _, copied),) = rows(connection, f"PRAGMA wal_checkpoint({mode})")
        except apsw.Error:
            return  # there will be another time
        # Others may have written meanwhile: then there is more to copy, and the next commit sees to
        # it. If there was no getting on, a reader is in it, and to sync each time would be in vain.
        stuck = not busy and copied == self._copied
        self._due = self._pages + CHECKPOINT if stuck else CHECKPOINT
        self._copied = copied

    def explain(self, error: apsw.Error | UnicodeDecodeError, operation: str) -> QueueError:
        """What a person can do about an error of the file."""
        path = str(self.path)
        kind: type[ConnectionLost | ConfigError] = ConnectionLost
        if isinstance(error, apsw.FullError) or (
            isinstance(error, apsw.IOError) and self._filesystem.is_full()
        ):
            text = f"the disk that holds {path!r} is full; free some space"
        elif isinstance(error, apsw.BusyError | apsw.LockedError):
            text = f"another process has held {path!r} for {PATIENCE:g} s; end its transaction"
        elif isinstance(error, apsw.ReadOnlyError):
            text = f"{path!r} cannot be written to; see to its permissions and its filesystem"
        elif isinstance(error, apsw.CantOpenError):
            text = f"{path!r} cannot be opened; see to the permissions of the file and its folder"
        elif isinstance(error, apsw.NotADBError):
            kind = ConfigError
            text = f"{path!r} is no database; give the path of a file of its own, it will be made"
        elif isinstance(error, apsw.CorruptError | UnicodeDecodeError):  # text that is none
            text = (
                f"{path!r} is damaged ({error}); restore it from a backup, or move it away and "
                "start with a new one"
            )
        elif isinstance(error, apsw.ConnectionClosedError):
            text = "the queue is closed; open it first"
        else:
            text = f"{path!r} failed: {error}; see to the disk it is on"
        return kind(text, broker="local", operation=operation)

    # -- inside --------------------------------------------------------------------------------

    def _finish(
        self, connection: apsw.Connection, operation: str, work: Callable[[apsw.Connection], R]
    ) -> R:
        committing = False
        try:
            # Before anything is written: it might be over what was copied back, and is not there.
            self.believe()
            result = work(connection)
            failpoint(f"{operation}.before_commit")
            committing = True
            connection.execute("COMMIT")
            if isinstance(connection, Synced):
                self.believe()
        except BaseException as error:
            self._roll_back(connection)
            if not isinstance(error, apsw.Error | UnicodeDecodeError):
                raise
            if isinstance(error, apsw.FullError):
                self.copy_back(connection)  # the log cannot grow: let it start anew
            explained = self.explain(error, operation)
            # What was written without being synced may be found, whole, after a power cut.
            if committing and isinstance(error, apsw.IOError | apsw.ReadOnlyError):
                raise CommitUnknown(explained.message, broker="local") from error
            raise explained from error
        if self._pages >= self._due:
            self.copy_back(connection)
        failpoint(f"{operation}.after_commit")
        return result

    def _check_present(self, operation: str) -> None:
        """A file that was removed can still be written to, and nobody would ever read it."""
        if _inode(self.path) != self._inode:
            raise ConnectionLost(
                f"{str(self.path)!r} was removed or replaced while it was in use",
                broker="local",
                operation=operation,
            )

    def _patiently(self, ask: Callable[[], R]) -> R:
        """Once more while another process is making the same file: switching the journal does not
        wait by itself, whatever the busy timeout."""
        until = monotonic() + PATIENCE
        while True:
            try:
                return ask()
            except apsw.BusyError:
                if monotonic() > until:
                    raise
            sleep(0.005)

    def _logged(self, _: apsw.Connection, __: str, pages: int) -> int:
        if pages < self._pages:  # it has started anew
            self._due, self._copied = CHECKPOINT, 0
        self._pages = pages
        return apsw.SQLITE_OK

    def _roll_back(self, connection: apsw.Connection) -> None:
        try:
            if connection.in_transaction:  # some errors have ended it already
                connection.execute("ROLLBACK")
        except apsw.Error:
            pass  # the first error tells more

    def _unopened(self, error: OSError) -> ConnectionLost:
        advice = "see to its name and to the permissions of its folder"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            advice = "let the process have more files open (ulimit -n)"
        text = f"{str(self.path)!r} cannot be opened ({error.strerror}); {advice}"
        return ConnectionLost(text, broker="local", operation="open")

    def _check_place(self) -> None:
        folder = self.path.parent
        try:
            exists, is_folder = folder.is_dir(), self.path.is_dir()
        except OSError as error:  # no permission to look, or a name too long
            raise self._unopened(error) from error
        if not exists:
            raise ConfigError(
                f"the folder {str(folder)!r} does not exist; make it first, or give another path",
                broker="local",
            )
        if is_folder:
            raise ConfigError(
                f"{str(self.path)!r} is a folder; give the path of a file", broker="local"
            )
        kind = self._filesystem.kind()
        if kind in REMOTE:
            raise ConfigError(
                f"{str(self.path)!r} is on a network filesystem ({kind}), where processes cannot "
                "share a file safely; use a local disk",
                broker="local",
            )

    def _check_ours(self, connection: apsw.Connection) -> None:
        def check(connection: apsw.Connection) -> bool:
            found = _identity(connection)
            self._refuse_foreign(connection, *found)
            return found == (APPLICATION_ID, len(MIGRATIONS))

        # On one view: a file that another process is just making must not seem to be foreign.
        if self.read(connection, "open", check):
            return
        # Readers go on while one process writes: what makes a shared file usable at all.
        mode = self._patiently(lambda: value(connection, "PRAGMA journal_mode=WAL"))
        if mode != "wal":
            raise ConfigError(
                f"the filesystem of {str(self.path)!r} cannot share a file between processes; "
                "use a local disk",
                broker="local",
            )
        connection.execute("PRAGMA synchronous=FULL")
        self.read(connection, "open", _identity)  # now there is a log
        self._filesystem.open()

        def upgrade(connection: apsw.Connection) -> None:
            application, version = _identity(connection)  # another process may have been faster
            self._refuse_foreign(connection, application, version)
            for migration in MIGRATIONS[version:]:
                connection.execute(migration)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={len(MIGRATIONS)}")

        self.write_now(connection, "migrate", upgrade)

    def _refuse_foreign(self, connection: apsw.Connection, application: int, version: int) -> None:
        path = str(self.path)
        if application != APPLICATION_ID:
            tables = value(connection, "SELECT count(*) FROM sqlite_schema")
            if application or version or tables:
                raise ConfigError(
                    f"{path!r} is a database of another program; give the path of a file of its "
                    "own, it will be made",
                    broker="local",
                )
        elif version > len(MIGRATIONS):
            raise ConfigError(
                f"{path!r} was made by a newer QueueCraft (format {version}, this one knows "
                f"{len(MIGRATIONS)}); upgrade QueueCraft",
                broker="local",
            )


def rows(
    connection: apsw.Connection, query: str, values: Sequence[apsw.SQLiteValue] = ()
) -> list[Any]:
    """Everything a query finds, as tuples."""
    return connection.execute(query, values).fetchall()


def value(connection: apsw.Connection, query: str, values: Sequence[apsw.SQLiteValue] = ()) -> Any:
    """The one value a query finds, or None."""
    return connection.execute(query, values).get


def _make_private(path: Path) -> None:
    """Let a new file be read by its owner alone: it holds payloads. SQLite gives the log the mode
    of the file. One that is there keeps its own."""
    # mknod, because it opens nothing: a process that closes a file loses every lock it has there,
    # and SQLite may just have got one in another thread.
    with suppress(OSError):  # it is there, or SQLite meets the same and says so
        os.mknod(path, 0o600)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _identity(connection: apsw.Connection) -> tuple[int, int]:
    return value(connection, "PRAGMA application_id"), value(connection, "PRAGMA user_version")
