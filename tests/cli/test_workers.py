"""`queuecraft workers`, `pause` and `resume`: who is there, and who is to wait."""

from __future__ import annotations

import asyncio
import getpass
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from queuecraft import QueueCraft
from queuecraft.model.presence import Presence, WorkerPresence
from tests.cli.shell import Shell

R = TypeVar("R")
HOSTILE = "\x1b[31mred\r\n\u202egnp.exe"


def while_a_worker_runs(shell: Shell, *commands: tuple[str, ...], **options: Any) -> list[str]:
    """What commands print while a worker of another QueueCraft runs."""

    async def main() -> list[str]:
        async with QueueCraft(shell.url, **options) as qc:
            await qc.worker("billing", concurrency=3).on("order.*", print).start()
            while not await qc.admin.workers():  # noqa: ASYNC110  another process writes it
                await asyncio.sleep(0.01)
            return [await asyncio.to_thread(shell.ok, *each) for each in commands]

    return _run(main())


def _run(work: Coroutine[Any, Any, R]) -> R:
    return asyncio.run(work)


def test_workers_are_listed_while_they_run(shell: Shell) -> None:
    shell.declare("billing")
    assert shell.json("workers") == []
    (text,) = while_a_worker_runs(shell, ("workers",))
    header, line = text.splitlines()
    row = dict(zip(header.split("\t"), line.split("\t"), strict=True))
    assert (row["queue"], row["state"], row["at once"], row["handled"]) == (
        *("billing", "running", "3", "0"),
    )
    assert shell.json("workers") == []


def test_a_worker_as_json_has_everything(shell: Shell) -> None:
    shell.declare("billing")
    (text,) = while_a_worker_runs(shell, ("workers", "--json"))
    told = json.loads(text)
    assert (told["queue"], told["state"], told["concurrency"]) == ("billing", "running", 3)
    assert {"process", "host", "pid", "seen_at", "paused", "p95", "circuits"} <= set(told)


def test_a_paused_queue_says_who_and_why_and_nothing_steers_the_terminal(shell: Shell) -> None:
    shell.declare("billing")
    said = shell.ok("pause", "billing", "--reason", HOSTILE, "--by", "ada")
    assert said == "Queue 'billing' is paused; workers see it within seconds.\n"
    (text,) = while_a_worker_runs(shell, ("workers",))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "paused by ada: " in text
    assert "\tpaused\t" in text
    assert shell.json("resume", "billing") == [{"resumed": "billing", "was_paused": True}]
    (text,) = while_a_worker_runs(shell, ("workers",))
    assert "\trunning\t" in text


def test_who_pauses_is_oneself_unless_said_otherwise(shell: Shell) -> None:
    shell.declare("billing")
    (told,) = shell.json("pause", "billing")
    assert told["paused"] == "billing"
    assert told["by"] == getpass.getuser()


def test_resuming_what_was_not_paused_says_so(shell: Shell) -> None:
    shell.declare("billing")
    result = shell("resume", "billing")
    assert result.exit_code == 0
    assert "was not paused" in result.stderr


def test_a_queue_that_does_not_exist_can_neither_be_paused_nor_resumed(shell: Shell) -> None:
    shell.declare("billing")
    for command in ("pause", "resume"):
        result = shell(command, "biling")
        assert result.exit_code == 4
        assert "did you mean 'billing'" in result.stderr


def test_a_note_that_makes_no_sense_hides_no_worker(shell: Shell) -> None:
    shell.declare("billing")
    odd = Presence(
        id="odd",
        host=HOSTILE,
        pid=-1,
        started_at=-1e300,
        at=1e300,
        state="connected",
        workers=(WorkerPresence(queue="billing"),),
    )

    async def main() -> tuple[str, str]:
        async with QueueCraft(shell.url) as qc:
            driver = qc._engine.connection.current
            assert driver is not None
            await driver.announce("worker.odd", odd.written(), ttl=60)
            text = await asyncio.to_thread(shell.ok, "workers")
            return text, await asyncio.to_thread(shell.ok, "workers", "--json")

    text, lines = _run(main())
    assert "\tbilling\trunning\t" in text
    told = json.loads(lines)
    assert (told["pid"], told["started_at"], told["seen_at"]) == (-1, None, None)
