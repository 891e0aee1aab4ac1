"""The releases 1.22 to 1.29: how each differs from the one after it.

Source  kubernetes, the scheduler of each release; docs/reference/releases.md names the pull requests
"""

from __future__ import annotations

from typing import Final

from moorage.api.releases.earlier_releases import EARLIER, before_release, of_minor

# -- older releases ----------------------------------------------------------------------------------------------------

_DISK_LIMITS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")

#: Plugins of 1.22 that score by resources as a strategy of NodeResourcesFit does.
_RESOURCE_SCORES: Final = ("NodeResourcesLeastAllocated", "NodeResourcesMostAllocated", "RequestedToCapacityRatio")

#: Flags of klog, up to 1.25.
_KLOG_FLAGS: Final = frozenset([
    "add-dir-header", "alsologtostderr", "log-backtrace-at", "log-dir", "log-file", "log-file-max-size", "logtostderr",
    "one-output", "skip-headers", "skip-log-headers", "stderrthreshold",
])  # fmt: skip

#: Plugins that cannot reject a pod count, too: they name all events of these kinds.
_MOVING: Final = frozenset([
    "AssignedPod", "Node", "PersistentVolume", "PersistentVolumeClaim", "storage.k8s.io/CSINode",
])  # fmt: skip

_1_30_10: Final = EARLIER[-1]

_1_29_14: Final = before_release(
    _1_30_10,
    "1.29.14",
    {
        **dict.fromkeys(_DISK_LIMITS, "1.29"),
        "ImageLocality": "1.29",
        "NodeAffinity": "1.29",
        "NodeResourcesFit": "1.29",
        "NodeVolumeLimits": "1.29",
        "VolumeBinding": "1.29",
    },
    lacks_points={**_1_30_10.lacks_points, "VolumeBinding": "preScore"},
    lacks_flags=_1_30_10.lacks_flags | {"log-text-info-buffer-size", "log-text-split-stream"},
    rejection_ends_pre_filter=True,
    binds_without_ignorable_extender=False,
    event_kinds="1.29",
    queue_sort_differs="has to match for all profiles",
    **of_minor("1.29"),
)

_1_28_8: Final = before_release(
    _1_29_14,
    "1.28.8",
    {
        "DefaultPreemption": "1.28",
        "ImageLocality": "1.28",
        "SelectorSpread": "1.28",
        "VolumeBinding": "1.28",
        "VolumeRestrictions": "1.28",
        "VolumeZone": "1.28",
    },
    documents=frozenset(["v1", "v1beta3"]),
    lacks_flags=_1_29_14.lacks_flags | {"allow-metric-labels-manifest"},
    removed_plugins=(*_DISK_LIMITS, "SelectorSpread"),
    evicts_on_nodes_left_out=True,
    named_nodes_must_exist=True,
    ends_with_two_periods=True,
    parks_errors=True,
    moving_kinds=_MOVING | {"storage.k8s.io/CSIDriver", "storage.k8s.io/CSIStorageCapacity"},
    metric_labels_fault=(
        "--allow-metric-labels must has a list of kv pair with format `metricName:labelName=labelValue, labelValue,...`"
    ),
    preempted_text="Preempted by a pod on node {node}",
    **of_minor("1.28"),
)

_1_27_16: Final = before_release(
    _1_28_8,
    "1.27.16",
    {
        "GCEPDLimits": "1.27",
        "InterPodAffinity": "1.27",
        "NodeResourcesFit": "1.27",
        "NodeVolumeLimits": "1.27",
        "PodTopologySpread": "1.27",
    },
    lacks_points={**_1_29_14.lacks_points, **dict.fromkeys((*_DISK_LIMITS, "NodeVolumeLimits"), "preFilter")},
    documents=frozenset(["v1", "v1beta2", "v1beta3"]),
    own_flags=frozenset(["lock-object-name", "lock-object-namespace"]),
    evicts_on_nodes_left_out=False,
    named_nodes_must_exist=False,
    moving_kinds=_MOVING,
    delays_cache=False,
    knows_sidecars=False,
    **of_minor("1.27"),
)

_1_26_15: Final = before_release(
    _1_27_16,
    "1.26.15",
    dict.fromkeys(
        (
            "AzureDiskLimits",
            "DefaultPreemption",
            "EBSLimits",
            "InterPodAffinity",
            "NodeAffinity",
            "NodeResourcesBalancedAllocation",
            "NodeResourcesFit",
            "NodeVolumeLimits",
            "PodTopologySpread",
            "VolumeBinding",
            "VolumeRestrictions",
            "VolumeZone",
        ),
        "1.26",
    ),
    lacks_points={
        **_1_27_16.lacks_points,
        "NodeResourcesBalancedAllocation": "preScore",
        "NodeResourcesFit": "preScore placementScore",
        "VolumeZone": "preFilter",
    },
    documents=_1_27_16.documents,
    locks=("leases", "endpointsleases", "configmapsleases"),
    evicts_on_nodes_left_out=True,
    named_nodes_must_exist=True,
    **of_minor("1.26"),
)

_1_25_16: Final = before_release(
    _1_26_15,
    "1.25.16",
    {"NodeResourcesFit": "1.25"},
    lacks="DynamicResources SchedulingGates",
    documents=_1_26_15.documents,
    own_flags=_1_26_15.own_flags | _KLOG_FLAGS,
    has_pre_enqueue=False,
    quotes_pre_filter=False,
    lease_may_equal_deadline=True,
    ends_with_two_periods=False,
    **of_minor("1.25"),
)

_1_24_17: Final = before_release(
    _1_25_16,
    "1.24.17",
    dict.fromkeys(("NodeResourcesBalancedAllocation", "NodeResourcesFit", "NodeVolumeLimits", "VolumeBinding"), "1.24"),
    documents=frozenset(["v1beta2", "v1beta3"]),
    migrates_in_tree_disks=False,
    gates_log_options=False,
    **of_minor("1.24", CSIMigrationOpenStack=True),
)

_1_23_5: Final = before_release(
    _1_24_17,
    "1.23.5",
    dict.fromkeys(
        ("DefaultPreemption", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "TaintToleration", "VolumeBinding"),
        "1.23",
    ),
    documents=_1_24_17.documents,
    lacks_flags=_1_24_17.lacks_flags | {"pod-max-in-unschedulable-pods-duration"},
    own_flags=_1_24_17.own_flags | {"address", "port", "experimental-logging-sanitization"},
    locks=(*_1_24_17.locks, "endpoints", "configmaps"),
    event_kinds="1.23",
    tries_nominated_node_first=False,
    tells_of_post_filter=False,
    flush_fault="",
    error_reason="Unschedulable",
    runs_own_plugins_first=True,
    preempted_text="Preempted by {key} on node {node}",
    **of_minor("1.23", MinDomainsInPodTopologySpread=False),
)

_1_22_6: Final = before_release(
    _1_23_5,
    "1.22.6",
    dict.fromkeys((*_DISK_LIMITS, *_RESOURCE_SCORES, "DefaultPreemption", "NodeVolumeLimits", "VolumeBinding"), "1.22"),
    documents=frozenset(["Policy", "v1beta1", "v1beta2"]),
    policy_flags=True,
    lacks_flags=_1_23_5.lacks_flags | {"log-json-info-buffer-size", "log-json-split-stream"},
    own_flags=_1_23_5.own_flags
    | {"policy-config-file", "policy-configmap", "policy-configmap-namespace", "use-legacy-policy-config"},
    removed_plugins=(*_1_23_5.removed_plugins, *_RESOURCE_SCORES, "NodeLabel", "NodePreferAvoidPods", "ServiceAffinity"),
    event_kinds="1.22",
    has_multi_point=False,
    keeps_nominations=True,
    wakes_after_failed_binding=False,
    **of_minor("1.22", MinDomainsInPodTopologySpread=False, CSIMigrationPortworx=False),
)

#: Newest first, as each builds on the one after it.
OLDER: Final = (_1_29_14, _1_28_8, _1_27_16, _1_26_15, _1_25_16, _1_24_17, _1_23_5, _1_22_6)
