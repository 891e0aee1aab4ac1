"""The files that ``moorage plugin new`` writes: a plugin of two kinds, its test, package, configuration, cluster and README."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Final

__all__ = ["KINDS", "files_of"]

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
