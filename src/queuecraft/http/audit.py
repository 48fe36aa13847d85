"""Who did what: kept for a while, told to the log, and written to a file that lasts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from queuecraft.http.access import Who
from queuecraft.http.refusal import Refusal
from queuecraft.model.errors import ConfigError
from queuecraft.observers.log import printable

log = logging.getLogger("queuecraft.audit")

KEPT = 1000
VISITS = 200
LONGEST = 500  # characters of one text

BEGUN = "begun"
DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that somebody did, or was refused. All texts are printable."""

    id: int
    at: datetime
    role: str
    name: str
    address: str
    action: str
    target: str
    detail: str
    outcome: str

    def fields(self) -> dict[str, Any]:
        """As JSON tells it."""
        return {
            "at": self.at.isoformat(),
            "by": {"role": self.role, "name": self.name, "address": self.address},
            "action": self.action,
            "target": self.target,
            "detail": self.detail,
            "outcome": self.outcome,
        }


class Deed:
    """Something under way, for which an end is to be written down."""

    def __init__(self, audit: Audit, entry: Entry) -> None:
        self._audit = audit
        self._entry = entry
        self.outcome = DONE

    async def end(self, outcome: str) -> None:
        """How it ended. It is done by now: what cannot be written does not undo it."""
        entry = replace(self._entry, outcome=_text(outcome))
        self._audit.put(entry)
        with contextlib.suppress(OSError):
            await self._audit.write(entry)


class Audit:
    """The last thousand deeds and who came and went lately, newest first; with a `path`, all of
    them, a line of JSON each.

    >>> import asyncio
    >>> from queuecraft.http.session import Role
    >>> async def main() -> None:
    ...     audit = Audit()
    ...     async with audit.deed(Who(Role.OPERATOR, "::1", name="ada"), "purge", "billing"):
    ...         print(audit.last(1)[0].outcome)
    ...     print(audit.last(1)[0].fields()["outcome"])
    >>> asyncio.run(main())
    begun
    done
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        # Apart: whoever signs in all the time, or tries to, pushes out nothing that was done.
        self._visits: deque[Entry] = deque(maxlen=VISITS)
        self._ids = itertools.count(1)
        self._lock = asyncio.Lock()
        self._path = None if path is None else Path(path)
        if self._path is not None:
            try:
                _append(self._path, b"")
            except OSError as error:
                raise ConfigError(
                    f"cannot write the audit log {str(self._path)!r}: {error.strerror}; name a "
                    "file in a directory that exists and that this user may write to"
                ) from error

    def last(self, limit: int) -> Sequence[Entry]:
        """The last deeds, newest first."""
        every = sorted((*self._entries, *self._visits), key=lambda entry: -entry.id)
        return every[:limit]

    @contextlib.asynccontextmanager
    async def deed(
        self, who: Who, action: str, target: str, detail: str = ""
    ) -> AsyncGenerator[Deed]:
        """Write down what is about to be done, and when the block ends, how it went. Raises a
        `Refusal` when that cannot be written, and then it must not be done."""
        deed = await self.begin(who, action, target, detail)
        try:
            yield deed
        except BaseException as error:
            await deed.end(_why(error))
            raise
        await deed.end(deed.outcome)

    async def begin(self, who: Who, action: str, target: str, detail: str = "") -> Deed:
        """The same for what goes on after the request; `Deed.end` must be called."""
        entry = self._entry(who, action, target, detail, BEGUN)
        try:
            await self.write(entry)
        except OSError as error:
            raise Refusal(
                503,
                "AuditFailed",
                "the audit log cannot be written, so nothing was done",
                "make room for it, or give the service a file it may write to",
                {"Retry-After": "5"},
            ) from error
        self.put(entry)
        return Deed(self, entry)

    async def note(self, who: Who, action: str, target: str, outcome: str) -> None:
        """Write down what is no deed: somebody came, went, or was not let in."""
        entry = self._entry(who, action, target, "", outcome)
        self._tell(entry)
        self._visits.append(entry)
        with contextlib.suppress(OSError):
            await self.write(entry)

    def put(self, entry: Entry) -> None:
        """Keep an entry, in place of what was said when it began."""
        self._tell(entry)
        for index in range(len(self._entries) - 1, -1, -1):
            if self._entries[index].id == entry.id:
                self._entries[index] = entry
                return
        if entry.outcome == BEGUN or not self._entries or self._entries[0].id < entry.id:
            self._entries.append(entry)

    async def write(self, entry: Entry) -> None:
        """Write a line to the file, and see that it is on the disk."""
        if self._path is None:
            return
        text = json.dumps({"id": entry.id, **entry.fields()}).replace("\x7f", "\\u007f")
        async with self._lock:
            try:
                await asyncio.to_thread(_append, self._path, f"{text}\n".encode())
            except OSError as error:
                log.error("cannot write %s: %s", self._path, error)
                raise

    def _tell(self, entry: Entry) -> None:
        fields = {**entry.fields(), "id": entry.id}
        who = entry.name or entry.role
        text = f"{who} ({entry.address}): {entry.action} {entry.target}: {entry.outcome}"
        log.info("%s", text, extra={"queuecraft": fields})

    def _entry(self, who: Who, action: str, target: str, detail: str, outcome: str) -> Entry:
        return Entry(
            id=next(self._ids),
            at=datetime.now(UTC),
            role=who.role.name.lower(),
            name=_text(who.name),
            address=_text(who.address),
            action=action,
            target=_text(target),
            detail=_text(detail),
            outcome=_text(outcome),
        )


def _append(path: Path, line: bytes) -> None:
    # Opened anew for each line: whoever rotates the file needs to tell nobody.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if line:
            written = os.write(file, line)
            if written != len(line):
                # Half a line would spoil the next one too.
                os.ftruncate(file, os.fstat(file).st_size - written)
                raise OSError("no room for the whole line")
            os.fsync(file)
    finally:
        os.close(file)


def _why(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, Refusal):
        return f"refused: {error.problem.message}"
    said = str(error)
    return f"failed: {said or type(error).__name__}"


def _text(value: str) -> str:
    text = printable(value[:LONGEST])
    return text if len(text) <= LONGEST else text[:LONGEST]
