"""Topology as Karpenter's topology.go has it.

A key that is the title of an upstream test says which behaviour a case is about; the clusters and the expected results are
ours, from reading the rules.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from moorage.api.core import Pod
from moorage.simulator.autoscalers.instance_types import InstanceType
from moorage.simulator.autoscalers.karpenter.solve import LaunchPlan, solve
from moorage.simulator.autoscalers.key_requirements import CAPACITY_TYPE, HOSTNAME, ZONE, exists
from tests.simulator.autoscalers.karpenter.clusters import (
    assorted,
    default_types,
    instance_type,
    needs,
    node,
    pod,
    pool,
    scene,
)

Z1, Z2, Z3 = "test-zone-1", "test-zone-2", "test-zone-3"
_LABELS = {"test": "test"}
_SELECTOR = {"matchLabels": _LABELS}
_TYPES = assorted(5)


def spread(key: str, skew: int = 1, when: str = "DoNotSchedule", **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": _SELECTOR, **more}


def _places(found: LaunchPlan, key: str) -> list[int]:
    """Return how many pods each domain gets, sorted; claims without a certain domain count as one of their own."""
    counts: Counter[str] = Counter()
    for at, claim in enumerate(found.claims):
        domain = claim.requirements.get(key, exists(key)).only
        counts[f"claim {at}" if key == HOSTNAME or domain is None else domain] += len(claim.pods)
    return sorted(counts.values())


def _run(pods: list[Pod], pools: Any = None, bound: list[tuple[str, Pod]] | None = None, **more: Any) -> LaunchPlan:
    """Place pods in a cluster with full nodes, each in a zone with one pod."""
    held: InstanceType = default_types()[5]
    nodes = [node(f"n{at}", held, zone=zone) for at, (zone, _) in enumerate(bound or ())]
    there = [one for _, one in bound or ()]
    return solve(scene(more.pop("types", _TYPES), pools=pools, nodes=nodes, pods=[*there, *pods], **more), pods)


def _on(at: int, zone: str, labels: dict[str, str] | None = None, **spec: Any) -> tuple[str, Pod]:
    return zone, pod(node=f"n{at}", labels=_LABELS if labels is None else labels, **spec)


#: Constraints; number of pods; zones of the pool; pods on nodes; how many pods each domain of the first constraint gets.
_SPREADS: dict[str, tuple[Any, ...]] = {
    "should balance pods across zones (match labels)": ([spread(ZONE)], 4, None, [], [1, 1, 2]),
    "should respect NodePool zonal constraints": ([spread(ZONE)], 4, [Z1, Z2], [], [2, 2]),
    "should respect NodePool zonal constraints (one zone)": ([spread(ZONE)], 4, [Z1], [], [4]),
    "should schedule to the non-minimum domain if its all that's available": (
        [spread(ZONE, 5)], 6, [Z3], [_on(0, Z1), _on(1, Z2)], [6]
    ),
    "should only schedule to minimum domains if already violating max skew": (
        [spread(ZONE)], 2, None, [_on(0, Z1), _on(1, Z1), _on(2, Z1)], [1, 1]
    ),
    "should not violate max-skew when unsat = do not schedule": ([spread(ZONE)], 3, [Z1], [_on(0, Z2)], [2]),
    "should match all pods when labelSelector is not specified": (
        [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}], 1, None, [], [1]
    ),
    "should balance pods across hostnames up to maxskew": ([spread(HOSTNAME, 4)], 4, None, [], [4]),
    "should balance pods on the same hostname up to maxskew": ([spread(HOSTNAME)], 4, None, [], [1, 1, 1, 1]),
    "should balance multiple deployments with hostname topology spread: skew 2": ([spread(HOSTNAME, 2)], 4, None, [], [2, 2]),
    "should balance pods across capacity types": ([spread(CAPACITY_TYPE)], 4, None, [], [2, 2]),
    "should respect minDomains: as many as there are": ([spread(ZONE, minDomains=3)], 3, None, [], [1, 1, 1]),
    "should respect minDomains: too few": ([spread(ZONE, minDomains=3)], 3, [Z1, Z2], [], [1, 1]),
    "should only count running/scheduled pods with matching labels scheduled to nodes with a corresponding domain": (
        [spread(ZONE)], 2, [Z1, Z2], [_on(0, Z1, {}), _on(1, Z2, {"other": "x"})], [1, 1]
    ),
    "should violate max-skew when unsat = schedule anyway": (
        [spread(ZONE, when="ScheduleAnyway")], 5, [Z1], [_on(0, Z2)], [5]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "number", "zones", "bound", "places"), _SPREADS.values(), ids=_SPREADS)
def test_spread(asked: Any, number: int, zones: Any, bound: Any, places: list[int]) -> None:
    pods = [pod(labels=_LABELS, topologySpreadConstraints=asked) for _ in range(number)]
    pools = [pool(requirements=[(ZONE, "In", *zones)] if zones else [(ZONE, "In", Z1, Z2, Z3)])]
    if asked[0]["topologyKey"] == CAPACITY_TYPE:
        pools = [pool(requirements=[(CAPACITY_TYPE, "In", "spot", "on-demand")])]
    found = _run(pods, pools, bound)
    assert _places(found, asked[0]["topologyKey"]) == places
    assert len(found.errors) == number - sum(places)


def test_spread_respects_what_a_pod_may_use() -> None:
    """About upstream's "should limit spread options by nodeSelector" and "... by node requirements"."""
    pods = [
        pod(labels=_LABELS, topologySpreadConstraints=[spread(ZONE)], nodeSelector={ZONE: zone})
        for zone in (Z1,) * 5 + (Z2,) * 10
    ]
    found = _run(pods, [pool(requirements=[(ZONE, "In", Z1, Z2, Z3)])])
    assert _places(found, ZONE) == [5, 10]
    pods = [
        pod(labels=_LABELS, topologySpreadConstraints=[spread(ZONE)], affinity=needs([(ZONE, "In", Z1, Z2)])) for _ in range(10)
    ]
    assert _places(_run(pods, [pool(requirements=[(ZONE, "In", Z1, Z2, Z3)])]), ZONE) == [5, 5]


def test_match_label_keys_tell_versions_apart() -> None:
    """About upstream's "should support matchLabelKeys"."""
    asked = [spread(HOSTNAME, matchLabelKeys=["version"])]
    pods = [pod(labels={**_LABELS, "version": v}, topologySpreadConstraints=asked) for v in ("a", "a", "b", "b")]
    assert _places(_run(pods), HOSTNAME) == [2, 2]


def test_node_taints_policy() -> None:
    """About upstream's "should balance pods across a label (NodeTaintsPolicy=ignore)" and "(NodeTaintsPolicy=honor)"."""
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    for policy, placed in (("Ignore", 1), ("Honor", 5)):
        pools = [
            pool("open", [("fake", "In", "bar")]), pool("shut", [("fake", "In", "baz")], taints=[taint]),
        ]  # fmt: skip
        pods = [pod(labels=_LABELS, topologySpreadConstraints=[spread("fake", nodeTaintsPolicy=policy)]) for _ in range(5)]
        assert sum(_places(_run(pods, pools), "fake")) == placed


def term(key: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or _LABELS}}


def near(*terms: dict[str, Any], prefer: bool = False) -> dict[str, Any]:
    return {"podAffinity": _terms(terms, prefer)}


def apart(*terms: dict[str, Any], prefer: bool = False) -> dict[str, Any]:
    return {"podAntiAffinity": _terms(terms, prefer)}


def _terms(terms: Any, prefer: bool) -> dict[str, Any]:
    if prefer:
        return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": one} for one in terms]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def _group(number: int, **spec: Any) -> list[Pod]:
    return [pod(labels=_LABELS, **spec) for _ in range(number)]


#: Pods with affinity; others; the claims; how many fit nowhere.
_AFFINITIES: dict[str, tuple[Any, ...]] = {
    "should schedule a pod with empty pod affinity and anti-affinity": (_group(1, affinity={"podAffinity": {}}), 1, 0),
    "should respect pod affinity (hostname)": (
        [
            *_group(1, cpu="2", nodeSelector={ZONE: Z1}), pod(affinity=near(term(HOSTNAME))),
            *(pod(nodeSelector={ZONE: Z3}) for _ in range(2)),
        ], 2, 0,
    ),
    "should respect self pod affinity (hostname)": (_group(3, affinity=near(term(HOSTNAME))), 1, 0),
    "should respect self pod affinity for first empty topology domain only (hostname)": (
        _group(10, affinity=near(term(HOSTNAME)), cpu="900m"), 1, 5
    ),
    "should respect self pod affinity (zone)": (_group(3, affinity=near(term(ZONE))), 1, 0),
    "should not respect self pod affinity that nothing matches": ([pod(affinity=near(term(ZONE)))], 0, 1),
    "should allow violation of preferred pod affinity": ([pod(affinity=near(term(ZONE), prefer=True))], 1, 0),
    "should separate nodes using simple pod anti-affinity on hostname": (_group(2, affinity=apart(term(HOSTNAME))), 2, 0),
    "should allow violation of preferred pod anti-affinity": (_group(2, affinity=apart(term(ZONE), prefer=True)), 1, 0),
    "should not violate pod anti-affinity on zone (inverse)": (
        [*(pod(affinity=apart(term(ZONE)), nodeSelector={ZONE: zone}, cpu="2") for zone in (Z1, Z2, Z3)), *_group(1)], 3, 1
    ),
    "should not violate pod anti-affinity on zone": (
        [
            *(pod(labels=_LABELS, nodeSelector={ZONE: zone}, cpu="2") for zone in (Z1, Z2, Z3)),
            pod(affinity=apart(term(ZONE))),
        ], 3, 1,
    ),
    "should not violate pod anti-affinity on zone (Schrödinger)": (
        [pod(affinity=apart(term(ZONE)), cpu="2"), *_group(1)], 1, 1
    ),
    "should schedule pods with affinity to a pod in another order": (
        [pod(affinity=near(term(HOSTNAME)), cpu="2"), *_group(1)], 1, 0
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "claims", "failed"), _AFFINITIES.values(), ids=_AFFINITIES)
def test_affinity(pods: list[Pod], claims: int, failed: int) -> None:
    found = _run(pods, [pool(requirements=[(ZONE, "In", Z1, Z2, Z3)])])
    assert (len(found.claims), len(found.errors)) == (claims, failed)


def test_anti_affinity_of_pods_on_nodes_holds_the_other_way_round() -> None:
    """About upstream's "should not violate pod anti-affinity on zone (inverse w/existing nodes)"."""
    bound = [_on(at, zone, {}, affinity=apart(term(ZONE))) for at, zone in enumerate((Z1, Z2, Z3))]
    pods = _group(1)
    found = _run(pods, [pool(requirements=[(ZONE, "In", Z1, Z2, Z3)])], bound)
    assert (found.claims, list(found.errors)) == ([], [pods[0].metadata.uid])


def test_namespaces_of_terms() -> None:
    """About upstream's "should filter pod affinity topologies by namespace, no matching pods" and "…, matching …"."""
    target = pod(labels=_LABELS, meta={"namespace": "other"}, cpu="2")
    here = pod(affinity=near(term(HOSTNAME)))
    assert list(_run([target, here]).errors) == [here.metadata.uid]
    there = pod(affinity=near({**term(HOSTNAME), "namespaces": ["other"]}))
    assert _places(_run([target, there]), HOSTNAME) == [2]
    chosen = pod(affinity=near({**term(HOSTNAME), "namespaceSelector": {"matchLabels": {"a": "b"}}}))
    assert _places(_run([target, chosen], namespaces={"other": {"a": "b"}, "default": {}}), HOSTNAME) == [2]


def test_an_error_names_the_constraint() -> None:
    one = pod(affinity=near(term(ZONE)))
    told = _run([one], [pool(requirements=[(ZONE, "In", Z1)])]).errors[one.metadata.uid]
    assert told.startswith(f"unsatisfiable topology constraint for pod affinity, key={ZONE} (counts = {Z1}: 0, podDomains = ")


def test_a_pod_that_begins_a_group_tries_the_next_zone_in_the_next_round() -> None:
    """Karpenter takes any zone for the first pod of a group, and tries the pod again: here only the last zone has room."""
    small = [instance_type("small", cpu="1", offered=[("spot", Z1), ("spot", Z2)])]
    types = [*small, instance_type("large", cpu="16", offered=[("spot", Z3)])]
    first = pod(labels=_LABELS, cpu="10", affinity=near(term(ZONE)))
    rounds = [solve(scene(types), [first], turn=turn) for turn in range(3)]
    assert [len(one.claims) for one in rounds] == [0, 0, 1]
    assert {one.turns for one in rounds} == {9}
    assert [one.name for one in rounds[2].claims[0].types] == ["large"]


def test_a_group_that_begins_has_no_zone_on_a_claim_whose_zones_the_pod_excludes() -> None:
    types = [instance_type("held", cpu="16", offered=[("spot", Z1)]), instance_type("free", cpu="16", offered=[("spot", Z2)])]
    there = pod(cpu="2", affinity=needs([(ZONE, "In", Z1)]))
    first = pod(labels=_LABELS, cpu="1", affinity={**near(term(ZONE)), **needs([(ZONE, "NotIn", Z1)])})
    claims = solve(scene(types), [there, first]).claims
    assert sorted([one.name for one in held.types] for held in claims) == [["free"], ["held"]]
