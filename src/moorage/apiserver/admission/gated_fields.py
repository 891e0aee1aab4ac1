"""Fields that feature gates guard: they are dropped where their gate is closed, unless the object had them before.

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

__all__ = ["drop_guarded", "drop_guarded_status"]

_CLAIMS: Final = "DRAWorkloadResourceClaims"
_PREEMPTION: Final = "WorkloadAwarePreemption"
#: Fields of pod groups and of templates for them, with their gates.
_OF_GROUPS: Final = (
    ("schedulingConstraints", "TopologyAwareWorkloadScheduling"), ("resourceClaims", _CLAIMS), ("disruptionMode", _PREEMPTION),
    ("priorityClassName", _PREEMPTION), ("priority", _PREEMPTION),
)  # fmt: skip
#: Fields of leases whose gate, CoordinatedLeaderElection, is never open here.
_OF_LEASES: Final = ("preferredHolder", "strategy")
_OF_PODS: Final = (("schedulingGroup", "GenericWorkload"),)


def drop_guarded(kind: ServedKind, old: Document | None, new: Document, gates: FeatureGates) -> None:
    """Drop from a new version of an object what is guarded. ``old`` is None for an object that is new itself."""
    if kind.kind == "Lease":
        for name in _OF_LEASES:
            if not _spec(old).get(name):
                _spec(new).pop(name, None)
    elif kind.kind == "PodGroup":
        _drop(_spec(old), _spec(new), _OF_GROUPS, gates)
    elif kind.kind == "Workload":
        held = _templates(old)
        for i, template in enumerate(_templates(new)):
            _drop(held[i] if i < len(held) else {}, template, _OF_GROUPS, gates)
    elif not gates["GenericWorkload"]:
        before = dict(pod_specs(kind, old)) if old is not None else {}
        for path, spec in pod_specs(kind, new):
            _drop(before.get(path, {}), spec, _OF_PODS, gates)


def drop_guarded_status(kind: ServedKind, old: Document, new: Document, gates: FeatureGates) -> None:
    """Drop from a new status what is guarded."""
    status = new.get("status")
    if kind.kind == "PodGroup" and isinstance(status, dict) and not gates[_CLAIMS] and not _spec(old).get("resourceClaims"):
        status.pop("resourceClaimStatuses", None)


def _drop(old: Document, new: Document, guarded: tuple[tuple[str, str], ...], gates: FeatureGates) -> None:
    for name, gate in guarded:
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
