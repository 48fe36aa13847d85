"""Reports: listed and shown from one directory, and nothing from beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from queuecraft import ConfigError, QueueCraft
from queuecraft.http import app
from tests.http.site import problem, serving


async def test_reports_are_listed_newest_first_and_shown_without_scripts(tmp_path: Path) -> None:
    for age, name in enumerate(("new report é.html", "old.html")):
        (tmp_path / name).write_text("<h1>hello</h1><script>alert(1)</script>")
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "notes.txt").write_text("secret")
    (tmp_path / "folder.html").mkdir()
    async with serving(reports=tmp_path) as site:
        listed = (await site.reader.get("/api/reports")).json()["reports"]
        assert [each["name"] for each in listed] == ["new report é.html", "old.html"]
        assert listed[0]["size"] == 39
        answer = await site.reader.get("/reports/new%20report%20%C3%A9.html")
        assert (answer.status_code, answer.text[:14]) == (200, "<h1>hello</h1>")
        assert answer.headers["content-type"].startswith("text/html")
        policy = answer.headers["content-security-policy"]
        assert "sandbox" in policy
        assert "script" not in policy
        assert "default-src 'none'" in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert (await site.reader.get("/api/overview")).json()["reports"] is True
        assert (await site.anybody.get("/reports/old.html")).status_code == 401


async def test_nothing_beside_the_directory_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    (tmp_path / "secret.html").write_text("secret")
    (folder / "link.html").symlink_to(tmp_path / "secret.html")
    (folder / "in").mkdir()
    (folder / "in" / "deep.html").write_text("deep")
    async with serving(reports=folder) as site:
        assert (await site.reader.get("/api/reports")).json() == {"reports": []}
        for name in (
            "..%2Fsecret.html",
            "%2E%2E%2Fsecret.html",
            "link.html",
            "in%2Fdeep.html",
            "%2Fetc%2Fpasswd",
            "secret.html%00",
        ):
            answer = await site.reader.get(f"/reports/{name}")
            assert (answer.status_code, problem(answer)["type"]) == (404, "NotFound"), name


async def test_without_a_directory_there_are_none(tmp_path: Path) -> None:
    async with serving() as site:
        assert (await site.reader.get("/api/reports")).json() == {"reports": []}
        assert (await site.reader.get("/reports/a.html")).status_code == 404
    with pytest.raises(ConfigError, match="no such directory"):
        app(QueueCraft(), reports=tmp_path / "missing")
