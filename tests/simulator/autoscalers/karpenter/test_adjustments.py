"""NodeOverlays change prices and capacities, and CapacityBuffers keep room, after upstream's suites of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.errors import InputError
from moorage.simulator.autoscalers import KINDS, Karpenter, read_price_list
from moorage.simulator.autoscalers.karpenter.judgement import adjusted, with_overlays
from moorage.simulator.cluster_reader import read

EXAMPLE = Path(__file__).resolve().parents[4] / "examples/karpenter"
ADJUSTED = {"0.5": 0.5, "+0.05": 1.05, "-0.25": 0.75, "+10%": 1.1, "-10%": 0.9, "-200%": 0.0, "-3": 0.0, "0": 0.0}


@pytest.mark.parametrize(("change", "price"), ADJUSTED.items())
def test_a_price_is_replaced_or_adjusted(change, price):
    assert adjusted(1.0, change) == pytest.approx(price)


def overlay(
    name: str, weight: int = 0, key: str = "node.kubernetes.io/instance-type", *values: str, **spec: Any
) -> dict[str, Any]:
    asked = [{"key": key, "operator": "In", "values": list(values or ("c5.large",))}]
    return {"kind": "NodeOverlay", "metadata": {"name": name}, "spec": {"weight": weight, "requirements": asked, **spec}}


def prices_after(*overlays: dict[str, Any]) -> tuple[dict[str, float], dict[str, int], tuple[str, ...]]:
    """Return the on-demand price in zone-a and what accelerators each type has, and what is not applied."""
    found, told = with_overlays(read_price_list(str(EXAMPLE / "types.json")), overlays)
    prices = {held.name: held.price_in("zone-a", "on-demand") or 0.0 for held in found.types}
    return prices, {held.name: held.capacity.get("acme.com/card", 0) for held in found.types}, told


def test_overlays_apply_by_weight_and_by_what_they_are_for():
    zone = overlay("spot", 5, "karpenter.sh/capacity-type", "spot", price="0.001")
    prices, cards, told = prices_after(
        overlay("light", 1, price="9", capacity={"acme.com/card": "4"}), overlay("heavy", 10, priceAdjustment="-10%"), zone
    )
    assert prices["c5.large"] == pytest.approx(0.0765)
    assert prices["c5.xlarge"] == 0.17
    assert cards == {**dict.fromkeys(cards, 0), "c5.large": 4}
    assert told == ()


def test_overlays_of_one_weight_conflict():
    first, second = overlay("b", 3, price="1"), overlay("a", 3, price="2", capacity={"acme.com/card": "1"})
    prices, cards, told = prices_after(second, first)
    assert (prices["c5.large"], cards["c5.large"]) == (1.0, 0)
    assert told == ("NodeOverlay a: it conflicts with another of its weight, and is not applied",)


def test_a_heavier_overlay_does_not_hide_that_two_lighter_ones_conflict():
    lighter = overlay("b", 3, price="2"), overlay("a", 3, price="3")
    assert prices_after(overlay("heavy", 5, price="1"), *lighter)[2] == (
        "NodeOverlay a: it conflicts with another of its weight, and is not applied",
    )


def node_pool(name: str, **labels: str) -> dict[str, Any]:
    return {"kind": "NodePool", "metadata": {"name": name}, "spec": {"template": {"metadata": {"labels": labels}}}}


@pytest.mark.parametrize(("asked", "of_general", "of_other"), [
    ({}, 0.0, 0.0),
    ({"karpenter.sh/nodepool": "general"}, 0.0, 0.085),
    ({"team": "a"}, 0.085, 0.0),
    ({"team": "c"}, 0.085, 0.085),
])  # fmt: skip
def test_an_overlay_may_be_for_certain_node_pools(asked, of_general, of_other):
    pools = [node_pool("general"), node_pool("other", team="a")]
    wanted = overlay("free", 1, price="0")
    wanted["spec"]["requirements"] += [{"key": key, "operator": "In", "values": [value]} for key, value in asked.items()]
    found, told = with_overlays(read_price_list(str(EXAMPLE / "types.json")), [*pools, wanted])
    place = {
        "node.kubernetes.io/instance-type": "c5.large", "topology.kubernetes.io/zone": "zone-a",
        "karpenter.sh/capacity-type": "on-demand",
    }  # fmt: skip
    prices = [found.price_of({**place, "karpenter.sh/nodepool": name}) for name in ("general", "other")]
    assert (prices, told) == ([of_general, of_other], ())
    assert len(found.types) == len(read_price_list(str(EXAMPLE / "types.json")).types) + (of_general != of_other)


def test_a_faulty_price_is_refused():
    with pytest.raises(InputError, match="NodeOverlay x: 'cheap' is neither a price nor a change"):
        prices_after(overlay("x", price="cheap"))


def karpenter(tmp_path: Path, *more: dict[str, Any]) -> Karpenter:
    documents = [*yaml.safe_load_all((EXAMPLE / "cluster.yaml").read_text("utf-8")), *more]
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(documents), "utf-8")
    return Karpenter(read(tmp_path / "cluster.yaml", custom=KINDS), read_price_list(str(EXAMPLE / "types.json")))


WORKLOAD = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "replicas": 0, "selector": {"matchLabels": {"app": "w"}},
        "template": {
            "metadata": {"labels": {"app": "w"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
        },
    },
}  # fmt: skip
BUFFER = {
    "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "spare", "namespace": "shop"},
    "spec": {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}},
    "status": {"replicas": 8, "conditions": [{"type": "ReadyForProvisioning", "status": "True"}]},
}  # fmt: skip


def test_a_buffer_keeps_room_for_its_pods(tmp_path):
    plan = karpenter(tmp_path, WORKLOAD, BUFFER).plan
    held = [pod.name for claim in plan.claims for pod in claim.pods] + [
        pod.name for pods in plan.placed.values() for pod in pods
    ]
    assert sorted(held) == [f"capacity-buffer-spare-{at}" for at in range(1, 9)]
    assert plan.claims
    assert not karpenter(tmp_path, WORKLOAD, {**BUFFER, "status": {"replicas": 8}}).plan.claims


def test_a_buffer_without_its_workload_is_named(tmp_path):
    missing = karpenter(tmp_path, BUFFER).missing
    assert "the pods of CapacityBuffer shop/spare: its template or workload; it keeps no room" in missing


def test_an_overlay_of_a_pool_changes_the_price_of_its_launches(tmp_path):
    before = karpenter(tmp_path, WORKLOAD, BUFFER)
    known, [claim, *_] = before.cluster.prices.well_known, before.plan.claims
    types = [held.name for held in before.cluster.prices.types]
    dear = overlay("dear", 1, "karpenter.sh/nodepool", claim.pool.name, price="99") | {"apiVersion": "karpenter.sh/v1alpha1"}
    after = karpenter(tmp_path, WORKLOAD, BUFFER, dear).plan.claims
    assert claim.cheapest(known) < 1
    assert {one.cheapest(known) == 99.0 for one in after if one.pool.name == claim.pool.name} == {True}
    assert {held.name for one in after for held in one.types} <= {*types}
