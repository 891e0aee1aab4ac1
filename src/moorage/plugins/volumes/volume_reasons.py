"""Why volumes keep a pod from nodes, and what would let it in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.api.core import NodeSelector
from moorage.api.node_selectors import NodeSelectorMatcher
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.framework.changes import Detail
from moorage.plugins.volumes.csi_nodes import CsiFacts, CsiNodes
from moorage.plugins.volumes.provisioning import Provisioner, Provisioning
from moorage.plugins.volumes.volume_matching import Chosen, VolumeSearch
from moorage.plugins.volumes.volume_reach import Reach, label_affinity, rows_reaching
from moorage.rules.volumes.bindings import SELECTED_NODE, class_of_claim
from moorage.rules.volumes.csi_migration import CURRENT_MIGRATION, Migration, MigrationError, in_tree_plugin
from moorage.state.view import BoolArray, NodeInfo, NodeView, PodInfo

# Find on which nodes a pod's claims are accessible, can be matched with volumes or provisioned, or are impossible.
#
# Source  kube-scheduler 1.36, plugins/volumebinding/binder.go, FindPodVolumes and checkBoundClaims


class ClaimsToBind(NamedTuple):
    """The claims of one pod in the form Filter needs.

    ``bound``     claims with their volumes; None for a missing volume
    ``selected``  claims whose volume is being provisioned for the node in their annotation
    ``search``    the search for the other unbound claims; None if there are none
    ``fault``     why no search is possible
    ``migration`` which in-tree volumes CSI drivers may serve
    ``counted``   whether the capacity that drivers publish counts
    """

    bound: tuple[tuple[PersistentVolumeClaim, PersistentVolume | None], ...] = ()
    selected: tuple[PersistentVolumeClaim, ...] = ()
    search: VolumeSearch | None = None
    fault: str = ""
    migration: Migration = CURRENT_MIGRATION
    counted: bool = True

    @property
    def is_all_bound(self) -> bool:
        return not self.selected and self.search is None and not self.fault


#: Positions in a view, from 0.
Positions = npt.NDArray[np.intp]


class ProvisioningGroup(NamedTuple):
    """Rows on which volumes are provisioned for the same claims, and those claims in their order."""

    positions: Positions
    to_provision: tuple[PersistentVolumeClaim, ...]


@dataclass
class VolumeFindings:
    """The results; arrays have one entry per row of the view. A row may be rejected for several reasons.

    ``unreachable``  a bound volume cannot be accessed            ``lost``     a bound volume is missing
    ``unmatched``    no volume matches, none can be provisioned   ``no_room``  capacity is missing to provision one
    """

    unreachable: BoolArray
    lost: BoolArray
    unmatched: BoolArray
    no_room: BoolArray
    faults: list[tuple[BoolArray, str]] = field(default_factory=list)
    chosen: Chosen | None = None
    groups: list[ProvisioningGroup] = field(default_factory=list)
    provisionings: dict[str, Provisioning] = field(default_factory=dict)


def find(wanted: ClaimsToBind, nodes: NodeView) -> VolumeFindings:
    """Examine every row of the view."""
    findings = VolumeFindings(nodes.false(), nodes.false(), nodes.false(), nodes.false())
    _check_bound(wanted, nodes, findings)
    if wanted.is_all_bound:
        return findings
    here = np.ones(len(nodes), dtype=bool)
    for claim in wanted.selected:
        here &= nodes.named([claim.metadata.annotations[SELECTED_NODE]])
    findings.unmatched |= ~here
    if wanted.fault:
        findings.faults.append((here, wanted.fault))
        return findings
    findings.chosen = wanted.search.over(nodes) if wanted.search is not None else None
    for group in _provisioning_groups(wanted, findings.chosen, here):
        findings.groups.append(group)
        _check_provisioning(wanted, group, nodes, findings)
    return findings


def _check_bound(wanted: ClaimsToBind, nodes: NodeView, findings: VolumeFindings) -> None:
    """Check bound claims in order; the first that fails on a row decides its reason."""
    open_rows = np.ones(len(nodes), dtype=bool)
    for _, volume in wanted.bound:
        if volume is None:
            findings.lost |= open_rows
            return
        plugin = in_tree_plugin(volume.spec)
        if plugin is None or plugin not in wanted.migration.plugins:
            reached = rows_reaching(volume.required_affinity, nodes)
        else:
            column = nodes.snapshot.index(CsiNodes).follow()
            moved = column.spread(nodes.ids(column), _has_migrated(plugin))
            try:
                known = wanted.migration.translate(volume) if moved.any() else None
            except MigrationError as error:
                findings.faults.append((open_rows & moved, f"could not translate pv: {error}"))
                open_rows = open_rows & ~moved
                known = None
            reached = rows_reaching(volume.required_affinity, nodes)
            if known is not None:
                reached = np.where(moved, rows_reaching(known.affinity, nodes), reached)
        findings.unreachable |= open_rows & ~reached
        open_rows = open_rows & reached


def closed_domains(wanted: ClaimsToBind, nodes: NodeView) -> list[tuple[str, BoolArray]] | None:
    """Return the values of labels that keep nodes from bound volumes, by label; None if anything else does."""
    closed: list[tuple[str, BoolArray]] = []
    for _, volume in wanted.bound if wanted.is_all_bound else ((None, None),):
        if volume is None or in_tree_plugin(volume.spec) in wanted.migration.plugins:
            return None
        reach = Reach.of(volume.required_affinity)
        if reach.required is not None:
            column = nodes.label(reach.required.key)
            values = np.ones(len(column.values), dtype=bool)
            values[[at for value in reach.required.values if (at := column.find(value)) > 0]] = False
            closed.append((reach.required.key, values))
        elif reach.affinity is not None:
            return None
    return closed


def _has_migrated(plugin: str) -> Callable[[CsiFacts | None], bool]:
    return lambda facts: facts is not None and plugin in facts.migrated


def _provisioning_groups(wanted: ClaimsToBind, chosen: Chosen | None, here: BoolArray) -> Iterator[ProvisioningGroup]:
    """Group the rows ``here`` by the claims that match no volume there."""
    if chosen is None:
        yield ProvisioningGroup(np.flatnonzero(here), wanted.selected)
        return
    if len(chosen.claims) == 1:
        yield from _groups_of_only_claim(wanted, chosen, here)
        return
    weights = 1 << np.arange(len(chosen.claims), dtype=np.int64)
    patterns = weights @ (chosen.which < 0)
    for pattern in np.unique(patterns[here]).tolist():
        unbound = (claim for at, claim in enumerate(chosen.claims) if pattern >> at & 1)
        yield ProvisioningGroup(np.flatnonzero(here & (patterns == pattern)), (*wanted.selected, *unbound))


def _groups_of_only_claim(wanted: ClaimsToBind, chosen: Chosen, here: BoolArray) -> Iterator[ProvisioningGroup]:
    """Group the rows by whether a volume matches: those that have one first."""
    is_unbound = chosen.which[0] < 0
    for rows, claims in ((here & ~is_unbound, ()), (here & is_unbound, chosen.claims)):
        if rows.any():
            yield ProvisioningGroup(np.flatnonzero(rows), (*wanted.selected, *claims))


def _check_provisioning(wanted: ClaimsToBind, group: ProvisioningGroup, nodes: NodeView, findings: VolumeFindings) -> None:
    """Check the claims whose volume must be provisioned, in order; the first that fails on a row decides its reason."""
    left = group.positions
    for made in _provisionings(wanted, group.to_provision, nodes, findings):
        findings.unmatched[left[~made.possible[left]]] = True
        left = left[made.possible[left]]
        findings.no_room[left[~made.has_room[left]]] = True
        left = left[made.has_room[left]]


def _provisionings(
    wanted: ClaimsToBind, claims: Iterable[PersistentVolumeClaim], nodes: NodeView, findings: VolumeFindings
) -> Iterator[Provisioning]:
    for claim in claims:
        made = findings.provisionings.get(claim.key)
        if made is None:
            check = nodes.snapshot.index(Provisioner).check
            made = findings.provisionings[claim.key] = check(claim, nodes, counted=wanted.counted)
        yield made


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
    chosen = findings.chosen if findings.no_room.any() or findings.unmatched.any() else None
    for at, claim in enumerate(chosen.claims if chosen is not None else ()):
        if chosen is not None and chosen.which[at][0] < 0:
            said.append(f"claim {claim.metadata.name}: no volume matches, {lacks.format(class_of_claim(claim) or '(none)')}")
    return Detail("; ".join(said)) if said else None


def _out_of_reach(wanted: ClaimsToBind, node: NodeView) -> Iterator[tuple[PersistentVolumeClaim, str]]:
    for claim, volume in wanted.bound:
        if volume is None:
            yield claim, f"its volume {claim.spec.volume_name} does not exist"
        elif not rows_reaching(volume.required_affinity, node)[0]:
            yield claim, f"volume {volume.metadata.name} requires {required_of(volume)}; {_here(volume, node.first)}"


def required_of(volume: PersistentVolume) -> str:
    """Return a volume's node affinity as text."""
    return " or ".join(
        " and ".join(map(str, term.requirements)) or "nothing" for term in _matcher(volume).terms if not term.faults
    )


def _here(volume: PersistentVolume, node: NodeInfo) -> str:
    keys = dict.fromkeys(one.key for term in _matcher(volume).terms for one in term.requirements)
    return ", ".join(f"{key}={node.labels[key]} here" if key in node.labels else f"no {key} label" for key in keys)


def _matcher(volume: PersistentVolume) -> NodeSelectorMatcher:
    return label_affinity(volume.required_affinity or NodeSelector())


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
