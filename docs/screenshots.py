"""Take a picture of each demo for the documentation, with a browser.

``python docs/screenshots.py SPACE...`` starts folders that ``hfattn space build`` made, by the name of the demo, and
writes docs/assets/NAME.webp. It needs playwright, and chromium or google-chrome on the PATH.
"""

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from hfattn.spaces.serving import running

ASSETS = Path(__file__).parent / "assets"
WIDTH, SCALE, QUALITY = 1200, 1.25, 70  # CSS pixels, pixels for each of them, and quality of the WebP file


def _explorer(page: Page) -> None:
    for family in ("bahdanau", "luong", "vaswani"):
        words = page.frame_locator(f"#{family} iframe").locator("#target button")
        words.first.wait_for()
        words.nth(5).focus()


def _lab(page: Page) -> None:
    page.get_by_role("tab", name="Two dimensions").click()
    page.locator("#plane svg").wait_for()


def _writer(page: Page) -> None:
    page.wait_for_function("document.querySelector('#paper .text')?.innerText.length > 350")


def _image_lens(page: Page) -> None:
    page.frame_locator("#maps iframe").locator("#thumbs button").first.wait_for()


def _search(page: Page) -> None:
    page.locator("#nearest .row").first.wait_for()


def _lens(page: Page) -> None:
    page.locator("#words_pretrained .words").wait_for()


# What to wait for, or to do; the element at the top of the picture; and its height in CSS pixels.
SHOTS: dict[str, tuple[Callable[[Page], None], str, int]] = {
    "attention_explorer": (_explorer, "#columns", 1390),
    "attention_lab": (_lab, "h1", 1240),
    "char_writer": (_writer, "h1", 1000),
    "image_lens": (_image_lens, "h1", 1068),
    "semantic_search": (_search, "h1", 1278),
    "sentiment_lens": (_lens, "h1", 1000),
}


def take(folder: Path, name: str) -> Path:
    """Write the picture of a built Space.

    Args:
        folder: the built Space.
        name: its name, one of ``SHOTS``.
    """
    prepare, top, height = SHOTS[name]
    path = ASSETS / f"{name.replace('_', '-')}.webp"
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with running(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": WIDTH, "height": 900}, device_scale_factor=SCALE, color_scheme="light"
        )
        page.goto(address)
        prepare(page)
        page.wait_for_timeout(1500)  # of frames that grow and bars that move
        start = page.evaluate(f"document.querySelector('{top}').getBoundingClientRect().top + scrollY") - 12
        clip: Any = {"x": 0, "y": max(0, start), "width": WIDTH, "height": height}
        shot = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip)))
        browser.close()
    shot.convert("RGB").save(path, quality=QUALITY, method=6)
    return path


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        path = take(folder, folder.resolve().name)
        print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
