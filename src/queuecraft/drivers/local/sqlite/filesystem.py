"""The file system that a file is on: its kind, its room, and whether its word is good."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import Final

REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "afs", "fuse.sshfs", "glusterfs"}
)
BESIDE: Final = 64 * 1024  # bytes that must be free for the index of the log
ASKED: Final = hasattr(os, "removexattr")
_FAILED: Final = frozenset({errno.EROFS, errno.EIO, getattr(errno, "EUCLEAN", errno.EROFS)})
_UNASKED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF})


class Filesystem:
    """Of one database, from when its log is there until its connections are closed."""

    def __init__(self, file: Path) -> None:
        self._folder = file.parent
        self._log = Path(f"{file}-wal")
        self._descriptor = -1  # of the log: who closes the file itself loses all locks there
        self._closed = False  # for good; a thread of ours may still be at it
        self._failed = False

    def __del__(self) -> None:
        self.close()

    def open(self) -> None:
        """Be able to tell whether it fails."""
        if self._descriptor < 0 and ASKED and not self._closed:
            self._descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Hold nothing any more."""
        self._closed = True
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def still_writes(self) -> bool:
        """False when it has failed, also if it has just said that all is on the disk.

        At an error ext4 throws away the transaction it was at. A sync that wants it written finds
        it gone, takes it for done, and succeeds; until the mount is read-only, some milliseconds
        later, so does writing over what the file has. What needs the journal is refused from the
        first moment, so it is asked for something that does, and changes nothing.
        """
        if sys.platform == "linux" and ASKED and not self._failed:
            try:
                os.removexattr(self._descriptor, "user.queuecraft")
            except OSError as error:  # that there is none, or that here can be none
                if error.errno in _FAILED:
                    self._failed = True
        return not self._failed

    def sync(self) -> bool:
        """Have the log on the disk; False if nobody can be sure that it is."""
        descriptor = self._descriptor
        if ASKED and descriptor < 0:
            return False
        if ASKED and not self._failed:
            try:
                os.fdatasync(descriptor)
            except OSError as error:  # it is told once: the next sync would know nothing of it
                if error.errno not in _UNASKED:
                    self._failed = True
        return self.still_writes() and not self._closed

    def is_full(self) -> bool:
        """Whether there is no room for what SQLite needs beside the file."""
        try:
            return shutil.disk_usage(self._folder).free < BESIDE
        except OSError:
            return False

    def kind(self) -> str | None:
        """Its type, where the system tells."""
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
            place = self._folder.resolve()
        except OSError:
            return None
        best, kind = -1, None
        for line in mounts.splitlines():
            fields = line.split(" ")
            if len(fields) < 3:
                continue
            mounted = fields[1].replace("\\040", " ")
            if place.is_relative_to(mounted) and len(mounted) >= best:
                best, kind = len(mounted), fields[2]
        return kind
