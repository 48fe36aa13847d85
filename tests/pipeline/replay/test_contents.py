from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from queuecraft.model.errors import QueueError
from queuecraft.pipeline.replay.contents import SIZE, Content, Contents
from queuecraft.pipeline.replay.ledger import Ledger
from queuecraft.pipeline.replay.table import PLAN
from queuecraft.pipeline.segments import make_folder


def write(
    ledger: Ledger, chunk: int, *messages: tuple[str | None, str | None, bytes | None]
) -> Path:
    names = ("message_id", "event", "payload")
    rows = [dict(zip(names, message, strict=True)) for message in messages]
    make_folder(ledger.chunk(chunk))
    path = ledger.chunk(chunk) / "part-0.snappy.parquet"
    pq.write_table(pa.Table.from_pylist(rows, PLAN.arrow), path)
    return path


def test_among_many_each_is_found_and_no_other() -> None:
    many = [(f"m-{n}", "order.placed", b"%d" % (n % 7)) for n in range(20_000)]
    contents = Contents.of(many)
    assert all(content in contents for content in many)
    assert not any((id, event, payload + b"0") in contents for id, event, payload in many)
    assert not any((f"{id}-", event, payload) in contents for id, event, payload in many)


def test_few_bytes_are_held_for_each() -> None:
    contents = Contents.of((f"m-{n}", "order.placed", bytes(1000)) for n in range(20_000))
    assert sum(map(len, contents._digests)) == 20_000 * SIZE


@pytest.mark.parametrize(
    "content",
    [
        ("a", "bc", b"d"),
        ("abc", "", b"d"),
        ("", "abc", b"d"),
        ("ab", "cd", b""),
        ("ab", "", b"cd"),
        ("ab", "c", b""),
        ("2 1 ab", "c", b"d"),
        ("\udcff", "c", b"d"),
    ],
    ids=ascii,
)
def test_what_reads_alike_from_end_to_end_is_not_the_same(content: Content) -> None:
    other = ("ab", "c", b"d")
    assert other not in Contents.of([content])
    assert content not in Contents.of([other])
    assert content in Contents.of([other, content])


def test_nothing_is_in_no_contents() -> None:
    assert ("", "", b"") not in Contents.of([])


def test_a_plan_is_read_with_all_of_its_chunks(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    write(ledger, 0, *((f"m-{n}", "order.placed", b"{}") for n in range(250)))
    write(ledger, 1, ("m-250", None, b""), (None, "order.placed", b"{}"), ("m-251", "e", None))
    (ledger.chunk(1) / ".part-0.snappy.parquet.crc").write_bytes(b"crc\0")
    (ledger.table / "_SUCCESS").touch()
    contents = ledger.contents()
    assert all((f"m-{n}", "order.placed", b"{}") in contents for n in range(250))
    assert ("m-250", "", b"") in contents
    assert ("", "order.placed", b"{}") not in contents
    assert ("m-251", "e", b"") not in contents


def test_a_plan_of_which_a_chunk_is_damaged_cannot_be_read(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    write(ledger, 0, ("m-1", "order.placed", b"{}"))
    damaged = write(ledger, 1, ("m-2", "order.placed", b"{}"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(QueueError, match=r"plan cannot be read: .*; plan the replay anew"):
        ledger.contents()


def test_a_plan_without_its_columns_cannot_be_read(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    make_folder(ledger.chunk(0))
    pq.write_table(pa.table({"message_id": ["m-1"]}), ledger.chunk(0) / "part-0.parquet")
    with pytest.raises(QueueError, match="cannot be read"):
        ledger.contents()
