from __future__ import annotations

import base64
import fcntl
import json
import os
import threading
import time
from pathlib import Path

import pytest

from queuecraft import QueueCraft
from queuecraft.model.errors import QueueError
from queuecraft.pipeline import lines as reading
from queuecraft.pipeline import spools
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.spools import Converted, convert
from queuecraft.testing.failpoints import failing
from tests.pipeline.segments import dies, files, ids, line, rows, spool

POINTS = (
    "convert.before_manifest",
    "convert.after_manifest",
    "segment.before_rename",
    "segment.after_rename",
    "convert.after_segment",
    "convert.between_removals",
    "convert.after_removals",
)
CONVERT = (
    "import sys\n"
    "from queuecraft.pipeline.lake import Lake\n"
    "from queuecraft.pipeline.spools import convert\n"
    "convert(Lake.at(sys.argv[1]))\n"
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


def left(lake: Lake) -> list[str]:
    """What is in the spool folder besides the lock."""
    return sorted(path.name for path in lake.spool.iterdir() if path.name != ".lock")


# -- what becomes of lines -------------------------------------------------------------------------


def test_a_closed_spool_becomes_a_segment_and_is_gone(lake: Lake) -> None:
    spool(lake, "a.jsonl", line("m-1"), line("m-2"))
    assert convert(lake) == Converted(segments=1, rows=2)
    assert ids(lake) == ["m-1", "m-2"]
    assert left(lake) == []
    assert convert(lake) == Converted()


def test_every_column_of_a_line_arrives(lake: Lake) -> None:
    fields = {
        "kind": "delivered",
        "at": 1_700_000_000.123456,
        "queue": "billing",
        "event": "order.placed",
        "attempt": 2,
        "outcome": "retried",
        "duration": 0.25,
        "published_at": 1_600_000_000.5,
        "size": 7,
        "headers": {"tenant": "t1", "empty": ""},
        "typed_headers": '{"pages":2}',
        "payload": '{"n":1}',
        "process": 12,
    }
    spool(lake, "a.jsonl", line("m-1", **fields))
    convert(lake)
    (row,) = rows(lake)
    at, published_at = row.pop("at"), row.pop("published_at")
    assert at.isoformat() == "2023-11-14T22:13:20.123456+00:00"
    assert published_at.timestamp() == 1_600_000_000.5
    assert row["headers"] == [("tenant", "t1"), ("empty", "")]
    assert row["payload"] == b'{"n":1}'
    for name in fields.keys() - {"at", "published_at", "headers", "payload"}:
        assert row[name] == fields[name]
    assert (row["message_id"], row["version"], row["redeliveries"]) == ("m-1", 1, 0)
    given = {*fields, "message_id", "version", "redeliveries", "priority"}
    assert {row[name] for name in row.keys() - given} == {None}


def test_a_payload_that_is_no_text_arrives(lake: Lake) -> None:
    raw = bytes(range(256))
    spool(lake, "a.jsonl", line("m-1", payload_base64=base64.b64encode(raw).decode()))
    convert(lake)
    assert rows(lake)[0]["payload"] == raw


def test_no_payload_and_an_empty_one_are_told_apart(lake: Lake) -> None:
    spool(lake, "a.jsonl", line("m-1"), line("m-2", payload=""))
    convert(lake)
    assert [row["payload"] for row in rows(lake)] == [None, b""]


def many(ids: bytes, sizes: bytes) -> bytes:
    return b'{"kind":"published","at":1.0,"each":{"message_id":%b,"size":%b}}' % (ids, sizes)


BAD = {
    "not JSON": b"{oops",
    "not an object": b"[1,2]",
    "no row": b'{"kind":"published"}',
    "of no kind": b'{"kind":"guessed","at":1.0}',
    "a number for a text": b'{"kind":"published","at":1.0,"message_id":5}',
    "of a newer version": b'{"kind":"published","at":1.0,"version":2,"new":true}',
    "of no version": b'{"kind":"published","at":1.0,"version":0}',
    "a time that is none": b'{"kind":"published","at":1e300}',
    "a number too large": b'{"kind":"published","at":1.0,"attempt":99999999999}',
    "a number larger still": b'{"kind":"published","at":1.0,"size":99999999999999999999999}',
    "no base64": b'{"kind":"published","at":1.0,"payload_base64":"?"}',
    "no UTF-8": b'{"kind":"published","at":1.0,"event":"\xff"}',
    "half a character": b'{"kind":"published","at":1.0,"event":"\\ud83d"}',
    "zeros": b"\0" * 40,
    "too deep": b'{"kind":' + b"[" * 100_000,
    "many, and not as many sizes": many(b'["m-3","m-4"]', b"[1]"),
    "many, and no ids": b'{"kind":"published","at":1.0,"each":{"size":[1]}}',
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_line_that_cannot_be_read_is_kept_and_its_neighbours_too(bad: bytes, lake: Lake) -> None:
    path = spool(lake, "a.jsonl", line("m-1"), bad + b"\n", line("m-2"))
    os.utime(path, (1_650_000_000, 1_650_000_000))
    assert convert(lake) == Converted(segments=1, rows=3, unreadable=1)
    first, middle, last = rows(lake)
    assert (first["message_id"], last["message_id"]) == ("m-1", "m-2")
    assert (middle["kind"], middle["payload"]) == ("unreadable", bad)
    assert middle["error"]
    assert middle["at"].timestamp() == 1_650_000_000
    assert middle["message_id"] == f"a.jsonl:{len(line('m-1'))}"


def test_many_bad_lines_among_good_ones(lake: Lake) -> None:
    many = [line(f"m-{n}") if n % 3 else b"?\n" for n in range(999)]
    spool(lake, "a.jsonl", *many)
    assert convert(lake) == Converted(segments=1, rows=999, unreadable=333)
    found = rows(lake)
    assert [row["kind"] == "unreadable" for row in found] == [n % 3 == 0 for n in range(999)]
    assert len({row["message_id"] for row in found}) == 999


def test_a_line_of_many_is_as_many_rows(lake: Lake) -> None:
    lines = [
        line("m-1"),
        b'{"kind":"delivered","at":1.5,"queue":"billing","key":"k","outcome":"succeeded",'
        b'"service":"shop","each":{"message_id":["m-2","m-3"],"size":[7,9],'
        b'"duration":[0.5,0.25],"published_at":[1.0,null]}}\n',
        many(b'["m-4"]', b"[1]") + b"\n",
        many(b"[]", b"[]") + b"\n",
    ]
    spool(lake, "a.jsonl", *lines)
    assert convert(lake) == Converted(segments=1, rows=4)
    _, two, three, four = rows(lake)
    for row, name, size, duration in ((two, "m-2", 7, 0.5), (three, "m-3", 9, 0.25)):
        assert (row["message_id"], row["size"], row["duration"]) == (name, size, duration)
        assert (row["queue"], row["key"], row["service"]) == ("billing", "k", "shop")
        assert (row["kind"], row["outcome"], row["at"].timestamp()) == (
            "delivered",
            "succeeded",
            1.5,
        )
    assert two["published_at"].timestamp() == 1.0
    assert three["published_at"] is None
    assert (four["message_id"], four["kind"], four["size"]) == ("m-4", "published", 1)


def test_a_row_that_fits_no_column_spoils_only_itself_on_a_line_of_many(lake: Lake) -> None:
    lines = [line("m-1"), many(b'["m-2","m-3","m-4"]', b"[7,%d,9]" % 2**63) + b"\n", line("m-5")]
    spool(lake, "a.jsonl", *lines)
    assert convert(lake) == Converted(segments=1, rows=5, unreadable=1)
    bad = f"a.jsonl:{len(lines[0])}:1"
    assert ids(lake) == ["m-1", "m-2", bad, "m-4", "m-5"]
    kept = rows(lake)[2]
    assert json.loads(kept["payload"])["message_id"] == "m-3"
    assert (kept["kind"], kept["size"]) == ("unreadable", len(kept["payload"]))


def test_empty_lines_and_empty_spools_are_nothing(lake: Lake) -> None:
    spool(lake, "a.jsonl")
    spool(lake, "b.jsonl", b"\n", line("m-1"), b" \n\r\n", line("m-2"))
    assert convert(lake) == Converted(segments=1, rows=2)
    assert left(lake) == []
    spool(lake, "c.jsonl")
    assert convert(lake) == Converted()
    assert left(lake) == []


def test_a_closed_spool_keeps_the_last_line_even_without_its_end(lake: Lake) -> None:
    spool(lake, "a.jsonl", line("m-1"), line("m-2").rstrip())
    spool(lake, "b.jsonl", line("m-3"), b'{"kind":"publ')
    assert convert(lake) == Converted(segments=1, rows=4, unreadable=1)
    assert [row["payload"] for row in rows(lake) if row["kind"] == "unreadable"] == [
        b'{"kind":"publ'
    ]


async def test_what_a_journal_has_written_is_understood(lake: Lake) -> None:
    async with QueueCraft("local://", journal=str(lake.root)) as qc:
        await qc.admin.declare("billing", "order.*", dead_letters=False)
        await qc.publish("order.placed", {"n": 1}, message_id="m-1", headers={"a": "b", "n": 5})
    assert convert(lake) == Converted(segments=1, rows=1)
    (row,) = rows(lake)
    assert (row["kind"], row["message_id"], row["event"]) == ("published", "m-1", "order.placed")
    assert (row["headers"], row["typed_headers"]) == ([("a", "b")], '{"n":5}')


# -- which spools ----------------------------------------------------------------------------------


def test_a_spool_that_is_being_written_is_left_alone(lake: Lake) -> None:
    path = spool(lake, "a.open", line("m-1"))
    with path.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert convert(lake) == Converted()
        assert path.exists()
    assert convert(lake) == Converted(segments=1, rows=1, adopted=1)
    assert ids(lake) == ["m-1"]
    assert left(lake) == []


def test_an_orphan_is_adopted_up_to_its_last_whole_line(lake: Lake) -> None:
    spool(lake, "a.open", line("m-1"), line("m-2")[:-9])
    assert convert(lake) == Converted(segments=1, rows=1, adopted=1, torn=1)
    assert ids(lake) == ["m-1"]


def test_an_orphan_that_lacks_only_the_end_of_its_last_line_is_whole(lake: Lake) -> None:
    spool(lake, "a.open", line("m-1").rstrip())
    assert convert(lake) == Converted(segments=1, rows=1, adopted=1)


def test_an_empty_spool_may_be_about_to_be_locked(lake: Lake) -> None:
    path = spool(lake, "a.open")
    assert convert(lake) == Converted()
    assert path.exists()
    long_ago = time.time() - 1000
    os.utime(path, (long_ago, long_ago))
    assert convert(lake) == Converted()
    assert not path.exists()


def test_what_is_no_spool_is_not_touched(lake: Lake) -> None:
    spool(lake, "notes.txt", b"hello")
    spool(lake, ".hidden.jsonl", b"hello")
    (lake.spool / "folder.jsonl").mkdir()
    (lake.spool / "link.jsonl").symlink_to("notes.txt")
    before = left(lake)
    assert convert(lake) == Converted()
    assert left(lake) == before


def test_a_lake_without_spools_is_left_as_it_is(lake: Lake) -> None:
    assert convert(lake) == Converted()
    assert not lake.root.exists()


def test_ten_thousand_tiny_spools_make_a_few_segments(lake: Lake) -> None:
    for number in range(10_000):
        spool(lake, f"{number:05}.jsonl", line(f"m-{number:05}"))
    seen: list[Converted] = []
    assert convert(lake, progress=seen.append) == Converted(segments=1, rows=10_000)
    assert seen == [Converted(segments=1, rows=10_000)]
    assert ids(lake) == [f"m-{number:05}" for number in range(10_000)]
    assert left(lake) == []


def test_large_spools_make_segments_of_their_own(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "TOGETHER", 1000)
    for name in "abc":
        spool(lake, f"{name}.jsonl", *(line(f"{name}-{n}") for n in range(20)))
    assert convert(lake) == Converted(segments=3, rows=60)
    assert ids(lake) == [f"{name}-{n}" for name in "abc" for n in range(20)]


@pytest.mark.parametrize("limit", [("BATCH", 300), ("MOST", 3)])
def test_a_spool_is_read_piece_by_piece(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, int]
) -> None:
    monkeypatch.setattr(reading, "_PIECE", 100)
    monkeypatch.setattr(reading, *limit)
    long = line("long", payload="x" * 1000)
    lines = [line(f"m-{n}") for n in range(50)]
    spool(lake, "a.jsonl", *lines, long, *lines, b"?\n")
    assert convert(lake) == Converted(segments=1, rows=102, unreadable=1)
    names = [f"m-{n}" for n in range(50)]
    offset = sum(map(len, lines)) * 2 + len(long)
    assert ids(lake) == [*names, "long", *names, f"a.jsonl:{offset}"]


# -- several at once, and those that die -----------------------------------------------------------


def test_two_converters_at_once_do_the_work_once(lake: Lake) -> None:
    for number in range(300):
        spool(lake, f"{number:03}.jsonl", line(f"m-{number}"))
    done: list[Converted] = []
    threads = [threading.Thread(target=lambda: done.append(convert(lake))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.rows for each in done) == [0, 0, 0, 300]
    assert sorted(ids(lake)) == sorted(f"m-{number}" for number in range(300))


@pytest.mark.parametrize("point", POINTS)
def test_a_converter_that_dies_loses_nothing_and_doubles_nothing(point: str, lake: Lake) -> None:
    names = [f"m-{number}" for number in range(6)]
    for number, name in enumerate(names):
        spool(lake, f"{number}.jsonl", line(name))
    dies(point, CONVERT, str(lake.root))
    convert(lake)
    assert ids(lake) == names
    assert left(lake) == []
    assert len(files(lake)) == 1


@pytest.mark.parametrize("point", ["convert.before_adoption", "convert.after_adoption"])
def test_a_converter_that_dies_while_it_adopts_loses_nothing(point: str, lake: Lake) -> None:
    spool(lake, "a.open", line("m-1"), line("m-2")[:-9])
    dies(point, CONVERT, str(lake.root))
    assert convert(lake).torn == 1
    assert ids(lake) == ["m-1"]
    assert left(lake) == []


def test_new_spools_do_not_change_what_a_dead_converter_had_begun(lake: Lake) -> None:
    spool(lake, "b.jsonl", line("m-1"))
    dies("segment.before_rename", CONVERT, str(lake.root))
    spool(lake, "a.jsonl", line("m-0"))
    assert convert(lake) == Converted(segments=2, rows=2)
    assert ids(lake) == ["m-1", "m-0"]


def test_a_disk_that_is_full_costs_nothing(lake: Lake) -> None:
    spool(lake, "a.jsonl", line("m-1"))
    full = OSError(28, "No space left on device")
    with failing("segment.before_rename", full), pytest.raises(OSError, match="No space left"):
        convert(lake)
    assert convert(lake) == Converted(segments=1, rows=1)
    assert ids(lake) == ["m-1"]
    assert left(lake) == []


def test_a_manifest_that_cannot_be_read_is_named(lake: Lake) -> None:
    spool(lake, "a.jsonl", line("m-1"))
    spool(lake, ".x.manifest", json.dumps({"segment": 5}).encode())
    with pytest.raises(QueueError, match=r"\.x\.manifest tells which spools .* remove it"):
        convert(lake)
