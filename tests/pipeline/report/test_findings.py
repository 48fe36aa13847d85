"""What stands out."""

from __future__ import annotations

from queuecraft.pipeline.report.figures import (
    Anomaly,
    Counts,
    Drift,
    FailureGroup,
    Field,
    Figures,
    Growth,
    Problem,
    QueueFigures,
    Speed,
)
from queuecraft.pipeline.report.findings import MOST, findings
from tests.pipeline.report.written import at

QUIET = Figures(scope="everything")


def group(count: int) -> FailureGroup:
    return FailureGroup(
        *("f", "billing", "order.placed", "handler-error", "shop.NoMoney", "0\nleft", count),
        *(at(0), at(9)),
    )


def test_where_nothing_is_wrong_it_says_so() -> None:
    (found,) = findings(QUIET)
    assert (found.level, found.text) == ("good", "Nothing stands out.")


def test_dead_letters_are_told_with_their_cause_in_one_line() -> None:
    (found,) = findings(Figures(scope="", groups=(group(2),)))
    assert (found.level, found.text) == ("bad", "billing: 2 dead letters, NoMoney: 0 left")


def test_a_queue_that_fails_often_is_told_and_one_that_failed_by_chance_is_not() -> None:
    def queue(name: str, failed: int) -> QueueFigures:
        return QueueFigures(name, Counts(delivered=100, retried=failed), Speed())

    told = findings(Figures(scope="", queues=(queue("a", 4), queue("b", 10), queue("c", 9))))
    assert [each.text for each in told] == ["b: 10 % of its deliveries fail"]


def test_growth_is_told_if_it_is_unusual_or_has_not_ended() -> None:
    def growth(name: str, backlog: int) -> Growth:
        return Growth(name, backlog, 500, 900, 400, 0)

    figures = Figures(
        scope="",
        growth=(growth("a", 499), growth("b", 20)),
        anomalies=(Anomaly(at(3), "b", 50, 2, 1.0, 12.0), Anomaly(at(4), "b", 60, 2, 1.0, 11.0)),
    )
    assert [(each.level, each.text) for each in findings(figures)] == [
        ("bad", "a: 499 messages wait, as many as ever"),
        ("odd", "b: grew by 48 at 2030-01-07 09:03 UTC, usually +1 a minute"),
    ]


def test_what_happened_to_the_data_is_told() -> None:
    def field(name: str, change: str) -> Field:
        return Field("order.placed", name, "string", 5, 0.5, change, at(0), at(9))

    changes = (field("total", "type"), field("tax", "gone"), field("voucher", "new"))
    figures = Figures(scope="", drift=Drift(1, 3, changes), quarantine=(Problem("torn", 1, None),))
    assert [each.text for each in findings(figures)] == [
        "1 row cannot be read, most: torn",
        "order.placed: total also comes as string",
        "1 field no longer sent: order.placed tax",
    ]


def test_the_worst_comes_first_and_there_are_only_so_many() -> None:
    problem = Problem("torn", 1, None)
    queues = tuple(
        QueueFigures(f"q-{n}", Counts(delivered=20, retried=10), Speed()) for n in range(20)
    )
    told = findings(Figures(scope="", queues=queues, quarantine=(problem,)))
    assert len(told) == MOST
    assert {each.level for each in told} == {"bad"}
