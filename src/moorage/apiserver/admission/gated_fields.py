"""Drop fields whose feature gate is disabled, unless the stored object already has them.

Source  kubernetes, pkg/api/pod/util.go, dropDisabledSchedulingGroup; pkg/registry/scheduling/podgroup/strategy.go and
        workload/strategy.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moorage.apiserver.admission.validation import pod_specs
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.framework.features import FeatureGates

__all__ = ["drop_disabled_fields", "drop_disabled_status_fields"]

_CLAIMS: Final = "DRAWorkloadResourceClaims"
_PREEMPTION: Final = "WorkloadAwarePreemption"
#: Gated fields of pod groups and of their templates, with their gates.
_GROUP_FIELDS: Final = (
    ("schedulingConstraints", "TopologyAwareWorkloadScheduling"), ("resourceClaims", _CLAIMS), ("disruptionMode", _PREEMPTION),
    ("priorityClassName", _PREEMPTION), ("priority", _PREEMPTION),
)  # fmt: skip
#: Fields of leases that need the gate CoordinatedLeaderElection, which is always disabled here.
_LEASE_FIELDS: Final = ("preferredHolder", "strategy")
_POD_FIELDS: Final = (("schedulingGroup", "GenericWorkload"),)


def drop_disabled_fields(kind: ServedKind, old: Document | None, new: Document, gates: FeatureGates) -> None:
    """Drop gated fields from the new version of an object, in place. ``old`` is None on create."""
    if kind.native == "Lease":
        for name in _LEASE_FIELDS:
            if not _spec(old).get(name):
                _spec(new).pop(name, None)
    elif kind.native == "PodGroup":
        _drop(_spec(old), _spec(new), _GROUP_FIELDS, gates)
    elif kind.native == "Workload":
        held = _templates(old)
        for i, template in enumerate(_templates(new)):
            _drop(held[i] if i < len(held) else {}, template, _GROUP_FIELDS, gates)
    elif not gates["GenericWorkload"]:
        before = dict(pod_specs(kind, old)) if old is not None else {}
        for path, spec in pod_specs(kind, new):
            _drop(before.get(path, {}), spec, _POD_FIELDS, gates)


def drop_disabled_status_fields(kind: ServedKind, old: Document, new: Document, gates: FeatureGates) -> None:
    """Drop gated fields from a new status, in place."""
    status = new.get("status")
    if kind.native == "PodGroup" and isinstance(status, dict) and not gates[_CLAIMS] and not _spec(old).get("resourceClaims"):
        status.pop("resourceClaimStatuses", None)


def _drop(old: Document, new: Document, gated: tuple[tuple[str, str], ...], gates: FeatureGates) -> None:
    for name, gate in gated:
        if name in new and not gates[gate] and old.get(name) in (None, "", []):
            del new[name]


def _spec(document: Document | None) -> Document:
    spec: Any = (document or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def _templates(document: Document | None) -> list[Document]:
    found: Any = _spec(document).get("podGroupTemplates")
    return list(_dicts(found)) if isinstance(found, list) else []


def _dicts(values: list[Any]) -> Iterator[Document]:
    return (one for one in values if isinstance(one, dict))
