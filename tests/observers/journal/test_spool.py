"""A file is locked while it is written, and complete when it has its final name."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from queuecraft.observers.journal.spool import Spool, name_of


def locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_it_is_locked_for_as_long_as_it_is_open(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path / "a" / "spool", "one")
    assert spool.path.suffix == ".open"
    assert locked(spool.path)
    spool.write([b"{}\n"], 1)
    spool.abandon()
    assert not locked(spool.path)
    spool.abandon()


def test_it_is_synced_before_it_has_its_final_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool.open(tmp_path, "one")
    spool.write([b"{}\n", b"[]\n"], 2)
    steps: list[str] = []

    def fsync(descriptor: int) -> None:
        steps.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")

    def rename(path: Path, target: Path) -> None:
        assert locked(path)
        steps.append(f"rename {path.name} {target.name}")
        os.rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    spool.close()
    name = spool.path.name
    final = spool.path.with_suffix(".jsonl")
    assert steps == [f"sync {name}", f"rename {name} {final.name}", f"sync {tmp_path.name}"]
    assert final.read_bytes() == b"{}\n[]\n"
    assert not locked(final)


def test_one_that_stayed_empty_is_removed(tmp_path: Path) -> None:
    Spool.open(tmp_path, "one").close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["lock", "rename", "remove"])
def test_one_that_is_taken_for_an_orphan_before_it_is_locked_is_given_up(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    taken: list[int] = []

    def late(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        (path,) = tmp_path.iterdir()
        if how == "lock":
            taken.append(os.open(path, os.O_RDONLY))
            flock(taken[0], fcntl.LOCK_EX)
        elif how == "rename":
            path.rename(path.with_suffix(".adopted"))
        else:
            path.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    spool = Spool.open(tmp_path, "one")
    assert locked(spool.path)
    spool.write([b"{}\n"], 1)
    assert spool.path.read_bytes() == b"{}\n"
    spool.abandon()
    for descriptor in taken:
        os.close(descriptor)


def test_a_lock_that_cannot_be_had_at_all_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="no locks here"):
        Spool.open(tmp_path, "one")
    assert list(tmp_path.iterdir()) == []

    def busy(*_: Any) -> None:
        raise BlockingIOError

    monkeypatch.setattr(fcntl, "flock", busy)
    with pytest.raises(BlockingIOError, match="others take every new file"):
        Spool.open(tmp_path, "two")


def test_names_sort_by_time_and_are_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "../shop 1/" + "x" * 100)
    names = [name_of("abcd", number) for number in range(3)]
    assert names == sorted(names)
    assert all("/" not in name and ".." not in name and len(name) < 130 for name in names)
