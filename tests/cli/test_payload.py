"""Lines as they come: from files, from pipes, a piece at a time."""

from __future__ import annotations

import asyncio
import io
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import PayloadError
from queuecraft.cli.duration import seconds, spoken
from queuecraft.cli.payload import CHUNK, lines, parse


async def collected(stream: BinaryIO, limit: int = 10**9) -> list[tuple[int, bytes]]:
    return [each async for batch in lines(stream, limit) for each in batch]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", []),
        (b"\n \n\t\n", []),
        (b"1", [(1, b"1")]),
        (b"1\n\n3\n", [(1, b"1"), (3, b"3")]),
        (b"\n" * 3 + b"4", [(4, b"4")]),
        (b"1\r\n2", [(1, b"1\r"), (2, b"2")]),
    ],
)
async def test_blank_lines_are_left_out_and_the_others_keep_their_numbers(
    text: bytes, found: list[tuple[int, bytes]], tmp_path: Path
) -> None:
    assert await collected(io.BytesIO(text)) == found
    file = tmp_path / "lines"
    file.write_bytes(text)
    with file.open("rb") as stream:
        assert await collected(stream) == found


async def test_a_line_longer_than_a_piece_is_put_together(tmp_path: Path) -> None:
    text = b"x" * (3 * CHUNK) + b"\n" + b"y" * CHUNK
    assert await collected(io.BytesIO(text)) == [(1, b"x" * 3 * CHUNK), (2, b"y" * CHUNK)]


async def test_a_line_without_an_end_is_given_up_at_the_limit() -> None:
    endless = io.BytesIO(b"1\n" + b"x" * (100 * CHUNK))
    with pytest.raises(PayloadError, match="line 2 has more than"):
        await collected(endless, limit=4 * CHUNK)
    assert endless.tell() < 10 * CHUNK


async def test_a_slow_pipe_does_not_hold_up_the_loop() -> None:
    out, into = os.pipe()
    with os.fdopen(out, "rb") as stream:
        reading = asyncio.ensure_future(collected(stream))
        for piece in (b"1", b"1\n2", b"2\n", b"33"):
            await asyncio.sleep(0)
            assert not reading.done()
            os.write(into, piece)
        os.close(into)
        assert await reading == [(1, b"11"), (2, b"22"), (3, b"33")]


async def test_waiting_for_a_line_can_be_cancelled() -> None:
    out, into = os.pipe()
    with os.fdopen(out, "rb") as stream:
        reading = asyncio.ensure_future(collected(stream))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        os.close(into)


@given(st.binary() | st.text())
def test_any_text_is_json_or_a_clear_error(text: bytes | str) -> None:
    with suppress(PayloadError):
        parse(text)


@given(st.text())
def test_any_text_is_a_length_of_time_or_a_usage_error(text: str) -> None:
    with suppress(typer.BadParameter):
        assert seconds(text) >= 0


@given(st.floats(min_value=0, max_value=1e12))
def test_a_length_of_time_is_told_in_two_units_at_most(age: float) -> None:
    told = spoken(age).split()
    assert 1 <= len(told) <= 2
    assert abs(sum(map(seconds, told)) - age) < 86400
