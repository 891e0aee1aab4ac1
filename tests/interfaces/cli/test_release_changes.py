"""What ``moorage compare`` says of two releases: texts of pending pods, rules, plugins, gates, metrics, refused fields."""

from __future__ import annotations

import json

import pytest

from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.config.scheduler_document import Loaded
from moorage.laboratory.comparison import release_changes
from tests.interfaces.cli.test_compare import SCHEMA
from tests.interfaces.cli.test_simulate_output import violations

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
    assert {"PodLevelResources is on", "InPlacePodVerticalScaling is locked on"} <= found["gate"]
    assert not any(text.startswith("CSIMigrationPortworx") for text in found["gate"]), "it is stable, and a rule since"
    assert {"scheduler_scheduler_cache_size is gone", "scheduler_goroutines is beta"} <= found["metric"]
    assert "scheduler_podgroup_schedule_attempts_total is new" not in found["metric"], "its gate is off"
    assert found["flag"] == {"--min-compatibility-version is known", "--tls-curve-preferences is known"}


#: Neighbouring releases → what changes in their metrics, without ``scheduler_``: from their sources.
METRICS = {
    ("1.19", "1.20"): {
        "binding_duration_seconds is deprecated", "scheduling_algorithm_predicate_evaluation_seconds is gone",
        "scheduling_algorithm_preemption_evaluation_seconds is deprecated",
        "scheduling_algorithm_priority_evaluation_seconds is gone", "scheduling_duration_seconds is gone",
        "volume_scheduling_duration_seconds is hidden, because it is deprecated",
    },
    ("1.20", "1.21"): {
        "binding_duration_seconds is gone", "scheduling_algorithm_preemption_evaluation_seconds is gone",
    },
    ("1.21", "1.22"): set(),
    ("1.22", "1.23"): {
        "e2e_scheduling_duration_seconds is deprecated", "scheduling_attempt_duration_seconds is new",
        *(
            f"{name} is stable"
            for name in (
                "framework_extension_point_duration_seconds", "pending_pods", "pod_scheduling_attempts",
                "pod_scheduling_duration_seconds", "preemption_attempts_total", "preemption_victims",
                "queue_incoming_pods_total", "schedule_attempts_total",
            )
        ),
    },
    ("1.23", "1.24"): {"e2e_scheduling_duration_seconds is hidden, because it is deprecated", "unschedulable_pods is new"},
    ("1.24", "1.25"): set(),
    ("1.25", "1.26"): {
        "disabled_metric_total is new", "goroutines is new", "kubernetes_feature_enabled is new",
        "kubernetes_healthcheck is new", "kubernetes_healthchecks_total is new",
        "preemption_victims has 7 buckets from 1 to 64", "scheduler_goroutines is deprecated",
    },
    ("1.31", "1.32"): {"inflight_events is new", "queueing_hint_execution_duration_seconds is new"},
    ("1.32", "1.33"): {
        "cache_size is new", "preemption_goroutines_duration_seconds is new", "preemption_goroutines_execution_total is new",
        "scheduler_cache_size is deprecated",
    },
}  # fmt: skip


@pytest.mark.parametrize(("pair", "changed"), METRICS.items(), ids=map("-".join, METRICS))
def test_neighbouring_releases_differ_in_the_metrics_of_their_sources(pair, changed):
    assert {text.removeprefix("scheduler_") for text in told(*pair).get("metric", ())} == changed


PLUGINS = {  # neighbouring releases → where plugins run differently
    ("1.22", "1.23"): {
        "InterPodAffinity has the weight 2, not 1", "NodeAffinity has the weight 2, not 1",
        "TaintToleration has the weight 3, not 1", "VolumeBinding runs at score",
    },
    ("1.23", "1.24"): set(),
    ("1.26", "1.27"): {
        "NodeResourcesBalancedAllocation runs at preScore", "NodeResourcesFit runs at preScore",
        "SchedulingGates runs at preEnqueue", "VolumeZone runs at preFilter",
    },
    ("1.27", "1.28"): {
        f"{name} runs at preFilter" for name in ("AzureDiskLimits", "EBSLimits", "GCEPDLimits", "NodeVolumeLimits")
    },
}  # fmt: skip


@pytest.mark.parametrize(("pair", "changed"), PLUGINS.items(), ids=map("-".join, PLUGINS))
def test_neighbouring_releases_differ_where_their_plugins_run(pair, changed):
    assert told(*pair).get("plugin", set()) == changed


GATES = {  # releases → a gate, and what became of it
    ("1.23", "1.24"): "PodOverhead graduated, always on",
    ("1.23", "1.26"): "PodOverhead is removed; always on",
    ("1.24", "1.23"): "PodOverhead can be set",
    ("1.29", "1.30"): "PodSchedulingReadiness graduated, always on",
    ("1.32", "1.36"): "InPlacePodVerticalScaling is on, and locked",
    ("1.33", "1.32"): "SchedulerPopFromBackoffQ is unknown; always off",
    ("1.36", "1.37"): "GangScheduling is part of GenericWorkload",
}


@pytest.mark.parametrize(("pair", "text"), GATES.items(), ids=map("-".join, GATES))
def test_a_gate_that_can_no_longer_be_set_is_not_off(pair, text):
    found = told(*pair)["gate"]
    assert text in found
    assert [one for one in found if one.startswith(text.partition(" ")[0] + " ")] == [text]


@pytest.mark.parametrize("before", [f"1.{minor}" for minor in range(19, 36)])
def test_no_gate_is_off_after_an_upgrade_by_one_release(before):
    after = f"1.{int(before[2:]) + 1}"
    assert not [text for text in told(before, after).get("gate", ()) if text.endswith(" off")]


RULES = {  # releases → what is said of a trait, what is not
    ("1.21", "1.22"): ((), ("after",)),
    ("1.23", "1.24"): (("after 1.23, the event of an evicted pod is 'Preempted by a pod on node NODE'",), ("after 1.28",)),
    ("1.25", "1.26"): (("in 1.25.16 and not in 1.26.15, a message with the text of preemption ends with one period",), ()),
    ("1.26", "1.27"): (("from 1.27.16, preemption does not try nodes that a plugin's PreFilter left out",), ("after 1.28",)),
    ("1.33", "1.34.1"): (("from 1.34.1, DefaultPreemption does not delete victims again that are being deleted",), ()),
    ("1.34.1", "1.35"): ((), ("after 1.34.7, DefaultPreemption",)),
    ("1.35", "1.36.0"): ((), ("from 1.36.0, ImageLocality",)),
}


@pytest.mark.parametrize(("pair", "said", "unsaid"), [(pair, *one) for pair, one in RULES.items()], ids=map("-".join, RULES))
def test_rules_that_end_in_a_patch_release_are_told_of_the_right_ones(pair, said, unsaid):
    found = told(*pair).get("rule", set())
    assert found >= set(said)
    assert not [text for text in found if text.startswith(unsaid)]


FLAGS = {  # releases → what differs in their flags: now known, now unknown
    ("1.19", "1.20"): ("experimental-logging-sanitization one-output", ""),
    ("1.20", "1.21"): ("allow-metric-labels disabled-metrics permit-address-sharing", ""),
    ("1.21", "1.22.6"): ("", "algorithm-provider hard-pod-affinity-symmetric-weight scheduler-name"),
    ("1.22.6", "1.23.5"): (
        "log-json-info-buffer-size log-json-split-stream",
        "policy-config-file policy-configmap policy-configmap-namespace use-legacy-policy-config",
    ),
    ("1.23.5", "1.24.17"): ("pod-max-in-unschedulable-pods-duration", "address experimental-logging-sanitization port"),
    ("1.27.16", "1.28.8"): ("", "lock-object-name lock-object-namespace"),
    ("1.28.8", "1.27.16"): ("lock-object-name lock-object-namespace", ""),
}


@pytest.mark.parametrize(("releases", "texts"), FLAGS.items(), ids=map(" ".join, FLAGS))
def test_flags_that_only_one_release_has_are_named(releases, texts):
    known, unknown = map(str.split, texts)
    assert told(*releases)["flag"] == {f"--{name} is known" for name in known} | {f"--{name} is unknown" for name in unknown}


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
    assert "  gate     locked on: InPlacePodVerticalScaling, SchedulerQueueingHints" in text
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
