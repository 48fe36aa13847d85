"""What all pages of the API share: the broker, who may do what, and the book it is written in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from starlette.requests import Request

from queuecraft.admin.overview import Overview, QueueRow
from queuecraft.app import QueueCraft
from queuecraft.drivers.base import Topology
from queuecraft.http.access import Access, Role
from queuecraft.http.audit import Audit, Deed
from queuecraft.http.jobs import Jobs
from queuecraft.http.lookout import Lookout
from queuecraft.http.masking import Masks

FRESH = 2.0  # seconds for which a topology is not asked for again
SHARE = 50  # or so many times as long as the broker took for it
LONGEST = 30.0  # though no longer than that; who changes something here sees it at once


@dataclass(slots=True)
class Desk:
    """Where an operator's requests are dealt with."""

    qc: QueueCraft
    access: Access
    audit: Audit
    jobs: Jobs
    lookout: Lookout
    masks: Masks
    _asking: asyncio.Future[Topology] | None = field(default=None, init=False)
    _good_until: float = field(default=float("-inf"), init=False)

    @contextlib.asynccontextmanager
    async def deed(
        self, request: Request, action: str, target: str, detail: str = ""
    ) -> AsyncGenerator[Deed]:
        """A block that changes something: written down before and after, and looked at then."""
        async with self.audit.deed(self.access.who(request), action, target, detail) as deed:
            yield deed
        self._asking = None
        self.lookout.hurry()

    def by(self, request: Request) -> str:
        """Who asks, as others are told."""
        who = self.access.who(request)
        return who.name or who.role.name.lower()

    def whole(self, request: Request) -> bool:
        """Whether this one sees what messages say."""
        return self.access.role(request) >= Role.OPERATOR

    async def topology(self) -> Topology:
        """Exchanges and bindings; however many ask, the broker is asked once."""
        now = asyncio.get_running_loop().time()
        asking = self._asking
        if asking is None or (asking.done() and (_failed(asking) or now > self._good_until)):
            asking = self._asking = asyncio.ensure_future(self._ask())
            asking.add_done_callback(_failed)
        return await asyncio.shield(asking)

    async def _ask(self) -> Topology:
        clock = asyncio.get_running_loop().time
        began = clock()
        topology = await self.qc.admin.topology()
        took = clock() - began
        self._good_until = began + min(LONGEST, max(FRESH, SHARE * took))
        return topology

    async def row(self, name: str) -> QueueRow:
        """A queue that the last look did not show: made since, or one of our own. Raises
        `UnknownQueue`."""
        info = await self.qc.admin.inspect(name)
        return QueueRow(
            name=info.name,
            ready=info.ready,
            in_flight=info.in_flight,
            delayed=info.delayed,
            dead=info.dead,
            consumers=info.consumers,
            oldest_age=info.oldest_age,
        )

    def dead_letter_queue(self, name: str, overview: Overview) -> str | None:
        """Where the dead letters of a queue are, if it has such a place: itself, what its worker
        says, or the usual one."""
        if name.endswith(".dlq"):
            return name
        if any(row.name == name and row.holds_dead_letters for row in overview.queues):
            return name
        for worker in self.qc.workers:
            if worker.handlers and worker.queue_name == name:
                return None if worker.dead_letters is None else worker.dead_letters.queue
        return f"{name}.dlq"


def _failed(asked: asyncio.Future[Topology]) -> bool:
    """Also hears an error that nobody waits for any more."""
    return asked.cancelled() or asked.exception() is not None
