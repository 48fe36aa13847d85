"""What is set: the settings and where they come from, tokens, the place of a database."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw

from queuecraft.app import QueueCraft
from queuecraft.cli.broker import craft
from queuecraft.cli.doctor.finding import Finding, failed, ok, skipped, warning
from queuecraft.config import CONFIG
from queuecraft.drivers.local import path_of
from queuecraft.http.secrets import VARIABLES, Secrets
from queuecraft.model.errors import ConfigError, ConnectionLost
from queuecraft.model.masking import masked

ROOM = 1024**3  # bytes; a queue that grows for an hour while nobody consumes fits
FIXED = (3, 51, 3)  # the SQLite that does not lose its log where several write at once


def settings(url: str | None, *, writes: bool) -> tuple[list[Finding], QueueCraft | None]:
    """What is found, and a QueueCraft if the settings make one."""
    found = [_sources(url)]
    try:
        qc = craft(url, creates=writes)
    except (ConfigError, ConnectionLost) as error:
        what, missing, install = error.message.partition("; run: ")
        return [*found, failed("settings", what, install if missing else _ADVICE)], None
    found.append(ok("settings", f"the broker is {masked(qc.settings.url)}"))
    path = path_of(qc.settings.url) if qc.settings.url.startswith("local:") else None
    if path is not None:
        found += _place(path.absolute())
    return [*found, _tokens()], qc


_ADVICE = "mend the setting; docs/configuration.md names them all"


def _sources(url: str | None) -> Finding:
    """Where settings come from, in the order in which one is asked after the other."""
    variables = sorted(
        name
        for name in os.environ
        if name.startswith("QUEUECRAFT_") and name not in (*VARIABLES.values(), "QUEUECRAFT_DEBUG")
    )
    toml = Path(os.environ.get(CONFIG) or "queuecraft.toml")
    told = [
        *(["--url"] if url is not None else []),
        *variables,
        *(str(path) for path in (Path(".env"), toml) if path.exists()),
    ]
    return ok("sources", ", ".join(told) if told else "nothing is set: all defaults")


def _place(path: Path) -> Iterator[Finding]:
    folder = path if path.is_dir() else path.parent
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        yield failed("file", f"{path} cannot be written", "give this user the right to write there")
        return
    free = shutil.disk_usage(folder).free
    told = f"{path}, {free / 1024**3:,.1f} GiB free"
    if free < ROOM:
        yield warning("file", told, "make room: a full disk refuses every publish")
    else:
        yield ok("file", told)
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split("."))) < FIXED:
        yield warning(
            "sqlite",
            f"{version} can lose its log where several processes write at once",
            "pip install --upgrade apsw",
        )
    else:
        yield ok("sqlite", version)


def _tokens() -> Finding:
    try:
        secrets = Secrets.found()
    except ConfigError as error:
        return failed("tokens", error.message, "mend it before `queuecraft serve`")
    said = [name for field, name in VARIABLES.items() if getattr(secrets, field) is not None]
    if not said:
        return skipped("tokens", "none: `queuecraft serve` answers this machine alone")
    return ok("tokens", ", ".join(said))
