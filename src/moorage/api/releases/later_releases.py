"""Releases after the one that is emulated by default: how each differs from it. Only ``--emulate`` selects them.

GenericWorkload alone governs pod groups in 1.37, and opens what other gates open in 1.36.

Source  kubernetes 1.37, pkg/features/kube_features.go and pkg/scheduler
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from moorage.api.releases.earlier_releases import CURRENT
from moorage.api.releases.release import Release, gates_of

__all__ = ["LATER"]

_GROUPS: Final = "GenericWorkload"

#: Gates that 1.37 no longer has → their value there.
_GONE: Final = {
    "GangScheduling": False, "SchedulerQueueingHints": True, "SidecarContainers": True, "WorkloadAwarePreemption": False,
}  # fmt: skip
_GATES: Final = gates_of("1.37")

_1_37_1: Final = replace(
    CURRENT,
    name="1.37.1",
    documents=frozenset(["v1"]),
    gates=_GATES.deciding,
    inert_gates=_GATES.inert,
    dependent_gates=_GATES.dependent,
    fixed_gates=_GONE,
    opened_with={"GangScheduling": _GROUPS, "WorkloadAwarePreemption": _GROUPS},
    variants=dict.fromkeys(("DefaultPreemption", "DynamicResources", "GangScheduling", "ImageLocality"), "1.37"),
    groups_as_one=True,
    retries_binds=True,
    nominates_gated_pods=True,
    removed_plugins=(),
    group_versions=("v1beta1", "v1alpha3"),
    compared=False,
)

#: Oldest first.
LATER: Final[tuple[Release, ...]] = (_1_37_1,)
