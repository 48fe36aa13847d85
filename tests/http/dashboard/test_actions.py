"""Every button that changes something, pressed."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from queuecraft import NoRetry, QueueCraft
from tests.http.dashboard.chromium import PATIENCE, chromium, opened
from tests.http.site import OPERATOR, serving

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
expect.set_options(timeout=PATIENCE)


async def press(page: Page, name: str) -> None:
    await page.get_by_role("main").get_by_role("button", name=name, exact=True).first.click()


async def fill(page: Page, button: str, **fields: str) -> None:
    """The form that is open, and its button."""
    dialog = page.get_by_role("dialog")
    for label, text in fields.items():
        await dialog.get_by_label(label.replace("_", " ")).first.fill(text)
    await dialog.get_by_role("button", name=button, exact=True).click()


async def done(page: Page, text: str) -> None:
    await expect(page.locator(".progress-text")).to_have_text(text)
    await page.get_by_role("dialog").get_by_role("button", name="Close").last.click()


async def test_every_action_does_what_it_says() -> None:
    qc = QueueCraft("local://")
    billing = qc.worker("billing", retry=NoRetry())

    @billing.on("order.placed")
    async def charge(order: dict[str, int]) -> None:
        raise RuntimeError(f"no money for {order['id'] % 2}")

    async with serving(qc) as site, chromium() as browser, opened(browser, site.url) as page:
        await page.get_by_label("Token").fill(OPERATOR)
        await page.get_by_role("button", name="Sign in").click()

        await press(page, "New queue")
        await fill(page, "Create", Name="spare", Events_it_takes="order.spared stock.*")
        await page.get_by_role("link", name="spare", exact=True).click()
        bindings = page.get_by_role("table", name="Bindings")
        await expect(bindings.locator("tbody tr")).to_have_count(2)

        await press(page, "Bind")
        await fill(page, "Bind", Events_it_takes="price.changed")
        await expect(bindings.locator("tbody tr")).to_have_count(3)
        await page.get_by_role("button", name="Remove the binding stock.*").click()
        await fill(page, "Remove", Type="spare")
        await expect(bindings.locator("tbody tr")).to_have_count(2)
        await expect(bindings).not_to_contain_text("stock.*")

        await press(page, "Pause")
        await fill(page, "Pause", Why="the bank is down")
        badges = page.locator(".badges")
        await expect(badges).to_contain_text("paused by operator: the bank is down")
        await press(page, "Resume")
        await expect(badges).not_to_contain_text("paused")

        for number in range(4):
            await qc.publish("order.spared", {"id": number})
        await press(page, "Move")
        await fill(page, "Move", To_the_queue="nowhere")
        await expect(page.locator(".form-problem")).to_contain_text("nowhere")
        await fill(page, "Move", To_the_queue="billing", At_most="1")
        await done(page, "Done: 1 message was moved.")
        await press(page, "Purge")
        purge = page.get_by_role("dialog").get_by_role("button", name="Purge")
        await page.get_by_role("dialog").get_by_label("Type").fill("spar")
        await expect(purge).to_be_disabled()
        await fill(page, "Purge", Type="spare")
        await expect(page.get_by_text("3 messages thrown away.")).to_be_visible()
        await press(page, "Delete")
        await fill(page, "Delete", Type="spare")
        await expect(page).to_have_url(re.compile("#/$"))
        assert "spare" not in [each.name for each in await qc.admin.queues()]

        await qc.admin.purge("billing")
        await billing.start()
        for number in range(6):
            await qc.publish("order.placed", {"id": number})
        await page.goto(f"{site.url}/#/dead-letters/billing.dlq")
        letters = page.get_by_role("table", name="Dead letters").locator("tbody tr")
        await expect(letters).to_have_count(6)
        await press(page, "Redrive all")
        await expect(page.locator(".counted.known")).to_contain_text("6 letters")
        await page.get_by_label("Canary").fill("")
        await page.get_by_label("At most per second").fill("0.5")
        await page.get_by_role("dialog").get_by_role("button", name="Redrive 6").click()
        await page.get_by_role("dialog").get_by_role("button", name="Stop it").click()
        await expect(page.locator(".progress-text")).to_have_text(re.compile("^Cancelled: "))
        await page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
        await expect(letters).to_have_count(6)
        await letters.first.get_by_role("link").click()
        await press(page, "Delete")
        await fill(page, "Delete", Type="billing.dlq")
        await done(page, "Done: 1 message was deleted.")
        await expect(letters).to_have_count(5)
        await press(page, "Delete")
        await fill(page, "Delete", Type="billing.dlq")
        await done(page, "Done: 5 messages were deleted.")
        assert await qc.dead_letters.count("billing") == 0

        await qc.delayed.add("order.placed", {"id": 1}, delay=3600)
        await page.goto(f"{site.url}/#/delayed")
        await page.get_by_role("button", name="Cancel the message for order.placed").click()
        await expect(page.get_by_text("Nothing waits for its time.")).to_be_visible()

        await page.goto(f"{site.url}/#/audit")
        log = page.get_by_role("table", name="Audit log")
        for action in ("create", "bind", "unbind", "pause", "resume", "move", "purge", "delete"):
            await expect(log).to_contain_text(action)
        await billing.stop()
