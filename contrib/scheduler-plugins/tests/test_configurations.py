"""Configurations that name these plugins, as public repositories have them: each decides.

What they say is retold here. ``source`` is where one like it was found; plugins of forks that bear the same names are not here.
"""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from moorage import Simulation
from moorage.framework.registry import ENTRY_POINT_GROUP
from moorage.testing.builders import a_node, a_pod

POINTS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["entry-points"][ENTRY_POINT_GROUP]
CLASSES = tuple(EntryPoint(name, value, ENTRY_POINT_GROUP).load() for name, value in POINTS.items())

ALL = "*"
GANG_POINTS = ("preFilter", "postFilter", "permit", "reserve", "postBind")
QUOTA = {"preFilter": ["CapacityScheduling"], "postFilter": (["CapacityScheduling"], [ALL]), "reserve": ["CapacityScheduling"]}
SORT = {"queueSort": (["Coscheduling"], [ALL])}
TOPOLOGY = ["NodeResourceTopologyMatch"]
WEIGHTS = [{"name": "cpu", "weight": 1000000}, {"name": "memory", "weight": 1}]
LEAST = {"scoringStrategy": {"type": "LeastAllocated"}}
OLD_PATH = {"kubeConfigPath": "/etc/kubernetes/scheduler.conf"}
PROMETHEUS = {"type": "Prometheus", "address": "http://prometheus.example:9090"}
FITTING = ["NodeResourcesBalancedAllocation", "NodeResourcesLeastAllocated"]

#: Name → version, what is enabled (or enabled and disabled) at each point, arguments, and where it was found.
FOUND = {
    "chart, four plugins": (
        "v1",
        {
            "multiPoint": (
                ["Coscheduling", "CapacityScheduling", "NodeResourceTopologyMatch", "NodeResourcesAllocatable"],
                ["PrioritySort"],
            )
        },
        {"Coscheduling": {"permitWaitingTimeSeconds": 10}},
        "kubernetes-sigs/kubespray, DaoCloud docs, flux-framework",
    ),
    "gangs": (
        "v1",
        {"multiPoint": ["Coscheduling"], **SORT},
        {"Coscheduling": {"permitWaitingTimeSeconds": 10}},
        "kubernetes-sigs/scheduler-plugins",
    ),
    "gangs at each point, old path": (
        "v1beta1",
        {**SORT, **{point: ["Coscheduling"] for point in GANG_POINTS}},
        {"Coscheduling": OLD_PATH},
        "the install guide of scheduler-plugins",
    ),
    "gangs at each point, expiration": (
        "v1beta2",
        {**SORT, **{point: ["Coscheduling"] for point in GANG_POINTS}},
        {"Coscheduling": {"permitWaitingTimeSeconds": 10, "deniedPGExpirationTimeSeconds": 3}},
        "several forks",
    ),
    "gangs without their order": (
        "v1",
        {point: ["Coscheduling"] for point in ("preFilter", "permit", "reserve", "postBind")},
        {"Coscheduling": {"permitWaitingTimeSeconds": 60, "deniedPGExpirationTimeSeconds": 20}},
        "a blog on machine learning",
    ),
    "quotas": ("v1", QUOTA, {}, "kubernetes-sigs/scheduler-plugins, its tests"),
    "quotas, v1beta2": ("v1beta2", QUOTA, {}, "kubernetes-sigs/scheduler-plugins, README"),
    "quotas, old path": ("v1beta1", QUOTA, {"CapacityScheduling": OLD_PATH}, "a guide in Chinese"),
    "topology": (
        "v1beta3",
        {"filter": TOPOLOGY, "score": TOPOLOGY},
        {"NodeResourceTopologyMatch": LEAST},
        "kubernetes-sigs/scheduler-plugins",
    ),
    "topology at PreFilter": (
        "v1beta3",
        dict.fromkeys(("preFilter", "filter", "score"), TOPOLOGY),
        {"NodeResourceTopologyMatch": LEAST},
        "kubernetes-sigs/scheduler-plugins",
    ),
    "topology, v1beta2": (
        "v1beta2",
        {"filter": TOPOLOGY, "score": TOPOLOGY},
        {"NodeResourceTopologyMatch": LEAST},
        "kubernetes-sigs/scheduler-plugins, README",
    ),
    "topology, old path": (
        "v1beta1",
        {"filter": TOPOLOGY, "score": TOPOLOGY},
        {"NodeResourceTopologyMatch": {"kubeconfigpath": "", **LEAST}},
        "openshift-kni/numaresources-operator",
    ),
    "topology with a cache": (
        "v1beta2",
        dict.fromkeys(("filter", "reserve", "score"), TOPOLOGY),
        {
            "NodeResourceTopologyMatch": {
                "apiVersion": "kubescheduler.config.k8s.io/v1beta2",
                "kind": "NodeResourceTopologyMatchArgs",
                "cacheResyncPeriodSeconds": 5,
                **LEAST,
            }
        },
        "openshift-kni/numaresources-operator",
    ),
    "topology everywhere but Reserve": (
        "v1",
        {"multiPoint": TOPOLOGY, "reserve": ([], TOPOLOGY)},
        {"NodeResourceTopologyMatch": LEAST},
        "kubernetes-sigs/scheduler-plugins",
    ),
    "what nodes offer alone": (
        "v1",
        {"score": (["NodeResourcesAllocatable"], [ALL])},
        {"NodeResourcesAllocatable": {"mode": "Least", "resources": WEIGHTS}},
        "kubernetes-sigs/scheduler-plugins",
    ),
    "what nodes offer too": (
        "v1beta2",
        {"score": ["NodeResourcesAllocatable"]},
        {"NodeResourcesAllocatable": {"mode": "Most", "resources": WEIGHTS}},
        "kubernetes-sigs/scheduler-plugins, README",
    ),
    "packing by Prometheus": (
        "v1beta3",
        {"score": (["TargetLoadPacking"], FITTING)},
        {"TargetLoadPacking": {"defaultRequestsMultiplier": "1", "targetUtilization": 40, "metricProvider": PROMETHEUS}},
        "kubernetes-sigs/scheduler-plugins",
    ),
    "packing by a load watcher": (
        "v1beta1",
        {"score": (["TargetLoadPacking"], FITTING)},
        {
            "TargetLoadPacking": {
                "targetUtilization": 80,
                "defaultRequests": {"cpu": "2000m"},
                "watcherAddress": "http://127.0.0.1:2020",
            }
        },
        "HhhuYu/scheduler-plugins",
    ),
    "risk": (
        "v1",
        {"score": (["LoadVariationRiskBalancing"], FITTING)},
        {
            "LoadVariationRiskBalancing": {
                "safeVarianceMargin": 1.0,
                "safeVarianceSensitivity": 2.0,
                "watcherAddress": "http://127.0.0.1:2020",
                "metricProvider": {**PROMETHEUS, "insecureSkipVerify": False},
            }
        },
        "intel/container-experience-kits",
    ),
    "overcommitment": (
        "v1",
        {"score": ["LowRiskOverCommitment"]},
        {
            "LowRiskOverCommitment": {
                "smoothingWindowSize": 5,
                "riskLimitWeights": {"cpu": 0.5, "memory": 0.5},
                "watcherAddress": "http://127.0.0.1:2020",
            }
        },
        "kubernetes-sigs/scheduler-plugins, README",
    ),
    "network": (
        "v1",
        {"multiPoint": (["NetworkOverhead"], ["NodeResourcesFit"]), "queueSort": (["TopologicalSort"], [ALL])},
        {
            "TopologicalSort": {"namespaces": ["default"]},
            "NetworkOverhead": {
                "namespaces": ["default"],
                "weightsName": "UserDefined",
                "networkTopologyName": "net-topology-test",
            },
        },
        "kubernetes-sigs/scheduler-plugins",
    ),
    "tolerated preemption": (
        "v1",
        {"postFilter": (["PreemptionToleration"], ["DefaultPreemption"])},
        {},
        "kubernetes-sigs/scheduler-plugins, README",
    ),
    "classes of service": ("v1beta3", {"queueSort": (["QOSSort"], [ALL])}, {}, "kubernetes-sigs/scheduler-plugins"),
    "states of pods": ("v1", {"score": ["PodState"]}, {}, "kubernetes-sigs/scheduler-plugins"),
    "system calls": (
        "v1beta3",
        {"score": ["SySched"]},
        {"SySched": {"defaultProfileNamespace": "default", "defaultProfileName": "full-seccomp"}},
        "kubernetes-sigs/scheduler-plugins",
    ),
    "across nodes": ("v1", {"postFilter": (["CrossNodePreemption"], [ALL])}, {}, "kubernetes-sigs/scheduler-plugins, README"),
}


def configuration(version, enabled, args):
    def plugins(given):
        on, off = given if isinstance(given, tuple) else (given, [])
        return {"enabled": [{"name": one} for one in on], "disabled": [{"name": one} for one in off]}

    profile = {
        "schedulerName": "theirs",
        "plugins": {point: plugins(given) for point, given in enabled.items()},
        "pluginConfig": [{"name": name, "args": given} for name, given in args.items()],
    }
    document = {
        "apiVersion": f"kubescheduler.config.k8s.io/{version}",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    return yaml.safe_dump(document)


@pytest.mark.parametrize(("version", "enabled", "args", "source"), FOUND.values(), ids=FOUND)
def test_a_configuration_decides(version, enabled, args, source):
    nodes = [a_node(f"n{at}", allocatable={"cpu": "4", "memory": "8Gi", "pods": 10}) for at in range(3)]
    asks = {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    pods = [a_pod(f"p{at}", containers=[asks], schedulerName="theirs").pod for at in range(6)]
    config = configuration(version, enabled, args)
    sim = Simulation.from_objects(*nodes, *pods, config=config, plugins=CLASSES, keep_records=True)
    assert sim.run(until=30).placed == 6
    notes = [note.text for note in sim.outcome().notes if note.kind in {"MissingPlugin", "PluginMistake"}]
    assert notes == []


def test_every_plugin_is_in_a_configuration():
    named = {
        name
        for _, enabled, _, _ in FOUND.values()
        for given in enabled.values()
        for name in (given[0] if isinstance(given, tuple) else given)
    }
    assert named >= set(POINTS)
