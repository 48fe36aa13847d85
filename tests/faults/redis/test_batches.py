"""A worker killed in the middle of a batch leaves all of it to the next, on Redis too."""

from __future__ import annotations

import random

import pytest

from tests.faults.scene import Scene
from tests.faults.test_batches import leaves_its_batch_to_the_next, survives


async def test_a_worker_killed_in_the_middle_of_a_batch_leaves_all_of_it_to_the_next(
    scene: Scene,
) -> None:
    await leaves_its_batch_to_the_next(scene)


@pytest.mark.faults
async def test_workers_killed_at_random_with_batches_in_their_hands_lose_nothing(
    scene: Scene, chance: random.Random
) -> None:
    await survives(scene, chance, 15)
