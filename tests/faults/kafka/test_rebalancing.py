"""Workers that come and go under load lose nothing, and hand over what they have finished."""

from __future__ import annotations

import pytest

from tests.faults.scene import Scene

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]


async def test_workers_joining_and_leaving_under_load_lose_and_repeat_nothing(
    scene: Scene,
) -> None:
    await scene.declare()
    steady = scene.worker()
    publisher = scene.publisher()
    await scene.busy(steady, publisher)
    for _ in range(4):
        guest = scene.worker(concurrency=2, prefetch=20)
        await scene.until(lambda: scene.account().by(guest.pid, "ready"), "it has come")  # noqa: B023
        await scene.stop(guest)
    account = await scene.finish()

    assert account.losses == []
    assert account.copies == 0
    print(account.summary())
