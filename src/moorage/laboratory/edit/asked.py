"""Find the pods that a question is about: ``POD``, ``NAMESPACE/POD``, ``KIND/NAME``, or all pending pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from moorage.api.core import Pod
from moorage.basis.printable import counted, some
from moorage.errors import InputError

__all__ = ["WORKLOAD_KINDS", "pods_asked_for"]

#: Names and short names of kinds that have pods → the kind.
WORKLOAD_KINDS: Mapping[str, str] = {
    short: kind
    for kind, names in {
        "Deployment": "deployment deployments deploy",
        "ReplicaSet": "replicaset replicasets rs",
        "StatefulSet": "statefulset statefulsets sts",
        "DaemonSet": "daemonset daemonsets ds",
        "Job": "job jobs",
        "CronJob": "cronjob cronjobs cj",
        "ReplicationController": "replicationcontroller replicationcontrollers rc",
    }.items()
    for short in names.split()
}
_POD = frozenset({"pod", "pods", "po"})


def pods_asked_for(asked: str, pods: Sequence[Pod], workloads: Mapping[str, str], namespace: str = "") -> list[Pod]:
    """Return the pods that ``asked`` names; ``workloads`` maps UIDs to ``KIND/NAME``. A namespace limits the search.

    Raises  InputError if there is none, or several in different namespaces
    """
    among = [pod for pod in pods if not namespace or pod.namespace == namespace]
    first, slash, name = asked.rpartition("/")
    named = [pod for pod in among if pod.name == name and (pod.namespace == first if slash else True)]
    if slash and first.lower() in _POD:
        named += [pod for pod in among if pod.name == name and pod not in named]
    owned = list(_owned(first, name, among, workloads)) if slash else []
    if named and owned:
        raise InputError(f"{asked} is both a pod and a {WORKLOAD_KINDS[first.lower()]}; give --namespace, or pod/{name}")
    found = named or owned
    spaces = sorted({pod.namespace for pod in found})
    if len(spaces) > 1 and "default" in spaces and not owned:
        found, spaces = [pod for pod in found if pod.namespace == "default"], ["default"]
    if len(spaces) > 1:
        raise InputError(
            f"{asked} is in {counted(len(spaces), 'namespace')} ({some(spaces)}); give NAMESPACE/POD or --namespace"
        )
    if not found:
        raise InputError(_not_found(asked, among, workloads))
    return found


def _owned(kind: str, name: str, pods: Iterable[Pod], workloads: Mapping[str, str]) -> Iterator[Pod]:
    """Yield the pods of a workload, by the workload that people name or by the pod's own controller."""
    wanted = f"{WORKLOAD_KINDS.get(kind.lower(), kind)}/{name}"
    for pod in pods:
        owner = next((one for one in pod.metadata.owner_references if one.controller), None)
        if wanted == workloads.get(pod.uid) or (owner is not None and wanted == f"{owner.kind}/{owner.name}"):
            yield pod


def _not_found(asked: str, pods: Sequence[Pod], workloads: Mapping[str, str]) -> str:
    known = {pod.name: None for pod in pods} | {pod.key: None for pod in pods} | dict.fromkeys(workloads.values())
    close = get_close_matches(asked, list(known), 3)
    hint = f"; close: {', '.join(close)}" if close else ""
    return f"no pod or workload {asked} among {counted(len(pods), 'pod')}{hint}"
