"""What is told of librdkafka's reports, and for how long."""

from __future__ import annotations

import msgspec
import pytest

from queuecraft.drivers.kafka import statistics as module
from queuecraft.drivers.kafka.statistics import Statistics

NODE = {"nodename": "one:9092", "nodeid": 1, "rtt": {"avg": 1500, "p99": 4000, "cnt": 9}}


def test_nothing_is_asked_for_unless_somebody_wants_it() -> None:
    assert Statistics(None).settings("billing") == {}
    assert Statistics(None).gauges() == []
    assert Statistics(0.5).settings()["statistics.interval.ms"] == 500


def test_round_trips_are_seconds_and_only_of_brokers_that_were_asked() -> None:
    statistics = Statistics(5)
    nodes = {
        "one": NODE,
        "bootstrap": {**NODE, "nodeid": -1},
        "idle": {**NODE, "nodeid": 2, "rtt": {"avg": 0, "p99": 0, "cnt": 0}},
    }
    report = {"msg_cnt": 3, "msg_size": 120, "brokers": nodes, "topics": {"t": {}}}
    statistics.settings()["stats_cb"](msgspec.json.encode(report).decode())
    told = {each.name: (dict(each.labels), each.value) for each in statistics.gauges()}
    labels = {"broker": "one:9092"}
    assert told == {
        "kafka_round_trip_seconds": (labels, 0.0015),
        "kafka_round_trip_seconds_p99": (labels, 0.004),
        "kafka_producer_queue_messages": ({}, 3.0),
        "kafka_producer_queue_bytes": ({}, 120.0),
    }


def test_lag_is_told_of_partitions_that_are_ours() -> None:
    statistics = Statistics(5)
    partitions = {
        "0": {"consumer_lag": 4, "fetch_state": "active"},
        "1": {"consumer_lag": 9, "fetch_state": "none"},
        "2": {"consumer_lag": -1, "fetch_state": "active"},
        "-1": {"consumer_lag": -1, "fetch_state": "none"},
    }
    report = {"topics": {"orders": {"partitions": partitions}}}
    statistics.settings("billing")["stats_cb"](msgspec.json.encode(report).decode())
    (lag,) = statistics.gauges()
    assert dict(lag.labels) == {"topic": "orders", "partition": "0", "queue": "billing"}
    assert lag.value == 4


def test_a_report_that_cannot_be_read_harms_nobody_and_takes_the_last_one_with_it() -> None:
    statistics = Statistics(5)
    note = statistics.settings()["stats_cb"]
    note("{}")
    assert statistics.gauges()
    note('{"msg_cnt": "many"}')
    assert statistics.gauges() == []


def test_a_client_that_reports_no_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    statistics = Statistics(5)
    statistics.settings()["stats_cb"]("{}")
    now += 14
    assert statistics.gauges()
    now += 2
    assert statistics.gauges() == []
