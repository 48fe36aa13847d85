"""The supervisor: keeps so many worker processes alive, and stops, rolls or reloads them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial

from queuecraft.cli.processes.child import Child
from queuecraft.cli.processes.files import Files, Snapshot
from queuecraft.cli.processes.life import CLEAN, FAILED, MISTAKEN, UNREACHABLE
from queuecraft.cli.processes.line import Hello
from queuecraft.cli.processes.stop import Count

YOUNG = 5.0  # seconds; who dies before that is not replaced at once
BACKOFF, LONGEST = 0.5, 30.0  # seconds; doubled with each that dies young
TRIES = 5  # deaths in a row before any process has worked, then it is given up


@dataclass(slots=True)
class Slot:
    """A place for one process, and who has it."""

    number: int
    child: Child | None = None
    died_young: int = 0
    renewed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def empty(self) -> bool:
        """Whether nobody lives there."""
        return self.child is None or self.child.ended.done()


class Supervisor:
    """Runs `command` so many times side by side. It never imports the application itself: what
    breaks there cannot break the supervisor, and each process starts with the code as it is."""

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        log: logging.Logger,
        *,
        files: Files | None = None,
    ) -> None:
        self._command = command
        self._slots = [Slot(number) for number in range(1, processes + 1)]
        self._log = log
        self._announce: Callable[[Hello], None] | None = None
        self._files = files
        self._children: set[Child] = set()
        self._stopping = asyncio.Event()
        self._stops = Count()
        self._forced = False
        self._code: int | None = None
        self._changed = asyncio.Event()  # another one after each change
        self._loads = asyncio.Event()  # the code as it is now was imported by somebody
        self._worked = False  # whether any process ever has
        self._rolls_wanted = asyncio.Event()
        self._terminal = _has_terminal()

    @property
    def healthy(self) -> bool:
        """Whether every process lives and is well."""
        return not self._stopping.is_set() and all(
            slot.child is not None and slot.child.healthy for slot in self._slots
        )

    async def run(self, announce: Callable[[Hello], None] | None = None) -> int:
        """Until stopped, or until there is no hope; the exit code. What the first process says
        of itself is announced."""
        self._announce = announce
        tasks = [asyncio.ensure_future(self._roll_when_wanted())]
        if self._files is not None:
            tasks.append(asyncio.ensure_future(self._watch(self._files, self._files.snapshot())))
        with self._listening():
            try:
                await asyncio.gather(*(self._keep(slot) for slot in self._slots))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                while self._children:  # those who make room for others
                    await asyncio.wait([child.ended for child in self._children])
        if self._code is not None:
            return self._code
        return FAILED if self._forced else CLEAN

    def stop(self, why: str) -> None:
        """Have all finish what runs; the second time, have them end at once."""
        once = self._stops.next(time.monotonic()) == 1
        living = f"{len(self._children)} process{'' if len(self._children) == 1 else 'es'}"
        if not self._stopping.is_set():
            self._log.info("%s: asking %s to finish and stop", why, living)
            self._stopping.set()
            for child in self._children:
                child.dismiss()
        elif not once and not self._forced:
            self._log.warning("%s again: stopping %s at once", why, living)
            self._forced = True
            for child in self._children:
                child.force()

    def renew(self, why: str) -> None:
        """Take up the code as it is now: one process after the other, none missing meanwhile;
        when reloading, all at once."""
        if self._stopping.is_set():
            return
        if self._files is None:
            self._log.info("%s: restarting one process after the other", why)
            self._rolls_wanted.set()
            return
        self._log.info("%s: reloading", why)
        self._loads.clear()
        before, self._changed = self._changed, asyncio.Event()
        before.set()
        for child in self._children:
            child.dismiss()

    # -- one slot ------------------------------------------------------------------------------

    async def _keep(self, slot: Slot) -> None:
        """Have a living process in the slot, until the end."""
        while not self._stopping.is_set():
            changed = self._changed
            if slot.empty and not await self._fill(slot, changed):
                continue
            child = slot.child
            assert child is not None
            code = await child.ended
            if slot.child is child and not child.leaving:
                await self._mourn(slot, child, code, changed)

    async def _fill(self, slot: Slot, changed: asyncio.Event) -> bool:
        """Start a process; False when it is not the time, or cannot be done."""
        first = self._slots[0]
        if slot is not first and not await self._either(self._loads, changed):
            return False  # a mistake in the code is shown once
        try:
            child = await self._start(slot)
        except OSError as error:
            slot.died_young += 1
            await self._rest(slot, FAILED, f"process {slot.number} cannot be started: {error}")
            return False
        if not slot.empty or changed.is_set():  # somebody came before it, or it came too late
            child.dismiss()
        if slot.empty:
            slot.child = child
        if slot is first and await child.loaded():
            self._vouch(child)
        return True

    async def _start(self, slot: Slot) -> Child:
        attended = self._files is not None and len(self._slots) == 1
        child = await Child.start(slot.number, self._command, attended=attended)
        self._children.add(child)
        child.ended.add_done_callback(partial(self._count, child))
        if self._stopping.is_set():
            child.dismiss()
        return child

    def _count(self, child: Child, ended: asyncio.Task[int]) -> None:
        self._children.discard(child)
        self._worked = self._worked or child.started
        if child.leaving and ended.result() != CLEAN:
            self._log.warning("%s", child.epitaph)
            if self._stopping.is_set() and self._code is None:
                self._code = FAILED

    def _vouch(self, child: Child) -> None:
        self._loads.set()
        announce, self._announce = self._announce, None
        if announce is not None and child.hello is not None:
            announce(child.hello)

    async def _mourn(self, slot: Slot, child: Child, code: int, changed: asyncio.Event) -> None:
        """Nobody asked it to go: say so, and decide what comes next."""
        if self._stopping.is_set():
            self._log.warning("%s", child.epitaph)
            return
        slot.died_young = slot.died_young + 1 if child.age < YOUNG else 0
        hopeless = code == MISTAKEN or (slot.died_young >= TRIES and not self._worked)
        if self._files is not None and hopeless:
            self._log.error("%s; waiting for a change", child.epitaph)
            await self._either(changed)
        elif code == MISTAKEN and not any(each.started for each in self._children):
            self._give_up(code, f"{child.epitaph}; the application cannot run as it is")
        elif code == MISTAKEN:  # the others go on with the code they have
            self._log.error("%s; it is not started again before SIGHUP", child.epitaph)
            slot.renewed.clear()
            await self._either(slot.renewed)
        else:
            await self._rest(slot, code, child.epitaph, changed)

    async def _rest(
        self, slot: Slot, code: int, what: str, changed: asyncio.Event | None = None
    ) -> None:
        """Wait before the next try, longer each time it dies young."""
        if not self._worked and slot.died_young >= TRIES:
            last = code if code in (MISTAKEN, UNREACHABLE) else FAILED
            self._give_up(last, f"{what}; no process has come to work in {TRIES} tries")
            return
        wait = min(BACKOFF * 2.0 ** (slot.died_young - 1), LONGEST) if slot.died_young else 0.0
        when = f" in {wait:.1f} s" if wait else ""
        self._log.warning("%s; starting another%s", what, when)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._either(*([] if changed is None else [changed]))

    def _give_up(self, code: int, why: str) -> None:
        if self._code is None:
            self._log.error("%s; giving up", why)
            self._code = code
        self._stopping.set()
        for child in self._children:
            child.dismiss()

    async def _either(self, *events: asyncio.Event) -> bool:
        """Wait for one of them; whether it was the first. Ends early when all is to stop."""
        waits = [asyncio.ensure_future(each.wait()) for each in (*events, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return bool(events) and events[0].is_set() and not self._stopping.is_set()

    # -- new code ------------------------------------------------------------------------------

    async def _watch(self, files: Files, before: Snapshot) -> None:
        while True:
            names, before = await files.changed(before)
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self.renew(f"{names[0]}{more} changed")

    async def _roll_when_wanted(self) -> None:
        while True:
            await self._rolls_wanted.wait()
            self._rolls_wanted.clear()
            if await self._roll():
                self._log.info("every process is new")

    async def _roll(self) -> bool:
        for slot in self._slots:
            try:
                fresh = await self._start(slot)
            except OSError as error:
                self._log.error("%s; the others stay as they are", error)
                return False
            if not await fresh.works():
                if not self._stopping.is_set():
                    self._log.error("%s; the others stay as they are", fresh.epitaph)
                return False
            old, slot.child = slot.child, fresh
            slot.renewed.set()
            if old is not None:
                old.dismiss()
                await asyncio.wait([old.ended])
        return True

    # -- signals -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _listening(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: partial(self.stop, "SIGTERM"),
            signal.SIGINT: partial(self.stop, "SIGINT"),
            signal.SIGHUP: partial(self._hang_up, nohup=nohup),
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _hang_up(self, *, nohup: bool) -> None:
        """Sent by hand, or by a terminal that was closed."""
        if not self._terminal or _has_terminal():
            self.renew("SIGHUP")
        elif not nohup:
            self.stop("the terminal is gone")


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
