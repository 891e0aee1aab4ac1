"""``moorage plugin new``: write a folder with a plugin, its test, package and configuration."""

from __future__ import annotations

import asyncio
import importlib
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from types import ModuleType
from typing import Final

import click

from moorage.core.engine.scheduler import Scheduler
from moorage.errors import InputError, MoorageError
from moorage.framework.plugin_runner import failure_text
from moorage.interfaces.cli.main import OK, CommandGroup, DescribedCommand
from moorage.live.server.embedded import BuiltScheduler
from moorage.plugins import builtin_registry

__all__ = ["PluginFiles", "follow"]


# -- plugin folder -----------------------------------------------------------------------------------------------------
# The files that ``moorage plugin new`` writes: a plugin of two kinds, its test, package, configuration, cluster and README.

KINDS: Final = ("filter", "score")

_FILTER = '''"""$cls: keep pods off nodes of another team."""

from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo

TEAM = "example.org/team"


class $cls:
    """Reject nodes that are labelled with a team, except for the pods of that team."""

    name = "$cls"

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        team = node.labels.get(TEAM)
        if team is None or team == pod.labels.get(TEAM):
            return None
        return Hold.because("node(s) belong to another team", unresolvable=True)
'''

_SCORE = '''"""$cls: prefer the nodes of the pod's team."""

from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo

TEAM = "example.org/team"


class $cls:
    """Score the nodes of the pod's team 100, and all others 0."""

    name = "$cls"

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        team = pod.labels.get(TEAM)
        return 100 if team is not None and team == node.labels.get(TEAM) else 0
'''

_TEST_HEAD = '''"""Tests of $cls: its rule, and what every plugin promises."""

from $module import TEAM, $cls

from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import $query

NODES = a_cluster([a_node("red", {TEAM: "red"}), a_node("blue", {TEAM: "blue"})]).snapshot


def test_the_plugin_keeps_its_contract():
    check_plugin($cls())

'''

_TESTS: Final = {
    "filter": """
def test_nodes_of_another_team_are_rejected():
    assert set(refusals($cls(), a_pod("web", {TEAM: "blue"}), NODES)) == {"red"}
""",
    "score": """
def test_nodes_of_the_same_team_are_preferred():
    assert final_scores($cls(), a_pod("web", {TEAM: "blue"}), NODES) == {"red": 0, "blue": 100}
""",
}
_QUERIES: Final = {"filter": "refusals", "score": "final_scores"}

_PYPROJECT = """[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "$module"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["moorage"]

[project.entry-points."moorage.plugins"]
$cls = "$module:$cls"

[tool.setuptools]
py-modules = ["$module"]
"""

_CONFIG = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      multiPoint:
        enabled: [{name: $cls}]
"""

_CLUSTER = """# A node of each of two teams, and a pod of one of them.
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {example.org/team: red}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: node-2, labels: {example.org/team: blue}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {example.org/team: blue}}
spec:
  containers: [{name: web, image: "web:1", resources: {requests: {cpu: "1", memory: 1Gi}}}]
"""

_README = """`$cls` is a $kind plugin for Moorage. `pytest` runs its tests. After `pip install .`, omit `--plugins` below.

* Simulate: `moorage simulate -f cluster.yaml --config scheduler.yaml --plugins ./$module.py:$cls`
* A cluster on this machine: `moorage up --nodes 3 --reload --config scheduler.yaml --plugins ./$module.py:$cls`
* The scheduler of `$$KUBECONFIG`: `moorage run --config scheduler.yaml --plugins ./$module.py:$cls --leader-elect=false`
"""


def files_of(kind: str, module: str, cls: str) -> Mapping[str, str]:
    """Return the texts of the folder's files by name."""
    templates = {
        f"{module}.py": _FILTER if kind == "filter" else _SCORE,
        f"test_{module}.py": _TEST_HEAD + _TESTS[kind],
        "pyproject.toml": _PYPROJECT,
        "scheduler.yaml": _CONFIG,
        "cluster.yaml": _CLUSTER,
        "README.md": _README,
    }
    words = {"kind": kind, "module": module, "cls": cls, "query": _QUERIES[kind]}
    return {name: Template(text).substitute(words) for name, text in templates.items()}


# -- plugin ------------------------------------------------------------------------------------------------------------

EPILOG = """Examples:

\b
    moorage plugin new team_nodes
    moorage plugin new near_data --kind score

What the folder holds: moorage help plugin-new
"""
#: A module's name that is also valid as the name of a distribution.
_USABLE: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?")
#: Names that a plugin cannot have, because the written files use them for something else.
_USED: Final = frozenset({"Hold", "NodeInfo", "PodInfo", "TEAM", "moorage", "pytest", "setuptools"})


@click.group(cls=CommandGroup, epilog=EPILOG)
def plugin() -> None:
    """Start a plugin of your own."""


@plugin.command(cls=DescribedCommand, epilog=EPILOG, short_help="Write a folder with a new plugin.")
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), default="filter", show_default=True, help="What the plugin does with nodes.")
def new(name: str, kind: str) -> int:
    """Write a folder NAME with a working plugin to change.

    It holds the plugin NAME.py, its test, a pyproject.toml with its entry point, a configuration that enables it, a small
    cluster, and a README.md with the commands that use it.
    """
    cls = _class_name(name)
    folder = Path(name)
    try:
        folder.mkdir()
    except FileExistsError:
        raise InputError(f"{name}: exists already; choose another name") from None
    for file, text in files_of(kind, name, cls).items():
        (folder / file).write_text(text, encoding="utf-8")
    click.echo(f"The {kind} plugin {cls} is in {name}/. Next:\n")
    run_tests = "pytest" if find_spec("pytest") else "pip install pytest && pytest"
    click.echo(f"    cd {name}\n    {run_tests}")
    click.echo(f"    moorage simulate -f cluster.yaml --config scheduler.yaml --plugins ./{name}.py:{cls}")
    return OK


def _class_name(name: str) -> str:
    """Return the name of the plugin's class: ``TeamNodes`` for ``team_nodes``.

    Raises  InputError if one of the two names cannot be used
    """
    if _USABLE.fullmatch(name) is None or iskeyword(name):
        near = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
        usable = _USABLE.fullmatch(near) is not None and not iskeyword(near)
        hint = f"; try {near}" if usable else ""
        raise InputError(f"{name}: is not a Python identifier that starts with a letter and ends with a letter or digit{hint}")
    cls = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    if name in sys.stdlib_module_names or {name, cls} & _USED or iskeyword(cls):
        raise InputError(f"{name}: the name is taken by Python or Moorage; choose another name")
    if cls in builtin_registry():
        raise InputError(f"{name}: {cls} is a built-in plugin; choose another name")
    return cls


# -- plugin reload -----------------------------------------------------------------------------------------------------
# Follow the files of plugins: when one changes, import them again and build a scheduler with the new code.
#
# A change that cannot be imported is reported, and the old code stays loaded.

#: Seconds between two checks of the files, and seconds to wait after a change before they are read.
_LOOK_S: Final = 0.5
_REST_S: Final = 0.1

Stamps = dict[str, tuple[int, int]]
Report = Callable[[str], None]


class PluginFiles:
    """The modules of a scheduler's custom plugins, and the modules that these import from the same folders."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._folders = frozenset(_folders(scheduler))
        self._stamps = self._look()

    @property
    def names(self) -> list[str]:
        """The names of the files to watch."""
        return sorted(Path(path).name for path in self._stamps)

    def _modules(self) -> Iterator[tuple[str, ModuleType, str]]:
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if path and any(Path(path).is_relative_to(folder) for folder in self._folders) and _is_own(path):
                yield name, module, path

    def _look(self) -> Stamps:
        return {path: stamp for _, _, path in self._modules() if (stamp := _stamp(path)) is not None}

    def have_changed(self) -> bool:
        """Return True if a file changed since the last reload; False while one is missing, as an editor is replacing it."""
        now = {path: _stamp(path) for path in self._stamps}
        return None not in now.values() and now != self._stamps

    def reload(self, build: Callable[[], BuiltScheduler]) -> BuiltScheduler:
        """Import the modules again and build a scheduler. If that fails, restore the old modules and raise the error."""
        old = {name: module for name, module, _ in self._modules()}
        self._stamps = {path: _stamp(path) or (0, 0) for path in self._stamps}
        for name in old:
            del sys.modules[name]
        importlib.invalidate_caches()
        linecache.checkcache()
        try:
            built = build()
        except BaseException:
            for name in [name for name, _, _ in self._modules()]:
                del sys.modules[name]
            sys.modules.update(old)
            raise
        self._stamps |= self._look()
        return built


def _folders(scheduler: Scheduler) -> Iterator[Path]:
    """Yield the folders of custom plugins: for a plugin in a package, that of the top-level package."""
    modules = {type(plugin).__module__ for profile in scheduler.profiles.values() for plugin in profile.plugins.values()}
    for name in modules:
        if name.partition(".")[0] != "moorage":
            path = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
            if path:
                yield Path(path).resolve().parent


def _is_own(path: str) -> bool:
    """Return True for files that a user may edit, which excludes installed packages, extension modules and Moorage itself."""
    parts = Path(path).parts
    own_code = Path(__file__).resolve().parents[2]
    return "site-packages" not in parts and not Path(path).is_relative_to(own_code) and "lib-dynload" not in parts


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


async def follow(
    files: PluginFiles, build: Callable[[], BuiltScheduler], restart: Callable[[BuiltScheduler], None], report: Report
) -> None:
    """Build a scheduler whenever the files change, and pass it to ``restart``, until cancelled."""
    while True:
        await asyncio.sleep(_LOOK_S)
        if not files.have_changed():
            continue
        await asyncio.sleep(_REST_S)
        try:
            built = files.reload(build)
        except MoorageError as error:
            report(f"{error}; the old plugins stay in use")
        except Exception as error:
            report(f"the changed plugins cannot be used: {failure_text(error)}; the old ones stay in use")
        else:
            restart(built)
