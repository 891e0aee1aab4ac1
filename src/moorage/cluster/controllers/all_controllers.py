"""The list of all controllers of an embedded cluster, in the order in which they receive events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moorage.api.documents.object_fields import CONTROLLERS, REPLICA_SETS
from moorage.api.feature_gates import FeatureGates
from moorage.cluster.controllers.nodes.kubelets import KUBELET, Kubelets
from moorage.cluster.controllers.nodes.node_lifecycle import NodeLifecycle
from moorage.cluster.controllers.nodes.taint_eviction import TaintEviction
from moorage.cluster.controllers.upkeep.garbage_collector import GarbageCollector
from moorage.cluster.controllers.upkeep.namespaces import Namespaces
from moorage.cluster.controllers.upkeep.pod_autoscaler import PodAutoscalers
from moorage.cluster.controllers.upkeep.pod_garbage_collector import PodGarbageCollector
from moorage.cluster.controllers.upkeep.pod_group_protection import PodGroupProtection
from moorage.cluster.controllers.upkeep.policy_status import PolicyStatus
from moorage.cluster.controllers.upkeep.root_ca_publisher import RootAuthority
from moorage.cluster.controllers.upkeep.status_controllers import LoadBalancers, ResourceQuotas
from moorage.errors import InputError
from moorage.rules.volumes.attributes_classes import AttributesClassProtection
from moorage.rules.volumes.pod_claims import EphemeralVolumes, ResourceClaims
from moorage.rules.volumes.volumes import Volumes
from moorage.rules.workloads.cron_job import CronJobs
from moorage.rules.workloads.daemon_set import DaemonSets
from moorage.rules.workloads.deployment import Deployments
from moorage.rules.workloads.disruption import Disruption
from moorage.rules.workloads.job import Jobs
from moorage.rules.workloads.replica_set import ReplicaSets
from moorage.rules.workloads.stateful_set import StatefulSets
from moorage.rules.workloads.steps import Controller

#: kube-controller-manager's names for controllers that record their events under another name.
_CALLED: Final = {
    "node-controller": "node-lifecycle-controller",
    "replication-controller": "replicationcontroller-controller",
    "service-controller": "service-lb-controller",
    "controllermanager": "disruption-controller",
    "horizontal-pod-autoscaler": "horizontal-pod-autoscaler-controller",
    "persistentvolume-controller": "persistentvolume-binder-controller",
    "resource-claim-controller": "resourceclaim-controller",
    "pod-garbage-collector": "pod-garbage-collector-controller",
    "garbage-collector": "garbage-collector-controller",
}


def all_controllers(
    job_s: float = 5.0, gates: FeatureGates | None = None, version: str = "", stop_s: float = 0.0
) -> list[Controller]:  # fmt: skip
    """Return new controllers for one store, kubelets included. ``job_s``: the default run time of a job's pod, in seconds;
    ``stop_s``: how long pods take to stop by default.

    Kubelets report the ``version``, or the release of the gates.
    """
    opened = gates or FeatureGates()
    return [
        Kubelets(job_s, version or opened.emulated.version, stop_s),
        NodeLifecycle(),
        TaintEviction(),
        Deployments(),
        ReplicaSets(REPLICA_SETS),
        ReplicaSets(CONTROLLERS),
        StatefulSets(),
        DaemonSets(),
        Jobs(opened["WorkloadWithJob"], by_spec=opened.emulated.groups_as_one),
        CronJobs(),
        PodAutoscalers(),
        Disruption(),
        EphemeralVolumes(),
        Volumes(),
        AttributesClassProtection(),
        ResourceClaims(for_groups=opened["DRAWorkloadResourceClaims"]),
        PodGarbageCollector(),
        GarbageCollector(),
        Namespaces(),
        ResourceQuotas(),
        LoadBalancers(),
        RootAuthority(),
        PolicyStatus(),
        *([PodGroupProtection()] if opened["GenericWorkload"] else []),
    ]


def named_controllers(controllers: Sequence[Controller]) -> list[tuple[Controller, str]]:
    """Return the controllers with kube-controller-manager's names for them, without kubelets."""
    return [(one, _CALLED.get(one.name, one.name)) for one in controllers if one.name != KUBELET]


def chosen(controllers: Sequence[Controller], words: Sequence[str]) -> list[Controller]:
    """Return the selected controllers, in kube-controller-manager's format; kubelets always run.

    ``*`` enables all, ``-name`` disables one, and the first entry that names a controller wins.

    Raises  InputError for an unknown name
    """
    names = dict(named_controllers(controllers))
    for word in words:
        if word != "*" and word.removeprefix("-") not in names.values():
            known = ", ".join(names.values())
            raise InputError(f'--controllers: "{word.removeprefix("-")}" is not in the list of known controllers: {known}')
    return [one for one in controllers if one not in names or _is_on(names[one], words)]


def _is_on(name: str, words: Sequence[str]) -> bool:
    first = next((word for word in words if word.removeprefix("-") == name), None)
    return "*" in words if first is None else first == name
