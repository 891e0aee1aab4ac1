"""EBSLimits, GCEPDLimits, AzureDiskLimits and CinderLimits up to 1.31: nodes with a CSINode leave these to CSI drivers.

Claims of ephemeral volumes count, and a missing claim rejects the pod on every node; up to 1.29 it is an error. In 1.27 the
CSINode must declare that disks of Google Compute Engine migrate, and up to 1.26 those of AWS and Azure, too. Up to 1.22 neither
claims of ephemeral volumes nor missing claims count.

Source    kube-scheduler 1.31.8, 1.29.14, 1.27.16, 1.26.15 and 1.22.6, plugins/nodevolumelimits/non_csi.go and utils.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.storage import PersistentVolumeClaim
from moorage.framework.explaining import Detail
from moorage.framework.points import PreFilterPlugin
from moorage.framework.verdicts import SKIP, Reject, Skip
from moorage.plugins.v1_21 import in_tree_limits as oldest
from moorage.plugins.volumes.csi_volumes import CsiNodes
from moorage.plugins.volumes.pod_claims import claim_not_found, is_owned_by, not_owned
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView


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
        counted = ~nodes.false() if self.must_be_declared else ~_with_csi_node(nodes)
        for reject in super().filter(pod, nodes):
            yield Reject(reject.rows & counted, reject.reason)

    def why(self, state: object, pod: PodInfo, node: NodeView) -> Detail | None:
        fault, _ = _invalid_claim(pod, node.snapshot)
        return Detail(fault) if fault else super().why(state, pod, node)


def _with_csi_node(nodes: NodeView) -> BoolArray:
    column = nodes.snapshot.index(CsiNodes).follow()
    found: BoolArray = nodes.ids(column) != 0
    return found


def _invalid_claim(pod: PodInfo, snapshot: Snapshot) -> tuple[str, bool]:
    """Return why a claim of the pod cannot be counted, and whether that is an error; "" if all can."""
    claims = snapshot.objects(PersistentVolumeClaim)
    for use in pod.volumes.claims if pod.volumes is not None else ():
        if not use.name:
            return oldest.NO_NAME, True
        claim = claims.get(use.key)
        if claim is None:
            return f"looking up PVC {use.key}: {claim_not_found(use.name)}", False
        if use.ephemeral and not is_owned_by(claim, pod):
            return not_owned(claim, pod), True
    return "", False


class EBSLimitsV131(_LimitsV131, oldest.EBSLimits):
    """Disks of AWS Elastic Block Store."""


class GCEPDLimitsV131(_LimitsV131, oldest.GCEPDLimits):
    """Persistent disks of Google Compute Engine."""


class AzureDiskLimitsV131(_LimitsV131, oldest.AzureDiskLimits):
    """Managed disks of Azure."""


class CinderLimitsV131(_LimitsV131, oldest.CinderLimits):
    """Volumes of OpenStack Cinder."""


class EBSLimitsV129(EBSLimitsV131):
    """Disks of AWS Elastic Block Store, up to 1.29."""

    needs_claims = True


class GCEPDLimitsV129(GCEPDLimitsV131):
    """Persistent disks of Google Compute Engine, up to 1.29."""

    needs_claims = True


class AzureDiskLimitsV129(AzureDiskLimitsV131):
    """Managed disks of Azure, up to 1.29."""

    needs_claims = True


class CinderLimitsV129(CinderLimitsV131):
    """Volumes of OpenStack Cinder, up to 1.29."""

    needs_claims = True


class GCEPDLimitsV127(GCEPDLimitsV129):
    """Persistent disks of Google Compute Engine in 1.27."""

    must_be_declared = True


class EBSLimitsV126(EBSLimitsV129):
    """Disks of AWS Elastic Block Store, up to 1.26."""

    must_be_declared = True


class AzureDiskLimitsV126(AzureDiskLimitsV129):
    """Managed disks of Azure, up to 1.26."""

    must_be_declared = True
