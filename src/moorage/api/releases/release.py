"""A release of Kubernetes: everything in which releases differ, as one value.

Code that behaves differently in different releases asks the ``Release`` for the trait; it never compares release names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

ALPHA: Final = "ALPHA"
BETA: Final = "BETA"
STABLE: Final = "GA"


class Gate(NamedTuple):
    """A feature gate as a release ships it. ``needs`` are the gates that must be open for this one to be open."""

    default: bool
    stage: str
    locked: bool = False
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """A release that can be emulated. The defaults of the traits are those of the newest release.

    ``documents``     the configuration documents it reads: versions of KubeSchedulerConfiguration, and ``Policy``
    ``gates``         feature gates that change decisions
    ``inert_gates``   feature gates that are accepted and change nothing
    ``dependent_gates``  of the inert gates, those that need one of ``gates``
    ``fixed_gates``   gates of other releases → their value here; they cannot be set
    ``opened_with``   gates of other releases → the gate here that opens them
    ``gated_kinds``   kinds that it lists only if a gate is open ("": never) → the gate
    ``variants``      plugin → the release in which the rule of this plugin here ended; other plugins follow the newest rules.
                      In a release after the newest, the release in which the rule began
    ``lacks``         plugins of the newest release that it does not have
    ``removed_plugins``  plugins of 1.21 that it has and the newest release does not
    ``lacks_flags``   kube-scheduler's flags of the newest release that it does not have
    ``own_flags``     kube-scheduler's flags that the newest release does not have
    ``lacks_points``  plugin → extension points that it implements in the newest release and not here
    ``more_points``   plugin → extension points that it implements here and not in the newest release
    ``idle_points``   plugin → extension points at which it may be listed, and where it only says that it has nothing to do
    """

    name: str
    #: The patch release that it is, if the name has only the minor one.
    patch: str = ""
    documents: frozenset[str] = frozenset()
    gates: Mapping[str, Gate] = field(default_factory=dict)
    inert_gates: frozenset[str] = frozenset()
    dependent_gates: Mapping[str, Gate] = field(default_factory=dict)
    fixed_gates: Mapping[str, bool] = field(default_factory=dict)
    opened_with: Mapping[str, str] = field(default_factory=dict)
    gated_kinds: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    lacks: frozenset[str] = frozenset()
    removed_plugins: tuple[str, ...] = ()
    lacks_flags: frozenset[str] = frozenset()
    own_flags: frozenset[str] = frozenset()
    lacks_points: Mapping[str, str] = field(default_factory=dict)
    more_points: Mapping[str, str] = field(default_factory=dict)
    idle_points: Mapping[str, str] = field(default_factory=dict)
    #: The versions of ``scheduling.k8s.io`` in which pod groups and workloads are served.
    group_versions: tuple[str, ...] = ("v1alpha2",)
    #: Gates that change no decision and open kinds by default.
    serves: frozenset[str] = frozenset()
    #: What texts add to its name if its decisions only follow its source code; "": they were compared with kube-scheduler's.
    basis: str = ""
    #: It has the plugins, algorithm providers and configuration rules of 1.19 to 1.21.
    legacy_flags: bool = False
    #: It has kube-scheduler's flags for plain HTTP ports and for a Policy.
    policy_flags: bool = False
    #: Flags of leader election take effect beside a configuration file.
    election_flags_override: bool = True
    default_lock: str = "leases"
    #: The objects that leader election may lock.
    locks: tuple[str, ...] = ("leases",)
    #: Faults of leader election name the field in words.
    names_election_fields: bool = False
    #: A lease may last as long as its renewal.
    lease_may_equal_deadline: bool = False
    #: The default of --authorization-always-allow-paths.
    open_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    serves_resource_metrics: bool = True
    #: The range of --hard-pod-affinity-symmetric-weight as the error message writes it.
    weight_range: str = "[0, 100]"
    #: It ignores the pod fields that later releases added (``moorage.framework.dropped_fields``).
    drops_later_pod_fields: bool = False
    #: The nodes in an extender's reply replace the scheduler's own for scoring.
    extender_nodes_replace: bool = True
    #: The nominated node is tried before all others, without a gate.
    tries_nominated_node_first: bool = True
    #: Every in-tree disk of a driver counts as the CSI driver's, without a gate.
    migrates_in_tree_disks: bool = True
    #: The gate BalanceAttachedNodeVolumes has an effect.
    balances_attached_volumes: bool = False
    #: Init containers may be sidecars.
    knows_sidecars: bool = True
    #: Host ports of sidecars count.
    counts_sidecar_ports: bool = True
    #: A message counts the nodes that a PreFilter plugin left out.
    names_nodes_left_out: bool = True
    #: A PreFilter plugin that narrowed the nodes counts as one that rejected the pod.
    narrowing_rejects: bool = True
    #: Eviction is tried on nodes that a PreFilter plugin left out.
    evicts_on_nodes_left_out: bool = False
    #: A PreFilter plugin that names a node which does not exist fails the attempt.
    named_nodes_must_exist: bool = False
    #: A message ends with a period after the text of PostFilter, which has its own.
    ends_with_two_periods: bool = False
    #: A message quotes PostFilter.
    tells_of_post_filter: bool = True
    #: A message quotes the reason of a PreFilter plugin alone; otherwise it counts it for every node.
    quotes_pre_filter: bool = True
    #: The event of an evicted pod, with ``{uid}`` or ``{key}`` of the pod it makes room for, and the ``{node}``.
    preempted_text: str = "Preempted by pod {uid} on node {node}"
    #: The reason of the pod's condition after an attempt that ends in an error before it chose a node.
    error_reason: str = "SchedulerError"
    #: A PreFilter plugin that rejects the pod ends PreFilter, even if eviction might help.
    rejection_ends_pre_filter: bool = False
    #: If an ignorable extender fails to bind, the Bind plugins do.
    binds_without_ignorable_extender: bool = True
    #: An attempt that ends in an error leaves the nomination of its pod as it is.
    keeps_nominations: bool = False
    #: A binding cycle that fails wakes the pods that may use the room.
    wakes_after_failed_binding: bool = True
    #: A pod whose attempt ended in an error waits for any event; otherwise for its backoff.
    parks_errors: bool = False
    #: Kinds of objects whose every event counts for such pods, and for pods in flight while hints are off, although the plugins
    #: that can reject a pod name fewer; ``*`` stands for all kinds.
    moving_kinds: frozenset[str] = frozenset("*")
    #: The release whose plugins name the events, and look at what changed if hints are on; "" for the newest.
    event_kinds: str = ""
    #: An update of a waiting pod retries it, with queueing hints on, too.
    any_own_update_wakes: bool = False
    #: The limits of in-tree disks are default plugins, and a v1 configuration may name them at every extension point.
    limits_in_tree_disks: bool = False
    #: The fault of --show-hidden-metrics-for-version, with its ``value`` and the ``previous`` release.
    hidden_metrics_fault: str = ""
    #: The fault of a key of --allow-metric-labels, with all ``lists``.
    metric_labels_fault: str = ""
    #: The fault of a --log-flush-frequency that is not positive, with its ``value``; "": it is accepted.
    flush_fault: str = 'flushFrequency: Invalid value: "{value}": Must be greater than zero'
    #: Options of log formats need the gate LoggingAlphaOptions.
    gates_log_options: bool = True
    #: The fault of a profile whose queueSort differs from that of the first.
    queue_sort_differs: str = "must be the same for all profiles"
    #: The fault of a shape whose points are not sorted.
    unsorted_shape: str = "values must be sorted in increasing order"
    #: Plugins that an extension point enables run before those of ``multiPoint``, also if they are new.
    runs_own_plugins_first: bool = False
    #: A configuration in v1beta2 or later has ``multiPoint``.
    has_multi_point: bool = True
    #: A configuration in v1 has ``delayCacheUntilActive``.
    delays_cache: bool = True
    #: A configuration has the extension point ``preEnqueue``, and in v1 a percentage of nodes to score for each profile.
    has_pre_enqueue: bool = True
    #: A pod group is tried, refused and preempts as one: its pods must agree, and do not preempt by themselves. Permit is not
    #: asked while the group is tried.
    groups_as_one: bool = False
    #: A bind that fails with an error that may pass is sent again, up to three times.
    retries_binds: bool = False
    #: A pod that PreEnqueue gates keeps the room on the node that its status nominates it to.
    nominates_gated_pods: bool = False
    #: NodeName runs before NodeUnschedulable by default.
    filters_names_first: bool = False
    #: While a pod is being resized, the greatest of three sums over its containers counts; up to 1.36 the sum of the greatest
    #: amounts of each container.
    sums_resizes: bool = False
    #: Selectors of devices see attributes that are lists also while the gate DRAListTypeAttributes is closed.
    selectors_see_lists: bool = False
    #: Metrics tell the events of a pod itself (``TargetPod``) from those of other pods (``UnscheduledPod``).
    names_target_pods: bool = False
    #: A configuration has the extension points of placements.
    has_placement_points: bool = True

    @property
    def minor(self) -> int:
        return int(self.name.split(".")[1])

    @property
    def version(self) -> str:
        """The version that a server of this release reports, such as ``v1.36.3``."""
        return f"v{self.patch or self.name}"

    @property
    def series(self) -> str:
        """The minor release that this is a patch of: ``1.34`` of ``1.34.7``."""
        return f"1.{self.minor}"

    @property
    def previous(self) -> str:
        """The minor release before this one."""
        return f"1.{self.minor - 1}"

    def __str__(self) -> str:
        return self.name
