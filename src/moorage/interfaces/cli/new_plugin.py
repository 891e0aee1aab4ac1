"""``moorage plugin new``: write a folder with a plugin, its test, package and configuration."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Final

import click

from moorage.errors import InputError
from moorage.interfaces.cli.main import OK, CommandGroup, DescribedCommand
from moorage.plugins import builtin_registry

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
