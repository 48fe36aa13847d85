"""The nursery does not take a child for an earlier one that had its process id."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import msgspec

from tests.faults.nursery import News, Nursery


def test_a_child_with_the_process_id_of_a_dead_one_lives() -> None:
    nursery: Any = Nursery.__new__(Nursery)  # without its process: ids cannot be ordered
    read, write = os.pipe()
    with os.fdopen(read, "rb") as heard, os.fdopen(write, "wb", buffering=0) as told:
        nursery._process = SimpleNamespace(stdout=heard)
        nursery._ended, nursery._heard = {}, b""
        told.write(msgspec.json.encode(News(7)) + b"\n" + msgspec.json.encode(News(7, -9)) + b"\n")
        assert nursery.status(7) == -9
        told.write(msgspec.json.encode(News(7)) + b"\n")
        assert nursery._hear() == 7
        assert nursery.status(7) is None
