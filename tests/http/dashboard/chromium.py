"""A real browser that fails a test for every error on its console."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Error, Page, async_playwright

from tests.brokers.fixtures import do_without
from tests.brokers.installation import CHROMIUM, Unavailable, ensure

ARTIFACTS = Path(__file__).parents[3] / "test-artifacts"
"""Where pictures of the dashboard are kept, for a person to look at."""

PATIENCE = 20_000  # milliseconds
DESK = {"width": 1440, "height": 900}
PHONE = {"width": 375, "height": 812}

# A browser logs every answer that says no; these are meant to.
EXPECTED = re.compile(r"the server responded with a status of (401|404|409|422)")


@asynccontextmanager
async def chromium() -> AsyncGenerator[Browser]:
    """Debian's Chromium; where it cannot be had the test says so, or fails in CI."""
    try:
        ensure([CHROMIUM])
    except Unavailable as reason:
        do_without(f"the dashboard: {reason}")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM.find(),
            # As root, and in containers, its sandbox cannot be had; it sees only our own pages.
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened(
    browser: Browser, url: str, *, expected: re.Pattern[str] = EXPECTED, **options: Any
) -> AsyncGenerator[Page]:
    """A page of the dashboard. Errors on its console, violations of its policy among them, and
    windows that scripts open fail the test."""
    wrong: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not expected.search(message.text):
            wrong.append(message.text)

    def fail(error: Error) -> None:
        wrong.append(str(error))

    settings: dict[str, Any] = {"viewport": DESK, "locale": "en-GB", "timezone_id": "UTC"}
    context = await browser.new_context(**{**settings, **options})
    context.set_default_timeout(PATIENCE)
    page = await context.new_page()
    page.on("console", hear)
    page.on("pageerror", fail)
    page.on("dialog", lambda dialog: wrong.append(f"a window was opened: {dialog.message}"))
    try:
        await page.goto(url)
        yield page
    finally:
        await context.close()
    assert not wrong, "\n".join(wrong)


async def picture(page: Page, name: str) -> None:
    """Keep what the page looks like now."""
    ARTIFACTS.mkdir(exist_ok=True)
    await page.screenshot(path=ARTIFACTS / f"dashboard-{name}.png", animations="disabled")


async def fits(page: Page) -> bool:
    """Whether nothing has to be scrolled sideways."""
    found: bool = await page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    return found
