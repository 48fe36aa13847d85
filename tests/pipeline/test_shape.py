"""What payloads look like."""

from __future__ import annotations

from typing import Any

import pytest

from queuecraft.pipeline import shape as module
from queuecraft.pipeline.shape import DEEPEST, Shape


def paths(*payloads: Any) -> list[str]:
    shape = Shape()
    for number, payload in enumerate(payloads):
        shape.add(payload, number)
    return [path for path, *_ in shape.fields()]


def test_a_field_counts_once_a_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape()
    shape.add([{"n": 1}, {"n": 2}, {"n": "x"}], 7)
    assert list(shape.fields()) == [
        ("$", "array", 1, 7, 7),
        ("[]", "object", 1, 7, 7),
        ("[].n", "number", 1, 7, 7),
        ("[].n", "string", 1, 7, 7),
    ]


def test_ids_for_names_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 6)
    found = paths(*({"by": {f"o-{n}": {"x": n}}} for n in range(1000)))
    assert {"by.o-0.x", "by.o-1.x", "by.*"} <= set(found)
    assert len(found) < 12


def test_a_payload_that_is_deeply_nested_is_followed_only_so_far() -> None:
    nested: Any = 1
    for _ in range(100):
        nested = {"a": nested}
    assert len(paths(nested)) == DEEPEST + 1
