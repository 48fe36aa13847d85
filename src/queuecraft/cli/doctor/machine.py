"""What this machine has: Python, packages, open files, Java and Spark."""

from __future__ import annotations

import platform
import resource
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from queuecraft import __version__
from queuecraft.cli.doctor.finding import Finding, failed, ok, skipped, warning
from queuecraft.drivers.registry import NEEDED
from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.java import find_java

FILES = 1024  # open at once; a worker with a few connections has enough with that


def machine(scheme: str, *, lake: bool = False) -> Iterator[Finding]:
    """Look at it, for somebody whose broker has URLs of this scheme. With `lake`, what only the
    lake needs has to be here as well."""
    python = f"Python {platform.python_version()}, QueueCraft {__version__}"
    yield ok("python", f"{python}, {platform.system()} {platform.machine()}")
    yield from _packages(scheme)
    yield _files()
    yield from _spark(needed=lake)


def _packages(scheme: str) -> Iterator[Finding]:
    if scheme in NEEDED:
        yield _package(*NEEDED[scheme], needed=True)
    if sys.platform != "win32":
        yield _package("uvloop", "uvloop", needed=False)
    web = [name for name in ("fastapi", "uvicorn", "prometheus_client") if not _there(name)]
    if web:
        lacking = f"{', '.join(web)} not installed: no `queuecraft serve`, no dashboard"
        yield skipped("http", f"{lacking} (pip install 'queuecraft[http]')")
    else:
        yield ok("http", f"fastapi {_version('fastapi')}, uvicorn {_version('uvicorn')}")


def _package(module: str, extra: str, *, needed: bool) -> Finding:
    name = module.replace("_", "-")
    if _there(module):
        return ok(name, _version(name))
    install = f"pip install 'queuecraft[{extra}]'"
    if needed:
        return failed(name, "not installed, and this broker needs it", install)
    return warning(name, "not installed; with it everything is faster", install)


def _files() -> Finding:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = "no limit" if most == resource.RLIM_INFINITY else f"{most:,} at once"
    if most != resource.RLIM_INFINITY and most < FILES:
        return warning("open files", told, f"allow more: ulimit -n {FILES}")
    return ok("open files", told)


def _spark(*, needed: bool) -> Iterator[Finding]:
    if not _there("pyspark"):
        lacking, install = "not installed; the lake needs it", "pip install 'queuecraft[spark]'"
        yield (
            failed("spark", lacking, install)
            if needed
            else skipped("spark", f"{lacking} ({install})")
        )
        return
    yield ok("spark", f"pyspark {_version('pyspark')}, pyarrow {_version('pyarrow')}")
    try:
        yield ok("java", str(find_java()))
    except ConfigError as error:
        what, _, todo = error.message.partition("; ")
        # Many machines have PySpark for something else, or for lakes that are elsewhere.
        yield (failed if needed else warning)("java", what, todo)


def _there(module: str) -> bool:
    return find_spec(module) is not None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of an unknown version"
