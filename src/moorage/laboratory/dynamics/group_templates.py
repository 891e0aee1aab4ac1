"""What nodes of a node group are like that has none: a file, written as for ``moorage plan`` or for providers.

A list with an entry for each group. ``name`` is the id of the group, as the config map ``cluster-autoscaler-status`` has it;
the rest is a node type (``node``, ``like``, ``price``), or an ``instanceType`` of the file of instance types or ``resources``,
with ``labels``, ``taints``, and the ``tags`` of an AWS auto scaling group or the ``annotations`` of a Cluster API object, which
say the same.

Source  cluster-autoscaler, cloudprovider/aws/aws_manager.go, cloudprovider/clusterapi/clusterapi_utils.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.errors import InputError
from moorage.laboratory.plan.node_types import NodeType, read_list, read_types
from moorage.simulator.autoscalers.instance_types import PriceList, node_of

#: The fields of an entry that node types do not have.
_OWN: Final = frozenset({"instanceType", "resources", "labels", "taints", "tags", "annotations"})
_TAG: Final = "k8s.io/cluster-autoscaler/node-template/"
_CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
#: Resources by what their annotations end with.
_RESOURCES: Final = {"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage", "maxPods": "pods"}
_DEFAULT_GPU: Final = "nvidia.com/gpu"
_PODS: Final = "110"


def read_templates(path: str, prices: PriceList | None = None) -> list[NodeType]:
    """Read a file of templates.

    Raises  InputError that names the entry
    """
    found: list[NodeType] = []
    for at, entry in enumerate(read_list(path)):
        where = f"{path}[{at}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise InputError(f"{where}: expected a node group, such as {{name: eks-gpu, instanceType: g5.xlarge}}")
        if _OWN.isdisjoint(entry):
            found += read_types([dict(entry)])
            continue
        node = _node(entry, where, prices)
        rest = {key: value for key, value in entry.items() if key not in _OWN}
        if "price" not in rest and prices is not None and (price := prices.price_of(node["metadata"]["labels"])) is not None:
            rest["price"] = price
        found += read_types([{**rest, "node": node}])
    return found


def _node(entry: Mapping[str, Any], where: str, prices: PriceList | None) -> dict[str, Any]:
    """Return the manifest of a node: that of the instance type, with what the entry says."""
    labels: dict[str, str] = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    resources: dict[str, Any] = {"pods": _PODS}
    if (name := entry.get("instanceType")) is not None:
        held = next((one for one in prices.types if one.name == name), None) if prices is not None else None
        if held is None:
            raise InputError(
                f"{where}: instanceType: {name} is not in the file of instance types; give it with --instance-types"
            )
        made = node_of(held, {}, entry["name"], ())
        labels |= {**made.labels, "node.kubernetes.io/instance-type": name}
        resources |= dict(made.status.allocatable)
    taints = list(_list(entry.get("taints"), f"{where}: taints"))
    for field, reader in (("tags", _of_tags), ("annotations", _of_annotations)):
        for kind, key, value in reader(_map(entry.get(field), f"{where}: {field}")):
            if kind == "label":
                labels[key] = value
            elif kind == "taint":
                text, _, effect = value.rpartition(":")
                taints.append({"key": key, "value": text, "effect": effect})
            else:
                resources[key] = value
    labels |= _map(entry.get("labels"), f"{where}: labels")
    resources |= _map(entry.get("resources"), f"{where}: resources")
    if "cpu" not in resources:
        raise InputError(
            f"{where}: neither instanceType nor resources say how much CPU a node has; give resources: {{cpu: 4, …}}"
        )
    status = {"allocatable": resources, "capacity": resources}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": entry["name"], "labels": labels},
        "spec": {"taints": taints}, "status": status,
    }  # fmt: skip


def _of_tags(tags: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield what the tags of an AWS auto scaling group say of its nodes: labels, taints and resources."""
    for tag, value in tags.items():
        kind, _, key = tag.removeprefix(_TAG).partition("/")
        if tag.startswith(_TAG) and key and kind in {"label", "taint", "resources"}:
            yield kind, key, value


def _of_annotations(given: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield what the annotations of a MachineDeployment or MachineSet say of its nodes."""
    for key, value in given.items():
        name = key.removeprefix(_CAPACITY)
        if not key.startswith(_CAPACITY):
            continue
        if name in _RESOURCES:
            yield "resources", _RESOURCES[name], value
        elif name == "gpu-count":
            yield "resources", given.get(f"{_CAPACITY}gpu-type", _DEFAULT_GPU), value
        elif name == "labels":
            pairs = (pair.partition("=") for pair in value.split(",") if "=" in pair)
            yield from (("label", label, text) for label, _, text in pairs)
        elif name == "taints":
            for one in filter(None, value.split(",")):
                taint, _, text = one.partition("=")
                yield "taint", taint, text


def _map(value: Any, where: str) -> dict[str, str]:
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{where}: expected names with values")
    return {str(key): str(one) for key, one in (value or {}).items()}


def _list(value: Any, where: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise InputError(f"{where}: expected a list")
    return value or []
