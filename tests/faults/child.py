"""What every child program begins with: what it is told, and its page of the account."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from queuecraft import QueueCraft
from queuecraft.facts import Disconnected, Reconnected
from queuecraft.testing.failpoints import killed_at
from tests.faults.page import Page


class Options(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a child is told, as JSON in its only argument."""

    url: str
    folder: str
    constants: Mapping[str, float] = {}
    doom: str = ""  # the failpoint where it dies
    passes: int = 0  # and how often it gets by before
    max_file_bytes: int | None = None
    heartbeat: float = 30.0
    arguments: Mapping[str, str] = {}  # of the queue

    @property
    def allowed(self) -> int:
        """Duplicates that the death of the process may cost."""
        return 0


Told = TypeVar("Told", bound=Options)


def change(constants: Mapping[str, float], put: Callable[[Any, str, float], None]) -> None:
    """Give constants of the product other values, as `module:NAME`: a lease of half a second."""
    for name, value in constants.items():
        module, _, constant = name.partition(":")
        found = import_module(module)
        getattr(found, constant)  # one that is gone must not be set in vain
        put(found, constant, value)


def watch(qc: QueueCraft, options: Options, page: Page) -> None:
    """Write down when the connection is lost and found again."""
    qc.observe(Disconnected, lambda _: page.write("cut", allowed=options.allowed))
    qc.observe(Reconnected, lambda _: page.write("rejoined"))


def run(
    kind: type[Told], main: Callable[[Told, Page], Coroutine[Any, Any, None]], said: str
) -> None:
    """Be the program."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    options = msgspec.json.decode(said, type=kind)
    change(options.constants, setattr)
    page = Page(Path(options.folder))
    if options.max_file_bytes is not None:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.max_file_bytes, most))
    with killed_at(options.doom, skip=options.passes):
        asyncio.run(main(options, page))
