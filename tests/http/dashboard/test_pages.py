"""The files of the dashboard: what is served, and what may not be in them."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from queuecraft import QueueCraft
from queuecraft.http import app
from queuecraft.http.dashboard.pages import CSP
from tests.http.site import OPERATOR, bearer, problem, serving

ASSETS = Path(str(files("queuecraft.http.dashboard").joinpath("assets")))
SCRIPTS = sorted(ASSETS.glob("*.js"))
FORBIDDEN = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_makes_no_elements_from_text_and_loads_only_its_neighbours(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert [word for word in FORBIDDEN if word in text] == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []
    for name in re.findall(r"^(?:import|export) .*?'(\./[^']+)';$", text, re.MULTILINE):
        assert (ASSETS / name).is_file(), f"{script.name} imports {name}, which is not there"


def test_the_page_has_nothing_inline_and_names_every_script_it_needs() -> None:
    page = (ASSETS / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]* src=)|<style|style=|\son\w+=", page) == []
    named = set(re.findall(r'(?:href|src)="assets/([^"]+)"', page))
    assert named <= {each.name for each in ASSETS.iterdir()}
    loaded = {each.name for each in SCRIPTS if each.name != "view.js"}  # holds types alone
    assert loaded <= named, "a script that is not named is found late, over a slow line very late"


async def test_anybody_may_load_the_files_under_a_policy_that_lets_nothing_else_in() -> None:
    async with serving() as site:
        page = await site.anybody.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        types = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
        for name in re.findall(r'(?:href|src)="(assets/[^"]+)"', page.text):
            answer = await site.anybody.get(f"/{name}")
            assert answer.status_code == 200
            assert answer.headers["content-security-policy"] == CSP
            assert answer.headers["x-content-type-options"] == "nosniff"
            kind = types.get(name.rpartition(".")[2], "image/svg+xml")
            assert answer.headers["content-type"] == kind


async def test_a_browser_that_has_a_file_is_not_sent_it_again() -> None:
    async with serving() as site:
        first = await site.anybody.get("/assets/app.js")
        tag = first.headers["etag"]
        assert first.headers["cache-control"] == "no-cache"
        again = await site.anybody.get("/assets/app.js", headers={"If-None-Match": f'"x", W/{tag}'})
        assert (again.status_code, again.content) == (304, b"")
        other = await site.anybody.get("/assets/app.js", headers={"If-None-Match": '"x"'})
        assert other.status_code == 200


async def test_only_the_files_of_the_dashboard_can_be_asked_for() -> None:
    names = ("none.js", "index.html", "..%2fpages.py", "%2e%2e/pages.py", "../pages.py", "")
    async with serving() as site:
        for name in names:
            answer = await site.anybody.get(f"/assets/{name}")
            assert answer.status_code == 404, name
            assert problem(answer)["type"] == "NotFound"


async def test_mounted_in_another_app_it_finds_its_files_and_its_api_there() -> None:
    qc = QueueCraft()
    outer = FastAPI()
    outer.mount("/queues", app(qc, token=OPERATOR))
    transport = httpx.ASGITransport(outer)
    async with qc, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        page = await client.get("/queues/")
        (script,) = re.findall(r'<script type="module" src="([^"]+)"', page.text)
        assert not script.startswith("/")
        assert (await client.get(f"/queues/{script}")).status_code == 200
        overview = await client.get("/queues/api/overview", headers=bearer(OPERATOR))
        assert overview.json()["status"] == "healthy"


async def test_a_service_can_do_without_the_dashboard() -> None:
    async with serving(dashboard=False) as site:
        assert (await site.anybody.get("/")).status_code == 404
        assert (await site.anybody.get("/assets/app.js")).status_code == 404
