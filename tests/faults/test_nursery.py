"""The nursery does not take a child for an earlier one that had its process id."""

from __future__ import annotations

import os
from collections import Counter
from types import SimpleNamespace
from typing import Any

import msgspec

from tests.faults.nursery import News, Nursery


def test_a_child_with_the_process_id_of_a_dead_one_lives() -> None:
    nursery: Any = Nursery.__new__(Nursery)  # without its process: ids cannot be ordered
    read, write = os.pipe()
    with os.fdopen(read, "rb") as heard, os.fdopen(write, "wb", buffering=0) as told:
        nursery._process = SimpleNamespace(stdout=heard)
        nursery._births, nursery._ended, nursery._heard = Counter(), {}, b""
        told.write(msgspec.json.encode(News(7)) + b"\n")
        first = nursery._hear()
        told.write(msgspec.json.encode(News(7, -9)) + b"\n")
        assert nursery.status(first) == -9
        told.write(msgspec.json.encode(News(7)) + b"\n")
        second = nursery._hear()
        assert (first.pid, second.pid) == (7, 7)
        assert nursery.status(second) is None
        assert nursery.status(first) == -9
        assert nursery.wait(first) == -9  # and not until the second has ended
