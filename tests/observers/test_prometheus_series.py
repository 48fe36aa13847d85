"""Every series there is: scraped over HTTP as Prometheus does, well named, and used by the example
dashboard and alerts."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import start_http_server
from prometheus_client.parser import text_string_to_metric_families

from queuecraft import Event, Message, NoRetry, QueueCraft, Unroutable
from queuecraft.drivers.base import QueueInfo
from queuecraft.facts import (
    CircuitChanged,
    DelayedDelivered,
    DelayedRefused,
    Disconnected,
    LoopBlocked,
    PublishFailed,
    Reconnected,
    Reconnecting,
)
from queuecraft.middleware import Postponed
from queuecraft.observers.prometheus import PrometheusObserver
from tests.runtime.support import eventually

DOCS = Path(__file__).parents[2] / "docs"
number = Event("number", int)

Series = dict[str, dict[tuple[str, ...], float]]


def read(text: str) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels: dict[str, str] = sample.labels
            found.setdefault(sample.name, {})[tuple(labels.values())] = sample.value
    return found


def emit(qc: QueueCraft, *facts: Any) -> None:
    for fact in facts:
        qc._engine.facts.emit(fact)


async def everything() -> tuple[QueueCraft, PrometheusObserver]:
    """A QueueCraft to which all happened that has a number."""
    qc = QueueCraft()
    metrics = PrometheusObserver(labels={"service": "shop"})
    metrics.attach(qc)
    worker = qc.worker("billing", retry=NoRetry(), concurrency=3)
    late: list[int] = []

    @worker.on(number)
    async def handle(n: int, message: Message[int]) -> None:
        if n == 1:
            raise ValueError("no")
        if n == 2 and not late:
            late.append(n)
            raise Postponed(0.001)

    async with qc:
        await worker.start()
        await qc.publish_many(number, range(5))
        with pytest.raises(Unroutable):
            await qc.publish("nobody", 1)
        assert len(await qc.publish_many("nobody", [1, 2], return_exceptions=True)) == 2
        await eventually(lambda: qc.get_metrics().messages_dead_lettered == 1)
        await eventually(lambda: qc.get_metrics().messages_succeeded == 4)
        emit(
            qc,
            Disconnected(error="gone"),
            Reconnecting(attempt=1, delay=1.0, error="gone"),
            Reconnected(attempt=2, downtime=1.5),
            LoopBlocked(seconds=2.0, stack=""),
            DelayedDelivered(messages=[]),
            DelayedRefused(count=3, error="no"),
            CircuitChanged(name="bank", state="open"),
        )
        metrics.show(
            queues=[QueueInfo(name="billing", ready=1, in_flight=2, delayed=3, dead=4)],
            gauges={"delayed_messages": ("Delayed messages that wait.", 1.0)},
        )
        await worker.stop()
    return qc, metrics


async def test_what_is_scraped_over_http_is_what_happened() -> None:
    _, metrics = await everything()
    server, thread = start_http_server(0, addr="127.0.0.1", registry=metrics.registry)
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"

        def get() -> str:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return str(answer.read().decode())

        shown = read(await asyncio.to_thread(get))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    expected = {
        "messages_published_total": {("number", "shop"): 5},
        "publish_errors_total": {("Unroutable", "nobody", "shop"): 3},
        "publish_duration_seconds_count": {("shop",): 5},
        "messages_postponed_total": {("billing", "shop"): 1},
        "messages_failed_total": {("billing", "shop"): 1},
        "dlq_count_total": {("billing", "shop"): 1},
        "messages_stale_total": {("billing", "shop"): 0},
        "connection_lost_total": {("shop",): 1},
        "reconnects_total": {("shop",): 1},
        "reconnect_failures_total": {("shop",): 1},
        "connection_downtime_seconds_total": {("shop",): 1.5},
        "loop_blocked_total": {("shop",): 1},
        "delayed_refused_total": {("shop",): 3},
        "journal_dropped_total": {("shop",): 0},
        "workers_running": {("billing", "shop"): 0},
        "workers_paused": {("billing", "shop"): 0},
        "worker_concurrency": {("billing", "shop"): 3},
        "circuit_open": {("bank", "shop"): 1},
    }
    for name, values in expected.items():
        assert shown[f"queuecraft_{name}"] == values, name
    assert shown["queuecraft_last_success_timestamp_seconds"][("billing", "shop")] > 1e9
    assert 0 <= shown["queuecraft_publish_duration_seconds_sum"][("shop",)] < 5


async def test_names_are_as_prometheus_wants_them() -> None:
    _, metrics = await everything()
    names: set[str] = set()
    for family in text_string_to_metric_families(metrics.text().decode()):
        name = family.name
        assert name not in names, f"{name} is there twice"
        names.add(name)
        assert re.fullmatch(r"queuecraft_[a-z][a-z0-9_]*", name), name
        assert family.documentation.endswith("."), name
        assert not re.search(r"_(ms|millis|minutes|kb|mb|counter|gauge|histogram)(_|$)", name), name
        for sample in family.samples:
            if family.type == "counter":
                assert sample.name.endswith("_total"), sample.name
            elif family.type == "gauge":
                assert not sample.name.endswith(("_total", "_count", "_sum", "_bucket"))
            assert not any(label.startswith("queuecraft") for label in sample.labels)
        if "duration" in name or "downtime" in name or "timestamp" in name:
            assert "_seconds" in name, name


async def test_publishes_are_timed_by_the_clock_of_the_queuecraft() -> None:
    qc = QueueCraft()
    metrics = PrometheusObserver(buckets=(0.5, 1.0))
    metrics.attach(qc)
    async with qc:
        await qc.admin.declare("billing", "number")
        for n in range(1200):
            await qc.publish(number, n)
        await qc.publish(number, 1, delay=60)  # not timed
        shown = read(metrics.text().decode())
    assert shown["queuecraft_publish_duration_seconds_count"] == {(): 1200}
    assert shown["queuecraft_messages_published_total"] == {("number",): 1201}
    assert shown["queuecraft_publish_duration_seconds_bucket"][("0.5",)] == 1200


async def test_a_failed_publish_is_a_fact() -> None:
    qc = QueueCraft()
    heard: list[PublishFailed] = []
    qc.observe(PublishFailed, heard.append)
    async with qc:
        with pytest.raises(Unroutable):
            await qc.publish("nobody", 1)
        await qc.publish_many("nobody", [1, 2], return_exceptions=True)
    assert [(each.name, each.count, each.error_type) for each in heard] == [
        ("nobody", 1, "Unroutable"),
        ("nobody", 2, "Unroutable"),
    ]
    assert "no queue is bound" in heard[0].error


async def test_attached_again_it_goes_on_counting_and_with_another_it_begins_anew() -> None:
    qc, other = QueueCraft(), QueueCraft()
    metrics = PrometheusObserver()
    async with qc, other:
        for each in (qc, other):
            await each.admin.declare("billing", "number")
        metrics.attach(qc)
        await qc.publish(number, 1)
        metrics.detach()
        await qc.publish(number, 2)
        metrics.attach(qc)
        await qc.publish(number, 3)
        shown = read(metrics.text().decode())["queuecraft_messages_published_total"]
        assert shown == {("number",): 2, ("other",): 1}
        metrics.detach()
        metrics.attach(other)
        assert read(metrics.text().decode()).get("queuecraft_messages_published_total") is None


async def shown_names() -> set[str]:
    _, metrics = await everything()
    return set(read(metrics.text().decode()))


async def test_the_dashboard_and_the_alerts_name_only_what_is_there() -> None:
    board: dict[str, Any] = json.loads((DOCS / "grafana.json").read_text())
    rules: dict[str, Any] = yaml.safe_load((DOCS / "alerts.yml").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    queries += [rule["expr"] for rule in alerts]
    assert len(queries) > 15
    there = await shown_names()
    for query in queries:
        named = set(re.findall(r"queuecraft_\w+", query))
        assert named
        assert named <= there, f"{named - there} in {query}"
    for rule in alerts:
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("page", "ticket")
