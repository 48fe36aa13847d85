"""`GET /metrics`: what Prometheus reads."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from queuecraft import QueueCraft
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.observers.prometheus import PrometheusObserver
from queuecraft.testing import FaultyDriver
from tests.http.site import Site, serving
from tests.runtime.support import eventually, running


async def scraped(site: Site) -> dict[str, float]:
    answer = await site.reader.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_it_shows_what_was_counted_and_how_deep_the_queues_are() -> None:
    qc = QueueCraft()
    worker = qc.worker("billing")
    worker.on("order.*", lambda order: None)
    async with serving(qc) as site:
        await qc.publish_many("order.placed", range(3))
        shown = await scraped(site)
        assert shown["queuecraft_messages_published_total order.placed"] == 3
        assert shown["queuecraft_queue_messages billing ready"] == 3
        assert shown["queuecraft_connection_status"] == 1
        async with running(worker):
            await eventually(lambda: qc.get_metrics().messages_succeeded == 3)
        shown = await scraped(site)
        assert shown["queuecraft_messages_consumed_total billing"] == 3
        assert shown["queuecraft_queue_messages billing ready"] == 0


async def test_it_shows_delayed_messages_and_their_cleanups() -> None:
    async with serving() as site:
        await site.qc.delayed.add("number", 1, delay=60)
        await site.qc.delayed.cleanup()
        shown = await scraped(site)
    assert shown["queuecraft_delayed_messages"] == 1
    assert shown["queuecraft_delayed_messages_limit"] == 10_000
    assert shown["queuecraft_delayed_cleanup_runs_total"] == 1
    assert shown["queuecraft_delayed_cleanup_success_rate"] == 1
    assert shown["queuecraft_delayed_growth_abnormal"] == 0


async def test_with_the_broker_away_the_rest_is_still_shown() -> None:
    driver = FaultyDriver(MemoryDriver())
    qc = QueueCraft(drivers=[driver], reconnect_delay=0.01)
    async with serving(qc) as site:
        driver.refuse(opens=1_000_000)
        await driver.drop()
        await scraped(site)  # this is how it is noticed
        await eventually(lambda: qc.connection_state == "reconnecting")
        shown = await scraped(site)
    assert shown["queuecraft_connection_status"] == 0
    assert shown["queuecraft_connection_state reconnecting"] == 1
    assert "queuecraft_queue_messages billing ready" not in shown


async def test_prefix_and_labels_may_be_one_s_own() -> None:
    qc = QueueCraft()
    metrics = PrometheusObserver(prefix="shop_", labels={"service": "checkout"})
    metrics.attach(qc)
    async with serving(qc, metrics=metrics) as site:
        assert (await scraped(site))["shop_connection_status checkout"] == 1


async def test_queues_of_our_own_are_not_shown() -> None:
    async with serving() as site:
        await site.qc.admin.declare("billing")
        await site.qc.admin.declare("qc.reply.a1", dead_letters=False)
        await site.qc.admin.pause("billing")
        shown = await scraped(site)
    assert "queuecraft_queue_messages billing ready" in shown
    assert not [each for each in shown if "queuecraft.pauses" in each or "qc.reply" in each]
