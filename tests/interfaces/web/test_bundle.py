"""The built bundle of the web page: it belongs to its source, stays small and never writes markup from data."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

import moorage

BUNDLE = Path(moorage.__file__).parent / "interfaces" / "web" / "bundle"
UI = Path(__file__).parents[3] / "ui"
# The same list as in ui/bundling/html.ts.
SOURCES = ("bundling", "package-lock.json", "package.json", "src", "tsconfig.json", "vite.config.ts")
source_only = pytest.mark.skipif(not UI.exists(), reason="the source of the page, ui/, is not here")


def sources() -> list[Path]:
    found = [path for name in SOURCES for path in ([UI / name] if (UI / name).is_file() else (UI / name).rglob("*"))]
    return sorted((path for path in found if path.is_file()), key=lambda path: path.relative_to(UI).as_posix())


@source_only
def test_the_bundle_is_built_from_the_source_that_is_here():
    lines = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(UI).as_posix()}\n" for path in sources()
    )
    built_from = (BUNDLE / "source.sha256").read_text().strip()
    assert built_from == hashlib.sha256(lines.encode()).hexdigest(), "the bundle is older than ui/: run `make ui`"


# Preact with its hooks and signals, and uPlot, minified. Add what else is bundled.
LIBRARIES = 71_950


def test_the_bundle_is_small():
    script, style = (BUNDLE / "app.js").stat().st_size, (BUNDLE / "app.css").stat().st_size
    assert script - LIBRARIES <= 120_000
    assert script + style <= 225_000
    licenses = (BUNDLE / "licenses.txt").stat().st_size
    assert (BUNDLE / "report.html").stat().st_size - licenses <= 225_000


@source_only
@pytest.mark.parametrize("means", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"])
def test_no_source_turns_text_into_markup_or_code(means):
    assert not [path.name for path in sources() if "src" in path.parts and means in path.read_text()]


@source_only
def test_the_licences_of_all_libraries_ship_with_the_bundle():
    packages = json.loads((UI / "package-lock.json").read_text())["packages"]
    shipped = {name.removeprefix("node_modules/"): one for name, one in packages.items() if name and not one.get("dev")}
    text = (BUNDLE / "licenses.txt").read_text()
    named = re.findall(r"^(\S+) (\S+) \(([^)]+)\): Copyright \(c\) \S", text, re.MULTILINE)
    assert sorted(named) == sorted((name, one["version"], one["license"]) for name, one in shipped.items())
    assert "Permission is hereby granted" in text
    assert text in (BUNDLE / "report.html").read_text()


@source_only
def test_the_lock_file_has_no_addresses():
    text = (UI / "package-lock.json").read_text()
    assert '"resolved"' not in text
    assert not re.findall(r"registry\.|\.tgz", text)


def test_the_report_allows_exactly_its_own_script_and_style():
    text = (BUNDLE / "report.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    for element, directive in (("script", "script-src"), ("style", "style-src")):
        inner = re.search(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy


def test_the_report_has_one_place_for_the_title_and_one_for_the_document():
    text = (BUNDLE / "report.html").read_text()
    assert text.count("<!--moorage-title-->") == text.count("<!--moorage-document-->") == 1


def test_the_live_page_has_no_script_or_style_of_its_own():
    text = (BUNDLE / "app.html").read_text()
    assert "<style" not in text
    assert re.findall(r"<script[^>]*>(.*?)</script>", text) == [""]
