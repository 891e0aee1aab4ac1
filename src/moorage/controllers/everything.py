"""All controllers of a cluster, in the order they are asked."""

from __future__ import annotations

from moorage.controllers.controller import Controller
from moorage.controllers.cron_job import CronJobs
from moorage.controllers.daemon_set import DaemonSets
from moorage.controllers.deployment import Deployments
from moorage.controllers.disruption import Disruption
from moorage.controllers.garbage_collector import GarbageCollector
from moorage.controllers.job import Jobs
from moorage.controllers.kinds import CONTROLLERS, REPLICA_SETS
from moorage.controllers.kubelets import Kubelets
from moorage.controllers.namespaces import Namespaces
from moorage.controllers.node_lifecycle import NodeLifecycle
from moorage.controllers.pod_claims import EphemeralVolumes, ResourceClaims
from moorage.controllers.pod_collector import PodCollector
from moorage.controllers.pod_group_protection import PodGroupProtection
from moorage.controllers.replica_set import ReplicaSets
from moorage.controllers.root_authority import RootAuthority
from moorage.controllers.stateful_set import StatefulSets
from moorage.controllers.taint_eviction import TaintEviction
from moorage.controllers.volumes import Volumes
from moorage.framework.features import FeatureGates

__all__ = ["all_controllers"]


def all_controllers(job_s: float = 5.0, gates: FeatureGates | None = None) -> list[Controller]:
    """Return new controllers for one store, kubelets included; ``job_s`` is how long pods of jobs run that do not say."""
    opened = gates or FeatureGates()
    return [
        Kubelets(job_s),
        NodeLifecycle(),
        TaintEviction(),
        Deployments(),
        ReplicaSets(REPLICA_SETS),
        ReplicaSets(CONTROLLERS),
        StatefulSets(),
        DaemonSets(),
        Jobs(with_groups=opened["WorkloadWithJob"]),
        CronJobs(),
        Disruption(),
        EphemeralVolumes(),
        Volumes(),
        ResourceClaims(),
        PodCollector(),
        GarbageCollector(),
        Namespaces(),
        RootAuthority(),
        *([PodGroupProtection()] if opened["GenericWorkload"] else []),
    ]
