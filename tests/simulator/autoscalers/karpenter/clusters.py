"""Small clusters for tests of Karpenter: the types of upstream's fake provider, pools, pods and nodes in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from moorage.api.core import Node, Pod
from moorage.api.pod_requests import amount
from moorage.simulator.autoscalers.instance_types import InstanceType, Offering, PriceList
from moorage.simulator.autoscalers.karpenter.scene import (
    ExistingNode,
    PoolCluster,
    ProvisioningPool,
    daemons_of,
    read_node_pools,
)
from moorage.simulator.autoscalers.key_requirements import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    WELL_KNOWN,
    ZONE,
    of_labels,
    one,
)

GI = 1 << 30
_UIDS = count()
_SYSTEMS = ("linux", "windows", "darwin")
_OFFERED = (("spot", "test-zone-1"), ("spot", "test-zone-2"), ("on-demand", "test-zone-1"), ("on-demand", "test-zone-2"),
            ("on-demand", "test-zone-3"))  # fmt: skip


def price_of(capacity: Mapping[str, int]) -> float:
    """Return the price that upstream's fake provider computes (PriceFromResources)."""
    return 0.1 * capacity.get("cpu", 0) / 1000 + 0.1 * capacity.get("memory", 0) / 1e9 + sum(
        held for name, held in capacity.items() if name.startswith("fake.com/vendor")
    )  # fmt: skip


def instance_type(
    name: str, cpu: str = "4", memory: str = "4Gi", pods: str = "5", arch: str = "amd64", os: Sequence[str] = _SYSTEMS,
    price: float | None = None, offered: Sequence[tuple[str, str]] = _OFFERED, more: Mapping[str, int] | None = None,
    **labels: str,
) -> InstanceType:  # fmt: skip
    capacity = {"cpu": amount("cpu", cpu), "memory": amount("memory", memory), "pods": int(pods), **(more or {})}
    cost = price_of(capacity) if price is None else price
    size = "large" if capacity["cpu"] > 4000 and capacity["memory"] > 8 * GI else "small"
    asked = [
        one(INSTANCE_TYPE, "In", (name,)), one("kubernetes.io/arch", "In", (arch,)), one("kubernetes.io/os", "In", os),
        one(ZONE, "In", {zone for _, zone in offered}), one(CAPACITY_TYPE, "In", {kind for kind, _ in offered}),
        one("size", "In", (size,)), one("integer", "In", (str(capacity["cpu"] // 1000),)),
        *(one(key, "In", (value,)) for key, value in labels.items()),
    ]  # fmt: skip
    offerings = tuple(Offering(of_labels({CAPACITY_TYPE: kind, ZONE: zone}), cost) for kind, zone in offered)
    return InstanceType(name, {held.key: held for held in asked}, capacity, {"cpu": 100, "memory": 10 << 20}, offerings)


def default_types() -> list[InstanceType]:
    """Return what upstream's fake provider offers if a test says nothing else."""
    return [
        instance_type("default-instance-type"), instance_type("small-instance-type", cpu="2", memory="2Gi"),
        instance_type("gpu-vendor-instance-type", more={"fake.com/vendor-a": 2}),
        instance_type("gpu-vendor-b-instance-type", more={"fake.com/vendor-b": 2}),
        instance_type("arm-instance-type", cpu="16", memory="128Gi", arch="arm64", os=("ios", "linux", "windows", "darwin")),
        instance_type("single-pod-instance-type", pods="1"),
    ]  # fmt: skip


def assorted(number: int) -> list[InstanceType]:
    """Return types of one CPU and two GiB up, as fake.InstanceTypes: ten pods more with each."""
    return [
        instance_type(f"fake-it-{at}", cpu=str(at + 1), memory=f"{(at + 1) * 2}Gi", pods=str((at + 1) * 10))
        for at in range(number)
    ]


def price_list(types: Sequence[InstanceType]) -> PriceList:
    return PriceList(tuple(types), well_known=WELL_KNOWN | {"size", "integer", "special"})


def pool(
    name: str = "default", requirements: Sequence[Any] = (), labels: Mapping[str, str] | None = None, **more: Any
) -> ProvisioningPool:
    """Return a NodePool; a requirement is (key, operator, *values)."""
    template: dict[str, Any] = {key: more.pop(key) for key in ("taints", "startupTaints") if key in more}
    asked = [
        {"key": key, "operator": operator, "values": [v for v in values if isinstance(v, str)],
         "minValues": next((v for v in values if isinstance(v, int)), None)}
        for key, operator, *values in requirements
    ]  # fmt: skip
    spec = {"template": {"metadata": {"labels": labels or {}}, "spec": {"requirements": asked, **template}}, **more}
    return read_node_pools([{"kind": "NodePool", "metadata": {"name": name}, "spec": spec}])[0]


def pod(
    name: str = "", cpu: str = "", memory: str = "", node: str = "", labels: Mapping[str, str] | None = None, **spec: Any
) -> Pod:
    """Return a pod; words of ``spec`` are fields of the API, ``meta`` and ``status`` those of the others."""
    meta, status, number = spec.pop("meta", {}), spec.pop("status", {}), next(_UIDS)
    requests = {**spec.pop("requests", {}), **({"cpu": cpu} if cpu else {}), **({"memory": memory} if memory else {})}
    ports = spec.pop("ports", [])
    return msgspec.convert({
        "metadata": {"name": name or f"pod-{number}", "namespace": "default", "uid": f"{number:06d}", "labels": labels or {},
                     **meta},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}, "ports": ports}], "nodeName": node, **spec},
        "status": {"phase": "Running" if node else "Pending", **status},
    }, Pod)  # fmt: skip


def needs(*terms: Sequence[tuple[Any, ...]], prefer: Sequence[tuple[Any, ...]] = ()) -> dict[str, Any]:
    """Return node affinity: terms of (key, operator, *values), and preferences (weight, key, operator, *values)."""
    found: dict[str, Any] = {}
    if terms:
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [_term(term) for term in terms]}
    if prefer:
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": weight, "preference": _term([tuple(asked)])} for weight, *asked in prefer
        ]
    return {"nodeAffinity": found}


def _term(asked: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    return {
        "matchExpressions": [{"key": key, "operator": operator, "values": list(values)} for key, operator, *values in asked]
    }


def node(
    name: str, held: InstanceType, pool_name: str = "default", kind: str = "on-demand", zone: str = "test-zone-1", **more: Any
) -> Node:
    """Return an initialized node of a pool."""
    labels = {
        NODE_POOL: pool_name, INSTANCE_TYPE: held.name, CAPACITY_TYPE: kind, ZONE: zone, "kubernetes.io/hostname": name,
        "kubernetes.io/arch": min(held.requirements["kubernetes.io/arch"].values), "kubernetes.io/os": "linux",
        "karpenter.sh/initialized": "true", "karpenter.sh/registered": "true", **more.pop("labels", {}),
    }  # fmt: skip
    shown = {
        which: {name_: f"{v}m" if name_ == "cpu" else str(v) for name_, v in amounts.items()}
        for which, amounts in (("capacity", held.capacity), ("allocatable", held.allocatable))
    }
    return msgspec.convert({
        "metadata": {"name": name, "uid": f"uid of {name}", "labels": {k: v for k, v in labels.items() if v is not None},
                     "annotations": more.pop("annotations", {})},
        "spec": more, "status": {**shown, "conditions": [{"type": "Ready", "status": "True"}]},
    }, Node)  # fmt: skip


def scene(
    types: Sequence[InstanceType] | None = None, pools: Sequence[ProvisioningPool] | None = None, nodes: Sequence[Node] = (),
    pods: Sequence[Pod] = (), daemons: Sequence[Any] = (), **more: Any,
) -> PoolCluster:  # fmt: skip
    """Return a cluster. ``pods`` are those on nodes and those that wait."""
    held = [ExistingNode(one_, [pod_ for pod_ in pods if pod_.spec.node_name == one_.name]) for one_ in nodes]
    return PoolCluster(
        held, [pool()] if pools is None else list(pools), price_list(default_types() if types is None else types),
        daemons_of(daemons), pending=[pod_ for pod_ in pods if not pod_.spec.node_name], **more,
    )  # fmt: skip
