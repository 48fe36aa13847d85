"""Processes that share a Redis in peace get every message once, and never the same at a time."""

from __future__ import annotations

from tests.faults.scene import Scene
from tests.faults.test_sharing import (
    test_two_publishers_and_two_workers_share_a_queue_without_loss_or_duplicate as told,
)


async def test_two_publishers_and_two_workers_share_a_queue_without_loss_or_duplicate(
    scene: Scene,
) -> None:
    await told(scene)
