"""A browser without a window, for tests of what a reader sees: ``from browser import browser`` is a fixture.

Tests that ask for it are skipped where there is none. CI_BROWSER=1 makes them fail instead, so that continuous
integration cannot pass without having looked.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Frame, Page

# No sandbox: tests also run as root in a container. The rest keeps the browser from calling home.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _missing(what: str) -> NoReturn:
    message = f"{what}; install playwright (pip install 'hfattn[dev]') and a chromium or google-chrome on the PATH"
    if os.environ.get("CI_BROWSER") == "1":
        pytest.fail(message)
    pytest.skip(message)


# Not for the session: while playwright runs, nothing else in this process can call asyncio.run, nor start it again.
@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium, started once for a file of tests. ``browser.new_page()`` is a page of its own; close it in the end."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        _missing("playwright is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        _missing("There is no browser on the PATH")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield started
        started.close()


@contextmanager
def visited(browser: "Browser", url: str, language: str, width: int, *, also: tuple[str, ...] = ()) -> Iterator["Page"]:
    """A page of a server, as a reader of that language sees it on a screen of that width.

    In the end nothing has complained in the console or asked another server (``also``: addresses that begin so may be
    asked), nothing is wider than the screen, and axe finds no violation of WCAG 2.2 AA, in light or in dark.
    """
    context = browser.new_context(locale=language, viewport={"width": width, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    elsewhere: list[str] = []
    own = (url, "data:", "blob:", *also)
    page.on(
        "console",
        lambda message: complaints.append(f"{message.text} ({message.location})") if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(own) else elsewhere.append(asked.url))
    page.goto(url)
    try:
        yield page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.wait_for_timeout(500)  # of transitions
            found += [f"{scheme}: {each}" for frame in page.frames for each in violations(frame)]
        assert not found, "\n".join(found)
        assert not complaints, "\n".join(complaints)
        assert not elsewhere, "\n".join(elsewhere)
    finally:
        context.close()


def wait_until(page: "Page | Frame", condition: str, seconds: float = 30) -> None:
    """Wait for a JavaScript condition on a page whose policy forbids ``eval``.

    There Playwright's ``wait_for_function`` fails, unless the condition holds at once: it asks again through ``eval``.
    """
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"after {seconds} s not yet: {condition}"
        page.wait_for_timeout(20)


def violations(page: "Page | Frame") -> list[str]:
    """Violations of WCAG 2.2 AA that axe finds in a page or a frame: the rule, the element and the reason."""
    from axe_playwright_python.sync_playwright import Axe

    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
    # Chromium and Firefox let the keyboard reach any box that scrolls; Gradio nests the buttons of its messages.
    rules = {rule: {"enabled": False} for rule in ("scrollable-region-focusable", "nested-interactive")}
    found = Axe().run(page, options={"runOnly": tags, "rules": rules, "resultTypes": ["violations"]}).response
    return [
        f"{each['id']}: {node['html'][:200]}: {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]
