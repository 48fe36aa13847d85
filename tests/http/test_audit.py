"""Who did what: nothing is done that could not be written down."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from queuecraft import ConfigError, QueueCraft
from queuecraft.http import app
from queuecraft.http.access import Who
from queuecraft.http.audit import KEPT, Audit
from queuecraft.http.refusal import Refusal
from queuecraft.http.session import Role
from tests.http.site import problem, serving, signed_in

ADA = Who(Role.OPERATOR, "::1", name="ada")


async def test_a_deed_is_written_before_and_after_and_is_one_entry() -> None:
    audit = Audit()
    async with audit.deed(ADA, "purge", "billing") as deed:
        assert audit.last(9)[0].outcome == "begun"
        deed.outcome = "done: 3 purged"
    with pytest.raises(ZeroDivisionError):
        async with audit.deed(ADA, "purge", "audit"):
            _ = 1 / 0
    assert [each.outcome for each in audit.last(9)] == [
        "failed: division by zero",
        "done: 3 purged",
    ]


async def test_only_the_last_thousand_are_kept_and_a_late_end_is_no_new_entry() -> None:
    audit = Audit()
    late = await audit.begin(ADA, "move", "first")
    for n in range(KEPT):
        await audit.begin(ADA, "look", str(n))
    await late.end("done")
    assert len(audit.last(5000)) == KEPT
    assert audit.last(1)[0].target == str(KEPT - 1)


async def test_who_signs_in_all_the_time_pushes_out_nothing_that_was_done() -> None:
    audit = Audit()
    async with audit.deed(ADA, "purge", "billing"):
        pass
    for n in range(KEPT):
        await audit.note(ADA, "sign in", str(n), "refused")
    told = audit.last(5000)
    assert (told[0].target, told[-1].action) == (str(KEPT - 1), "purge")
    assert len(told) < KEPT


async def test_half_a_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:10]))
    with pytest.raises(Refusal, match="cannot be written"):
        await audit.begin(ADA, "purge", "billing")
    monkeypatch.setattr(os, "write", write)
    await audit.begin(ADA, "purge", "billing")
    assert [json.loads(line)["action"] for line in path.read_text().splitlines()] == ["purge"]


async def test_nothing_in_an_entry_can_steer_a_terminal_or_go_on_forever() -> None:
    audit = Audit()
    await audit.note(Who(Role.ANYBODY, "x" * 9999, name="\x1b[2J"), "look", "\n" * 999, "\u202e")
    (entry,) = audit.last(1)
    assert all(each.isprintable() for each in (entry.name, entry.target, entry.outcome))
    assert max(map(len, (entry.address, entry.target))) <= 500


async def test_the_log_has_a_line_with_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "queuecraft.audit")
    async with serving() as site, signed_in(site) as browser:
        await site.qc.admin.declare("billing")
        body = {"confirm": "billing"}
        await browser.post("/api/queues/billing/purge", json=body, headers={"X-QueueCraft": "1"})
    last = [each for each in caplog.records if each.name == "queuecraft.audit"][-1]
    assert last.getMessage() == "ada (127.0.0.1): purge billing: done: 0 purged"
    fields = last.__dict__["queuecraft"]
    assert (fields["action"], fields["by"]["name"]) == ("purge", "ada")


async def test_the_file_has_a_line_for_the_beginning_and_one_for_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with serving(audit=path) as site:
        await site.operator.post("/api/queues", json={"name": "billing"})
        await site.operator.delete("/api/queues/biling?confirm=biling")
        told = (await site.reader.get("/api/audit")).json()["entries"]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["action"], each["outcome"].split(":")[0]) for each in lines] == [
        ("create", "begun"),
        ("create", "done"),
        ("delete", "begun"),
        ("delete", "failed"),
    ]
    assert lines[0]["id"] == lines[1]["id"] != lines[2]["id"]
    assert "did you mean 'billing'" in lines[3]["outcome"]
    assert [each["action"] for each in told] == ["delete", "create"]
    assert path.stat().st_mode & 0o077 == 0


async def test_each_line_is_on_the_disk_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        fsync(file)
        synced.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", noted)
    audit = Audit(tmp_path / "audit.jsonl")
    async with audit.deed(ADA, "purge", "billing"):
        assert len(synced) == 1
        assert synced[0] == (tmp_path / "audit.jsonl").stat().st_size > 0
    assert len(synced) == 2


async def test_what_cannot_be_written_down_is_not_done(tmp_path: Path) -> None:
    folder = tmp_path / "audits"
    folder.mkdir()
    async with serving(audit=folder / "audit.jsonl") as site:
        await site.qc.admin.declare("billing", "order.*")
        await site.qc.publish("order.placed", 1)
        (folder / "audit.jsonl").unlink()
        folder.rmdir()
        for method, path, body in (
            ("POST", "/api/queues/billing/purge", {"confirm": "billing"}),
            ("POST", "/api/queues", {"name": "new"}),
            ("POST", "/api/dead-letters/billing/redrive", {}),
            ("DELETE", "/api/queues/billing?confirm=billing", None),
        ):
            answer = await site.operator.request(method, path, json=body)
            assert (answer.status_code, problem(answer)["type"]) == (503, "AuditFailed"), path
        assert (await site.qc.admin.inspect("billing")).ready == 1
        assert (await site.reader.get("/api/jobs")).json() == {"jobs": []}
        folder.mkdir()
        answer = await site.operator.post("/api/queues/billing/purge", json={"confirm": "billing"})
        assert answer.json() == {"purged": 1}


@pytest.mark.parametrize("place", ["missing/audit.jsonl", "."])
def test_a_file_that_cannot_be_written_is_an_error_at_start(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="audit"):
        app(QueueCraft(), audit=tmp_path / place)
