"""Redis keeps the contract: in lists, in streams, and by pub/sub as far as that can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from queuecraft.drivers.base import Driver
from queuecraft.drivers.redis import drivers
from queuecraft.drivers.target import Target
from queuecraft.model.settings import Settings
from queuecraft.testing import DriverConformance

KEPT_FOR_NOBODY = frozenset(
    {
        "test_a_deleted_queue_is_gone_with_its_bindings_and_messages",
        "test_a_dead_letter_goes_through_its_exchange",
        "test_a_delayed_message_reaches_every_bound_queue",
        "test_a_move_fans_out_like_any_message_to_an_exchange",
        "test_a_moved_message_leaves_its_queue_for_the_other",
        "test_a_reopened_driver_knows_what_it_was_told",
        "test_a_retry_comes_back_to_the_same_queue_and_no_other",
        "test_every_field_of_a_message_arrives",
        "test_messages_arrive_in_the_order_they_were_sent",
        "test_names_may_be_any_text",
        "test_purging_an_empty_queue_forgets_nothing",
        "test_the_most_urgent_comes_first",
        "test_two_connections_see_the_same_queues",
        # bindings
        "test_a_binding_made_by_hand_is_seen_by_every_connection",
        "test_a_queue_bound_later_gets_what_is_published_from_then_on",
        "test_an_event_whose_last_queue_is_unbound_is_unroutable",
        "test_an_exchange_of_another_type_cannot_be_bound_to",
        "test_an_unbound_exchange_stays",
        "test_an_unbound_queue_keeps_its_messages_and_gets_no_more",
        "test_binding_again_changes_nothing",
        "test_binding_makes_the_exchange",
        "test_bindings_of_a_headers_exchange_are_told_apart_by_their_headers",
        "test_unbinding_what_is_not_bound_changes_nothing",
        # routes
        "test_a_binding_outlives_its_consumers",
        "test_a_direct_exchange_matches_the_whole_key",
        "test_a_fanout_exchange_gives_everything_to_everyone",
        "test_a_headers_exchange_matches_all_or_any_of_the_headers",
        "test_a_publisher_prepares_exchanges_but_no_queues",
        "test_a_queue_may_be_bound_to_several_exchanges",
        "test_a_queue_with_other_properties_is_a_mismatch",
        "test_a_topic_exchange_matches_word_by_word",
        "test_an_event_does_not_reach_a_queue_declared_later",
        "test_an_event_reaches_a_queue_that_never_had_a_consumer",
        "test_an_event_reaches_every_bound_queue_once",
        "test_an_exchange_may_have_many_bindings_that_come_and_go",
        "test_an_unroutable_message_is_rejected_and_its_neighbours_are_not",
        "test_declaring_again_adds_bindings_and_removes_none",
        "test_declaring_again_changes_nothing",
        "test_exchanges_do_not_mix",
        "test_messages_for_many_places_travel_in_one_batch",
    }
)
"""They publish an event before anybody listens: tests/redis/test_pubsub.py has their like."""


class RedisConformance(DriverConformance):
    quiet: ClassVar[float] = 0.03
    mode: ClassVar[str]
    settings: ClassVar[Settings] = Settings()

    @pytest.fixture
    async def driver(self, redis_url: str) -> AsyncIterator[Driver]:
        (driver,) = drivers(Target(f"{redis_url}&mode={self.mode}", settings=self.settings))
        await driver.open()
        yield driver
        await driver.close()

    @pytest.fixture
    async def second_driver(self, driver: Driver, redis_url: str) -> AsyncIterator[Driver]:
        (second,) = drivers(Target(f"{redis_url}&mode={self.mode}", settings=self.settings))
        await second.open()
        yield second
        await second.close()


class TestLists(RedisConformance):
    mode = "list"


class TestListsAtMostOnce(RedisConformance):
    mode = "list"
    settings = Settings(redis_delivery="at-most-once")


class TestStreams(RedisConformance):
    mode = "stream"


class TestPubsub(RedisConformance):
    mode = "pubsub"

    @pytest.fixture(autouse=True)
    def _somebody_listens(self, request: pytest.FixtureRequest) -> None:
        if request.function.__name__ in KEPT_FOR_NOBODY:
            pytest.skip("pub/sub keeps no event for a queue that nobody listens to")
