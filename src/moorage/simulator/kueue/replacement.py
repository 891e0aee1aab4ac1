"""Replacement of failed nodes: the pods of an admitted gang that stood on such a node get other domains.

What the gang asks of its topology still holds: a required domain stays, and slices that lost pods are made whole where they
are.

Source  Kueue, pkg/cache/scheduler/tas_flavor_snapshot.go, findReplacementAssignment
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from moorage.api.pod_requests import add_amounts
from moorage.simulator.kueue.topology import TopologyTree, Usage, add_usage
from moorage.simulator.kueue.topology_requests import Layer, PlacementRequest, TopologyPlacement
from moorage.simulator.kueue.workloads import Assigned, PodSet, Workload

_Domains = Sequence[tuple[tuple[str, ...], int]]


class NewPlacement(NamedTuple):
    """The new placement of a pod set, and the part of it that is new."""

    at: int
    flavor: str
    placed: TopologyPlacement
    part: TopologyPlacement


def needs_replacement(workload: Workload) -> bool:
    """Return whether an admitted workload stands on a node that failed."""
    stands_there = any(_stands_there(held, workload.unhealthy) for held in workload.admission)
    return workload.has("Admitted") and not workload.evicted and stands_there


def find_replacements(workload: Workload, trees: Mapping[str, TopologyTree]) -> list[NewPlacement] | str:
    """Return new placements without the first failed node, or why there are none. Nothing changes."""
    found: list[NewPlacement] = []
    assumed: dict[str, Usage] = {}
    sets = {one.name: one for one in workload.pod_sets}
    for at, held in enumerate(workload.admission):
        flavor = next((name for name in held.flavors.values() if name in trees), None)
        if flavor is None or not _stands_there(held, workload.unhealthy):
            continue
        taken = assumed.setdefault("" if trees[flavor].of_hosts else flavor, {})
        result = _replaced(trees[flavor], sets[held.name], held, workload.unhealthy[0], taken)
        if isinstance(result, str):
            return result
        placed, part = result
        add_usage(taken, part, sets[held.name].requests)
        found.append(NewPlacement(at, flavor, placed, part))
    return found


def apply_replacements(workload: Workload, found: Sequence[NewPlacement], trees: Mapping[str, TopologyTree]) -> None:
    """Give a workload its new placements; its failed nodes are forgotten. What it had there counts until the cycle ends."""
    admission = list(workload.admission)
    for one in found:
        held = admission[one.at]
        admission[one.at] = replace(held, placed=one.placed)
        trees[one.flavor].use(one.part, workload.pod_sets[one.at].requests)
    workload.admission, workload.unhealthy = tuple(admission), ()


def _stands_there(held: Assigned, nodes: Sequence[str]) -> bool:
    return held.placed is not None and any(values[-1] in nodes for values, _ in held.placed.domains)


def _replaced(
    tree: TopologyTree, pod_set: PodSet, held: Assigned, node: str, assumed: Usage
) -> tuple[TopologyPlacement, TopologyPlacement] | str:  # fmt: skip
    assert held.placed is not None
    rest = [(values, count) for values, count in held.placed.domains if values[-1] != node]
    count = sum(pods for values, pods in held.placed.domains if values[-1] == node)
    if stale := [values for values, _ in rest if ",".join(values) not in tree.leaves]:
        return (
            "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain "
            f"{stale[0][0]}"
        )
    request = PlacementRequest(pod_set.name, count, pod_set.requests, pod_set.spec, pod_set.topology)
    request, asked = replace(request, implied=not request.terms.is_explicit), request.terms
    within = _required_domain(tree, request, rest)
    if within and asked.layers and count % asked.layers[0].size:
        fitting = [layer for layer in asked.layers if count % layer.size == 0]
        request = replace(request, topology=replace(asked, layers=tuple(fitting[-1:])))
    found = tree.place_within(request, assumed, within)
    if isinstance(found, str):
        return found
    part = found[pod_set.name]
    if not part.domains:
        return f"cannot find replacement assignment for unhealthy node: {node}"
    counts = dict(rest)
    add_amounts(counts, dict(part.domains))
    ordered = sorted(counts.items(), key=lambda one: ",".join(tree.leaves[",".join(one[0])].domain.values))
    return TopologyPlacement(part.levels, tuple(ordered)), part


def _required_domain(tree: TopologyTree, request: PlacementRequest, rest: _Domains) -> tuple[str, ...]:
    """Return the values of the domain in which the replacement must stand; none if anywhere will do."""
    key = tree.main_level(request)
    level = None if key is None else tree.level_of(key)
    if level is None or not rest:
        return ()
    layers = request.terms.layers
    if layers and request.count % layers[0].size:
        broken = [layer for layer in layers if request.count % layer.size][-1]
        return _incomplete_domain(tree, rest, request.count, broken)
    if request.terms.required is None:
        return ()
    return tree.leaves[",".join(rest[0][0])].domain.values[: level + 1]


def _incomplete_domain(tree: TopologyTree, rest: _Domains, missing: int, slices: Layer) -> tuple[str, ...]:
    """Return the domain of a level that has all of its slices again with the missing pods."""
    level = tree.level_of(slices.topology)
    if level is None:
        return ()
    pods: dict[tuple[str, ...], int] = {}
    for values, count in rest:
        add_amounts(pods, {tree.leaves[",".join(values)].domain.values[: level + 1]: count})
    return next((domain for domain, count in sorted(pods.items()) if (count + missing) % slices.size == 0), ())
