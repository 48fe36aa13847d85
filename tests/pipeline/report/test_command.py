"""`queuecraft report` and `queuecraft lake triage` on a real lake."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuecraft import Event, NoRetry, QueueCraft
from queuecraft.cli.report import _tell
from queuecraft.pipeline.lake import Lake
from tests.cli.shell import Shell
from tests.pipeline.report.shop import shop
from tests.pipeline.report.test_page import HOSTILE, Outline, figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def shell(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)


def test_a_report_prints_tables_and_writes_a_page(shell: Shell) -> None:
    shop(Lake.at("lake"))
    printed = shell.ok("report", "lake", "--no-ingest")
    lines = [line.split("\t") for line in printed.splitlines()]
    assert ["billing", "100", "30", "24", "20 %", "10 %", "2"] in lines
    assert ["bbbb", "7", "billing", "2030-01-06T23:00:00Z", "2030-01-07T09:10:30Z"] in [
        line[:5] for line in lines
    ]
    assert ["torn", "2", "date=2030-01-07/c.parquet"] in lines
    assert "\x1b[" not in printed
    assert lines[-1] == ["Page: lake/report.html"]
    outline = Outline(Path("lake/report.html").read_text())
    assert "billing: 7 dead letters, KeyError: 'id'" in outline.text
    assert [each.name for each in Path("lake").iterdir() if each.is_file()] == ["report.html"]


def test_a_report_for_programs_is_one_document(shell: Shell) -> None:
    shop(Lake.at("lake"))
    command = ("report", "lake", "--no-ingest", "--queue", "mail", "--html", "page.html")
    (told,) = shell.json(*command)
    assert told["page"] == "page.html"
    assert [each["queue"] for each in told["queues"]] == ["mail"]
    assert told["counts"]["delivered"] == 12
    assert told["first"] == "2030-01-07T09:00:00Z"
    assert Path("page.html").exists()


def test_triage_says_what_to_do_next(shell: Shell) -> None:
    shop(Lake.at("lake"))
    newest, older = shell.json("lake", "triage", "lake", "--no-ingest")
    assert (newest["group"], newest["count"], newest["recovered"]) == ("bbbb", 7, 0)
    assert newest["message_ids"] == ["b-3", "b-2"]
    assert newest["example"]["id"] == "b-3"
    assert newest["next"] == ["queuecraft dlq redrive billing --group bbbb"]
    assert older["group"] == "aaaa"
    header, first, _ = shell.ok("lake", "triage", "lake", "--no-ingest").splitlines()
    assert header.split("\t")[:3] == ["group", "count", "recovered"]
    assert first.split("\t")[6] == "KeyError: 'id'"
    none = shell.ok("lake", "triage", "lake", "--no-ingest", "--queue", "mail")
    assert none == "There are no dead letters in the lake (queue mail).\n"
    later = shell.ok("lake", "triage", "lake", "--no-ingest", "--since", "2040-01-01T00:00:00Z")
    assert later == "There are no dead letters in the lake (since 2040-01-01 00:00 UTC).\n"


@pytest.mark.faults  # for the time it takes
def test_what_a_worker_did_is_in_the_report_a_moment_later(shell: Shell) -> None:
    async def work() -> None:
        placed = Event("order.placed", dict[str, str])
        handled = asyncio.Event()
        async with QueueCraft("local://", journal="lake", journal_payload="full") as qc:
            billing = qc.worker("billing", retry=NoRetry())

            @billing.on(placed)
            async def charge(order: dict[str, str]) -> None:
                if order["id"] == HOSTILE:
                    raise ValueError(HOSTILE)
                if order["id"] == "last":
                    handled.set()

            await billing.start()
            for id in ("first", HOSTILE, "last"):
                await qc.publish(placed, {"id": id})
            await handled.wait()

    asyncio.run(work())
    printed = shell.ok("report", "lake")
    assert ["billing", "3", "3", "2", "33.3 %", "0 %", "1"] in [
        line.split("\t") for line in printed.splitlines()
    ]
    assert all(each.isprintable() or each in "\t\n" for each in printed)
    Outline(Path("lake/report.html").read_text())
    (trouble,) = shell.json("lake", "triage", "lake")
    assert (trouble["count"], trouble["error_type"]) == (1, "ValueError")
    assert json.loads(trouble["example"]["body"]) == {"id": HOSTILE}
    redrive, replay = trouble["next"]
    group = trouble["group"]
    assert redrive == f"queuecraft dlq redrive billing --group {group}"
    chosen = f"--fingerprint {group} --queue billing --event order.placed"
    assert replay == f"queuecraft lake replay lake {chosen}"


def test_nothing_in_a_report_can_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("queuecraft.cli.output.on_terminal", lambda stream=None: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    _tell(figures(HOSTILE))
    printed = capsys.readouterr().out
    assert "alert(1)" in printed
    assert all(each.isprintable() or each == "\n" for each in printed)
