"""The releases 1.30 to 1.35, and patch releases of 1.36: how each differs from the one after it, newest first.

Each entry names the rules that ended with that release. A rule of a plugin is a variant in ``moorage.plugins.earlier``; a
variant stays in force in all earlier releases, until an earlier rule replaces it.

Source  kubernetes, the scheduler of each release; docs/reference/releases.md names the pull requests
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from moorage.api.releases.earlier_metrics import METRICS
from moorage.api.releases.release import BETA, Gate, Release, gates_of

# -- earlier releases --------------------------------------------------------------------------------------------------

#: The release that is emulated by default.
TODAY: Final = "1.36"

#: The fault of a shape whose points are not sorted, up to 1.33.
UNSORTED_SHAPE: Final = "utilization values must be sorted in increasing order"

_DISK_LIMITS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
_EARLIER_RELEASES_DRA: Final = "DynamicResourceAllocation"

_GATES: Final = gates_of(TODAY)

CURRENT: Final = Release(
    name=TODAY,
    documents=frozenset(["v1", "v1beta2", "v1beta3"]),
    gates=_GATES.deciding,
    inert_gates=_GATES.inert,
    dependent_gates=_GATES.dependent,
    removed_plugins=(
        *_DISK_LIMITS, "NodeLabel", "NodePreferAvoidPods", "NodeResourcesLeastAllocated", "NodeResourcesMostAllocated",
        "RequestedToCapacityRatio", "SelectorSpread", "ServiceAffinity",
    ),
)  # fmt: skip


def before_release(
    newer: Release, name: str, variants: Mapping[str, str] | None = None, lacks: str = "", **changed: Any
) -> Release:
    """Return the release before ``newer``. ``variants`` and ``changed`` are the plugin rules and traits that ended with it,
    ``lacks`` the plugins that came after it."""
    return replace(
        newer,
        name=name,
        variants={plugin: ended for plugin, ended in {**newer.variants, **(variants or {})}.items() if ended},
        lacks=newer.lacks | frozenset(lacks.split()),
        **{"documents": frozenset(["v1"]), **changed},
    )


def of_minor(minor: str, **fixed: bool) -> Mapping[str, Any]:
    """Return the fields of a release for its gates and metrics: today's gates that it lacks are closed. ``fixed``: others."""
    gates = gates_of(minor)
    fixed |= {gate: False for gate in CURRENT.gates if gate not in gates.deciding}
    return {
        "gates": gates.deciding,
        "dependent_gates": gates.dependent,
        "inert_gates": gates.inert,
        "fixed_gates": fixed,
        "metrics": METRICS[minor],
    }


_1_36_2 = before_release(CURRENT, "1.36.2", {"DynamicResources": "1.36.2"})
_1_36_0 = before_release(_1_36_2, "1.36.0", {"DynamicResources": "1.36.0"})

_1_35_7 = before_release(
    CURRENT,
    "1.35.7",
    {
        "DynamicResources": "1.35",
        "ImageLocality": "1.35",
        "InterPodAffinity": "1.35",
        "NodeResourcesBalancedAllocation": "1.35",
        "NodeResourcesFit": "1.35",
        "NodeVolumeLimits": "1.35",
        "PodTopologySpread": "1.35",
    },
    lacks="PodGroupPodsCount TopologyPlacementGenerator",
    lacks_points={"NodeResourcesFit": "placementScore"},
    lacks_flags=frozenset(["tls-curve-preferences"]),
    removed_plugins=(),
    has_placement_points=False,
    hidden_metrics_fault=(
        "--show-hidden-metrics-for-version must be omitted or have the value '{previous}'. Only the previous minor version is "
        "allowed"
    ),
    metric_labels_fault=(
        "--allow-metric-labels must have a list of kv pair with format `metricName,labelName=labelValue, labelValue,...`"
    ),
    **of_minor("1.35"),
)
_1_35_4 = before_release(_1_35_7, "1.35.4", {"DynamicResources": "1.35.4"})

_1_34_7 = before_release(
    _1_35_7,
    "1.34.7",
    {
        "DefaultPreemption": "1.34.7",
        "DynamicResources": "1.34",
        "NodeResourcesBalancedAllocation": "1.34",
        "NodeResourcesFit": "1.34",
    },
    lacks="GangScheduling NodeDeclaredFeatures",
    flush_fault="panic: non-positive interval for NewTicker",
    lacks_points={"DynamicResources": "score", "NodeResourcesFit": "placementScore"},
    lacks_flags=_1_35_7.lacks_flags | {"min-compatibility-version"},
    **of_minor("1.34"),
)
_1_34_1 = before_release(
    _1_34_7,
    "1.34.1",
    {"DefaultPreemption": "", "TaintToleration": "1.34.1"},
    gates={**_1_34_7.gates, "SchedulerAsyncAPICalls": Gate(True, BETA)},
)

_1_33_3 = before_release(
    _1_34_7,
    "1.33.3",
    {
        "DynamicResources": "1.33",
        "InterPodAffinity": "1.33",
        "NodeResourcesFit": "1.33",
        "TaintToleration": "1.34.1",
        "VolumeBinding": "1.33",
        "VolumeRestrictions": "1.33",
    },
    gated_kinds=dict.fromkeys(("DeviceClass", "ResourceClaim", "ResourceSlice"), _EARLIER_RELEASES_DRA),
    counts_sidecar_ports=False,
    names_election_fields=True,
    queue_sort_differs="queueSort must be the same for all profiles",
    unsorted_shape=UNSORTED_SHAPE,
    **of_minor("1.33"),
)

_1_32_5 = before_release(
    _1_33_3,
    "1.32.5",
    {
        "NodePorts": "1.32",
        "NodeResourcesBalancedAllocation": "1.32",
        "NodeResourcesFit": "1.32",
        "NodeVolumeLimits": "1.32",
        "VolumeBinding": "1.32",
    },
    **of_minor("1.32"),
)

_1_31_8 = before_release(
    _1_32_5,
    "1.31.8",
    {**dict.fromkeys(_DISK_LIMITS, "1.31"), "NodeResourcesFit": "1.31", "NodeVolumeLimits": "1.31"},
    lacks_points={"DefaultPreemption": "preEnqueue", "DynamicResources": "score", "NodeResourcesFit": "placementScore"},
    lacks_flags=_1_32_5.lacks_flags | {"requestheader-uid-headers"},
    gated_kinds={**_1_32_5.gated_kinds, "VolumeAttachment": ""},
    removed_plugins=_DISK_LIMITS,
    names_nodes_left_out=False,
    metric_labels_fault=(
        "--allow-metric-labels must have a list of kv pair with format `metricName:labelName=labelValue, labelValue,...`"
    ),
    event_kinds="1.31",
    **of_minor("1.31"),
)

_1_30_10 = before_release(
    _1_31_8,
    "1.30.10",
    lacks_flags=_1_31_8.lacks_flags | {"disable-http2-serving", "emulated-version"},
    narrowing_rejects=False,
    event_kinds="1.30",
    any_own_update_wakes=True,
    limits_in_tree_disks=True,
    **of_minor("1.30"),
)

#: Newest first, as each builds on the one after it.
EARLIER: Final = (_1_36_2, _1_36_0, _1_35_7, _1_35_4, _1_34_7, _1_34_1, _1_33_3, _1_32_5, _1_31_8, _1_30_10)
