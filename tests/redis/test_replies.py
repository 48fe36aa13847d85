"""Queues of replies on Redis: kept for who may be back, and no longer."""

from __future__ import annotations

import pytest

from queuecraft.drivers.base import Rejected
from tests.redis.place import Place, ids, received, sent, to

ADDRESS = "qc.reply.a"


@pytest.mark.parametrize("mode", ["list", "stream", "pubsub"])
async def test_a_reply_waits_for_who_is_away_but_not_for_ever(place: Place, mode: str) -> None:
    caller, other = await place.driver(mode), await place.driver(mode)
    await (await caller.listen(ADDRESS, prefetch=10)).close()
    await sent(other, to(ADDRESS))
    back = await caller.listen(ADDRESS, prefetch=10)
    assert ids(await received(back)) == ["m-1"]
    await place.call("ZADD", place.key("unheard"), 0, ADDRESS)  # as if a minute had passed
    assert [each.name for each in await other.inspect([ADDRESS])] == [ADDRESS]  # it is back
    await back.close()
    await place.call("ZADD", place.key("unheard"), 0, ADDRESS)
    assert await other.inspect() == []
    (receipt,) = await other.send([to(ADDRESS)])
    assert isinstance(receipt, Rejected)
    left = [key.decode().removeprefix(place.base) for key in await place.call("KEYS", "*")]
    assert [key for key in left if ADDRESS in key or key == "unheard"] == []
