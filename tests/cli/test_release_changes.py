"""What ``moorage compare`` says of two releases: texts of pending pods, rules, plugins, gates, metrics, refused fields."""

from __future__ import annotations

import json

import pytest

from moorage.config.scheduler_document import Loaded
from moorage.engine.loading import ConfigSource, load_source
from moorage.laboratory.release_changes import release_changes
from tests.cli.test_compare import SCHEMA
from tests.cli.test_simulate_output import violations

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
SHAPE = HEAD + (
    "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: "
    "{type: LeastAllocated, requestedToCapacityRatio: {shape: [{utilization: 0, score: 1}]}}}}]}]\n"
)
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "spec": {"taints": [{"key": "gpu", "value": "1", "effect": "NoSchedule"}]},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}},
}
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
}  # fmt: skip


def loaded(version: str, text: str = "") -> Loaded:
    return load_source(ConfigSource(text.encode() or None, "config.yaml", emulate=version))


def told(a: str, b: str) -> dict[str, set[str]]:
    """Return what differs between two releases with the default configuration, by kind."""
    found: dict[str, set[str]] = {}
    for one in release_changes(loaded(a), loaded(b)):
        found.setdefault(one.kind, set()).add(one.text)
    return found


def test_an_upgrade_names_what_is_different():
    found = told("1.33.3", "1.36")
    assert "after 1.34.1, TaintToleration does not name the taint in its reason" in found["rule"]
    assert "NodeDeclaredFeatures runs at preFilter, filter" in found["plugin"]
    assert {"PodLevelResources is on", "InPlacePodVerticalScaling can no longer be set"} <= found["gate"]
    assert not any(text.startswith("CSIMigrationPortworx") for text in found["gate"]), "it is stable, and a rule since"
    assert {"scheduler_scheduler_cache_size is gone", "scheduler_goroutines is beta"} <= found["metric"]
    assert found["flag"] == {"--min-compatibility-version is known", "--tls-curve-preferences is known"}


def test_a_step_back_names_the_same_rules_and_the_opposite_of_the_rest():
    there, back = told("1.34.7", "1.35.7"), told("1.35.7", "1.34.7")
    assert there["rule"] == back["rule"]
    assert there["plugin"] == {"DynamicResources runs at score"}
    assert back["plugin"] == {"DynamicResources no longer runs at score"}
    assert "scheduler_batch_attempts_total is new" in there["metric"]
    assert "scheduler_batch_attempts_total is gone" in back["metric"]


def test_traits_that_are_no_plugin_s_are_named():
    assert "after 1.31, messages count the nodes that a plugin's PreFilter left out" in told("1.31.8", "1.32.5")["rule"]


def test_defaults_that_differ_are_named():
    assert told("1.34.7", "1.36")["default"] == {'DynamicResources: bindingTimeout is "10m0s"'}
    assert told("1.36", "1.34.7")["default"] == {"DynamicResources: bindingTimeout is gone"}


def test_equal_releases_have_no_changes():
    assert list(release_changes(loaded("1.36"), loaded("1.36"))) == []


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, POD]}))
    (tmp_path / "config.yaml").write_text(SHAPE)
    return tmp_path


def test_the_texts_of_pending_pods_that_differ_are_shown(moorage, cluster):
    asked = ["compare", "-f", cluster / "cluster.json", "--a-release", "1.33", "--b-release", "1.36", "--seeds", "1"]
    text = moorage(*asked).out
    assert "    A  0/1 nodes are available: 1 node(s) had untolerated taint {gpu: 1}." in text
    assert "    B  0/1 nodes are available: 1 node(s) had untolerated taint(s)." in text
    assert "  gate     can no longer be set: InPlacePodVerticalScaling, SchedulerQueueingHints" in text
    document = json.loads(moorage(*asked, "-o", "json").out)
    assert list(violations(document, SCHEMA, root=SCHEMA)) == []
    (one,) = document["answer"]["texts"]
    assert (one["pod"], "untolerated taint {gpu: 1}" in one["a"], "untolerated taint(s)" in one["b"]) == (
        "default/p",
        True,
        True,
    )


@pytest.mark.parametrize(("a", "b", "side"), [("1.33", "1.36", "B"), ("1.36", "1.33", "A")])
def test_the_side_that_refuses_the_configuration_is_named(moorage, cluster, a, b, side):
    asked = ["compare", "-f", cluster / "cluster.json", "--config", cluster / "config.yaml", "--seeds", "1"]
    ran = moorage(*asked, "--a-release", a, "--b-release", b)
    assert ran.status == 1
    assert f"error: {side}, kube-scheduler 1.36: {cluster / 'config.yaml'}: cannot be used" in ran.err
    assert "scoringStrategy.requestedToCapacityRatio: Forbidden" in ran.err


def test_a_configuration_that_only_the_two_releases_accept_is_compared(moorage, cluster):
    asked = ["compare", "-f", cluster / "cluster.json", "--config", cluster / "config.yaml", "--seeds", "1"]
    assert moorage(*asked, "--a-release", "1.33", "--b-release", "1.34").status == 0
