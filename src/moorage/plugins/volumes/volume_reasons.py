"""Why the volume plugins reject a node: the claim, its volume or class, and the volume's node affinity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moorage.api.core import NodeSelector
from moorage.api.node_selectors import NodeSelectorMatcher
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.framework.explaining import Detail
from moorage.plugins.volumes.claim_lookup import SELECTED_NODE, class_of_claim
from moorage.plugins.volumes.node_findings import ClaimsToBind, VolumeFindings, find
from moorage.plugins.volumes.volume_reach import label_affinity, rows_reaching
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView

__all__ = ["required_of", "why_attached", "why_held", "why_unbound", "why_zone"]


def why_unbound(wanted: ClaimsToBind, node: NodeView) -> Detail | None:
    """Return why the claims cannot be bound or reached on one node."""
    findings = find(wanted, node)
    said = [f"claim {claim.metadata.name}: {text}" for claim, text in _out_of_reach(wanted, node)]
    if findings.unreachable.any() and not said:  # the volume of a CSI driver that serves an in-tree volume here
        said += [f"claim {claim.metadata.name}: its volume is out of reach by its zone labels" for claim, _ in wanted.bound]
    said += [
        f"claim {claim.metadata.name}: provisioned for {claim.metadata.annotations[SELECTED_NODE]}"
        for claim in wanted.selected
        if claim.metadata.annotations[SELECTED_NODE] != node.first.name
    ]
    lacks = "class {} has too little free storage" if findings.no_room.any() else "class {} provisions no volume here"
    for claim in _unmatched(findings) if findings.no_room.any() or findings.unmatched.any() else ():
        said.append(f"claim {claim.metadata.name}: no volume matches, {lacks.format(class_of_claim(claim) or '(none)')}")
    return Detail("; ".join(said)) if said else None


def _unmatched(findings: VolumeFindings) -> list[PersistentVolumeClaim]:
    """Return the claims that no volume matches on the only row."""
    chosen = findings.chosen
    return [] if chosen is None else [one for at, one in enumerate(chosen.claims) if chosen.which[at][0] < 0]


def _out_of_reach(wanted: ClaimsToBind, node: NodeView) -> Iterator[tuple[PersistentVolumeClaim, str]]:
    for claim, volume in wanted.bound:
        if volume is None:
            yield claim, f"its volume {claim.spec.volume_name} does not exist"
        elif not _reaches(volume, node):
            yield claim, f"volume {volume.metadata.name} requires {required_of(volume)}; {_here(volume, node.first)}"


def _reaches(volume: PersistentVolume, node: NodeView) -> bool:
    affinity = volume.spec.node_affinity
    return bool(rows_reaching(None if affinity is None else affinity.required, node)[0])


def required_of(volume: PersistentVolume) -> str:
    """Return a volume's node affinity as text."""
    return " or ".join(
        " and ".join(map(str, term.requirements)) or "nothing" for term in _matcher(volume).terms if not term.faults
    )


def _here(volume: PersistentVolume, node: NodeInfo) -> str:
    keys = dict.fromkeys(one.key for term in _matcher(volume).terms for one in term.requirements)
    return ", ".join(f"{key}={node.labels[key]} here" if key in node.labels else f"no {key} label" for key in keys)


def _matcher(volume: PersistentVolume) -> NodeSelectorMatcher:
    affinity = volume.spec.node_affinity
    required = None if affinity is None else affinity.required
    return label_affinity(required or NodeSelector())


def why_zone(wanted: Iterable[tuple[str, frozenset[str]]], node: NodeInfo) -> Detail | None:
    """Return which topology labels of volumes the node does not share."""
    said = []
    for key, values in dict.fromkeys(wanted):
        held = node.labels.get(key)
        if held not in values:
            here = f"{key}={held} here" if held is not None else f"no {key} label"
            said.append(f"volume is in {key}={' or '.join(sorted(values))}; {here}")
    return Detail("; ".join(said)) if said else None


def why_held(pod: PodInfo, clashing: Iterable[PodInfo], claims: Iterable[str], node: NodeView) -> Detail | None:
    """Return which pods prevent sharing: the ``clashing`` pods, which use its disks on the node, or users of ``claims``.

    ``claims`` are the pod's ReadWriteOncePod claims; their users may be on any node.
    """
    holders = [other.key for other in clashing]
    if holders:
        return Detail(f"disk held by {', '.join(holders[:3])}")
    for name in sorted(claims):
        placed = (other for on_row in node.table.pods for other in on_row.values())
        users = [other.key for other in placed if other.namespace == pod.namespace and _uses(other, name)]
        if users:
            return Detail(f"claim {name} is for one pod; used by {', '.join(users[:3])}")
    return None


def _uses(other: PodInfo, claim: str) -> bool:
    return other.volumes is not None and any(not use.ephemeral and use.name == claim for use in other.volumes.claims)


def why_attached(counts: Iterable[tuple[str, int, int, int]]) -> Detail | None:
    """Return the drivers whose volume limit the pod would exceed. ``counts``: driver, volumes attached, added and allowed."""
    said: list[str] = []
    numbers: dict[str, int] = {}
    for driver, held, added, limit in counts:
        if added > 0 and held + added > limit:
            said.append(f"{driver}: {held} of {limit} volumes attached, needs {added}")
            numbers |= {f"{driver}.attached": held, f"{driver}.needed": added, f"{driver}.limit": limit}
    return Detail("; ".join(said), numbers=numbers) if said else None
