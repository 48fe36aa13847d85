"""What the web and the workers say to each other."""

from dataclasses import dataclass

from queuecraft import Event
from queuecraft.outbox import Outbox
from queuecraft.sync import QueueCraft


@dataclass(frozen=True, slots=True)
class Placed:
    """An order that was placed. Plain data, never a row of the ORM."""

    id: str
    cents: int


order_placed = Event("order.placed", Placed)
order_seen = Event("order.seen", str)

qc = QueueCraft.from_environment(publish_timeout=2)  # connects when it is first used
outbox = Outbox(qc.settings)
