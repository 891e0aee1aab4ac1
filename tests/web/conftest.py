"""A real Chromium for the tests of the page. A test fails if its pages leave an error on the console."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser for the tests of a module: its event loop would be in the way of other modules."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


class Visit:
    """Opens pages and keeps what they print and ask for."""

    def __init__(self, chromium: Any, shots: Path) -> None:
        self._chromium = chromium
        self._shots = shots
        self.faults: list[str] = []
        self.asked: set[str] = set()

    @contextmanager
    def page(
        self, url: str, *, narrow: bool = False, dark: bool = False, allow: tuple[str, ...] = (), **options: Any
    ) -> Iterator[Any]:
        """Open `url`. `allow`: beginnings of console messages that are no fault."""
        size = {"width": 390, "height": 800} if narrow else {"width": 1280, "height": 800}
        scheme = "dark" if dark else "light"
        context = self._chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce", **options)
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda line: self._note(line, allow))
        page.on("request", lambda request: self.asked.add(request.url))
        page.goto(url)
        try:
            yield page
        finally:
            context.close()

    def _note(self, line: Any, allow: tuple[str, ...]) -> None:
        if line.type in ("error", "warning") and not line.text.startswith(allow):
            self.faults.append(line.text)

    def shoot(self, page: Any, name: str) -> None:
        """Keep a screenshot for a person to look at, if MOORAGE_SHOTS names a folder."""
        if self._shots != Path():
            self._shots.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=self._shots / f"{name}.png", full_page=True)


@pytest.fixture
def visit(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Visit]:
    visit = Visit(chromium, Path(os.environ.get("MOORAGE_SHOTS", "")))
    yield visit
    assert visit.faults == []


@pytest.fixture
def text_of() -> Callable[[Any], str]:
    """Return what a reader sees of a page, with single spaces."""
    return lambda page: " ".join(page.locator("body").inner_text().split())
