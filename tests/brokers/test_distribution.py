"""Getting Kafka, with a Maven and a Java that only pretend."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.brokers.distribution import VERSION, Distribution
from tests.brokers.installation import Unavailable

MAVEN = """#!/bin/sh
here="${0%/*}"
echo "$@" >> "$here/fetched"
for given do
    case "$given" in -DoutputDirectory=*) folder="${given#*=}" ;; esac
done
/bin/mkdir "$folder" && : > "$folder/kafka.jar"
"""
JAVA = """#!/bin/sh
here="${0%/*}"
case "$*" in
    *-version*) printf 'openjdk version "17.0.1"\\n    java.home = %s\\n' "${here%/*}" >&2 ;;
    *StorageTool*)
        echo "$@" >> "$here/formatted"
        while [ "$1" != --config ]; do shift; done
        /bin/mkdir "$(/bin/sed -n 's/^log.dirs=//p' "$2")" ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the only programs there are, beside an empty cache."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"mvn": MAVEN, "java": JAVA, "kcat": "", "openssl": ""}.items():
        script(programs / name, text)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return programs


def script(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def times(record: Path) -> int:
    return len(record.read_text(encoding="utf-8").splitlines())


def test_it_is_fetched_and_prepared_once(machine):
    found = Distribution.get()
    assert found.folder == Path(os.environ["XDG_CACHE_HOME"], "queuecraft", f"kafka-{VERSION}")
    assert {path.name for path in found.folder.iterdir()} == {"data", "jars", "lock"}
    assert {path.name for path in found.jars.iterdir()} == {"kafka.jar"}
    Distribution.get()
    assert times(machine / "fetched") == times(machine / "formatted") == 1


def test_what_was_fetched_needs_no_maven(machine):
    Distribution.get()
    (machine / "mvn").unlink()
    Distribution.get()


def test_those_who_want_it_at_once_wait_for_one_another(machine):
    with ThreadPoolExecutor(4) as threads:
        found = {*threads.map(lambda _: Distribution.get(), range(4))}
    assert len(found) == 1
    assert times(machine / "fetched") == times(machine / "formatted") == 1


def test_a_repository_out_of_reach_is_told_and_leaves_nothing_half(machine):
    script(machine / "mvn", MAVEN + 'echo "[ERROR] no network"; echo more; exit 1\n')
    with pytest.raises(Unavailable, match=rf"Kafka {VERSION} \(no network\); name a repository"):
        Distribution.get()
    (folder,) = Path(os.environ["XDG_CACHE_HOME"], "queuecraft").iterdir()
    assert [path.name for path in folder.iterdir()] == ["lock"]
    script(machine / "mvn", MAVEN)
    assert Distribution.get().data.exists()


def test_what_was_fetched_is_kept_if_it_cannot_be_prepared(machine):
    script(machine / "java", JAVA.replace("/bin/mkdir", "exit 3 #"))
    with pytest.raises(Unavailable, match="exit status 3"):
        Distribution.get()
    script(machine / "java", JAVA)
    Distribution.get()
    assert times(machine / "fetched") == 1


def test_a_cache_that_cannot_be_written_is_told(machine, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / "kcat"))
    with pytest.raises(Unavailable, match=r"cannot be written.*set XDG_CACHE_HOME"):
        Distribution.get()


def test_a_machine_without_java_is_told_what_to_install(machine):
    (machine / "java").unlink()
    (machine / "mvn").unlink()
    with pytest.raises(Unavailable, match="default-jre-headless maven"):
        Distribution.get()
