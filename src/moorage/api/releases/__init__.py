"""The releases of Kubernetes that can be emulated: one object each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from moorage.api.releases.earlier_metrics import METRICS
from moorage.api.releases.earlier_releases import CURRENT, TODAY, UNSORTED_SHAPE
from moorage.api.releases.earlier_releases import EARLIER as SINCE_1_30
from moorage.api.releases.later_releases import LATER
from moorage.api.releases.older_releases import OLDER
from moorage.api.releases.release import ALPHA, BETA, STABLE, Gate, Release, gates_of

__all__ = [
    "ALPHA", "BETA", "CURRENT", "EARLIER", "LATER", "LEGACY", "RELEASES", "STABLE", "TODAY", "Gate", "Release", "find_release",
    "why_unknown",
]  # fmt: skip

#: Gates of ``CURRENT`` that change how the scheduler works and not its decisions; they are open for every release.
_MACHINERY: Final = frozenset(["SchedulerQueueingHints"])

_1_22: Final = OLDER[-1]
_LACKS_1_20: Final = _1_22.lacks_flags | {"allow-metric-labels", "disabled-metrics", "permit-address-sharing"}
_OWN_1_21: Final = _1_22.own_flags | {"algorithm-provider", "hard-pod-affinity-symmetric-weight", "scheduler-name"}
#: Traits that 1.19 to 1.22 share.
_AS_1_22: Final = (
    "ends_with_two_periods", "error_reason", "evicts_on_nodes_left_out", "flush_fault", "gates_log_options",
    "hidden_metrics_fault", "keeps_nominations", "lease_may_equal_deadline", "locks", "metric_labels_fault",
    "named_nodes_must_exist", "names_election_fields", "names_nodes_left_out", "narrowing_rejects", "parks_errors",
    "quotes_pre_filter", "rejection_ends_pre_filter", "runs_own_plugins_first", "tells_of_post_filter",
    "wakes_after_failed_binding",
)  # fmt: skip


def _legacy(name: str) -> Release:
    gates = gates_of(name)
    return Release(
        name=name,
        documents=frozenset(["v1beta1", "Policy"]),
        gates=gates.deciding,
        inert_gates=gates.inert,
        fixed_gates={gate: gate in _MACHINERY for gate in CURRENT.gates if gate not in gates.deciding},
        gated_kinds={
            "CSIDriver": "CSIStorageCapacity",
            "CSIStorageCapacity": "CSIStorageCapacity",
            "DeviceClass": "",
            "Namespace": "PodAffinityNamespaceSelector",
            "ResourceClaim": "",
            "ResourceSlice": "",
            "VolumeAttachment": "",
        },
        legacy_flags=True,
        lacks_flags=_1_22.lacks_flags,
        own_flags=_OWN_1_21,
        policy_flags=True,
        election_flags_override=False,
        drops_later_pod_fields=True,
        extender_nodes_replace=False,
        binds_without_ignorable_extender=False,
        tries_nominated_node_first=False,
        preempted_text="Preempted by {key} on node {node}",
        unsorted_shape=UNSORTED_SHAPE,
        migrates_in_tree_disks=False,
        balances_attached_volumes=True,
        metrics=METRICS[name],
        has_pre_enqueue=False,
        **{trait: getattr(_1_22, trait) for trait in _AS_1_22},
    )


#: The releases with their own plugins, flags and configuration documents, oldest first.
LEGACY: Final = (
    replace(
        _legacy("1.19"),
        lacks_flags=_LACKS_1_20,
        own_flags=_OWN_1_21 - {"experimental-logging-sanitization", "one-output"},
        default_lock="endpointsleases",
        open_paths=("/healthz",),
        serves_resource_metrics=False,
        weight_range="[0-100]",
    ),
    replace(_legacy("1.20"), lacks_flags=_LACKS_1_20, open_paths=("/healthz",), weight_range="[0-100]"),
    _legacy("1.21"),
)

#: The releases before ``CURRENT`` with its flags and configuration documents, newest first.
EARLIER: Final = (*SINCE_1_30, *OLDER)

#: All releases by name, oldest first.
RELEASES: Final[Mapping[str, Release]] = {one.name: one for one in (*LEGACY, *reversed(EARLIER), CURRENT, *LATER)}

#: Version → the listed release with the same scheduler.
_SAME: Final[Mapping[str, str]] = {"1.32.2": "1.32.5", "1.33.0": "1.33.3", "1.36.3": TODAY}


def find_release(version: str) -> Release | None:
    """Return the release of a version; None if it is not known.

    ``1.34.1`` is that patch release, ``1.34`` the newest patch release of 1.34 that is known, or else a pre-release of it.
    """
    version = version.removeprefix("v")
    name = _SAME.get(version, version)
    if name in RELEASES:
        return RELEASES[name]
    return next((one for one in reversed(tuple(RELEASES.values())) if one.series == version), None)


def why_unknown(version: str) -> str:
    """Return the message for a version that ``find_release`` does not find; it names the nearest known releases."""
    number = _number(version)
    if number is None:
        return f"{version!r} is no release; write {TODAY}, or a patch release such as {EARLIER[2]}"
    known = sorted((_number(name) or (), name) for name in (*RELEASES, *_SAME))
    older = [name for one, name in known if one < number]
    newer = [name for one, name in known if one >= number]
    nearest = [*older[-1:], *newer[:1]]
    return f"release {version} is not known; the nearest {'is' if len(nearest) == 1 else 'are'} {' and '.join(nearest)}"


def _number(version: str) -> tuple[int, ...] | None:
    parts = version.removeprefix("v").partition("-")[0].split(".")
    return tuple(map(int, parts)) if len(parts) in {2, 3} and all(part.isdecimal() for part in parts) else None
