"""Releases: one object each, and no code elsewhere that compares their names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from moorage.config.api_versions import API_VERSIONS
from moorage.framework.features import FeatureGates
from moorage.plugins import builtin_registry
from moorage.releases import CURRENT, LEGACY, RELEASES, TODAY

SRC = Path(__file__).parents[2] / "src" / "moorage"
NAME = re.compile(r"1\.[0-9]{2}")


def compared(source):
    """Return the lines of comparisons with the name of a release, or of a variable that holds one."""
    for node in ast.walk(ast.parse(source)):
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
        if path.parts[len(SRC.parts)] != "releases"
        for line in compared(path.read_text())
    ]
    assert places == [], "ask moorage.releases for the trait"


def test_every_release_is_whole():
    assert list(RELEASES) == [*(one.name for one in LEGACY), TODAY]
    assert CURRENT.previous == f"1.{CURRENT.minor - 1}"
    for name, release in RELEASES.items():
        assert FeatureGates(release=name).emulated is release
        assert len(list(builtin_registry(name).points())) > 20
        read = {version.short for version in API_VERSIONS.values() if name in {version.rules, *version.emulated}}
        assert read == release.documents - {"Policy"}
