"""The dashboard as a person uses it at three in the morning: real Chromium, a real service, a
worker that fails in another process."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.http.dashboard.chromium import PATIENCE, PHONE, chromium, fits, opened, picture
from tests.http.dashboard.shop import OPERATOR, READER, Shop, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")
expect.set_options(timeout=PATIENCE)

SCRIPT = "<script>window.hacked=1;alert(1)</script><img src=x onerror=alert(2)>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Shop]:
    folder: Path = tmp_path_factory.mktemp("shop")
    async with open_shop(folder, "--mask", "*.card_number") as shop:
        yield shop


async def sign_in(page: Page, token: str = OPERATOR, name: str = "Ada") -> None:
    await page.get_by_label("Token").fill(token)
    await page.get_by_label("Your name").fill(name)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("dialog").get_by_role("button", name=name)


async def outcome(page: Page) -> str:
    told = page.locator(".progress-text")
    await expect(told).to_have_text(re.compile("^(Done|Stopped|Failed|Cancelled)"))
    return await told.inner_text()


async def redrive(page: Page, canary: str) -> str:
    """Through the window that counts first."""
    await expect(page.locator(".counted.known")).to_contain_text("would be sent back")
    await page.get_by_label("Canary").fill(canary)
    await button(page, "Redrive").click()
    return await outcome(page)


async def test_a_failing_queue_is_seen_understood_and_mended(browser: Browser, shop: Shop) -> None:
    shop.breaks()
    await shop.order(12)
    async with opened(browser, shop.url) as page:
        await page.get_by_label("Token").fill("wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_text("This token is not known here.")).to_be_visible()
        await sign_in(page)

        row = page.get_by_role("row").filter(has_text="billing")
        await expect(row.locator("[data-label=Dead]")).to_have_text("12")
        group = page.locator(".group").filter(has_text="PaymentDeclined")
        await expect(group).to_contain_text("insufficient funds")
        await expect(page.locator(".status")).to_contain_text("billing")
        await picture(page, "overview")

        await group.get_by_role("link").click()
        traceback = page.get_by_label("Traceback", exact=True)
        await expect(traceback).to_contain_text('raise PaymentDeclined("the card was declined')
        await picture(page, "failure")
        await page.get_by_role("row").filter(has_text="order.placed").first.click()
        await expect(page.get_by_label("Payload", exact=True)).to_contain_text('"total": 129.9')
        await picture(page, "letter")
        await page.go_back()

        # The bank is still down: the canaries die again, and the rest is left alone.
        await page.get_by_role("button", name="Redrive").click()
        told = await redrive(page, canary="2")
        assert told.startswith("Stopped: 2 of the 2 sent ahead died again"), told
        await picture(page, "stopped")
        await button(page, "Close").last.click()

        shop.mend()
        await page.get_by_role("button", name="Redrive").click()
        told = await redrive(page, canary="2")
        assert told == "Done: 12 messages were sent back."
        await button(page, "Close").last.click()

        await page.get_by_role("link", name="Overview").first.click()
        await expect(row.locator("[data-label=Dead]")).to_have_text("0")
        await expect(page.locator(".side .nav-count")).to_be_hidden()
        handled = page.locator(".gauge-handled-per-second .gauge-value")
        await expect(handled).not_to_have_text(re.compile("^(0|–)$"))
        await picture(page, "mended")

        await page.get_by_role("link", name="Audit log").first.click()
        entry = page.get_by_role("row").filter(has_text="redrive").first
        await expect(entry).to_contain_text("Ada")

        await page.get_by_role("button", name="Sign out").first.click()
        await expect(page.get_by_text("You are signed out.")).to_be_visible()
        await page.reload()
        await expect(page.get_by_label("Token")).to_be_visible()


async def test_what_messages_hold_is_shown_as_text_and_secrets_are_not(
    browser: Browser, shop: Shop
) -> None:
    queue = f"q-{SCRIPT}"
    await shop.qc.admin.declare(queue, f"event-{SCRIPT}")
    payload = {"text": SCRIPT, "number": 12345678901234567890, "card_number": "4111-1111"}
    await shop.qc.publish(f"event-{SCRIPT}", payload, headers={"x-evil": SCRIPT}, key=SCRIPT)
    await shop.qc.publish(f"order.{SCRIPT}", {"error": SCRIPT})
    async with opened(browser, shop.url) as page:
        await sign_in(page, name=SCRIPT[:60])
        await page.get_by_role("link", name=queue, exact=True).click()
        await page.get_by_role("button", name="Look at messages").click()
        messages = page.get_by_role("table", name="Messages")  # a binding has the event, too
        await messages.get_by_role("row").filter(has_text="event-").click()
        shown = page.get_by_label("Payload", exact=True)
        await expect(shown).to_contain_text(SCRIPT)
        await expect(shown).to_contain_text("12345678901234567890")
        await expect(shown).not_to_contain_text("4111")
        await expect(page.locator(".headers")).to_contain_text(SCRIPT)
        await picture(page, "hostile")
        await page.goto(f"{shop.url}/#/dead-letters/billing.dlq")
        await page.get_by_role("row").filter(has_text="onerror").get_by_role("link").click()
        await expect(page.get_by_label("Traceback", exact=True)).to_contain_text(SCRIPT)
        assert await page.evaluate("window.hacked") is None
        assert await page.locator("main img, main script").count() == 0


async def test_a_reader_is_offered_nothing_that_changes_anything(
    browser: Browser, shop: Shop
) -> None:
    async with opened(browser, shop.url) as page:
        await sign_in(page, READER)
        await page.get_by_role("link", name="billing", exact=True).click()
        await expect(page.get_by_role("heading", name="billing")).to_be_visible()
        await expect(page.locator(".tile").first).to_be_visible()
        for name in ("Pause", "Move", "Purge", "Delete", "Bind", "Remove", "Redrive"):
            assert await page.get_by_role("button", name=name, exact=True).count() == 0


async def test_the_keyboard_reaches_everything_and_everything_has_a_name(
    browser: Browser, shop: Shop
) -> None:
    async with opened(browser, shop.url) as page:
        await sign_in(page)
        await expect(page.get_by_role("link", name="email", exact=True)).to_be_visible()
        await page.keyboard.press("/")
        await page.keyboard.type("emai")
        await expect(page.get_by_role("link", name="billing", exact=True)).to_have_count(0)
        await page.keyboard.press("Escape")
        await page.keyboard.press("k")
        await expect(page.get_by_role("link", name="email", exact=True)).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="email", level=1)).to_be_visible()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)

        light = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        await page.get_by_role("button", name="Show it dark").click()
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert dark != light
        await page.reload()
        await expect(page.get_by_role("heading", name="email", level=1)).to_be_visible()
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == dark

        for keys in ("gd", "gl", "gw", "ge", "ga", "gr", "go"):
            await page.keyboard.press(keys[0])
            await page.keyboard.press(keys[1])
            await expect(page.locator("main h1")).to_have_count(1)
            assert await page.evaluate(NAMELESS) == []


async def test_on_a_phone_it_fits_and_a_letter_can_be_sent_back(
    browser: Browser, shop: Shop
) -> None:
    shop.breaks()
    await shop.order(1)
    phone: dict[str, Any] = {"viewport": PHONE, "is_mobile": True, "has_touch": True}
    async with opened(browser, shop.url, **phone, color_scheme="dark") as page:
        await sign_in(page)
        await expect(page.get_by_role("table", name="Queues")).to_contain_text("billing")
        assert await fits(page)
        await picture(page, "phone-overview")
        await page.get_by_role("link", name="billing", exact=True).tap()
        await page.get_by_role("link", name="Dead letters in billing.dlq").tap()
        letter = page.get_by_role("row").filter(has_text="PaymentDeclined").first
        await letter.get_by_role("link").tap()
        await expect(page.get_by_label("Traceback", exact=True)).to_contain_text("Declined")
        assert await fits(page)
        await picture(page, "phone-failure")
        shop.mend()
        await page.get_by_role("button", name="Redrive").tap()
        assert await redrive(page, canary="") == "Done: 1 message was sent back."
        await button(page, "Close").last.tap()
        for place in ("Delayed", "Workers"):
            await page.get_by_role("link", name=place).last.tap()
            await expect(page.get_by_role("heading", level=1)).to_contain_text(place)
            assert await fits(page)
        await page.get_by_role("button", name="More").tap()
        await page.get_by_role("button", name="Sign out").last.tap()
        await expect(page.get_by_label("Token")).to_be_visible()


async def test_a_page_that_broke_its_policy_would_fail_these_tests(
    browser: Browser, shop: Shop
) -> None:
    with pytest.raises(AssertionError, match="Content Security Policy"):
        async with opened(browser, shop.url) as page:
            await page.evaluate("document.body.setAttribute('style', 'color: red')")


# Buttons, links and fields that a screen reader would have nothing to say about.
NAMELESS = """
[...document.querySelectorAll('button, a[href], input')]
  .filter((each) => each.checkVisibility())
  .filter((each) => !(each.getAttribute('aria-label') || each.textContent.trim()
    || [...(each.labels ?? [])].some((label) => label.textContent.trim())))
  .map((each) => each.className || each.tagName)
"""
