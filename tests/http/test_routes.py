"""Every page there is: nobody gets past the door, readers change nothing, and all is written down.

Made from the routes of the app, so that a page added later is held to it too."""

from __future__ import annotations

from typing import Any

import httpx
from fastapi.routing import APIRoute

from queuecraft import QueueCraft
from queuecraft.http.service import Service
from tests.http.site import READER, SECRETS, bearer, problem, serving, signed_in

OPEN = {"/session", "/health", "/", "/assets/{name}"}
"""What everybody may ask for; how little that tells is tested elsewhere."""

CLOCK = {"/cron/cleanup"}

BODIES: dict[str, Any] = {
    "/api/queues": {"name": "scratch"},
    "/api/queues/{name}/purge": {"confirm": "billing"},
    "/api/queues/{name}/pause": {"reason": "lunch"},
    "/api/queues/{name}/bindings": {"patterns": ["user.*"]},
    "/api/queues/{name}/move": {"to": "parked"},
    "/api/dead-letters/{queue}/redrive": {},
    "/api/dead-letters/{queue}/delete": {"confirm": "billing"},
    "/delayed": {"event": "order.placed", "payload": 1, "delay": 60},
}


def pages(service: Service) -> list[tuple[str, str]]:
    """Each method of each path, as the app has them."""
    routes = [each for each in service.api.routes if isinstance(each, APIRoute)]
    return [(method, each.path_format) for each in routes for method in each.methods or ()]


def changes(service: Service) -> list[tuple[str, str]]:
    return [
        (method, path)
        for method, path in pages(service)
        if method not in ("GET", "HEAD") and path not in OPEN | CLOCK
    ]


def at(path: str, **names: str) -> str:
    return path.format(**{"name": "billing", "queue": "billing", "id": "m-1", **names})


async def refused(client: httpx.AsyncClient, method: str, path: str, **more: Any) -> int:
    answer = await client.request(method, at(path), json=BODIES.get(path), **more)
    problem(answer)
    return answer.status_code


async def test_without_a_token_every_page_is_401() -> None:
    async with serving() as site:
        every = [each for each in pages(site.service) if each[1] not in OPEN]
        assert len(every) >= 35
        for method, path in every:
            assert await refused(site.anybody, method, path) == 401, (method, path)
            page = {"Cookie": "queuecraft_session=a-guess", "X-QueueCraft": "1"}
            answer = await refused(site.anybody, method, path, headers=page)
            assert answer == 401, (method, path)


async def test_a_reader_changes_nothing_with_token_or_cookie() -> None:
    async with serving() as site, signed_in(site, READER) as browser:
        await site.qc.admin.declare("billing", "order.*")
        every = changes(site.service)
        assert len(every) >= 13
        for method, path in every:
            assert await refused(site.reader, method, path) == 403, (method, path)
            answer = await refused(browser, method, path, headers={"X-QueueCraft": "1"})
            assert answer == 403, (method, path)
        assert [
            each for each in site.service._desk.audit.last(100) if each.action != "sign in"
        ] == []


async def test_whoever_may_look_sees_every_other_page_with_token_or_cookie() -> None:
    async with serving() as site, signed_in(site, READER) as browser:
        await site.qc.admin.declare("billing", "order.*")
        for method, path in pages(site.service):
            if method == "GET" and path not in ("/events", "/api/live"):
                for client in (site.reader, browser):
                    answer = await client.get(at(path), params={"queue": "billing"})
                    assert answer.status_code in (200, 404), (path, answer.text)


async def test_every_change_is_written_down_with_who_made_it_and_how_it_went() -> None:
    async with serving() as site, signed_in(site) as browser:
        page = {"X-QueueCraft": "1"}
        audit = site.service._desk.audit
        for method, path in changes(site.service):
            for queue in ("parked", "billing"):
                await site.qc.admin.declare(queue, "order.*")
            before = audit.last(1)[0].id
            answer = await browser.request(
                method,
                at(path),
                json=BODIES.get(path),
                params={"confirm": "billing"},
                headers=page,
            )
            if path == "/api/jobs/{id}":
                assert answer.status_code == 404  # there is none: nothing to write down
                continue
            written = [each for each in audit.last(5) if each.id > before]
            assert len(written) == 1, (method, path, answer.text)
            assert (written[0].role, written[0].name) == ("operator", "ada")
            await site.service._desk.jobs.settled()
            outcome = audit.last(1)[0].outcome
            assert outcome.startswith("done" if answer.is_success else "refused"), (path, outcome)


def test_every_page_is_in_the_document() -> None:
    service = Service(QueueCraft(), SECRETS, hosts=["localhost"], max_body=1000)
    document = service.api.openapi()["paths"]
    for method, path in pages(service):
        assert method.lower() in document[path], path


async def test_a_page_of_somebody_else_gets_nowhere_with_any_change() -> None:
    async with serving() as site:
        for method, path in changes(site.service):
            for foreign in ({"Origin": "https://evil.test"}, {"Sec-Fetch-Site": "cross-site"}):
                headers = {**bearer("irrelevant"), **foreign}
                answer = await site.operator.request(method, at(path), headers=headers)
                assert problem(answer)["type"] == "ForeignOrigin"
