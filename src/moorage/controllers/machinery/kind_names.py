"""The kinds that controllers use, by name."""

from __future__ import annotations

from typing import Final

from moorage.apiserver.vocabulary.served_kinds import served

__all__ = [
    "ATTRIBUTES_CLASSES",
    "CLAIMS",
    "CONFIG_MAPS",
    "CONTROLLERS",
    "CONTROLLER_REVISIONS",
    "CRON_JOBS",
    "CSI_NODES",
    "DAEMON_SETS",
    "DEPLOYMENTS",
    "DISRUPTION_BUDGETS",
    "EVENTS",
    "JOBS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "POD_GROUPS",
    "REPLICA_SETS",
    "RESOURCE_CLAIMS",
    "RESOURCE_CLAIM_TEMPLATES",
    "SERVICE_ACCOUNTS",
    "STATEFUL_SETS",
    "STORAGE_CLASSES",
    "VOLUMES",
    "WORKLOADS",
]  # fmt: skip


PODS: Final = served("pods")
NODES: Final = served("nodes")
NAMESPACES: Final = served("namespaces")
EVENTS: Final = served("events")
CONFIG_MAPS: Final = served("configmaps")
SERVICE_ACCOUNTS: Final = served("serviceaccounts")
CONTROLLERS: Final = served("replicationcontrollers")
VOLUMES: Final = served("persistentvolumes")
CLAIMS: Final = served("persistentvolumeclaims")
CONTROLLER_REVISIONS: Final = served("controllerrevisions", "apps")
DAEMON_SETS: Final = served("daemonsets", "apps")
DEPLOYMENTS: Final = served("deployments", "apps")
REPLICA_SETS: Final = served("replicasets", "apps")
STATEFUL_SETS: Final = served("statefulsets", "apps")
JOBS: Final = served("jobs", "batch")
CRON_JOBS: Final = served("cronjobs", "batch")
LEASES: Final = served("leases", "coordination.k8s.io")
DISRUPTION_BUDGETS: Final = served("poddisruptionbudgets", "policy")
RESOURCE_CLAIMS: Final = served("resourceclaims", "resource.k8s.io")
RESOURCE_CLAIM_TEMPLATES: Final = served("resourceclaimtemplates", "resource.k8s.io")
CSI_NODES: Final = served("csinodes", "storage.k8s.io")
STORAGE_CLASSES: Final = served("storageclasses", "storage.k8s.io")
ATTRIBUTES_CLASSES: Final = served("volumeattributesclasses", "storage.k8s.io")
POD_GROUPS: Final = served("podgroups", "scheduling.k8s.io", "v1alpha2")
WORKLOADS: Final = served("workloads", "scheduling.k8s.io", "v1alpha2")
