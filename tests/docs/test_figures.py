"""Rounded figures in the guides: each is near what the run of the benchmarks has measured."""

from __future__ import annotations

import re
from typing import Final

import pytest

from benchmarks.results import Run
from tests.test_house import ROOT

RUN: Final = Run.read(ROOT / "benchmarks" / "results" / "benchmarks.json")
NEAR: Final = 2.0  # what is rounded, and measured on a machine that others use too
OBSERVERS: Final = ("options", "cost of options: observers")


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def said(name: str, sentence: str) -> float:
    """The one number in the one place that reads so."""
    (figure,) = re.findall(sentence, page(name))
    return float(figure)


def measured(broker: str, name: str, case: str) -> float:
    """Messages a second."""
    (found,) = [
        row
        for section in RUN.sections
        if (section.broker, section.name) == (broker, name)
        for row in section.rows
        if (row.contender, row.case) == ("QueueCraft", case)
    ]
    return found.spread.median


def observing(case: str, *, without: str = "nothing") -> float:
    """Microseconds that an observer adds to a message."""
    return 1e6 / measured(*OBSERVERS, case) - 1e6 / measured(*OBSERVERS, without)


@pytest.mark.parametrize(
    ("name", "sentence", "case", "without"),
    [
        ("observing", r"about (\d+) µs a message", "a JSON line for each message", "nothing"),
        ("tracing", r"about (\d+) µs more if it is not", "OpenTelemetry, 1 % sampled", "nothing"),
        ("tracing", r"about (\d+) µs more if it is;", "OpenTelemetry, all sampled", "nothing"),
        (
            "tracing",
            r"about (\d+) µs more and up",
            "OpenTelemetry, 1 % sampled, one at a time",
            "nothing, one at a time",
        ),
    ],
)
def test_what_an_observer_costs_is_near_what_was_measured(
    name: str, sentence: str, case: str, without: str
) -> None:
    cost = observing(case, without=without)
    assert cost / NEAR <= said(name, sentence) <= cost * NEAR


@pytest.mark.parametrize("name", ["observing", "metrics"])
@pytest.mark.parametrize("alone", ["", ", one at a time"])
def test_what_prometheus_costs_is_near_what_was_measured(name: str, alone: str) -> None:
    plain = measured(*OBSERVERS, f"nothing{alone}")
    percent = 100 * (1 - measured(*OBSERVERS, f"Prometheus{alone}") / plain)
    assert percent / NEAR <= said(name, r"[Aa]bout (\d+) %") <= percent * NEAR


@pytest.mark.parametrize(
    ("begins", "broker", "in_flight"),
    [
        ("in a file", "file", "publish, 100 in flight"),
        ("RabbitMQ", "rabbitmq", "publish by topic, 100 in flight"),
        ("Redis", "redis", "publish, 100 in flight"),
        ("Kafka", "kafka", "publish, 100 in flight"),
    ],
)
def test_what_many_at_once_are_worth_is_near_what_was_measured(
    begins: str, broker: str, in_flight: str
) -> None:
    ((first, second),) = re.findall(
        rf"^\| {begins}[^|]*\| (\d+) \| (\d+) \|", page("tuning"), re.MULTILINE
    )
    alone = measured(broker, "publish", "publish, one at a time")
    for told, case in ((first, in_flight), (second, "publish_many, batches of 500")):
        ratio = measured(broker, "publish", case) / alone
        assert ratio / NEAR <= float(told) <= ratio * NEAR, case
