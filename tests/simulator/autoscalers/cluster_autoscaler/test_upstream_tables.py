"""The tables of cluster-autoscaler's own tests as data, at 87d9c45c02^; each table names the test that it follows.

Pods are written as an owner (``rs``, ``rc``, ``ds``, ``job``, ``ss``, ``custom``; ``/missing``: one that does not exist), and
what else the case gives them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from moorage.api.core import Node, Pod, Taint
from moorage.api.workloads import PodDisruptionBudget
from moorage.errors import InputError
from moorage.simulator.autoscalers.cluster_autoscaler.flags import (
    EXPANDERS,
    AutoscalerFlags,
    ExpansionOption,
    preferred_cpu,
    priority_expander,
    read_expander,
    read_flags,
)
from moorage.simulator.autoscalers.cluster_autoscaler.removal_rules import (
    RULES,
    DrainContext,
    pods_to_move,
    unremovable_reason,
    utilisation,
)
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_node, a_pod

NOW = datetime(2020, 12, 18, 17, tzinfo=UTC)
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DAEMON = "cluster-autoscaler.kubernetes.io/daemonset-pod"
MIRROR = "kubernetes.io/config.mirror"
OWNERS = {
    "rc": ("ReplicationController", "core/v1"), "rs": ("ReplicaSet", "apps/v1"), "ds": ("DaemonSet", "apps/v1"),
    "job": ("Job", "batch/v1"), "ss": ("StatefulSet", "apps/v1"), "custom": ("Foo", "foo/v1"),
    "cds": ("CustomDaemonSet", "crd/v1"), "dscrd": ("DaemonSet", "crd/v1"), "sscrd": ("StatefulSet", "kruise/v1"),
}  # fmt: skip


def at(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def pod(
    owner: str = "", name: str = "bar", namespace: str = "default", cpu: str = "0", memory: str = "0", gpu: int = 0,
    notes: dict[str, str] | None = None, volumes: tuple[str, ...] = (), empty: dict[str, Any] | None = None,
    born: float | None = None, deleted: float | None = None, grace: int | None = 30, policy: str = "Always", phase: str = "",
    labels: dict[str, str] | None = None, init: list[dict[str, Any]] | None = None,
) -> Pod:  # fmt: skip
    which, _, missing = owner.partition("/")
    owners = []
    if which:
        kind, version = OWNERS[which]
        owners = [{"kind": kind, "apiVersion": version, "name": missing or which, "uid": which, "controller": True}]
    requests = {"cpu": cpu, "memory": memory, **({"nvidia.com/gpu": str(gpu)} if gpu else {})}
    made = {
        "metadata": {"namespace": namespace, "ownerReferences": owners, "annotations": notes or {},
                     **({} if born is None else {"creationTimestamp": at(born)}),
                     **({} if deleted is None else {"deletionTimestamp": at(deleted)})},
        "containers": [{"name": "c", "resources": {"requests": requests}}], "restartPolicy": policy,
        "terminationGracePeriodSeconds": grace, "status": {"phase": phase}, "initContainers": init or [],
        "volumes": [{"name": one, "emptyDir": empty or {}} for one in volumes],
    }  # fmt: skip
    return a_pod(name, labels or {}, **made).pod


def budget(namespace: str = "default", allowed: int = 0, **labels: str) -> PodDisruptionBudget:
    spec, status = {"selector": {"matchLabels": labels}}, {"disruptionsAllowed": allowed}
    document = {"metadata": {"namespace": namespace, "name": "b"}, "spec": spec, "status": status}
    return convert(document, PodDisruptionBudget)


REPLICAS = {("ReplicationController", "rc"): 5, ("ReplicaSet", "rs"): 5, ("DaemonSet", "ds"): None, ("Job", "job"): None,
            ("StatefulSet", "ss"): None}  # fmt: skip


def context(*budgets: PodDisruptionBudget, flags: AutoscalerFlags, listed: bool = False) -> DrainContext:
    found = (lambda kind, _, name: REPLICAS.get((kind, name), "absent")) if listed else None
    return DrainContext(NOW.timestamp(), budgets, found, flags)


SYSTEM = AutoscalerFlags(blocking_system_pod_distruption_timeout=60)
ANY_CONTROLLER = AutoscalerFlags(skip_nodes_with_custom_controller_pods=False)
BAR, FOO = budget("kube-system", 1, **{"k8s-app": "bar"}), budget("kube-system", 1, **{"k8s-app": "foo"})
ELSEWHERE = budget("default", 1, **{"k8s-app": "PDB-managed pod"})
EMPTY = PodDisruptionBudget()
KUBE = {"namespace": "kube-system", "labels": {"k8s-app": "bar"}}
LOCAL, UNMOVABLE = "LocalStorageRequested", "UnmovableKubeSystemPod"
NOT_SAFE, NOT_FOUND = "NotSafeToEvictAnnotation", "ControllerNotFound"
LIKE_DS, IN_SYSTEM = {DAEMON: "true"}, {"namespace": "kube-system"}
SCRATCH = ("scratch-1", "scratch-2", "scratch-3")
ALL = {VOLUMES: ",".join(SCRATCH)}

# simulator/drainability/rules/*/rule_test.go, TestDrainable: rule, pod, options, budgets, outcome or reason
RULE_CASES: dict[str, tuple[str, Pod, AutoscalerFlags, tuple[PodDisruptionBudget, ...], str]] = {
    "mirror: regular pod": ("Mirror", pod(), SYSTEM, (), "undefined"),
    "mirror: mirror pod": ("Mirror", pod(notes={MIRROR: "something"}), SYSTEM, (), "skip"),
    "long: regular pod": ("LongTerminating", pod(), SYSTEM, (), "undefined"),
    "long: 0 grace": ("LongTerminating", pod(deleted=15, grace=0), SYSTEM, (), "undefined"),
    "long: expired 0 grace": ("LongTerminating", pod(deleted=-60, grace=0), SYSTEM, (), "skip"),
    "long: extended grace": ("LongTerminating", pod(deleted=180, grace=360), SYSTEM, (), "undefined"),
    "long: expired extended grace": ("LongTerminating", pod(deleted=-720, grace=360), SYSTEM, (), "skip"),
    "not safe: true": ("NotSafeToEvict", pod(notes={SAFE: "true"}), SYSTEM, (), "undefined"),
    "not safe: RC, no annotation": ("NotSafeToEvict", pod("rc"), SYSTEM, (), "undefined"),
    "not safe: RC, false": ("NotSafeToEvict", pod("rc", notes={SAFE: "false"}), SYSTEM, (), NOT_SAFE),
    "not safe: job, no annotation": ("NotSafeToEvict", pod("job"), SYSTEM, (), "undefined"),
    "not safe: job, false": ("NotSafeToEvict", pod("job", notes={SAFE: "false"}), SYSTEM, (), NOT_SAFE),
    "on completion: regular": ("OnCompletion", pod(), SYSTEM, (), "undefined"),
    "on completion: on-completion": ("OnCompletion", pod(notes={SAFE: "on-completion"}), SYSTEM, (), "wait"),
    "on completion: true": ("OnCompletion", pod(notes={SAFE: "true"}), SYSTEM, (), "undefined"),
    "on completion: false": ("OnCompletion", pod(notes={SAFE: "false"}), SYSTEM, (), "undefined"),
    "safe: regular": ("SafeToEvict", pod(), SYSTEM, (), "undefined"),
    "safe: safe to evict": ("SafeToEvict", pod(notes={SAFE: "true"}), SYSTEM, (), "drain"),
    "terminal: regular": ("Terminal", pod(), SYSTEM, (), "undefined"),
    "terminal: succeeded": ("Terminal", pod(policy="OnFailure", phase="Succeeded"), SYSTEM, (), "drain"),
    "terminal: failed": ("Terminal", pod(policy="Never", phase="Failed"), SYSTEM, (), "drain"),
    "daemon set: regular": ("DaemonSet", pod(), SYSTEM, (), "undefined"),
    "daemon set: of a daemon set": ("DaemonSet", pod("ds"), SYSTEM, (), "drain"),
    "pdb: none": ("PDB", pod(), SYSTEM, (), "undefined"),
    "pdb: none matches": (
        "PDB", pod(labels={"label": "true"}), SYSTEM, (budget("bad", label="true"), budget(label="false")), "undefined",
    ),
    "pdb: prevents": (
        "PDB", pod(labels={"label": "true"}), SYSTEM,
        (budget("bad", label="true"), budget(label="true"), budget(label="false")),
        "NotEnoughPdb",
    ),
    "system: empty PDB, RC": ("System", pod("rc"), SYSTEM, (EMPTY,), "undefined"),
    "system: matching PDB": ("System", pod("rc", **KUBE), SYSTEM, (BAR,), "undefined"),
    "system: other PDB": ("System", pod("rc", **KUBE), SYSTEM, (FOO,), UNMOVABLE),
    "system: PDB, default namespace": ("System", pod("rc"), SYSTEM, (BAR,), "undefined"),
    "system: PDB of another namespace": ("System", pod("rc", **KUBE), SYSTEM, (ELSEWHERE,), UNMOVABLE),
    "system: younger than the timeout": ("System", pod("rs", **IN_SYSTEM, born=-59), SYSTEM, (EMPTY,), UNMOVABLE),
    "system: older than the timeout": ("System", pod("rs", **IN_SYSTEM, born=-61), SYSTEM, (BAR,), "drain"),
    "local: EmptyDir": ("LocalStorage", pod("rc", volumes=("scratch",)), SYSTEM, (), LOCAL),
    "local: in memory": ("LocalStorage", pod("rc", volumes=("scratch",), empty={"medium": "Memory"}), SYSTEM, (), "undefined"),
    "local: allowed": ("LocalStorage", pod("rc", volumes=("scratch",), notes={VOLUMES: "scratch"}), SYSTEM, (), "undefined"),
    "local: empty annotation": ("LocalStorage", pod("rc", volumes=("scratch",), notes={VOLUMES: ""}), SYSTEM, (), LOCAL),
    "local: another name": ("LocalStorage", pod("rc", volumes=SCRATCH[:1], notes={VOLUMES: "scratch-2"}), SYSTEM, (), LOCAL),
    "local: all names": ("LocalStorage", pod("rc", volumes=SCRATCH, notes=ALL), SYSTEM, (), "undefined"),
    "local: a name is other": (
        "LocalStorage", pod("rc", volumes=SCRATCH, notes={VOLUMES: "scratch-1,scratch-2,scratch-5"}), SYSTEM, (), LOCAL
    ),
    "local: some names": (
        "LocalStorage", pod("rc", volumes=SCRATCH, notes={VOLUMES: "scratch-1,scratch-2"}), SYSTEM, (), LOCAL
    ),
    "local: empty names": ("LocalStorage", pod("rc", volumes=SCRATCH, notes={VOLUMES: ","}), SYSTEM, (), LOCAL),
    "replicated: custom controller": ("Replicated", pod("custom"), ANY_CONTROLLER, (), "undefined"),
    "replicated: custom controller blocks": ("Replicated", pod("custom"), SYSTEM, (), "NotReplicated"),
    **{
        f"replicated: {owner or 'naked'}{' leaving' if deleted else ''}, custom controllers block: {options is SYSTEM}": (
            "Replicated", pod(owner, deleted=deleted), options, (), "undefined" if owner else "NotReplicated"
        )
        for owner, deleted in (("rc", None), ("job", None), ("ss", None), ("rs", None), ("rs", -3600), ("", None))
        for options in (SYSTEM, ANY_CONTROLLER)
    },
    **{
        f"replica count: {owner}": ("ReplicaCount", pod(owner, notes=LIKE_DS if "cds" in owner else {}), SYSTEM, (), outcome)
        for owner, outcome in (
            ("rc", "undefined"), ("rc/missing", NOT_FOUND), ("ds", "undefined"), ("ds/missing", NOT_FOUND),
            ("dscrd/ds", "undefined"), ("dscrd/missing", "undefined"), ("cds/ds", "undefined"), ("cds/missing", "undefined"),
            ("job", "undefined"), ("job/missing", NOT_FOUND), ("ss", "undefined"), ("ss/missing", NOT_FOUND),
            ("sscrd/ss", "undefined"), ("sscrd/missing", "undefined"), ("rs", "undefined"), ("rs/missing", NOT_FOUND),
        )
    },
    "replica count: rs that is leaving": ("ReplicaCount", pod("rs", deleted=-3600), SYSTEM, (), "undefined"),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "held", "options", "budgets", "wanted"), RULE_CASES.values(), ids=RULE_CASES)
def test_each_rule_judges_a_pod(
    rule: str, held: Pod, options: AutoscalerFlags, budgets: tuple[PodDisruptionBudget, ...], wanted: str
) -> None:
    status = RULES[rule](held, context(*budgets, flags=options, listed=rule == "ReplicaCount"))
    assert (status.reason or status.outcome) == wanted
    assert bool(status.text) == bool(status.reason)


def test_too_few_replicas_keep_a_node() -> None:
    status = RULES["ReplicaCount"](pod("rs"), context(flags=AutoscalerFlags(min_replica_count=6), listed=True))
    assert (status.reason, status.text) == (
        "MinReplicasReached", "replication controller for default/bar has too few replicas spec: 5 min: 6"
    )  # fmt: skip


RS, CRITICAL = pod("rs", "rs"), pod("rs", "pdbPod", "ns", labels={"critical": "true"})
MANIFEST = pod("", "manifestPod", "kube-system", notes={MIRROR: "something"})
OLD = pod("rs", "old", "kube-system", born=-61)
YOUNG = pod("rs", "young", "kube-system", born=-59)
LEFT, LEAVING = pod("rs", "left", "ns", deleted=-90), pod("rs", "leaving", "ns", deleted=30)

# simulator/drain_test.go, TestGetPodsToMove: pods, budgets, whether controllers are listed, which move, go along, wait, block
MOVES: dict[str, tuple[tuple[Pod, ...], tuple[PodDisruptionBudget, ...], bool, str, str, str, str]] = {
    "unreplicated": ((pod("", "alone"),), (), False, "", "", "", "alone NotReplicated"),
    "replicated": ((RS,), (), False, "rs", "", "", ""),
    "manifest": ((MANIFEST,), (), False, "", "", "", ""),
    "daemon set": ((RS, MANIFEST, pod("ds", "ds")), (), False, "rs", "ds", "", ""),
    "kube-system": ((pod("rs", "system", "kube-system"),), (), False, "", "", "", "system UnmovableKubeSystemPod"),
    "a young system pod": ((YOUNG,), (), False, "", "", "", "young UnmovableKubeSystemPod"),
    "an old system pod": ((OLD,), (), False, "old", "", "", ""),
    "an old and a young one": ((OLD, YOUNG), (), False, "old", "", "", "young UnmovableKubeSystemPod"),
    "local storage": ((pod("rs", "local", "ns", volumes=("v",)),), (), False, "", "", "", "local LocalStorageRequested"),
    "a budget blocks": ((CRITICAL,), (budget("ns", 0, critical="true"),), False, "", "", "", "pdbPod NotEnoughPdb"),
    "a budget allows": ((CRITICAL,), (budget("ns", 1, critical="true"),), False, "pdbPod", "", "", ""),
    "termination": ((RS, LEFT, LEAVING), (), False, "rs leaving", "", "", ""),
    "RC": ((pod("rc"),), (), True, "bar", "", "", ""),
    "DS": ((pod("ds"),), (), False, "", "bar", "", ""),
    "custom DS": ((pod("cds/ds", notes={DAEMON: "true"}),), (), False, "", "bar", "", ""),
    "job": ((pod("job"),), (), True, "bar", "", "", ""),
    "SS": ((pod("ss"),), (), True, "bar", "", "", ""),
    "RS": ((pod("rs"),), (), True, "bar", "", "", ""),
    "RS, being deleted": ((pod("rs", deleted=-3600),), (), True, "", "", "", ""),
    "allowed volumes": ((pod("rc", volumes=SCRATCH, notes=ALL),), (), True, "bar", "", "", ""),
    "failed": ((pod(policy="Never", phase="Failed"),), (), False, "bar", "", "", ""),
    "terminating, no grace": ((pod("rc", deleted=-60, grace=0, phase="Unknown"),), (), True, "", "", "", ""),
    "terminating, long grace": ((pod("rc", deleted=-180, grace=360, phase="Unknown"),), (), True, "bar", "", "", ""),
    "evicted": ((pod(phase="Failed"),), (), False, "bar", "", "", ""),
    "terminal": ((pod(policy="OnFailure", phase="Succeeded"),), (), False, "bar", "", "", ""),
    "safe": ((pod(notes={SAFE: "true"}),), (), False, "bar", "", "", ""),
    "safe, kube-system": ((pod(namespace="kube-system", notes={SAFE: "true"}),), (), False, "bar", "", "", ""),
    "safe, EmptyDir": ((pod(notes={SAFE: "true"}, volumes=("scratch",)),), (), False, "bar", "", "", ""),
    "empty budget": ((pod("rc"),), (EMPTY,), True, "bar", "", "", ""),
    "budget of the system pod": ((pod("rc", **KUBE),), (BAR,), True, "bar", "", "", ""),
    "budget of another system pod": ((pod("rc", **KUBE),), (FOO,), True, "", "", "", "bar UnmovableKubeSystemPod"),
    "system budget, default namespace": ((pod("rc"),), (BAR,), True, "bar", "", "", ""),
    "budget of another namespace": ((pod("rc", **KUBE),), (ELSEWHERE,), True, "", "", "", "bar UnmovableKubeSystemPod"),
    "on completion": ((pod(notes={SAFE: "on-completion"}),), (), False, "", "", "bar", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", MOVES.values(), ids=MOVES)
def test_the_pods_of_a_node_move_go_along_wait_or_block(case: tuple[Any, ...]) -> None:
    pods, budgets, listed, *wanted = case
    moves = pods_to_move(pods, context(*budgets, flags=SYSTEM, listed=listed))
    named = [" ".join(one.name for one in group) for group in (moves.pods, moves.daemons, moves.waiting)]
    blocking = "" if moves.blocking is None else f"{moves.blocking[0].name} {moves.blocking[1].reason}"
    assert [*named, blocking] == wanted


# -- utilisation and eligibility ---------------------------------------------------------------------------------------

P1, P2 = pod(name="p1", cpu="100m", memory="200k"), pod(name="p2")
SIDECAR = pod(cpu="100m", memory="200k", init=[
    {"name": "a", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m", "memory": "100k"}}},
    {"name": "b", "resources": {"requests": {"cpu": "5m", "memory": "100"}}},
])  # fmt: skip
LARGE = pod(cpu="100m", memory="200k", init=[{"name": "a", "resources": {"requests": {"cpu": "50", "memory": "100M"}}}])
DS3, DS4 = pod("ds", "p3", cpu="100m", memory="200k"), pod("cds", "p4", cpu="100m", memory="200k", notes={DAEMON: "true"})
GONE, MIRRORED = pod(cpu="100m", memory="200k", deleted=-600), pod(cpu="100m", memory="200k", notes={MIRROR: ""})
OFFERS = {"cpu": "2", "memory": "2M"}
PLAIN = AutoscalerFlags()
DAEMONS, MIRRORS = replace(PLAIN, ignore_daemonsets_utilization=True), replace(PLAIN, ignore_mirror_pods_utilization=True)
BOTH = replace(DAEMONS, ignore_mirror_pods_utilization=True)

# simulator/utilization/info_test.go, TestCalculate: allocatable, labels, pods, flags, utilisation
UTILISATIONS: dict[str, tuple[dict[str, str], dict[str, str], tuple[Pod, ...], AutoscalerFlags, float | None]] = {
    "two pods": (OFFERS, {}, (P1, P1, P2), PLAIN, 0.2),
    "no memory": ({"cpu": "2"}, {}, (P1, P1, P2), PLAIN, None),
    "init containers": (OFFERS, {}, (P1, SIDECAR, LARGE), PLAIN, 50.25),
    "daemon sets apart": (OFFERS, {}, (P1, P1, P2, DS3, DS4), DAEMONS, 0.25),
    "daemon sets counted": (OFFERS, {}, (P1, P2, DS3), PLAIN, 0.2),
    "terminated": (OFFERS, {}, (P1, P1, P2, GONE), PLAIN, 0.2),
    "mirror pods apart": (OFFERS, {}, (P1, P1, P2, MIRRORED), MIRRORS, 2 / 9),
    "mirror pods counted": (OFFERS, {}, (P1, P2, MIRRORED), PLAIN, 0.2),
    "both apart": (OFFERS, {}, (P1, MIRRORED, DS3), BOTH, 1 / 8),
    "a GPU": ({**OFFERS, "nvidia.com/gpu": "1"}, {}, (P1, P1, pod(cpu="100m", gpu=1)), PLAIN, 1.0),
    "a GPU that is not ready": (OFFERS, {"cloud.google.com/gke-accelerator": "x"}, (P1, P1), PLAIN, 0.0),
}


@pytest.mark.parametrize(("offers", "labels", "pods", "flags", "wanted"), UTILISATIONS.values(), ids=UTILISATIONS)
def test_utilisation_is_requests_over_allocatable(
    offers: dict[str, str], labels: dict[str, str], pods: tuple[Pod, ...], flags: AutoscalerFlags, wanted: float | None
) -> None:
    found = utilisation(a_node(labels=labels, allocatable=offers), pods, flags, NOW.timestamp())
    assert (None if found is None else round(found[1], 9)) == (None if wanted is None else pytest.approx(wanted, rel=0.01))


def regular(ready: bool = True, note: bool = False, cpu: str = "1", taint: float | None = None) -> Node:
    made = a_node("regular", allocatable={"cpu": cpu, "memory": "10"} if cpu != "0" else {})
    taints = () if taint is None else (Taint(key="ToBeDeletedByClusterAutoscaler", value=str(int(NOW.timestamp() + taint))),)
    status = convert(
        {"allocatable": made.status.allocatable, "conditions": [{"type": "Ready", "status": str(ready)}]}, type(made.status)
    )
    notes = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"} if note else {}
    return replace(
        made, status=status, spec=replace(made.spec, taints=taints), metadata=replace(made.metadata, annotations=notes)
    )


BIG, SMALL, OF_DS = pod(cpu="600m"), pod(cpu="100m"), pod("ds", cpu="500m")
ZERO = replace(DAEMONS, scale_down_utilization_threshold=0.0)

# core/scaledown/eligibility/eligibility_test.go: node, pods, flags, reason; the base cases run with both suites of flags
BASE: dict[str, tuple[Node, tuple[Pod, ...], dict[str, bool], str]] = {
    "regular node": (regular(), (), {}, ""),
    "recently deleted": (regular(taint=-30), (), {}, "CurrentlyBeingDeleted"),
    "marked no scale down": (regular(note=True), (), {}, "ScaleDownDisabledAnnotation"),
    "highly utilised": (regular(), (BIG,), {}, "NotUnderutilized"),
    "underutilised": (regular(), (SMALL,), {}, ""),
    "utilisation cannot be calculated": (regular(cpu="0"), (SMALL,), {}, "UnexpectedError"),
    "unready": (regular(ready=False), (), {}, ""),
    "unready, disabled": (regular(ready=False), (), {"scale_down_unready_enabled": False}, "ScaleDownUnreadyDisabled"),
}
ELIGIBLE = {
    **{f"{name}, daemon sets ignored: {flags is DAEMONS}": (node, pods, replace(flags, **given), reason)
       for flags in (PLAIN, DAEMONS) for name, (node, pods, given, reason) in BASE.items()},
    "many daemon pods": (regular(), (SMALL, OF_DS), DAEMONS, ""),
    "many daemon pods, counted": (regular(), (SMALL, OF_DS), PLAIN, "NotUnderutilized"),
    "only daemon pods, threshold 0": (regular(), (OF_DS,), ZERO, ""),
}  # fmt: skip


@pytest.mark.parametrize(("node", "pods", "flags", "wanted"), ELIGIBLE.values(), ids=ELIGIBLE)
def test_a_node_is_a_candidate_or_has_a_reason(node: Node, pods: tuple[Pod, ...], flags: AutoscalerFlags, wanted: str) -> None:
    reason, text = unremovable_reason(node, pods, flags, NOW.timestamp())
    assert reason == wanted
    assert bool(text) == bool(reason)


def test_the_sentence_of_a_node_that_is_used_is_cluster_autoscalers() -> None:
    _, text = unremovable_reason(regular(), (BIG,), PLAIN, NOW.timestamp())
    assert text == "cpu requested (60% of allocatable) is above the scale-down utilization threshold"


# -- flags -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "wanted"), [
    *((text, True) for text in ("1", "t", "T", "TRUE", "true", "True")),
    *((text, False) for text in ("0", "f", "F", "FALSE", "false", "False")),
])  # fmt: skip
def test_a_boolean_flag_is_read_as_go_reads_it(text: str, wanted: bool) -> None:
    assert read_flags([f"--scale-down-enabled={text}"]).scale_down_enabled is wanted


def test_flags_stand_before_their_values_or_with_them() -> None:
    found = read_flags([
        "./cluster-autoscaler", "--scan-interval", "30s", "--nodes", "1:5:a", "--nodes=0:2:b:c",
        "--balance-similar-node-groups", "--cores-total=0:100", "--expander=least-waste,price", "--cloud-provider", "aws",
        "--max-nodes-total=9", "--odd=1",
    ])  # fmt: skip
    assert found == AutoscalerFlags(
        scan_interval=30.0, nodes=(("a", 1, 5), ("b:c", 0, 2)), balance_similar_node_groups=True, cores_total=(0, 100),
        expander="least-waste,price", max_nodes_total=9, cloud_provider="aws", ignored=("--odd",),
    )  # fmt: skip


@pytest.mark.parametrize("argument", ["--scale-down-enabled=yes", "--nodes=5", "--max-nodes-total=x", "--scan-interval=5"])
def test_a_value_that_cannot_be_read_is_an_error(argument: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_flags([argument])


# -- expanders ---------------------------------------------------------------------------------------------------------


def option(name: str, count: int = 1, pods: int = 0, cpu: str = "8", memory: str = "16000Mi") -> ExpansionOption:
    held = tuple(PodInfo(pod(name=f"p{n}", cpu="500m", memory="1000Mi")) for n in range(pods))
    return ExpansionOption(name, a_node(name, allocatable={"cpu": cpu, "memory": memory}), 1.0, count, held)


BALANCED, HIGHMEM = option("balanced", pods=1), option("highmem", pods=1, memory="32000Mi")
LOWCPU = option("lowcpu", pods=1, cpu="4")
# expander/{waste,mostpods,leastnodes}/*_test.go: expander, options, the best
EXPANSIONS: dict[str, tuple[str, list[ExpansionOption], str]] = {
    "waste: no pods": ("least-waste", [option("balanced")], "balanced"),
    "waste: one pod": ("least-waste", [BALANCED], "balanced"),
    "waste: two groups": ("least-waste", [BALANCED, HIGHMEM], "balanced"),
    "waste: three groups": ("least-waste", [BALANCED, HIGHMEM, LOWCPU], "lowcpu"),
    "most pods: none": ("most-pods", [option("0")], "0"),
    "most pods: one": ("most-pods", [option("0"), option("1", pods=1)], "1"),
    "most pods: two": ("most-pods", [option("0"), option("1", pods=1), option("1b", pods=1)], "1 1b"),
    **{
        f"least nodes: {counts}": ("least-nodes", [option(str(at), count) for at, count in enumerate(counts)], best)
        for counts, best in (
            ((), ""), ((0,), ""), ((2,), "0"), ((2, 1), "1"), ((6, 2, 2), "1 2"), ((8, 8, 8), "0 1 2"),
            ((23, 0, 5, 8, 5, 5, 22), "2 4 5"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize(("expander", "options", "wanted"), EXPANSIONS.values(), ids=EXPANSIONS)
def test_an_expander_prefers_options(expander: str, options: list[ExpansionOption], wanted: str) -> None:
    assert " ".join(one.pool for one in EXPANDERS[expander](options, 5)) == wanted


CONFIG = "5:\n  - '.*t2\\.micro.*'\n10:\n  - '.*t2\\.large.*'\n  - '.*t3\\.large.*'\n50:\n  - '.*m4\\.4xlarge.*'\n"
# expander/priority/priority_test.go: the config map, the groups, the best
PRIORITIES = {
    "one out of one": (CONFIG, "t2.large", "t2.large"),
    "one out of many": (CONFIG, "t2.large m4.4xlarge", "m4.4xlarge"),
    "the higher match": ("5:\n  - '.*'\n10:\n  - '.t2\\.large.*'\n", "t2.large t2.micro", "t2.large"),
    "two out of many": (CONFIG, "t2.large t3.large t2.micro", "t2.large t3.large"),
    "equal ones": (CONFIG, "t2.large t3.large", "t2.large t3.large"),
    "one entry": ("10:\n  - '.*t2\\.large.*'\n", "t2.large t3.large m4.4xlarge", "t2.large"),
    "after the update": (CONFIG, "t2.large t3.large m4.4xlarge", "m4.4xlarge"),
    "none matches": ("5:\n  - '.*t\\.micro.*'\n10:\n  - '.*t\\.large.*'\n", "t2.large t3.large", "t2.large t3.large"),
}


@pytest.mark.parametrize(("config", "groups", "wanted"), PRIORITIES.values(), ids=PRIORITIES)
def test_the_priority_expander_follows_its_config_map(config: str, groups: str, wanted: str) -> None:
    best = priority_expander(config)([option(f"my-asg.{one}") for one in groups.split()], 5)
    assert " ".join(one.pool.removeprefix("my-asg.") for one in best) == wanted


@pytest.mark.parametrize("config", ["", "[]", "a: [b]", "5: x", "5: ['(']"])
def test_a_faulty_config_map_is_refused(config: str) -> None:
    with pytest.raises(InputError):
        priority_expander(config)


# expander/price/preferred_test.go, TestPreferredNode
@pytest.mark.parametrize(("nodes", "cores"), [(1, 1), (3, 2), (9, 4), (27, 8), (81, 16), (243, 32), (500, 32)])
def test_the_preferred_node_grows_with_the_cluster(nodes: int, cores: int) -> None:
    assert preferred_cpu(nodes) == cores * 1000


# expander/factory/chain_test.go: filters in order, each among the best of those before
CHAINS = {
    "one expander": ("least-nodes", [option("a", 2), option("b", 1)], "b"),
    "the second decides": ("least-nodes,most-pods", [option("a", 1, 1), option("b", 1, 2), option("c", 2, 3)], "b"),
    "the first has decided": ("most-pods,least-nodes", [option("a", 3, 2), option("b", 1, 1)], "a"),
    "several are left": ("least-nodes,most-pods", [option("a", 1, 1), option("b", 1, 1), option("c", 2, 9)], "a b"),
    "one option": ("least-nodes,most-pods,priority", [option("a")], "a"),
}


@pytest.mark.parametrize(("names", "options", "wanted"), CHAINS.values(), ids=CHAINS)
def test_expanders_in_a_chain_filter_one_after_the_other(names: str, options: list[ExpansionOption], wanted: str) -> None:
    assert " ".join(one.pool for one in read_expander(names, CONFIG)(options, 5)) == wanted


def test_there_are_as_many_cases_as_we_say() -> None:
    tables = (RULE_CASES, MOVES, UTILISATIONS, ELIGIBLE, EXPANSIONS, PRIORITIES, CHAINS)
    assert sum(map(len, tables)) >= 150
