"""Claims in a Redis, on a connection that is opened for them."""

from __future__ import annotations

from queuecraft.drivers.target import Target
from queuecraft.runtime.delayed.server import OwnServer, first_client
from queuecraft.stores.claims.redis import RedisClaimStore


async def open_claims(target: Target) -> RedisClaimStore:
    """Claims on the first host of a URL that answers."""
    client, prefix = await first_client(target)
    return RedisClaimStore(OwnServer(client, "claim"), prefix)
