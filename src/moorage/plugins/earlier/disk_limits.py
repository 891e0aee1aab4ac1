"""EBSLimits, GCEPDLimits, AzureDiskLimits and CinderLimits up to 1.31: nodes with a CSINode leave these to CSI drivers.

Claims of ephemeral volumes count, and a missing claim rejects the pod on every node; up to 1.29 it is an error. In 1.27 the
CSINode must declare that disks of Google Compute Engine migrate, and up to 1.26 those of AWS and Azure, too. Up to 1.22 neither
claims of ephemeral volumes nor missing claims count.

Source    kube-scheduler 1.31.8, 1.29.14, 1.27.16, 1.26.15 and 1.22.6, plugins/nodevolumelimits/non_csi.go and utils.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from moorage.api.storage import PersistentVolumeClaim
from moorage.framework.explaining import Detail
from moorage.framework.points import PreFilterPlugin
from moorage.framework.verdicts import SKIP, Reject, Skip
from moorage.plugins.v1_21 import in_tree_limits as oldest
from moorage.plugins.volumes.csi_nodes import CsiNodes
from moorage.plugins.volumes.csi_volumes import NO_NAME
from moorage.plugins.volumes.pod_claims import claim_not_found, is_owned_by, not_owned
from moorage.state.view import NodeView, PodInfo, Snapshot


class _LimitsV131(oldest.DiskLimits, PreFilterPlugin[PodInfo]):
    """The rule for the kind of disk that a subclass names."""

    reuse = oldest.DiskLimits.reuse
    counts_ephemeral = True
    #: A missing claim is an error.
    needs_claims = False
    #: A node leaves the disks to a CSI driver only if its CSINode declares that they migrate.
    must_be_declared = False

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PodInfo | Skip:
        held = pod.volumes
        counts = held is not None and (held.claims or any(getattr(one, self.kind.source) for one in held.inline))
        return pod if counts else SKIP

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        fault, is_error = _invalid_claim(pod, nodes.snapshot)
        if fault:
            is_error = is_error or self.needs_claims
            yield Reject(~nodes.false(), fault, unresolvable=not is_error, error=is_error)
            return
        # The filter of 1.21 leaves out the nodes that declare the migration.
        csi_nodes = nodes.ids(nodes.snapshot.index(CsiNodes).follow())
        counted = ~nodes.false() if self.must_be_declared else csi_nodes == 0
        for reject in super().filter(pod, nodes):
            yield Reject(reject.rows & counted, reject.reason)

    def why(self, state: object, pod: PodInfo, node: NodeView) -> Detail | None:
        fault, _ = _invalid_claim(pod, node.snapshot)
        return Detail(fault) if fault else super().why(state, pod, node)


def _invalid_claim(pod: PodInfo, snapshot: Snapshot) -> tuple[str, bool]:
    """Return why a claim of the pod cannot be counted, and whether that is an error; "" if all can."""
    claims = snapshot.objects(PersistentVolumeClaim)
    for use in pod.volumes.claims if pod.volumes is not None else ():
        if not use.name:
            return NO_NAME, True
        claim = claims.get(use.key)
        if claim is None:
            return f"looking up PVC {use.key}: {claim_not_found(use.name)}", False
        if use.ephemeral and not is_owned_by(claim, pod):
            return not_owned(claim, pod), True
    return "", False


#: Release in which the rules ended → what differs from those that ended later.
_RULES: Final[Mapping[str, Mapping[str, bool]]] = {
    "131": {}, "129": {"needs_claims": True}, "127": {"must_be_declared": True}, "126": {"must_be_declared": True},
}  # fmt: skip
_ENDED: Final = {
    "EBSLimits": ("131", "129", "126"), "GCEPDLimits": ("131", "129", "127"), "AzureDiskLimits": ("131", "129", "126"),
    "CinderLimits": ("131", "129"),
}  # fmt: skip


def _variants() -> Iterator[type[_LimitsV131]]:
    """Yield ``EBSLimitsV131`` and the others; ``variants.toml`` names them all."""
    for plugin, ended in _ENDED.items():
        bases: tuple[type[oldest.DiskLimits], ...] = (_LimitsV131, getattr(oldest, plugin))
        for release in ended:
            made: type[_LimitsV131] = type(f"{plugin}V{release}", bases, {**_RULES[release], "__module__": __name__})
            bases = (made,)
            yield made


globals().update({made.__name__: made for made in _variants()})
