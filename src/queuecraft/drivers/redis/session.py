"""A process among those that consume: a thread that says it lives, as long as its loop turns."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

from queuecraft.drivers.redis import scripts
from queuecraft.drivers.redis.client import Client
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import ConnectionLost, QueueError

LEASE: Final = 3.0  # seconds after which a session that is silent seems to be dead
BEAT: Final = LEASE / 4
STANDSTILL: Final = 30.0  # seconds that a handler may keep the loop from turning
PATIENCE: Final = 1.0  # seconds to wait for the thread at the end


class Session:
    """Begun with the first consumer of a driver, ended with the driver. The lease is renewed from a
    thread, on a connection of its own, so that a handler that keeps the loop busy for some seconds
    does not cost its session all it holds. A loop that stands still is as good as dead."""

    def __init__(self, base: str, connect: Callable[[], Awaitable[Client]]) -> None:
        self.name = f"{os.getpid()}-{os.urandom(6).hex()}"
        self._base = base
        self._connect = connect
        self._turned = monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="queuecraft-lease", daemon=True)

    def start(self) -> None:
        """Let the heart beat."""
        self._thread.start()

    def turned(self) -> None:
        """The loop is alive."""
        self._turned = monotonic()

    async def stop(self) -> None:
        """Let the heart beat no more."""
        self._stopped = True
        if self._loop is not None and self._work is not None:
            try:
                self._loop.call_soon_threadsafe(self._work.cancel)
            except RuntimeError:
                pass  # it has ended
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, PATIENCE)

    # -- in the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except asyncio.CancelledError:
            pass

    async def _live(self) -> None:
        self._loop, self._work = asyncio.get_running_loop(), asyncio.current_task()
        client: Client | None = None
        try:
            pause = BEAT
            while not self._stopped:
                await asyncio.sleep(pause)
                pause = BEAT
                if monotonic() - self._turned > STANDSTILL:
                    continue
                try:
                    if client is None or client.lost is not None:
                        client = await self._connect()
                    failpoint("renew.before_commit")
                    async with asyncio.timeout(LEASE / 2):
                        await client.eval(
                            scripts.RENEW, [self._base], [self.name, round(LEASE * 1000)]
                        )
                    failpoint("renew.after_commit")
                except TimeoutError:
                    # Perhaps a network has swallowed this connection alone: try another at once.
                    if client is not None and client.lost is None:
                        pause = 0.0
                        client.abort(ConnectionLost("no answer in time", broker="redis"))
                except (QueueError, OSError):
                    pass  # there is time for another try; the loop meets the same, and says so
        finally:
            if client is not None:
                await client.close()
