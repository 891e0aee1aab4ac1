"""What ``kubectl get`` prints: the server's own columns of each kind, the wide ones marked as such.

Source  kubernetes, pkg/printers/internalversion/printers.go; apimachinery, pkg/util/duration
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moorage.api import quantity
from moorage.apiserver.kinds import Kind
from moorage.apiserver.measuring import amounts
from moorage.apiserver.records import Document, text_at

__all__ = ["age", "human_duration", "scale_table", "table"]

Cell = str | int
Cells = Callable[[Document, float], list[Cell]]


def table(kind: Kind, documents: Sequence[Document], now: float, include: str, *, heading: bool = True) -> Document:
    """Return objects as a ``Table``. ``include`` is what each row carries of its object: Metadata, Object or None."""
    columns, cells = _LAYOUTS.get((kind.group, kind.kind), (_PLAIN, _plain))
    return _table(columns, cells, documents, now, include, heading=heading)


def scale_table(scale: Document, now: float, include: str = "Metadata") -> Document:
    """Return a ``Scale`` as a ``Table``."""
    return _table(("Name", "Desired", "Available", "Age"), _scale, [scale], now, include)


def _table(
    columns: Sequence[str], cells: Cells, documents: Sequence[Document], now: float, include: str, *, heading: bool = True
) -> Document:
    rows = []
    for document in documents:
        row: Document = {"cells": cells(document, now)}
        if include != "None":
            row["object"] = document if include == "Object" else _metadata_of(document)
        rows.append(row)
    shown: Document = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}}
    shown["columnDefinitions"] = [_column(name) for name in columns] if heading else []
    return {**shown, "rows": rows}


def _column(name: str) -> Document:
    own = name.removeprefix("+")
    form = "name" if own == "Name" else ""
    return {"name": own, "type": "string", "format": form, "description": own, "priority": int(own != name)}


def _metadata_of(document: Document) -> Document:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": document["metadata"]}


# -- times --------------------------------------------------------------------------------------------------------------


def human_duration(seconds: float) -> str:
    """Return a duration in the two units that matter, as kubectl shows it: ``5m10s``, ``3d4h``, ``2y30d``."""
    left = int(seconds)
    if left < 0:
        return "<invalid>" if left < -1 else "0s"
    for limit, unit, big, small_unit, small in _STEPS:
        if left < limit:
            rest = left % big // small if small else 0
            return f"{left // big}{unit}" + (f"{rest}{small_unit}" if rest else "")
    return f"{left // _YEAR}y"


_DAY: Final = 86_400
_YEAR: Final = 365 * _DAY
#: Below so many seconds: the unit, its seconds, and the smaller unit with its own.
_STEPS: Final = (
    (120, "s", 1, "", 0), (600, "m", 60, "s", 1), (10_800, "m", 60, "", 0), (28_800, "h", 3600, "m", 60),
    (172_800, "h", 3600, "", 0), (691_200, "d", _DAY, "h", 3600), (2 * _YEAR, "d", _DAY, "", 0),
    (8 * _YEAR, "y", _YEAR, "d", _DAY),
)  # fmt: skip


def age(when: Any, now: float) -> str:
    """Return how long ago a time of an object was."""
    if not isinstance(when, str):
        return "<unknown>"
    try:
        then = datetime.datetime.fromisoformat(when)
    except ValueError:
        return "<unknown>"
    return human_duration(now - then.timestamp())


# -- cells --------------------------------------------------------------------------------------------------------------


def _at(document: Mapping[str, Any], path: str, absent: Any = None) -> Any:
    here: Any = document
    for step in path.split("."):
        here = here.get(step) if isinstance(here, Mapping) else None
    return absent if here is None else here


def _name(document: Document) -> str:
    return str(document["metadata"]["name"])


def _age(document: Document, now: float) -> str:
    return age(document["metadata"].get("creationTimestamp"), now)


def _pairs(labels: Any) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) if labels else "<none>"


def _selector(document: Document) -> str:
    return _pairs(_at(document, "spec.selector.matchLabels"))


def _images(spec: Any) -> list[Cell]:
    containers = _at(spec or {}, "containers", [])
    return [",".join(str(one.get("name", "")) for one in containers), ",".join(str(one.get("image", "")) for one in containers)]


def _plain(document: Document, now: float) -> list[Cell]:
    return [_name(document), _age(document, now)]


def _pod(pod: Document, now: float) -> list[Cell]:
    containers = _at(pod, "spec.containers", [])
    statuses = _at(pod, "status.containerStatuses", [])
    ready = sum(1 for one in statuses if one.get("ready"))
    restarts = sum(int(one.get("restartCount", 0)) for one in statuses)
    gates = _at(pod, "spec.readinessGates", [])
    return [
        _name(pod), f"{ready}/{len(containers)}", _pod_state(pod), str(restarts), _age(pod, now),
        text_at(pod, "status.podIP") or "<none>", text_at(pod, "spec.nodeName") or "<none>",
        text_at(pod, "status.nominatedNodeName") or "<none>", f"0/{len(gates)}" if gates else "<none>",
    ]  # fmt: skip


def _pod_state(pod: Document) -> str:
    state = text_at(pod, "status.reason") or text_at(pod, "status.phase")
    for condition in _at(pod, "status.conditions", []):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            state = "SchedulingGated"
    for status in _at(pod, "status.containerStatuses", []):
        for phase in ("waiting", "terminated"):
            state = _at(status, f"state.{phase}.reason") or state
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if text_at(pod, "status.reason") == "NodeLost" else "Terminating"
    return state


_ROLE: Final = "node-role.kubernetes.io/"


def _node(node: Document, now: float) -> list[Cell]:
    conditions = {one.get("type"): one.get("status") for one in _at(node, "status.conditions", [])}
    ready = "Unknown" if "Ready" not in conditions else "Ready" if conditions["Ready"] == "True" else "NotReady"
    if _at(node, "spec.unschedulable"):
        ready += ",SchedulingDisabled"
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)} | {labels.get("kubernetes.io/role")}
    addresses = {one.get("type"): one.get("address") for one in _at(node, "status.addresses", [])}
    info = _at(node, "status.nodeInfo", {})
    return [
        _name(node), ready, ",".join(sorted(role for role in roles if role)) or "<none>", _age(node, now),
        info.get("kubeletVersion", ""), addresses.get("InternalIP") or "<none>", addresses.get("ExternalIP") or "<none>",
        *(info.get(name) or "<unknown>" for name in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]  # fmt: skip


def _deployment(found: Document, now: float) -> list[Cell]:
    wanted, ready = _at(found, "spec.replicas", 0), _at(found, "status.readyReplicas", 0)
    counts = [_at(found, f"status.{name}Replicas", 0) for name in ("updated", "available")]
    images = _images(_at(found, "spec.template.spec"))
    return [_name(found), f"{ready}/{wanted}", *counts, _age(found, now), *images, _selector(found)]


def _replica_set(found: Document, now: float) -> list[Cell]:
    counts = [_at(found, path, 0) for path in ("spec.replicas", "status.replicas", "status.readyReplicas")]
    return [_name(found), *counts, _age(found, now), *_images(_at(found, "spec.template.spec")), _selector(found)]


def _stateful_set(found: Document, now: float) -> list[Cell]:
    ready = f"{_at(found, 'status.readyReplicas', 0)}/{_at(found, 'spec.replicas', 0)}"
    return [_name(found), ready, _age(found, now), *_images(_at(found, "spec.template.spec"))]


def _daemon_set(found: Document, now: float) -> list[Cell]:
    names = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable")
    counts = [_at(found, f"status.{name}", 0) for name in names]
    where = _pairs(_at(found, "spec.template.spec.nodeSelector"))
    return [
        _name(found), *counts, where, _age(found, now), *_images(_at(found, "spec.template.spec")), _selector(found),
    ]  # fmt: skip


def _job(job: Document, now: float) -> list[Cell]:
    conditions = {one.get("type") for one in _at(job, "status.conditions", []) if one.get("status") == "True"}
    state = next((name for name in ("Complete", "Failed", "Suspended") if name in conditions), "Running")
    done = f"{_at(job, 'status.succeeded', 0)}/{_at(job, 'spec.completions', 1)}"
    started, ended = text_at(job, "status.startTime"), text_at(job, "status.completionTime")
    took = age(started, _seconds(ended) or now) if started else ""
    return [_name(job), state, done, took, _age(job, now), *_images(_at(job, "spec.template.spec")), _selector(job)]


def _seconds(when: str) -> float | None:
    return datetime.datetime.fromisoformat(when).timestamp() if when else None


def _cron_job(found: Document, now: float) -> list[Cell]:
    last = text_at(found, "status.lastScheduleTime")
    return [
        _name(found), text_at(found, "spec.schedule"), text_at(found, "spec.timeZone") or "<none>",
        "True" if _at(found, "spec.suspend") else "False", len(_at(found, "status.active", [])),
        age(last, now) if last else "<none>", _age(found, now),
    ]  # fmt: skip


def _namespace(found: Document, now: float) -> list[Cell]:
    return [_name(found), text_at(found, "status.phase"), _age(found, now)]


def _service(found: Document, now: float) -> list[Cell]:
    ports = ",".join(f"{one.get('port')}/{one.get('protocol', 'TCP')}" for one in _at(found, "spec.ports", []))
    return [
        _name(found), text_at(found, "spec.type"), text_at(found, "spec.clusterIP") or "<none>", "<none>", ports or "<none>",
        _age(found, now), _pairs(_at(found, "spec.selector")),
    ]  # fmt: skip


def _event(event: Document, now: float) -> list[Cell]:
    when = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    subject = event.get("involvedObject") or event.get("regarding") or {}
    about = f"{str(subject.get('kind', '')).lower()}/{subject.get('name', '')}"
    text = str(event.get("message") or event.get("note") or "").strip()
    source = text_at(event, "source.component") or text_at(event, "reportingComponent")
    return [
        age(when, now),
        event.get("type", ""),
        event.get("reason", ""),
        about,
        text,
        source,
        event.get("count") or 1,
        _name(event),
    ]


def _budget(budget: Document, now: float) -> list[Cell]:
    bounds = [text_at(budget, f"spec.{name}") or "N/A" for name in ("minAvailable", "maxUnavailable")]
    return [_name(budget), *bounds, _at(budget, "status.disruptionsAllowed", 0), _age(budget, now)]


_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: Any) -> str:
    return ",".join(_MODES.get(one, str(one)) for one in modes or ())


def _volume(found: Document, now: float) -> list[Cell]:
    claim = "/".join(filter(None, [text_at(found, "spec.claimRef.namespace"), text_at(found, "spec.claimRef.name")]))
    return [
        _name(found), text_at(found, "spec.capacity.storage"), _modes(_at(found, "spec.accessModes")),
        text_at(found, "spec.persistentVolumeReclaimPolicy"), text_at(found, "status.phase"), claim,
        text_at(found, "spec.storageClassName"), text_at(found, "status.reason"), _age(found, now),
    ]  # fmt: skip


def _claim(found: Document, now: float) -> list[Cell]:
    return [
        _name(found), *(text_at(found, path) for path in ("status.phase", "spec.volumeName", "status.capacity.storage")),
        _modes(_at(found, "status.accessModes")), text_at(found, "spec.storageClassName"), _age(found, now),
    ]  # fmt: skip


def _storage_class(found: Document, now: float) -> list[Cell]:
    grows = "true" if found.get("allowVolumeExpansion") else "false"
    names = ("provisioner", "reclaimPolicy", "volumeBindingMode")
    return [_name(found), *(text_at(found, name) for name in names), grows, _age(found, now)]


def _priority_class(found: Document, now: float) -> list[Cell]:
    shared = "true" if found.get("globalDefault") else "false"
    return [_name(found), _at(found, "value", 0), shared, _age(found, now), text_at(found, "preemptionPolicy")]


def _config_map(found: Document, now: float) -> list[Cell]:
    return [_name(found), len(found.get("data") or {}) + len(found.get("binaryData") or {}), _age(found, now)]


def _secret(found: Document, now: float) -> list[Cell]:
    return [_name(found), text_at(found, "type"), len(found.get("data") or {}), _age(found, now)]


def _scale(found: Document, now: float) -> list[Cell]:
    return [_name(found), _at(found, "spec.replicas", 0), _at(found, "status.replicas", 0), _age(found, now)]


def _lease(found: Document, now: float) -> list[Cell]:
    return [_name(found), text_at(found, "spec.holderIdentity"), _age(found, now)]


_PLAIN: Final = ("Name", "Age")
_WORKLOAD: Final = ("+Containers", "+Images")
_RBAC: Final = "rbac.authorization.k8s.io"
_SUBJECTS: Final = ("+Users", "+Groups", "+ServiceAccounts")


def _role(document: Document, _: float) -> list[Cell]:
    return [_name(document), text_at(document, "metadata.creationTimestamp")]


def _role_binding(document: Document, now: float) -> list[Cell]:
    subjects = document.get("subjects") or []
    users, groups = (", ".join(one["name"] for one in subjects if one["kind"] == kind) for kind in ("User", "Group"))
    accounts = ", ".join(f"{one.get('namespace', '')}/{one['name']}" for one in subjects if one["kind"] == "ServiceAccount")
    role = f"{_at(document, 'roleRef.kind')}/{_at(document, 'roleRef.name')}"
    return [_name(document), role, _age(document, now), users, groups, accounts]


def _metrics(document: Document, _: float) -> list[Cell]:
    usages = [document["usage"]] if "usage" in document else [one["usage"] for one in document["containers"]]
    total = amounts(
        sum(quantity.milli_value(one["cpu"]) for one in usages), sum(quantity.value(one["memory"]) for one in usages)
    )
    return [_name(document), total["cpu"], total["memory"], document["window"]]


_METRICS: Final = ("Name", "cpu", "memory", "Window")

_LAYOUTS: Final[Mapping[tuple[str, str], tuple[tuple[str, ...], Cells]]] = {
    ("", "Pod"): (("Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"), _pod),
    ("", "Node"): (
        (
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "+Internal-IP",
            "+External-IP",
            "+OS-Image",
            "+Kernel-Version",
            "+Container-Runtime",
        ),
        _node,
    ),
    ("", "ConfigMap"): (("Name", "Data", "Age"), _config_map),
    ("", "Event"): (("Last Seen", "Type", "Reason", "Object", "Message", "+Source", "+Count", "+Name"), _event),
    ("events.k8s.io", "Event"): (("Last Seen", "Type", "Reason", "Object", "Message", "+Source", "+Count", "+Name"), _event),
    ("", "Namespace"): (("Name", "Status", "Age"), _namespace),
    ("", "PersistentVolume"): (
        ("Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass", "Reason", "Age"),
        _volume,
    ),
    ("", "PersistentVolumeClaim"): (("Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "Age"), _claim),
    ("", "ReplicationController"): (("Name", "Desired", "Current", "Ready", "Age", *_WORKLOAD, "+Selector"), _replica_set),
    ("", "Secret"): (("Name", "Type", "Data", "Age"), _secret),
    ("", "Service"): (("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"), _service),
    ("apps", "DaemonSet"): (
        ("Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age", *_WORKLOAD, "+Selector"),
        _daemon_set,
    ),
    ("apps", "Deployment"): (("Name", "Ready", "Up-to-date", "Available", "Age", *_WORKLOAD, "+Selector"), _deployment),
    ("apps", "ReplicaSet"): (("Name", "Desired", "Current", "Ready", "Age", *_WORKLOAD, "+Selector"), _replica_set),
    ("apps", "StatefulSet"): (("Name", "Ready", "Age", *_WORKLOAD), _stateful_set),
    ("batch", "CronJob"): (("Name", "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age"), _cron_job),
    ("batch", "Job"): (("Name", "Status", "Completions", "Duration", "Age", *_WORKLOAD, "+Selector"), _job),
    ("coordination.k8s.io", "Lease"): (("Name", "Holder", "Age"), _lease),
    ("metrics.k8s.io", "NodeMetrics"): (_METRICS, _metrics),
    ("metrics.k8s.io", "PodMetrics"): (_METRICS, _metrics),
    ("policy", "PodDisruptionBudget"): (("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"), _budget),
    (_RBAC, "ClusterRole"): (("Name", "Created At"), _role),
    (_RBAC, "ClusterRoleBinding"): (("Name", "Role", "Age", *_SUBJECTS), _role_binding),
    (_RBAC, "Role"): (("Name", "Created At"), _role),
    (_RBAC, "RoleBinding"): (("Name", "Role", "Age", *_SUBJECTS), _role_binding),
    ("scheduling.k8s.io", "PriorityClass"): (("Name", "Value", "Global-Default", "Age", "PreemptionPolicy"), _priority_class),
    ("storage.k8s.io", "StorageClass"): (
        ("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"),
        _storage_class,
    ),
}
