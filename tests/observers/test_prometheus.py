"""What Prometheus is shown: true numbers, in a bounded number of series."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from queuecraft import ConfigError, Event, Message, QueueCraft, Retry
from queuecraft.drivers.base import Delivery, Gauge, Outgoing, QueueInfo
from queuecraft.observers.prometheus import OTHER, PrometheusObserver
from queuecraft.runtime.counters import Metrics
from queuecraft.runtime.facts import MessagesPublished, MessagesSucceeded
from tests.runtime.support import eventually, running

number = Event("number", int)


def samples(metrics: PrometheusObserver) -> dict[str, dict[tuple[str, ...], float]]:
    """Every series by name, then by the values of its labels, in the order of their names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels: Mapping[str, str] = sample.labels
            found.setdefault(sample.name, {})[tuple(labels.values())] = sample.value
    return found


class Source:
    """A QueueCraft whose facts are made up."""

    connection_state: Any = "connected"

    def __init__(self) -> None:
        self.observers: dict[Any, Any] = {}
        self.gauges: list[Gauge] = []

    def get_broker_gauges(self) -> list[Gauge]:
        return self.gauges

    def get_metrics(self) -> Metrics:
        return Metrics()

    def observe(self, kind: Any, observer: Any) -> Any:
        self.observers[kind] = observer
        return lambda: self.observers.pop(kind)

    def tell(self, kind: Any, **fields: Any) -> None:
        if "deliveries" in fields:
            fields["worker"] = "billing"
        self.observers[kind](kind(**fields))


def sent(event: str) -> Outgoing:
    return Outgoing(b"{}", "m-1", "events", event)


def delivery(queue: str) -> Delivery:
    return Delivery(sent("number"), queue)


def observed(qc: QueueCraft, **options: Any) -> PrometheusObserver:
    metrics = PrometheusObserver(**options)
    metrics.attach(qc)
    return metrics


async def busy(qc: QueueCraft) -> None:
    """Some succeed, some are retried, one dies, one is dropped."""
    worker = qc.worker("billing", retry=Retry(max_retries=1, initial_delay=0.0), concurrency=2)
    other = qc.worker("audit")

    @worker.on(number)
    async def charge(n: int, message: Message[int]) -> None:
        if n == 13 or (n % 5 == 0 and message.attempt == 1):
            raise ValueError("no")

    @other.on(number)
    async def note(n: int) -> None: ...

    async with qc, running(worker, other):
        await qc.publish_many(number, range(50))
        await qc.send("audit", 7)
        await eventually(
            lambda: (
                qc.get_metrics().messages_succeeded == 49 + 51
                and qc.get_metrics().messages_dead_lettered == 1
                and qc.get_metrics().in_flight == 0
            )
        )


async def test_the_numbers_are_those_of_get_metrics() -> None:
    qc = QueueCraft()
    metrics = observed(qc)
    await busy(qc)
    counted, shown = qc.get_metrics(), samples(metrics)
    assert counted.messages_retried == 11
    assert sum(shown["queuecraft_messages_published_total"].values()) == counted.messages_sent == 51
    for name, attribute in (
        ("messages_consumed_total", "messages_received"),
        ("messages_succeeded_total", "messages_succeeded"),
        ("messages_failed_total", "messages_failed"),
        ("retry_count_total", "messages_retried"),
        ("dlq_count_total", "messages_dead_lettered"),
        ("messages_expired_total", "messages_expired"),
        ("messages_dropped_total", "messages_dropped"),
        ("ack_timeouts_total", "ack_timeouts"),
        ("messages_in_flight", "in_flight"),
    ):
        by_queue = {(q,): getattr(m, attribute) for q, m in counted.queues.items()}
        assert shown[f"queuecraft_{name}"] == by_queue, name


async def test_durations_are_spread_over_buckets_and_sum_up_to_what_was_counted() -> None:
    qc = QueueCraft()
    metrics = observed(qc)
    await busy(qc)
    counted, shown = qc.get_metrics(), samples(metrics)
    spread = "queuecraft_message_processing_duration_seconds"
    counts, sums = shown[f"{spread}_count"], shown[f"{spread}_sum"]
    assert counts[("success", "billing")] == counted.queues["billing"].messages_succeeded
    assert counts[("failure", "billing")] == counted.queues["billing"].messages_failed
    assert sums[("success", "billing")] + sums[("success", "audit")] == pytest.approx(
        counted.handler_seconds_total
    )
    buckets = [v for labels, v in shown[f"{spread}_bucket"].items() if "success" in labels]
    assert max(buckets) == 51
    assert shown[f"{spread}_max"][("billing",)] == counted.queues["billing"].handler_seconds_max


def test_a_duration_falls_into_every_bucket_that_is_wide_enough() -> None:
    metrics = PrometheusObserver(buckets=(0.1, 1.0))
    source = Source()
    metrics.attach(source)
    source.tell(MessagesSucceeded, deliveries=[delivery("billing")] * 3, durations=[0.1, 0.2, 5.0])
    buckets = samples(metrics)["queuecraft_message_processing_duration_seconds_bucket"]
    assert [value for _, value in sorted(buckets.items(), key=lambda each: each[1])] == [1, 2, 3]


async def test_the_names_of_the_documents_are_there_before_anything_happened() -> None:
    text = observed(QueueCraft()).text().decode()
    for name in (
        "queuecraft_messages_published_total",
        "queuecraft_messages_consumed_total",
        "queuecraft_message_processing_duration_seconds",
        "queuecraft_retry_count_total",
        "queuecraft_dlq_count_total",
        "queuecraft_connection_status",
    ):
        assert f"# TYPE {name} " in text


async def test_the_connection_is_told_as_one_number_and_as_its_state() -> None:
    qc = QueueCraft()
    metrics = observed(qc)
    assert samples(metrics)["queuecraft_connection_status"] == {(): 0.0}
    async with qc:
        shown = samples(metrics)
        assert shown["queuecraft_connection_status"] == {(): 1.0}
        assert [s for s, on in shown["queuecraft_connection_state"].items() if on] == [
            ("connected",)
        ]
    assert samples(metrics)["queuecraft_connection_state"][("closed",)] == 1


def test_what_the_client_of_a_broker_measures_is_shown_as_it_is_named() -> None:
    source = Source()
    metrics = PrometheusObserver(labels={"service": "shop"}, max_names=2)
    metrics.attach(source)
    source.gauges = [Gauge("depth", "How deep.", {}, 3.0)]
    source.gauges += [
        Gauge("lag", "How late.", {"topic": f"t\n{n}", "partition": "0"}, n + 1.0) for n in range(4)
    ]
    shown = samples(metrics)
    assert shown["queuecraft_depth"] == {("shop",): 3.0}
    by_topic = {labels[-1]: value for labels, value in shown["queuecraft_lag"].items()}
    assert len(by_topic) == 3
    assert by_topic["other"] == 7.0
    assert not any("\n" in name for name in by_topic)
    source.gauges = []
    assert "queuecraft_lag" not in samples(metrics)


async def test_what_was_published_before_it_was_attached_is_counted_too() -> None:
    qc = QueueCraft()
    qc.worker("audit").on("#", print)
    async with qc:
        await qc.publish_many(number, range(3))
        metrics = observed(qc)
        await qc.publish(number, 4)
        assert samples(metrics)["queuecraft_messages_published_total"] == {
            (OTHER,): 3,
            ("number",): 1,
        }


async def test_names_made_of_data_end_up_in_one_series() -> None:
    qc = QueueCraft()
    metrics = observed(qc, max_names=10)
    qc.worker("audit").on("#", print)
    async with qc:
        for n in range(30):
            await qc.publish(f"customer.{n}", n)
        await qc.publish_many("customer.3", range(5))
    shown = samples(metrics)["queuecraft_messages_published_total"]
    assert len(shown) == len(metrics._published._events) == 11
    assert shown[(OTHER,)] == 20
    assert shown[("customer.3",)] == 6
    assert sum(shown.values()) == qc.get_metrics().messages_sent


async def test_queues_beyond_the_cap_share_one_series_too() -> None:
    qc = QueueCraft()
    for n in range(20):
        qc.worker(f"queue-{n:02}").on("#", print)
    metrics = observed(qc, max_names=5)
    metrics.show(queues=[QueueInfo(name=f"queue-{n}", ready=n) for n in range(20)])
    async with qc:
        shown = samples(metrics)
    assert len(shown["queuecraft_messages_consumed_total"]) == 6
    depths = shown["queuecraft_queue_messages"]
    assert len(depths) == 6
    assert depths[(OTHER, "ready")] == sum(range(5, 20))


def test_names_cannot_break_out_of_their_label() -> None:
    metrics = PrometheusObserver()
    source = Source()
    metrics.attach(source)
    hostile = 'a"} 1\nfake_metric 9\\\x1b[31m\ud800'
    source.tell(MessagesPublished, messages=[sent(hostile)])
    source.tell(MessagesSucceeded, deliveries=[delivery(hostile)], durations=[0.1])
    shown = samples(metrics)
    assert "fake_metric" not in shown
    assert sum(shown["queuecraft_messages_published_total"].values()) == 1
    assert "\x1b" not in metrics.text().decode()


def test_prefix_and_labels_are_on_every_series() -> None:
    metrics = PrometheusObserver(prefix="shop_", labels={"service": 'a "b"', "zone": "1"})
    metrics.attach(Source())
    lines = [each for each in metrics.text().decode().splitlines() if not each.startswith("#")]
    assert lines
    for line in lines:
        assert re.match(r'shop_\w+\{.*service="a \\"b\\"".*zone="1"}', line), line


@pytest.mark.parametrize(
    "options",
    [
        {"prefix": ""},
        {"prefix": "a b"},
        {"labels": {"queue": "x"}},
        {"labels": {"__name__": "x"}},
        {"labels": {"a-b": "x"}},
        {"buckets": ()},
        {"buckets": (2.0, 1.0)},
        {"max_names": 0},
    ],
)
def test_what_prometheus_would_refuse_is_refused_at_once(options: Any) -> None:
    with pytest.raises(ConfigError):
        PrometheusObserver(**options)


def test_it_measures_one_queuecraft_and_lets_it_go_again() -> None:
    metrics = PrometheusObserver()
    source = Source()
    metrics.attach(source)
    with pytest.raises(ConfigError, match="already"):
        metrics.attach(Source())
    metrics.detach()
    metrics.detach()
    assert source.observers == {}
    assert metrics.text() == b""
    metrics.attach(source)


async def test_it_may_be_read_from_another_thread_while_messages_fly() -> None:
    qc = QueueCraft()
    metrics = observed(qc)
    qc.worker("audit").on("#", print)
    with ThreadPoolExecutor(1) as pool:
        async with qc:
            reading = asyncio.get_running_loop().run_in_executor(
                pool, lambda: [samples(metrics) for _ in range(20)]
            )
            n = 0
            while not reading.done():
                await qc.publish(f"event.{n}", n)
                n += 1
            seen = [
                sum(each["queuecraft_messages_published_total"].values())
                for each in await reading
                if "queuecraft_messages_published_total" in each
            ]
    assert seen == sorted(seen)


def test_without_its_package_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["prometheus_client"] = None
from queuecraft import ConfigError
from queuecraft.observers.prometheus import PrometheusObserver
try:
    PrometheusObserver()
except ConfigError as error:
    print(error)
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True
    )
    assert "pip install 'queuecraft[prometheus]'" in answer.stdout
