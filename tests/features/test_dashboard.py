"""The dashboard on every broker: a failure is seen, read, sent back, and gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from queuecraft import NoRetry, QueueCraft
from tests.http.dashboard.chromium import PATIENCE, chromium, opened
from tests.http.site import OPERATOR, serving
from tests.runtime.support import dead_letter

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
expect.set_options(timeout=PATIENCE)


async def test_a_failure_is_seen_read_and_sent_back(url: str) -> None:
    qc = QueueCraft(url, presence=0.5)
    billing = qc.worker("billing", retry=NoRetry())
    mended: list[bool] = []

    @billing.on("order.placed")
    async def charge(order: dict[str, int]) -> None:
        if not mended:
            raise RuntimeError("the bank is down")

    async with serving(qc) as site, chromium() as browser, opened(browser, site.url) as page:
        await billing.start()
        for number in range(6):
            await qc.publish("order.placed", {"id": number})
        await page.get_by_label("Token").fill(OPERATOR)
        await page.get_by_role("button", name="Sign in").click()
        row = page.get_by_role("row").filter(has_text="billing")
        await expect(row.locator("[data-label=Dead]")).to_have_text("6")
        await expect(page.locator(".status")).to_contain_text("billing")

        group = page.locator(".group").filter(has_text="RuntimeError")
        await group.get_by_role("link").click()
        await expect(page.get_by_label("Traceback", exact=True)).to_contain_text("the bank is down")
        letters = page.get_by_role("table", name="Dead letters").locator("tbody tr")
        await expect(letters).to_have_count(6)

        mended.append(True)
        await page.get_by_role("button", name="Redrive").click()
        await expect(page.locator(".counted.known")).to_contain_text("would be sent back")
        await page.get_by_label("Canary").fill("2")
        await page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
        told = page.locator(".progress-text")
        await expect(told).to_have_text("Done: 6 messages were sent back.", timeout=90_000)
        await page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
        await page.get_by_role("link", name="Overview").first.click()
        await expect(row.locator("[data-label=Dead]")).to_have_text("0")
        assert await qc.dead_letters.count("billing") == 0


async def test_queues_that_may_not_be_shown_are_spoken_of(rabbitmq_url: str) -> None:
    qc = QueueCraft(f"{rabbitmq_url}?management=no")
    async with serving(qc) as site, chromium() as browser, opened(browser, site.url) as page:
        await page.get_by_label("Token").fill(OPERATOR)
        await page.get_by_role("button", name="Sign in").click()
        status = page.locator(".status")
        await expect(status).to_contain_text("There may be queues that are not shown:")
        await expect(status).to_contain_text("?management=http://host:15672")
        answer = await site.reader.get("/api/overview")
        assert "?management=http://host:15672" in answer.json()["lacking"]


async def test_a_letter_far_from_the_head_is_looked_for_when_asked() -> None:
    qc = QueueCraft("local://")
    async with serving(qc) as site, chromium() as browser, opened(browser, site.url) as page:
        await qc.admin.declare("billing", "order.placed")
        driver = await qc._engine.connection.ready()
        for start in range(0, 2_500, 500):
            await driver.send([dead_letter(f"m-{start + n}") for n in range(500)])
        await page.get_by_label("Token").fill(OPERATOR)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator(".pulse")).to_have_text("live")
        await page.goto(f"{site.url}/#/dead-letters/billing.dlq/m-2400")
        await expect(page.get_by_text("It is not among the first 2,000 of 2,500")).to_be_visible()
        await page.get_by_role("button", name="Look further").click()
        await expect(page.get_by_label("Payload", exact=True)).to_contain_text('"total": 9.5')


async def test_a_report_is_listed_and_opens_without_its_scripts(tmp_path: Path) -> None:
    text = "<h1>Seven days</h1><p id=told>calm</p><script>told.textContent='hacked'</script>"
    (tmp_path / "today.html").write_text(text, encoding="utf-8")
    async with (
        serving(reports=tmp_path) as site,
        chromium() as browser,
        opened(browser, site.url) as page,
    ):
        await page.get_by_label("Token").fill(OPERATOR)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("link", name="Reports").first.click()
        async with page.expect_popup() as popup:
            await page.get_by_role("link", name="today.html").click()
        report = await popup.value
        await expect(report.get_by_role("heading", name="Seven days")).to_be_visible()
        await expect(report.locator("#told")).to_have_text("calm")
