"""Payloads as they are typed, piped or kept in files: JSON, checked before anything is sent."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import BinaryIO, NoReturn

from queuecraft.model.errors import PayloadError

CHUNK = 1 << 16  # bytes read at once


def parse(text: str | bytes, where: str = "the payload") -> object:
    """A JSON value.

    >>> parse('{"id": "o-1"}')
    {'id': 'o-1'}
    >>> parse("{id: 1}")
    Traceback (most recent call last):
    queuecraft.PayloadError: the payload is no JSON: Expecting property name ...
    """
    try:
        value: object = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        if error.doc[:1] not in ("", '"', "{", "["):
            raise PayloadError(
                f"{where} is no JSON: {error.msg} at {at}; a text needs its quotes: '\"text\"'"
            ) from None
        raise PayloadError(f"{where} is no JSON: {error.msg} at {at}") from None
    except UnicodeDecodeError:
        raise PayloadError(f"{where} is no JSON: it is not UTF-8") from None
    except RecursionError:
        raise PayloadError(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise PayloadError(f"{where} is no JSON: {error}") from None
    return value


def read(source: str | None, limit: int) -> object:
    """The payload that an argument stands for: JSON, `@file`, `-` for standard input. Without
    one it is what is piped in; from a keyboard nothing comes unasked."""
    if source is None and sys.stdin.isatty():
        raise PayloadError(
            "there is no payload; give it as JSON, as @file, or - to type it. For an event that "
            "carries nothing, say null"
        )
    if source is not None and source != "-" and not source.startswith("@"):
        return parse(source)
    with opened(source) as stream:
        body = stream.read(limit + 1)
    where = "standard input" if source in (None, "-") else source[1:]
    if source is None and not body.strip():
        raise PayloadError(
            "there is no payload, and standard input is empty; give it as JSON or as @file. For "
            "an event that carries nothing, say null"
        )
    if len(body) > limit:
        raise PayloadError(f"{where} has more than {limit:,} bytes, the most a message may have")
    return parse(body, where)


@contextmanager
def opened(source: str | None) -> Generator[BinaryIO]:
    """The bytes of `@file`, or of standard input."""
    if source is None or source == "-":
        yield sys.stdin.buffer
        return
    with open(source.removeprefix("@"), "rb") as stream:
        yield stream


async def lines(stream: BinaryIO, limit: int) -> AsyncGenerator[list[tuple[int, bytes]]]:
    """The lines of a stream with their numbers, as many at a time as have come; blank ones are
    left out. Waiting for more gives up the event loop, so that a connection stays alive."""
    number = 0
    rest = b""
    while chunk := await _chunk(stream):
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > limit:
            raise PayloadError(f"line {number + len(whole) + 1} has more than {limit:,} bytes")
        found = list(enumerate(whole, number + 1))
        number += len(whole)
        yield [(at, line) for at, line in found if line.strip()]
    if rest.strip():
        yield [(number + 1, rest)]


async def _chunk(stream: BinaryIO) -> bytes:
    try:
        file = stream.fileno()
        waits = not stat.S_ISREG(os.fstat(file).st_mode)
    except (OSError, ValueError):
        return stream.read(CHUNK)  # not a real file
    if waits:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(file, ready.set)
        except OSError:
            pass  # always ready, as /dev/null
        else:
            try:
                await ready.wait()
            finally:
                loop.remove_reader(file)
    return os.read(file, CHUNK)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")
