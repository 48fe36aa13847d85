"""The programs the tests need, and how they get onto a machine that lacks them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")
_FORBIDDEN = 101


class Unavailable(Exception):
    """A broker cannot be had here; the message says what to do about it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program by its name or by where it is, and the Debian package that brings it."""

    name: str
    package: str
    places: Sequence[str] = ()  # tried before the PATH

    def find(self) -> str | None:
        """Where it is; None if it is not installed."""
        for place in self.places:
            if os.access(place, os.X_OK):
                return place
        return shutil.which(self.name)


# The ones on the PATH are Debian's wrappers, which insist on being root or the user `rabbitmq`,
# and on that user's data.
RABBITMQ_SERVER = Program(
    "rabbitmq-server", "rabbitmq-server", ("/usr/lib/rabbitmq/bin/rabbitmq-server",)
)
EPMD = Program("epmd", "erlang-base")
OPENSSL = Program("openssl", "openssl")
RABBITMQ = (RABBITMQ_SERVER, EPMD, OPENSSL)
REDIS_SERVER = Program("redis-server", "redis-server")
REDIS = (REDIS_SERVER, OPENSSL)
JAVA = Program("java", "default-jre-headless")
MAVEN = Program("mvn", "maven")
KCAT = Program("kcat", "kcat")
KAFKA = (JAVA, KCAT, OPENSSL)  # and what `distribution` fetches with Maven
CHROMIUM = Program("chromium", "chromium", ("/usr/bin/chromium",))


def in_ci() -> bool:
    """Whether this is a run that must not leave anything out."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def ensure(programs: Sequence[Program], *, policy: Path = POLICY) -> None:
    """Install those that are missing, or raise `Unavailable`."""
    packages = missing(programs)
    if not packages:
        return
    wanted = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise Unavailable(f"{wanted} not installed, and there is no apt-get here; install it")
    if os.geteuid() != 0:
        raise Unavailable(f"not installed; run: sudo apt-get install {wanted}")
    with _services_stay_down(policy):
        if _apt("install", *packages):
            _apt("update")
            _apt("install", *packages)
    if still := missing(programs):
        raise Unavailable(f"apt-get could not install {' '.join(still)}; its output says why")


def missing(programs: Sequence[Program]) -> list[str]:
    """The packages of those that are not installed."""
    return [program.package for program in programs if program.find() is None]


def _apt(command: str, *packages: str) -> int:
    """Run it to its end, even if we are interrupted: half an installation helps nobody."""
    with subprocess.Popen(
        ["apt-get", "-qq", "-y", "-o", "DPkg::Lock::Timeout=300", command, *packages],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        start_new_session=True,
    ) as process:
        return process.wait()


@contextmanager
def _services_stay_down(policy: Path) -> Generator[None]:
    """Debian starts a service when it is installed, unless the machine's policy forbids it."""
    try:
        with policy.open("x", encoding="ascii") as file:
            file.write(
                f"#!/bin/sh\n# While QueueCraft's tests install a broker.\nexit {_FORBIDDEN}\n"
            )
    except FileExistsError:
        answer = subprocess.run([policy, "rabbitmq-server", "start"], check=False)
        if answer.returncode != _FORBIDDEN:
            raise Unavailable(
                f"not installed, and {policy} would let the package start a service; "
                "install it yourself"
            ) from None
        yield
        return
    try:
        policy.chmod(0o755)
        yield
    finally:
        policy.unlink()
