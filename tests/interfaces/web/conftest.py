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


class Chromium:
    """A browser with one page for all tests of a module: a new one takes three times as long as all that a test does in it."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._kept: Any = None

    @contextmanager
    def page(self, *, narrow: bool, dark: bool, offline: bool, fresh: bool) -> Iterator[Any]:
        """Lend the page, without anything of its last use; a new one if ``fresh``, or if the last use failed."""
        page = self._new_page() if fresh or self._kept is None else self._kept
        self._kept = None
        page.set_viewport_size({"width": 390, "height": 800} if narrow else {"width": 1280, "height": 800})
        page.emulate_media(media="null", color_scheme="dark" if dark else "light", reduced_motion="reduce")
        page.context.set_offline(offline)
        try:
            yield page
        except BaseException:
            page.context.close()
            raise
        if fresh:
            page.context.close()
            return
        page.evaluate("() => { try { localStorage.clear(); sessionStorage.clear() } catch {} }")
        page.context.clear_cookies()
        page.mouse.move(0, 0)
        page.goto("about:blank")
        self._kept = page

    def _new_page(self) -> Any:
        context = self._browser.new_context()
        context.set_default_timeout(20_000)
        return context.new_page()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """One browser for the tests of a module: its event loop would be in the way of other modules."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield Chromium(browser)
        browser.close()


class Visit:
    """Opens pages and keeps what they print and ask for."""

    def __init__(self, chromium: Chromium, shots: Path) -> None:
        self._chromium = chromium
        self._shots = shots
        self.faults: list[str] = []
        self.asked: set[str] = set()

    @contextmanager
    def page(
        self, url: str, *, narrow: bool = False, dark: bool = False, offline: bool = False, fresh: bool = False,
        allow: tuple[str, ...] = (),
    ) -> Iterator[Any]:  # fmt: skip
        """Open `url`. `allow`: beginnings of console messages that are no fault; `fresh`: in a process of its own."""
        listeners = {
            "pageerror": lambda error: self.faults.append(str(error)),
            "console": lambda line: self._note(line, allow),
            "request": lambda request: self.asked.add(request.url),
        }
        with self._chromium.page(narrow=narrow, dark=dark, offline=offline, fresh=fresh) as page:
            for event, listener in listeners.items():
                page.on(event, listener)
            page.goto(url)
            try:
                yield page
            finally:
                for event, listener in listeners.items():
                    page.remove_listener(event, listener)

    def _note(self, line: Any, allow: tuple[str, ...]) -> None:
        if line.type in ("error", "warning") and not line.text.startswith(allow):
            self.faults.append(line.text)

    def shoot(self, page: Any, name: str) -> None:
        """Keep a screenshot for a person to look at, if MOORAGE_SHOTS names a folder."""
        if self._shots != Path():
            self._shots.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=self._shots / f"{name}.png", full_page=True)


@pytest.fixture
def visit(chromium: Chromium) -> Iterator[Visit]:
    visit = Visit(chromium, Path(os.environ.get("MOORAGE_SHOTS", "")))
    yield visit
    assert visit.faults == []


AXE = Path(__file__).parents[3] / "ui/node_modules/axe-core/axe.min.js"
FINDINGS = """() => axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.flatMap(
  one => one.nodes.map(node => one.id + ': ' + node.html.slice(0, 200) + ' ' + node.failureSummary)))"""


@pytest.fixture(scope="session")
def axe() -> Callable[[Any], list[str]]:
    """Return what axe finds wrong on a page: contrast, names, roles, order. `npm ci` in ui/ installs it."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci --prefix ui")
    source = AXE.read_text("utf-8")

    def findings(page: Any) -> list[str]:
        page.evaluate(source)
        found: list[str] = page.evaluate(FINDINGS)
        return found

    return findings


@pytest.fixture
def text_of() -> Callable[[Any], str]:
    """Return what a reader sees of a page, with single spaces."""
    return lambda page: " ".join(page.locator("body").inner_text().split())
