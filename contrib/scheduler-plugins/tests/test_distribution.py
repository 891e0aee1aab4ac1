"""The distribution: its entry points, what it imports, and that it works where it is installed."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from moorage.framework.mistakes import mistakes_of
from moorage.framework.profile import declared_wakes
from moorage.framework.registry import ENTRY_POINT_GROUP

HERE = Path(__file__).parents[1]
SOURCES = sorted((HERE / "src").rglob("*.py"))
POINTS = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]["entry-points"][ENTRY_POINT_GROUP]
#: What plugins may import of Moorage: the contract, the values that it passes, and helpers for preemption.
PUBLIC = (
    "moorage.api", "moorage.errors", "moorage.framework", "moorage.state.view", "moorage.state.pod_info",
    "moorage.core.preemption.own_victims", "moorage.plugins.default_preemption",
)  # fmt: skip


def loaded(name):
    return EntryPoint(name, POINTS[name], ENTRY_POINT_GROUP).load()


@pytest.mark.parametrize("name", POINTS)
def test_entry_points_name_the_plugins(name):
    cls = loaded(name)
    assert cls.name == name
    assert list(mistakes_of(cls)) == []
    assert declared_wakes(cls()) is None or all(declared_wakes(cls()))


def test_all_plugins_have_an_entry_point():
    modules = [importlib.import_module(f"moorage_scheduler_plugins.{path.stem}") for path in SOURCES if path.stem != "__init__"]
    classes = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    own = {
        one.name for one in classes if one.__module__.startswith("moorage_s") and isinstance(getattr(one, "name", None), str)
    }
    assert own == set(POINTS)


def imported(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield node.module, [one.name for one in node.names]
        elif isinstance(node, ast.Import):
            yield from ((one.name, []) for one in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_only_public_names_are_imported(path):
    for module, names in imported(path):
        if module.partition(".")[0] == "moorage":
            assert any(module == one or module.startswith(f"{one}.") for one in PUBLIC), f"{module} is not public"
            assert not any(name.startswith("_") for name in names)


def test_the_page_has_every_plugin():
    page = (HERE / "README.md").read_text()
    assert [name for name in POINTS if name not in page] == []


@pytest.mark.slow
def test_installed_plugins_are_found_by_their_entry_points(tmp_path):
    site = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--target",
        site,
        HERE,
    ]
    subprocess.run(install, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    config = tmp_path / "scheduler.yaml"
    enabled = ", ".join(f"{{name: {name}}}" for name in ("NodeResourcesAllocatable", "NodeResourceTopologyMatch"))
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles: [{{plugins: {{multiPoint: {{enabled: [{enabled}]}}}}}}]\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "moorage", "config", "show", config], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{HERE.parents[1] / 'src'}"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "NodeResourcesAllocatable" in ran.stdout
    assert "NodeResourceTopologyMatch" in ran.stdout
    assert "not in Moorage" not in ran.stderr
