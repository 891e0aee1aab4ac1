"""NodeVolumeLimits: reject nodes where the pod's volumes would exceed the attach limit of a CSI driver.

Reads     the pod's claims and inline volumes, and the volumes behind them; the limits of CSINodes; volumes of the pods on each
          node, and attachments that outlive their pods. A volume that several pods share counts once
Rejects   nodes at their limit (preemption may help); every node, while a claim is missing
Wakes on  a CSINode added or its limit raised; a pod with volumes deleted; the pod's claim added; a volume detached
Source    kube-scheduler 1.36, plugins/nodevolumelimits/csi.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from moorage.api.feature_gates import FeatureGates
from moorage.api.storage import CSIDriver, CSINode, VolumeAttachment
from moorage.framework.changes import Detail, RefusingPlugin, Remedies
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import Attachable, Domains, PreFilterPlugin, Reuse, Scope
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Reject, Skip
from moorage.plugins.volumes.attached_volumes import AttachedVolumes
from moorage.plugins.volumes.csi_nodes import CsiFacts, CsiNodes
from moorage.plugins.volumes.csi_volumes import CountedVolumes, CsiVolume, PodCsiVolumes, needed_volumes
from moorage.plugins.volumes.pod_claims import uses_claim, volume_signature
from moorage.plugins.volumes.volume_reasons import why_attached
from moorage.plugins.volumes.volume_remedies import remedies_of_full_attachments
from moorage.rules.volumes.csi_migration import in_tree_plugins, may_be_of
from moorage.state.view import BoolArray, IntArray, NodeView, PodInfo, Snapshot

# kube-scheduler's own texts, kept word for word: people search their events for them.
TOO_MANY: Final = "node(s) exceed max volume count"
NOT_INSTALLED: Final = "{} CSI driver is not installed on the node"


#: The in-tree plugins that a node migrates → the volumes that a pod needs there, found when they are asked for.
NeededVolumes = Callable[[frozenset[str]], PodCsiVolumes]

_ALL: Final = in_tree_plugins()
_NONE: Final[frozenset[str]] = frozenset()


class NodeVolumeLimits(PreFilterPlugin[NeededVolumes], RefusingPlugin[NeededVolumes], Attachable):
    name = "NodeVolumeLimits"
    #: The index that counts the volumes on nodes.
    attached: Callable[[Snapshot], AttachedVolumes] = AttachedVolumes
    #: VolumeLimitScaling applies to every driver that has a CSIDriver object, whatever its fields.
    every_driver_counts: bool = False
    counted = CountedVolumes()
    #: A missing claim is an error.
    needs_claims: bool = False
    #: A missing claim does not count.
    skips_missing: bool = False

    def __init__(self) -> None:
        self._gates = FeatureGates()

    def attach(self, handle: Handle) -> None:
        self._gates = handle.gates

    @property
    def reuse(self) -> Reuse:
        return Reuse(Scope.NODE, signature=volume_signature, signature_reads=(), domains=Domains(self._closed))

    def _closed(self, wanted: NeededVolumes, nodes: NodeView) -> tuple[()] | None:
        """Return that no node is refused; None if one is."""
        return None if any(reject.rows.any() for reject in self.filter(wanted, nodes)) else ()

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> NeededVolumes | Skip:
        if not counts(pod):
            return SKIP
        return cache(
            lambda migrated: needed_volumes(pod, snapshot, migrated=migrated, placed=self.skips_missing, counted=self.counted)
        )

    def filter(self, wanted: NeededVolumes, nodes: NodeView) -> Iterator[Reject]:
        csi_nodes = nodes.snapshot.index(CsiNodes)
        column = csi_nodes.follow()
        for migrated, of_table in csi_nodes.kinds(self.migrated_with).items():
            rows: BoolArray = nodes.take(of_table)
            if not rows.any():
                continue
            needed = wanted(migrated)
            if needed.fault:
                yield Reject(rows, needed.fault, error=True)
            elif needed.missing:
                yield Reject(rows, needed.missing, unresolvable=not self.needs_claims, error=self.needs_claims)
            elif needed.volumes:
                for driver in self.required(needed, nodes):
                    installed = column.spread(nodes.ids(column), _has_driver(driver))
                    yield Reject(rows & ~installed, NOT_INSTALLED.format(driver))
                    rows = rows & installed
                yield from self.over_limit(needed.volumes, rows, nodes)

    def required(self, needed: PodCsiVolumes, nodes: NodeView) -> list[str]:
        """Return the drivers without which a node cannot run the pod."""
        known = nodes.snapshot.objects(CSIDriver) if self._gates["VolumeLimitScaling"] else {}
        drivers = dict.fromkeys(volume.driver for volume in needed.volumes)
        return [
            driver
            for driver in drivers
            if (about := known.get(driver)) and (self.every_driver_counts or about.spec.prevent_pod_scheduling_if_missing)
        ]

    def over_limit(self, volumes: tuple[CsiVolume, ...], open_rows: BoolArray, nodes: NodeView) -> Iterator[Reject]:
        """Yield the open rows whose volumes would exceed a limit, and rows where a volume of a placed pod is invalid."""
        attached = nodes.snapshot.index(self.attached)
        attached.follow()
        if attached.faults:
            limited = self.limited(nodes)
            for fault in dict.fromkeys(attached.faults.values()):
                faulty = nodes.holding([row for row, found in attached.faults.items() if found == fault])
                yield Reject(open_rows & limited & faulty, fault, error=True)
                open_rows = open_rows & ~faulty
        for driver in dict.fromkeys(volume.driver for volume in volumes):
            limit, column = self.limits(driver, nodes), attached.counts(driver)
            held = nodes.zeros() if column is None else nodes.take(column)
            mine = [volume for volume in volumes if volume.driver == driver]
            if not (held + len(mine) > limit).any():
                continue
            added = attached.added(mine, nodes)
            too_many = (added > 0) & (held + added > limit) & open_rows
            if too_many.any():
                yield Reject(too_many, TOO_MANY)
                open_rows = open_rows & ~too_many

    def limits(self, driver: str, nodes: NodeView) -> IntArray:
        """Return the limit of a driver on each row."""
        return nodes.take(nodes.snapshot.index(CsiNodes).limits(driver))

    def limited(self, nodes: NodeView) -> BoolArray:
        """Return for each row whether it has a limit for any driver."""
        column = nodes.snapshot.index(CsiNodes).follow()
        limited: BoolArray = column.spread(nodes.ids(column), _has_limits)
        return limited

    def migrated_with(self, facts: CsiFacts | None) -> frozenset[str]:
        """Return the in-tree plugins that a node migrates; ``facts`` are those of its CSINode."""
        return _NONE if facts is None else _ALL

    def why(self, wanted: NeededVolumes, pod: PodInfo, node: NodeView) -> Detail | None:
        column = node.snapshot.index(CsiNodes).follow()
        facts = column.values[int(node.ids(column)[0])]
        needed = wanted(self.migrated_with(facts))
        if needed.missing:
            return Detail(needed.missing)
        attached = node.snapshot.index(self.attached)
        drivers = dict.fromkeys(volume.driver for volume in needed.volumes)
        found = []
        for driver in drivers:
            held = attached.counts(driver)
            on_node = 0 if held is None else int(node.take(held)[0])
            added = int(attached.added([volume for volume in needed.volumes if volume.driver == driver], node)[0])
            found.append((driver, on_node, added, int(self.limits(driver, node)[0])))
        absent = [f"{driver}: not installed here" for driver in drivers if facts is None or not facts.has(driver)]
        return why_attached(found) or (Detail("; ".join(absent)) if absent else None)

    def remedies(self, state: object, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        return remedies_of_full_attachments(node)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.CSI_NODE, Action.ADD))
        yield Wake(ClusterEvent(Resource.CSI_NODE, Action.UPDATE), raises_a_limit, by_shape=True)
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE), had_volumes, by_shape=True)
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), uses_claim)
        yield Wake(ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE), frees_attachment, by_shape=True)


def counts(pod: PodInfo) -> bool:
    """Return whether the pod has volumes that may count."""
    return pod.volumes is not None and bool(pod.volumes.claims or pod.volumes.inline)


def _has_limits(facts: CsiFacts | None) -> bool:
    return facts is not None and facts.has_limits


def _has_driver(driver: str) -> Callable[[CsiFacts | None], bool]:
    return lambda facts: facts is not None and facts.has(driver)


# -- hints --------------------------------------------------------------------------------------------------------------


def raises_a_limit(pod: PodInfo, old: CSINode, new: CSINode) -> bool:
    """Return whether the limit of some driver rose. As in kube-scheduler, no limit counts as 0 here."""
    before = _limits(old)
    return any(limit > before.get(driver, 0) for driver, limit in _limits(new).items())


def _limits(node: CSINode) -> dict[str, int]:
    return {d.name: (d.allocatable.count or 0) if d.allocatable is not None else 0 for d in node.spec.drivers}


def had_volumes(pod: PodInfo, gone: PodInfo, new: object = None) -> bool:
    """Return whether a deleted pod was placed or nominated and had volumes that count."""
    return counts(gone) and bool(gone.spec.node_name or gone.status.nominated_node_name)


def frees_attachment(pod: PodInfo, gone: VolumeAttachment, new: object = None) -> bool:
    """Return whether a detached volume frees room for a volume of the pod: any claim, or an inline volume of the driver."""
    if pod.volumes is None:
        return False
    return any(not use.ephemeral for use in pod.volumes.claims) or any(
        may_be_of(gone.spec.attacher, volume) for volume in pod.volumes.inline
    )
