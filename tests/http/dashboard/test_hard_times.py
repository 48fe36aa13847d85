"""The dashboard when it matters: the service gone, very many queues, names without end."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from queuecraft import QueueCraft
from tests.cli.running import Running
from tests.http.dashboard.chromium import PATIENCE, PHONE, chromium, fits, opened
from tests.http.dashboard.test_journey import NAMELESS
from tests.http.site import OPERATOR, serving

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]
expect.set_options(timeout=PATIENCE)


async def many_queues(url: str, names: list[str]) -> None:
    async with QueueCraft(url, presence=0) as qc:
        for name in names:
            await qc.admin.declare(name, "order.*", dead_letters=False)


async def ready(page: Page) -> None:
    await expect(page.locator(".pulse")).to_have_text("live")


async def test_a_service_that_is_gone_is_told_and_found_again(tmp_path: Path) -> None:
    url = f"local://{tmp_path / 'queue.db'}"
    lost = re.compile(
        "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY"
    )
    async with chromium() as browser:
        with Running("serve", "--url", url, "--port", "0", folder=tmp_path) as serving:
            (site,) = serving.until(r"answering at (http://\S+)")
            async with opened(browser, site, expected=lost) as page:
                await ready(page)
                serving.send(signal.SIGKILL)
                serving.ends()
                await expect(page.locator(".banner")).to_contain_text("does not answer")
                await expect(page.locator(".pulse")).to_have_text("offline")
                await expect(page.get_by_text("All is well")).to_be_visible()
                port = site.rpartition(":")[2]
                with Running("serve", "--url", url, "--port", port, folder=tmp_path) as again:
                    again.until("answering at")
                    await expect(page.locator(".banner")).to_be_hidden()
                    await ready(page)


async def test_five_hundred_queues_are_a_hundred_rows_that_stay_where_they_are(
    tmp_path: Path,
) -> None:
    url = f"local://{tmp_path / 'queue.db'}"
    await many_queues(url, [f"tenant-{number:03}" for number in range(500)])
    async with chromium() as browser:
        with Running("serve", "--url", url, "--port", "0", folder=tmp_path) as serving:
            (site,) = serving.until(r"answering at (http://\S+)")
            async with opened(browser, site) as page:
                rows = page.get_by_role("table", name="Queues").locator("tbody tr")
                await expect(rows).to_have_count(100)
                # The same elements after the next look: nothing is drawn again.
                await rows.nth(40).evaluate("(row) => { row.mark = true; }")
                await rows.nth(40).get_by_role("link").focus()
                beats = await page.evaluate(NEXT_LOOKS)
                assert beats == 2
                assert await rows.nth(40).evaluate("(row) => row.mark")
                await expect(rows.nth(40).get_by_role("link")).to_be_focused()
                await page.get_by_role("button", name="Show 100 more").click()
                await expect(rows).to_have_count(200)
                await page.get_by_label("Filter queues").fill("tenant-49")
                await expect(rows).to_have_count(10)
                assert await page.evaluate(NAMELESS) == []


# Resolves once the table was asked for twice more.
NEXT_LOOKS = """
new Promise((resolve) => {
  let beats = 0;
  const seen = new PerformanceObserver((list) => {
    beats += list.getEntries().filter((each) => each.name.includes('api/queues')).length;
    if (beats >= 2) { seen.disconnect(); resolve(2); }
  });
  seen.observe({ entryTypes: ['resource'] });
})
"""


async def test_names_without_end_and_without_spaces_do_not_make_a_phone_scroll(
    tmp_path: Path,
) -> None:
    url = f"local://{tmp_path / 'queue.db'}"
    long = "x" * 240
    await many_queues(url, [long])
    async with QueueCraft(url, presence=0) as qc:
        await qc.send(long, {"a": "y" * 3000}, headers={"z" * 200: "w" * 2000}, key="k" * 200)
    async with chromium() as browser:
        with Running("serve", "--url", url, "--port", "0", folder=tmp_path) as serving:
            (site,) = serving.until(r"answering at (http://\S+)")
            for size in (PHONE, {"width": 700, "height": 900}, {"width": 1024, "height": 768}):
                async with opened(browser, site, viewport=size) as page:
                    await expect(page.get_by_role("link", name=long)).to_be_visible()
                    assert await fits(page)
                    await page.get_by_role("link", name=long).click()
                    await page.get_by_role("button", name="Look at messages").click()
                    await expect(page.get_by_role("table", name="Messages")).to_be_visible()
                    assert await fits(page)
                    await page.get_by_role("table", name="Messages").get_by_role("link").click()
                    await expect(page.get_by_label("Payload", exact=True)).to_be_visible()
                    assert await fits(page)


@pytest.mark.parametrize("name", ["a/b", "../up", "50% off?#now", "messages", "ünï cödé/✓", "%2F"])
async def test_a_queue_and_a_message_open_whatever_they_are_called(name: str) -> None:
    qc = QueueCraft("local://")
    async with serving(qc) as site, chromium() as browser, opened(browser, site.url) as page:
        await qc.admin.declare(name, "order.*")
        await qc.send(name, {"found": True}, message_id=f"id {name}")
        await page.get_by_label("Token").fill(OPERATOR)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("link", name=name, exact=True).click()
        await page.get_by_role("button", name="Look at messages").click()
        await page.get_by_role("table", name="Messages").get_by_role("link").click()
        await expect(page.get_by_label("Payload", exact=True)).to_contain_text('"found": true')
        await expect(page.get_by_text(f"id {name}", exact=True)).to_be_visible()
        await page.reload()
        await expect(page.get_by_label("Payload", exact=True)).to_contain_text('"found": true')


async def test_where_the_stream_is_cut_it_is_asked_for_instead() -> None:
    qc = QueueCraft("local://")
    cut = re.compile("ERR_FAILED")
    async with (
        serving(qc) as site,
        chromium() as browser,
        opened(browser, site.url, expected=cut) as page,
    ):
        await page.route("**/api/live", lambda route: route.abort())
        await page.get_by_label("Token").fill(OPERATOR)
        await page.get_by_role("button", name="Sign in").click()
        await ready(page)
        await qc.admin.declare("late", "order.*")
        await expect(page.get_by_role("link", name="late", exact=True)).to_be_visible()
        await expect(page.locator(".pulse")).to_have_text("live")
