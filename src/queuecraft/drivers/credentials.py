"""The credentials of this moment, from a callable or a file that may change at any time."""

from __future__ import annotations

import asyncio
import inspect
import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePath
from traceback import extract_tb
from typing import Any

from queuecraft.model.credentials import Credentials, Provider, Source
from queuecraft.model.errors import ConnectionLost

MAX_BYTES = 64 * 1024

_FORMS = (
    'expected JSON or TOML with "password" and perhaps "username", or one line: '
    "username:password, or the password alone"
)


async def current(source: Source) -> Credentials:
    """Ask the callable, or read the file, now. Whatever goes wrong is a `ConnectionLost`: the
    next attempt to connect asks again.

    >>> asyncio.run(current(lambda: Credentials("ada", "s3cret")))
    Credentials(username='ada')
    """
    if callable(source):
        return await _asked(source)
    return await asyncio.to_thread(_read, Path(source))


# -- a callable ------------------------------------------------------------------------------------


async def _asked(provider: Provider) -> Credentials:
    name = getattr(provider, "__qualname__", type(provider).__qualname__)
    try:
        answer: object
        if _is_async(provider):
            answer = provider()
        else:  # it may well wait for a vault, and nobody else is to wait with it
            answer = await asyncio.to_thread(provider)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception as error:
        # Neither its message nor the error itself goes on: both may hold what was fetched.
        kind, place = type(error).__name__, _place(error)
        raise _lost(f"callable {name!r} raised {kind}{place}; call it by hand to see why") from None
    if not isinstance(answer, Credentials):
        kind = type(answer).__name__
        raise _lost(f"callable {name!r} returned {kind}, expected Credentials(username, password)")
    return answer


def _is_async(provider: Provider) -> bool:
    call = getattr(provider, "__call__", None)  # noqa: B004  an instance may have an async one
    return inspect.iscoroutinefunction(provider) or inspect.iscoroutinefunction(call)


def _place(error: Exception) -> str:
    """Where it was raised: the last line of the traceback, as long as it names a file."""
    frames = extract_tb(error.__traceback__)
    return f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


# -- a file ----------------------------------------------------------------------------------------


def _read(path: Path) -> Credentials:
    where = f"file {str(path)!r}"
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _lost(f"{where} is no regular file; it is read again at each connect")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise _lost(f"{where} has more than {MAX_BYTES} bytes; {_FORMS}")
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _lost(f"{where} is not UTF-8; {_FORMS}") from None
    except (OSError, ValueError) as error:  # a path may hold what no path can
        reason = getattr(error, "strerror", None) or "it cannot be a path"
        raise _lost(f"{where} cannot be read: {reason}") from None
    fields = _fields(path, text)
    if fields is None:
        raise _lost(f"{where} is not what its name ends with; {_FORMS}")
    username, password = fields.get("username"), fields.get("password")
    if not isinstance(password, str) or not password:
        raise _lost(f"{where} holds no password; {_FORMS}")
    if not isinstance(username, (str, type(None))):
        raise _lost(f"{where} holds a username that is no text; {_FORMS}")
    return Credentials(username or None, password)


def _fields(path: Path, text: str) -> Mapping[str, Any] | None:
    """What the file says; None if it is not of the format that its name promises."""
    ending = path.suffix.lower()
    if ending == ".json":
        return _json(text)
    if ending == ".toml":
        return _toml(text)
    for found in (_json(text), _toml(text)):
        if found is not None and "password" in found:
            return found
    line = text.rstrip("\r\n")
    if "\n" in line or "\r" in line:
        return {}
    username, colon, password = line.partition(":")
    return {"username": username, "password": password} if colon else {"password": line}


def _json(text: str) -> Mapping[str, Any] | None:
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _toml(text: str) -> Mapping[str, Any] | None:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def _lost(text: str) -> ConnectionLost:
    return ConnectionLost(f"no credentials: {text}", operation="open")
