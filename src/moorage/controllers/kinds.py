"""The kinds that controllers deal with, by name."""

from __future__ import annotations

from typing import Final

from moorage.apiserver.kinds import Kind, find_kind

__all__ = [
    "CLAIMS", "CONTROLLERS", "CONTROLLER_REVISIONS", "CRON_JOBS", "DAEMON_SETS", "DEPLOYMENTS", "DISRUPTION_BUDGETS", "EVENTS",
    "JOBS", "LEASES", "NAMESPACES", "NODES", "PODS", "REPLICA_SETS", "RESOURCE_CLAIMS", "RESOURCE_CLAIM_TEMPLATES",
    "SERVICE_ACCOUNTS", "STATEFUL_SETS", "STORAGE_CLASSES", "VOLUMES",
]  # fmt: skip


def _served(resource: str, group: str = "") -> Kind:
    found = find_kind(resource, group)
    if found is None:
        raise LookupError(resource)
    return found


PODS: Final = _served("pods")
NODES: Final = _served("nodes")
NAMESPACES: Final = _served("namespaces")
EVENTS: Final = _served("events")
SERVICE_ACCOUNTS: Final = _served("serviceaccounts")
CONTROLLERS: Final = _served("replicationcontrollers")
VOLUMES: Final = _served("persistentvolumes")
CLAIMS: Final = _served("persistentvolumeclaims")
CONTROLLER_REVISIONS: Final = _served("controllerrevisions", "apps")
DAEMON_SETS: Final = _served("daemonsets", "apps")
DEPLOYMENTS: Final = _served("deployments", "apps")
REPLICA_SETS: Final = _served("replicasets", "apps")
STATEFUL_SETS: Final = _served("statefulsets", "apps")
JOBS: Final = _served("jobs", "batch")
CRON_JOBS: Final = _served("cronjobs", "batch")
LEASES: Final = _served("leases", "coordination.k8s.io")
DISRUPTION_BUDGETS: Final = _served("poddisruptionbudgets", "policy")
RESOURCE_CLAIMS: Final = _served("resourceclaims", "resource.k8s.io")
RESOURCE_CLAIM_TEMPLATES: Final = _served("resourceclaimtemplates", "resource.k8s.io")
STORAGE_CLASSES: Final = _served("storageclasses", "storage.k8s.io")
