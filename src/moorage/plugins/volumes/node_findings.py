"""Find on which nodes a pod's claims are accessible, can be matched with volumes or provisioned, or are impossible.

Source  kube-scheduler 1.36, plugins/volumebinding/binder.go, FindPodVolumes and checkBoundClaims
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.plugins.volumes.csi_migration import CURRENT_MIGRATION, Migration, MigrationError, in_tree_plugin
from moorage.plugins.volumes.csi_volumes import CsiFacts, CsiNodes
from moorage.plugins.volumes.pod_claims import SELECTED_NODE
from moorage.plugins.volumes.provisioning import Provisioner, Provisioning
from moorage.plugins.volumes.volume_matching import Chosen, VolumeSearch
from moorage.plugins.volumes.volume_reach import rows_reaching
from moorage.state.columns import BoolArray
from moorage.state.view import NodeView

__all__ = ["ClaimsToBind", "ProvisioningGroup", "VolumeFindings", "find"]


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
            reached = _reached(volume, nodes)
        else:
            column = nodes.snapshot.index(CsiNodes).follow()
            moved = column.spread(nodes.ids(column), _has_migrated(plugin))
            try:
                known = wanted.migration.translate(volume) if moved.any() else None
            except MigrationError as error:
                findings.faults.append((open_rows & moved, f"could not translate pv: {error}"))
                open_rows = open_rows & ~moved
                known = None
            reached = _reached(volume, nodes)
            if known is not None:
                reached = np.where(moved, rows_reaching(known.affinity, nodes), reached)
        findings.unreachable |= open_rows & ~reached
        open_rows = open_rows & reached


def _has_migrated(plugin: str) -> Callable[[CsiFacts | None], bool]:
    return lambda facts: facts is not None and plugin in facts.migrated


def _reached(volume: PersistentVolume, nodes: NodeView) -> BoolArray:
    affinity = volume.spec.node_affinity
    return rows_reaching(None if affinity is None else affinity.required, nodes)


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
