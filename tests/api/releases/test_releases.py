"""Releases: one object each, and no code elsewhere that compares their names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import CURRENT, EARLIER, LATER, LEGACY, RELEASES, TODAY, find_release, why_unknown
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.config.api_versions import API_VERSIONS
from moorage.errors import InputError
from moorage.plugins import builtin_registry

SRC = Path(__file__).parents[3] / "src" / "moorage"
NAME = re.compile(r"1\.[0-9]{2}")


def compared(source):
    """Return the lines of comparisons with the name of a release, or of a variable that holds one."""
    for node in ast.walk(ast.parse(source)) if NAME.search(source) or "TODAY" in source else ():
        if not isinstance(node, ast.Compare):
            continue
        for side in (node.left, *node.comparators):
            constants = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
            names = [one.value for one in constants if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if any(map(NAME.fullmatch, names)) or any(isinstance(one, ast.Name) and one.id == "TODAY" for one in constants):
                yield node.lineno


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("a == '1.21'", 1),
        ("release != TODAY", 1),
        ("emulate in {None, TODAY}", 1),
        ("x in ('1.19', '1.20')", 1),
        ("gates.emulated.legacy_flags", 0),
        ("version == '1.21.3'", 0),
    ],
)
def test_comparisons_are_found(source, found):
    assert len(list(compared(source))) == found


def test_no_module_compares_names_of_releases():
    places = [
        f"{path.relative_to(SRC)}:{line}"
        for path in SRC.rglob("*.py")
        if "releases" not in path.relative_to(SRC).parts
        for line in compared(path.read_text())
    ]
    assert places == [], "ask moorage.api.releases for the trait"


def test_every_release_is_whole():
    assert list(RELEASES) == [*(one.name for one in (*LEGACY, *reversed(EARLIER))), TODAY, *(one.name for one in LATER)]
    assert CURRENT.previous == f"1.{CURRENT.minor - 1}"
    for name, release in RELEASES.items():
        assert FeatureGates(release=name).emulated is release
        assert len(list(builtin_registry(name).points())) > 18
        read = {version.short for version in API_VERSIONS.values() if name in {version.rules, *version.emulated}}
        assert read == release.documents - {"Policy"}


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("1.36", "1.36"),
        ("1.36.3", "1.36"),
        ("v1.34.1", "1.34.1"),
        ("1.34", "1.34.7"),
        ("1.35", "1.35.7"),
        ("1.33.0", "1.33.3"),
        ("1.21", "1.21"),
        ("1.34.3", None),
        ("1.37", "1.37"),
        ("v1.37.2", "1.37"),
        ("1.38", None),
        ("1.3", None),
        ("latest", None),
    ],
)
def test_a_minor_release_means_its_newest_known_patch(version, name):
    found = find_release(version)
    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("1.38", "release 1.38 is not known; the nearest is 1.37.2"),
        ("1.37.0-rc.0", "release 1.37.0-rc.0 is not known; the nearest are 1.36.3 and 1.37.1"),
        ("1.34.3", "release 1.34.3 is not known; the nearest are 1.34.1 and 1.34.7"),
        ("1.18", "release 1.18 is not known; the nearest is 1.19"),
        ("new", "'new' is no release; write 1.37, or a patch release such as 1.36.0"),
    ],
)
def test_an_unknown_version_is_refused_with_the_nearest(version, why):
    assert why_unknown(version) == why


def test_a_configuration_is_loaded_for_the_release_that_a_version_means():
    assert load_source(ConfigSource(emulate="1.34")).release == "1.34.7"
    with pytest.raises(InputError, match=r"release 1\.38 is not known; the nearest is 1\.37\.2"):
        load_source(ConfigSource(emulate="1.38"))
