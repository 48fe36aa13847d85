"""What strace has seen of a process: which files it wrote and synced, and in which order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

OPTIONS: Final = [
    "-f",
    "-y",
    "-s",
    "400",
    "-e",
    "trace=write,pwrite64,writev,pwritev,fsync,fdatasync",
]

_BEGUN = re.compile(r"(?P<pid>\d+) +(?P<name>\w+)\(\d+<(?P<path>[^>]*)>(?P<rest>.*)")
_RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)")
_RESULT = re.compile(r"\) += (-?\d+)[^=]*$")


@dataclass(frozen=True)
class Call:
    """A call to the system: when it began and ended, as numbers of lines."""

    name: str
    path: str
    begun: int
    ended: int
    result: int
    text: str


def calls(lines: Iterable[str]) -> list[Call]:
    """The calls of a trace, in the order in which they began."""
    return sorted(_calls(lines), key=lambda call: call.begun)


def _calls(lines: Iterable[str]) -> Iterator[Call]:
    begun: dict[tuple[str, str], tuple[int, str, str]] = {}
    for number, line in enumerate(lines):
        if found := _BEGUN.match(line):
            begin, path, text = number, found["path"], found["rest"]
            if "<unfinished ...>" in text:
                begun[found["pid"], found["name"]] = begin, path, text
                continue
        elif found := _RESUMED.match(line):
            begin, path, text = begun.pop((found["pid"], found["name"]))
        else:
            continue
        result = _RESULT.search(found["rest"])
        assert result is not None, f"not understood: {line}"
        yield Call(found["name"], path, begin, number, int(result[1]), text)


def unsynced(calls: Iterable[Call], log: str, marker: str) -> list[str]:
    """What is wrong where each line with the marker was written: by then something must have been
    written to the log since the one before, and after the last of that it must have been synced."""
    wrong: list[str] = []
    written: list[Call] = []
    synced = 0
    number = 0
    for call in calls:
        if call.path == log and "write" in call.name:
            written.append(call)
        elif call.path == log and call.result == 0:
            if written and call.begun > written[-1].ended:
                synced = call.ended
        elif marker in call.text and "write" in call.name:
            number += 1
            if not written:
                wrong.append(f"publish {number}: nothing was written")
            elif not written[-1].ended < synced < call.begun:
                wrong.append(f"publish {number}: returned before it was synced")
            written = []
    return wrong if number else ["nothing was published"]
