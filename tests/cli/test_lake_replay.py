"""`queuecraft lake replay` and `queuecraft lake replays`."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuecraft.pipeline.session import spark_session
from tests.cli.shell import Shell
from tests.pipeline.replay.scene import archive, captured
from tests.pipeline.small import JVM, SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROD = "amqp://127.0.0.1:1/prod"  # where nothing answers

pytestmark = pytest.mark.timeout(180)  # the first of them waits until Spark has started


@pytest.fixture(scope="session")
def spark() -> Generator[SparkSession]:
    """The session that the commands find in this process, as they would one of spark-submit."""
    session = spark_session(name="tests", settings={**JVM, **SETTINGS})
    yield session
    session.stop()


@pytest.fixture
def lake(shell: Shell) -> Path:
    rows = [captured(n, key=f"k-{n % 3}") for n in range(30)]
    archive(shell.folder / "lake", [*rows, captured(30, event="user.\x1b[31mred")])
    shell.declare("billing")
    return Path("lake")


def test_a_dry_run_shows_the_plan_and_sends_nothing_until_it_is_resumed(
    spark: SparkSession, shell: Shell, lake: Path
) -> None:
    asked = ("lake", "replay", "lake", "--to", "billing", "--no-ingest", "--canary", "5")
    told = shell.ok(*asked, "--dry-run")
    assert "order.placed\tqueue billing\t30\t" in told
    assert 'm-00000  order.placed  {"n":0}' in told
    assert "\x1b" not in told
    assert "Nothing was sent. To send it: queuecraft lake replay lake --resume " in told
    assert shell.ids("billing") == []
    (listed,) = shell.json("lake", "replays", "lake")
    assert (listed["state"], listed["messages"], listed["chunks"]) == ("planned", 31, 2)

    refused = shell("lake", "replay", "lake", "--resume", listed["id"])
    assert refused.exit_code == 2
    assert "say --yes" in refused.stderr
    done = shell("lake", "replay", "lake", "--resume", listed["id"], "--yes")
    assert done.exit_code == 0
    assert "Done: 31 sent." in done.stdout
    assert done.stderr.count("nobody consumes 'billing'") == 1
    assert sorted(shell.ids("billing")) == [f"m-{n:05}" for n in range(31)]
    assert "\tdone\t31\t31\t" in shell.ok("lake", "replays", "lake")


@pytest.mark.faults
def test_a_replay_that_stops_by_itself_has_an_exit_code_of_its_own(
    spark: SparkSession, shell: Shell, lake: Path
) -> None:
    asked = ("--to", "billing", "--event", "order.*", "--canary", "5", "--chunk", "10")
    limits = ("--max-backlog", "9", "--rate", "10000", "--no-ingest", "--yes")
    paused = shell("lake", "replay", "lake", *asked, *limits)
    assert paused.exit_code == 5
    assert "Paused: queue 'billing' has 15 messages waiting" in paused.stdout
    assert "Plan 2" in paused.stdout
    (listed,) = shell.json("lake", "replays", "lake")
    assert (listed["state"], listed["sent"]) == ("paused", 15)
    assert "nobody consumes 'billing'" in listed["reason"]
    again = ("lake", "replay", "lake", "--resume", listed["id"], "--yes", "--json")
    result = shell(*again)
    assert result.exit_code == 0
    planned, ended = map(json.loads, result.stdout.splitlines())
    assert planned["plan"]["messages"] == 30
    assert (ended["result"]["sent"], ended["result"]["done"]) == (30, True)


def test_refusals_are_told_one_by_one_and_are_a_no(
    spark: SparkSession, shell: Shell, lake: Path
) -> None:
    asked = ("lake", "replay", "lake", "--id", "m-00001", "--to-event", "nobody.wants")
    told = shell(*asked, "--no-ingest", "--yes")
    assert told.exit_code == 1
    assert "refused: m-00001: no queue is bound" in told.stderr
    assert "Done: 0 sent, 1 refused." in told.stdout
    (listed,) = shell.json("lake", "replays", "lake")
    again = ("lake", "replay", "lake", "--resume", listed["id"])
    assert f"To try what was refused again: queuecraft {' '.join(again)}" in told.stdout
    shell.declare("audit", "nobody.wants")
    mended = shell(*again, "--yes")
    assert (mended.exit_code, shell.ids("audit")) == (0, ["m-00001"])
    assert mended.stdout.endswith("Done: 1 sent.\n")
    none = shell("lake", "replay", "lake", "--event", "none.such", "--no-ingest")
    assert (none.exit_code, none.stdout) == (
        1,
        "No message is meant: archive, event none.such.\n",
    )


def test_the_command_to_go_on_names_the_broker_and_no_password(
    spark: SparkSession, shell: Shell, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("lake", "replay", "lake", "--to", "billing", "--no-ingest", "--dry-run", "--expired")
    url = "amqp://ada:s3cret@rabbit/shop"
    told = shell.ok(*asked, "--url", url)
    assert " --url amqp://ada@rabbit/shop --expired\n" in told
    assert "s3cret" not in told
    monkeypatch.setenv("QUEUECRAFT_CONNECTION_SHOP_URL", url)
    assert " --connection shop --expired\n" in shell.ok(*asked, "--connection", "shop")


@pytest.mark.parametrize(
    "others",
    [
        {"QUEUECRAFT_URL": PROD, "QUEUECRAFT_USERNAME": "ada", "QUEUECRAFT_PASSWORD": "s3cret"},
        {"QUEUECRAFT_URL": PROD, "QUEUECRAFT_CONNECTION_DEFAULT_URL": PROD},
        {"QUEUECRAFT_HOST": "prod", "QUEUECRAFT_CONNECTION_DEFAULT_PASSWORD": "s3cret"},
    ],
    ids=" ".join,
)
def test_the_url_of_the_command_counts_and_nothing_that_is_said_of_another_broker(
    spark: SparkSession, shell: Shell, lake: Path, others: dict[str, str]
) -> None:
    asked = ("--to", "billing", "--id", "m-00001", "--no-ingest", "--yes", "--url", shell.url)
    told = shell("lake", "replay", "lake", *asked, env=others)
    assert told.exit_code == 0, told.stderr
    assert shell.ids("billing") == ["m-00001"]


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("nowhere",), 2, "there is no lake at 'nowhere'"),
        (("lake", "--to", "biling"), 4, "did you mean 'billing'"),
        (("lake", "--to", "a", "--to-event", "b"), 2, "not both"),
        (("lake", "--connection", "shop", "--url", "local:///q.db"), 2, "not both"),
        (("lake", "--connection", "shop"), 2, "connection 'shop' is not known here"),
        (("lake", "--url", "local://"), 2, "a queue in the memory"),
        (("lake", "--url", "redis://h/0", "--master", "spark://h:7077"), 2, "--connection shop"),
        (("lake", "--resume", "x", "--event", "y"), 2, "--resume goes on with a plan as it is"),
        (("lake", "--resume", "x", "--yes"), 2, "there is no replay 'x'"),
        (("lake", "--resume", "../x", "--yes"), 2, "is not the id of a replay"),
        (("lake", "--set", "size=1"), 2, "no column 'size' to be set"),
        (("lake", "--set", "size"), 2, "expected NAME=VALUE"),
        (("lake", "--rate", "0"), 2, "expected more than 0"),
    ],
)
def test_what_cannot_be_is_told_before_spark_starts(
    shell: Shell, lake: Path, args: tuple[str, ...], code: int, told: str
) -> None:
    result = shell("lake", "replay", *args)
    assert result.exit_code == code
    assert told in " ".join(result.stderr.replace("│", " ").split())


def test_a_lake_without_replays_says_how_to_plan_one(shell: Shell, lake: Path) -> None:
    assert shell.json("lake", "replays", "lake") == []
    result = shell("lake", "replays", "nowhere")
    assert result.exit_code == 2
