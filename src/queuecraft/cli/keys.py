"""Keys as they are pressed, without waiting for the end of a line."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


@asynccontextmanager
async def pressed() -> AsyncGenerator[asyncio.Queue[str]]:
    """The keys that are pressed while the block runs; none where nobody sits at a keyboard.
    Ctrl-C interrupts as ever."""
    keys: asyncio.Queue[str] = asyncio.Queue()
    try:
        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except (OSError, ValueError, termios.error):
        yield keys
        return
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            text = os.read(number, 64)
        except OSError:
            text = b""
        if not text:  # the terminal is gone
            loop.remove_reader(number)
        elif len(text) == 1 or not text.startswith(b"\x1b"):  # arrows and the like are not for us
            for key in text.decode(errors="ignore"):
                keys.put_nowait(key)

    tty.setcbreak(number, termios.TCSADRAIN)  # what was typed already counts, too
    try:
        loop.add_reader(number, read)
        yield keys
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
