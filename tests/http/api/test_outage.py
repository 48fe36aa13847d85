"""While the broker is away: what was seen last is shown, what is asked of it is refused in time."""

from __future__ import annotations

import pytest

from queuecraft import QueueCraft
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.http.api import routes
from queuecraft.testing import FaultyDriver
from tests.http.site import problem, serving
from tests.http.test_routes import BODIES, at, changes, pages


async def test_no_page_fails_in_a_way_of_its_own_or_waits_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "PATIENCE", 0.05)
    driver = FaultyDriver(MemoryDriver())
    qc = QueueCraft(drivers=[driver], reconnect_delay=60)
    async with serving(qc) as site:
        await qc.admin.declare("billing", "order.*")
        await qc.admin.declare("parked")
        assert (await site.reader.get("/api/queues")).json()["total"] >= 0
        driver.refuse(opens=1_000)
        await driver.drop()
        for method, path in pages(site.service):
            if method == "GET" and path.startswith("/api") and path != "/api/live":
                answer = await site.operator.get(at(path), params={"queue": "billing"})
                assert answer.status_code in (200, 404, 503), (path, answer.text)
        for method, path in changes(site.service):
            if path.startswith("/api"):
                answer = await site.operator.request(
                    method, at(path), json=BODIES.get(path), params={"confirm": "billing"}
                )
                assert answer.status_code in (404, 503), (path, answer.text)
                assert problem(answer)["hint"]
        outcomes = {each.outcome for each in site.service._desk.audit.last(100)}
        assert outcomes
        assert all(each.startswith("failed") for each in outcomes)
