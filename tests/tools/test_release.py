"""Releases: what stands in the way of one, and what its files say."""

import json
import re
import tomllib
from importlib.metadata import version as version_of
from pathlib import Path

import pytest

from scripts import hatch_metadata
from tools.release import licences
from tools.release.building import checksums
from tools.release.inventory import inventory
from tools.release.readiness import faults, repository, version, versions

ROOT = Path(__file__).resolve().parents[2]
READY = {
    "src/moorage/__init__.py": '__version__ = "1.2.3"\n',
    "CITATION.cff": "version: 1.2.3\n",
    "deploy/helm/moorage/Chart.yaml": "version: 1.2.3\nappVersion: 1.2.3\n",
    "man/moorage.1": '.TH "MOORAGE" "1" "" "moorage 1.2.3" "Moorage"\n',
    "CHANGELOG.md": "# Changelog\n\n## [1.2.3] - 2026-11-28\n",
    "pyproject.toml": '[tool.moorage]\nrepository = "https://git.harbour.test/moorage"\n',
}
FAULTS = {
    "another version in the chart": ("deploy/helm/moorage/Chart.yaml", "appVersion: 1.2.2\n", ["the version is 1.2.2"]),
    "another version in the man page": ("man/moorage.1", '.TH "M" "1" "" "moorage 1.0.0"', ["the version is 1.0.0"]),
    "no notes": ("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n", ["no section '## [1.2.3] - YYYY-MM-DD'"]),
    "notes without a date": ("CHANGELOG.md", "## [1.2.3]\n", ["no section"]),
    "a placeholder": (
        "pyproject.toml",
        '[tool.moorage]\nrepository = "https://repository.invalid/moorage"\n',
        ["is the placeholder"],
    ),
    "a version of no release": (
        "src/moorage/__init__.py",
        '__version__ = "1.2.3.dev0"\n',
        ["is no version of a release", "CITATION.cff"],
    ),
}


@pytest.fixture
def ready(tmp_path):
    for name, text in READY.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_version_with_notes_and_an_address_is_ready(ready):
    assert list(faults(ready)) == []


@pytest.mark.parametrize(("file", "text", "said"), FAULTS.values(), ids=FAULTS)
def test_what_stands_in_the_way_is_named(ready, file, text, said):
    (ready / file).write_text(text, encoding="utf-8")
    found = "\n".join(faults(ready))
    assert [words for words in said if words not in found] == []


def test_one_version_stands_everywhere_in_this_project():
    said = dict(versions(ROOT))
    assert {"CITATION.cff", "deploy/helm/moorage/Chart.yaml", "man/moorage.1"} <= said.keys()
    assert set(said.values()) == {version(ROOT)}


def test_the_inventory_has_all_that_runs_and_all_that_the_page_contains():
    bill = inventory(ROOT, "1.2.3", "2026-11-28T00:00:00+00:00")
    components = {one["bom-ref"].partition("@")[0]: one for one in bill["components"]}
    assert {"pkg:pypi/numpy", "pkg:pypi/aiohttp", "pkg:npm/preact", "pkg:npm/uplot", "pkg:npm/%40preact/signals"} <= {
        ref.rpartition("@")[0] for ref in (one["bom-ref"] for one in bill["components"])
    }
    assert len(components) > 20
    assert bill == inventory(ROOT, "1.2.3", "2026-11-28T00:00:00+00:00")
    assert json.loads(json.dumps(bill))["metadata"]["component"]["version"] == "1.2.3"


def test_checksums_are_as_sha256sum_reads_them(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert checksums([tmp_path / "a"]) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n"


def test_links_of_the_long_description_lead_to_this_version():
    pytest.importorskip("hatchling")
    text = "[a](docs/a.md#b) ![p](docs/p.png) [c](https://x.test/y) [d](#e)\n"
    made = hatch_metadata.with_addresses(text, "https://git.test/m", "1.2.3")
    assert made == (
        "[a](https://git.test/m/blob/v1.2.3/docs/a.md#b) ![p](https://git.test/m/raw/v1.2.3/docs/p.png) "
        "[c](https://x.test/y) [d](#e)\n"
    )
    fields = hatch_metadata.metadata(ROOT)
    assert fields["urls"]["Homepage"] == repository(ROOT)
    assert "](docs/" not in fields["readme"]["text"]


def test_the_licences_of_all_that_runs_are_in_the_file():
    text = (ROOT / licences.FILE).read_text("utf-8")
    heads = re.findall(r"^={80}\n(.+)\n={80}$", text, re.MULTILINE)
    named = {one for head in heads for one in head.split(", ")}
    wanted = licences.locked(ROOT)
    assert len(wanted) > 20
    assert {name for name, versions in wanted.items() if not named & {f"{name} {version}" for version in versions}} == set()
    assert {one.partition(" ")[0] for one in named} == set(wanted)


def test_the_licences_are_those_of_the_installed_packages():
    for name, wanted in licences.locked(ROOT).items():
        if version_of(name) not in wanted:
            pytest.skip(f"{name} is not installed as it is locked")
    assert (ROOT / licences.FILE).read_text("utf-8") == licences.licences(ROOT)


def test_the_wheel_and_the_image_take_the_licences():
    assert licences.FILE in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["license-files"]
    assert licences.FILE in (ROOT / "Containerfile").read_text("utf-8")
