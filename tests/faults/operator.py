"""A child that does what an operator does, once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, TypeAlias

from queuecraft import QueueCraft
from tests.faults.child import Options, run
from tests.faults.job import QUEUE, Hands, worker_of
from tests.faults.page import Page

SCRATCH = "scratch"
PATTERN = "scratch.*"

Errand: TypeAlias = Literal["bind", "unbind", "purge", "delete", "redrive", "canary"]


class OperatorOptions(Options, kw_only=True):
    errand: Errand

    @property
    def allowed(self) -> int:
        """Dead letters that a redrive has in its hands at any moment, at most."""
        return 100 if self.errand in ("redrive", "canary") else 0


async def do(errand: Errand, qc: QueueCraft) -> None:
    match errand:
        case "bind":
            await qc.admin.bind(SCRATCH, PATTERN)
        case "unbind":
            await qc.admin.unbind(SCRATCH, PATTERN)
        case "purge":
            await qc.admin.purge(SCRATCH)
        case "delete":
            await qc.admin.delete(SCRATCH)
        case "redrive":
            await qc.dead_letters.redrive(QUEUE)
        case "canary":
            await qc.dead_letters.redrive(QUEUE, canary=3, patience=1)


async def main(options: OperatorOptions, page: Page) -> None:
    qc = QueueCraft(options.url)
    # Whose queue is declared with ours: a driver may know of no others.
    worker_of(qc, Hands(Path(options.folder), page), arguments=options.arguments)
    async with qc:
        page.write("ready")
        await do(options.errand, qc)


def begin(argument: str) -> None:
    run(OperatorOptions, main, argument)


if __name__ == "__main__":
    begin(sys.argv[1])
