"""The input of the runs of a comparison: the objects of a cluster, unchanged or with every pod to be placed again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Node, Object, Pod, PodStatus
from moorage.basis.printable import counted
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.compare.measured_run import RunInput
from moorage.laboratory.compare.run_metrics import MeasureSetting
from moorage.laboratory.compare.typical_mix import is_bound_to_its_node, typical_mix
from moorage.laboratory.node_groups import groups_by_node
from moorage.report.outcome import InputNote
from moorage.simulator.cluster_run import workload_names

_TYPES: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


def input_of_runs(
    cluster: Cluster, *, again: Collection[str] = (), prices: Mapping[str, float] | None = None, all_nodes: bool = False
) -> RunInput:
    """Return the input of the runs of a cluster. ``again``: pods of these schedulers are to be placed again."""
    objects = list(cluster.simulation_objects())
    notes = list(cluster.notes)
    if again:
        objects, taken, kept = with_pods_to_place_again(objects, again)
        notes.append(InputNote("Remark", f"{counted(taken, 'pod')} to place again, {kept} stay on their nodes"))
    pods = [obj for obj in objects if isinstance(obj, Pod)]
    nodes = [obj for obj in objects if isinstance(obj, Node)]
    return RunInput(
        objects=tuple(objects),
        notes=tuple(notes),
        workloads=workload_names(cluster.input()),
        setting=MeasureSetting(
            tuple(typical_mix(pods)), priced(nodes, prices or {}), all_nodes, sum(len(one.names) for one in cluster.refused)
        ),
        config=cluster.config_changes,
    )


# -- all pods again ------------------------------------------------------------------------------------------------------


def with_pods_to_place_again(objects: Iterable[Object], schedulers: Collection[str]) -> tuple[list[Object], int, int]:
    """Return the objects with the placed pods of these schedulers pending, and how many pods this changes and leaves placed.

    The changed pods are in the order in which they were created, before the pods that are pending already. Pods that exist
    because of their node, that have ended or are being deleted, or that use devices stay on their nodes.
    """
    others: list[Object] = []
    again: list[Pod] = []
    waiting: list[Object] = []
    kept = 0
    for obj in objects:
        if not isinstance(obj, Pod):
            others.append(obj)
        elif not obj.spec.node_name:
            waiting.append(obj)
        elif (
            obj.spec.scheduler_name in schedulers
            and obj.status.phase not in ENDED_PHASES
            and obj.metadata.deletion_timestamp is None
            and not obj.spec.resource_claims
            and not is_bound_to_its_node(obj)
        ):
            again.append(obj)
        else:
            others.append(obj)
            kept += 1
    again.sort(key=lambda pod: pod.metadata.creation_timestamp or "")
    return [*others, *map(unplaced, again), *waiting], len(again), kept


def unplaced(pod: Pod) -> Pod:
    """Return a pod as it waits for a node, before its first attempt."""
    return replace(pod, spec=replace(pod.spec, node_name=""), status=PodStatus())


# -- prices --------------------------------------------------------------------------------------------------------------


def priced(nodes: Sequence[Node], prices: Mapping[str, float]) -> dict[str, float]:
    """Return the price of each node: that of its name, else of its group, else of its instance type."""
    if not prices:
        return {}
    groups = groups_by_node(nodes)
    found = {}
    for node in nodes:
        names = (node.name, groups[node.name], *(node.labels[key] for key in _TYPES if key in node.labels))
        price = next((prices[name] for name in names if name in prices), None)
        if price is not None:
            found[node.name] = price
    return found
