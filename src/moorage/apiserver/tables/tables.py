"""The tables of ``kubectl get``: the columns of each kind.

A function of the cell modules makes the cells of a row. A column definition contains its properties: ``+Node`` is shown
with ``-o wide`` only, ``Desired:integer`` holds integers.

Source  kubernetes, pkg/printers/internalversion/printers.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from moorage.apiserver.tables import cluster_cells as cluster
from moorage.apiserver.tables import storage_cells as storage
from moorage.apiserver.tables import workload_cells as workloads
from moorage.apiserver.tables.cells import Cell
from moorage.apiserver.tables.custom_columns import custom_cells, custom_headings
from moorage.apiserver.tables.pod_cells import pod, pod_conditions
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.apiserver.vocabulary.statuses import bad_request, quoted

__all__ = ["included", "rows", "scale_table", "table"]

Cells = Callable[[Document, float], list[Cell]]


class _Layout(NamedTuple):
    columns: tuple[str, ...]
    cells: Cells
    conditions: Callable[[Document], list[Document]] | None = None


def table(kind: ServedKind, documents: Sequence[Document], now: float, include: str, *, heading: bool = True) -> Document:
    """Return objects as a ``Table``. ``include`` is the part of the object in each row: Metadata, Object or None."""
    shown = _table(_layout(kind), documents, now, include, heading=heading)
    if heading and kind.custom is not None:
        shown["columnDefinitions"] = custom_headings(kind.custom.columns)
    return shown


def rows(kind: ServedKind, documents: Iterable[Document], now: float, include: str) -> Iterator[Document]:
    """Yield the rows of a table one by one."""
    layout = _layout(kind)
    return (_row(layout, document, now, include) for document in documents)


def _layout(kind: ServedKind) -> _Layout:
    if kind.custom is None:
        return _LAYOUTS.get((kind.group, kind.kind), _PLAIN)
    columns = kind.custom.columns
    return _Layout((), lambda document, now: custom_cells(columns, document, now))


def scale_table(scale: Document, now: float, include: str = "Metadata") -> Document:
    """Return a ``Scale`` as a ``Table``."""
    shown = _table(_SCALE, [scale], now, include)
    return {**shown, "metadata": {"resourceVersion": scale["metadata"]["resourceVersion"]}}


def included(parameter: str) -> str:
    """Return the validated ``includeObject`` parameter, defaulting to Metadata.

    Raises  ApiError 400
    """
    if parameter not in {"", "Metadata", "None", "Object"}:
        why = f"includeObject: Invalid value: {quoted(parameter)}: must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request(f"Unable to convert to Table as requested: {why}")
    return parameter or "Metadata"


def _table(layout: _Layout, documents: Sequence[Document], now: float, include: str, *, heading: bool = True) -> Document:
    shown: Document = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}}
    shown["columnDefinitions"] = [_column(name) for name in layout.columns] if heading else None
    return {**shown, "rows": [_row(layout, document, now, include) for document in documents]}


def _row(layout: _Layout, document: Document, now: float, include: str) -> Document:
    row: Document = {"cells": layout.cells(document, now)}
    if layout.conditions is not None and (conditions := layout.conditions(document)):
        row["conditions"] = conditions
    row["object"] = None if include == "None" else document if include == "Object" else _metadata_of(document)
    return row


def _column(definition: str) -> Document:
    name, _, form = definition.removeprefix("+").partition(":")
    return {
        "name": name, "type": form or "string", "format": "name" if name in _NAMES and not form else "",
        "description": name, "priority": int(definition.startswith("+")),
    }  # fmt: skip


#: Columns that hold names, unless they state a type.
_NAMES: Final = frozenset(["Attacher", "Name"])


def _metadata_of(document: Document) -> Document:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": document["metadata"]}


_RBAC: Final = "rbac.authorization.k8s.io"
_RESOURCE: Final = "resource.k8s.io"
_STORAGE: Final = "storage.k8s.io"

_CONTAINERS: Final = ("+Containers", "+Images")
_WORKLOAD: Final = (*_CONTAINERS, "+Selector")
_REPLICAS: Final = ("Name", "Desired:integer", "Current:integer", "Ready:integer", "Age", *_WORKLOAD)
_BINDING: Final = ("Name", "Role", "Age", "+Users", "+Groups", "+ServiceAccounts")
_NODE: Final = (
    "Name", "Status", "Roles", "Age", "Version", "+Internal-IP", "+External-IP", "+OS-Image", "+Kernel-Version",
    "+Container-Runtime",
)  # fmt: skip
_VOLUME: Final = (
    "Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass", "VolumeAttributesClass",
    "Reason", "Age", "+VolumeMode",
)  # fmt: skip
_CLAIM: Final = (
    "Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age",
    "+VolumeMode",
)  # fmt: skip
_DAEMON_SET: Final = (
    "Name", "Desired:integer", "Current:integer", "Ready:integer", "Up-to-date:integer", "Available:integer",
    "Node Selector", "Age", *_WORKLOAD,
)  # fmt: skip
_DRIVER: Final = (
    "Name", "AttachRequired:boolean", "PodInfoOnMount:boolean", "StorageCapacity:boolean", "TokenRequests",
    "RequiresRepublish:boolean", "Modes", "Age",
)  # fmt: skip
_POD: Final = ("Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates")
_METRICS: Final = _Layout(("Name", "cpu", "memory", "Window"), cluster.metrics)
_CREATED: Final = _Layout(("Name", "Created At:date"), cluster.created)
_PLAIN: Final = _Layout(("Name", "Age"), cluster.plain)
_SCALE: Final = _Layout(("Name:string", "Desired:integer", "Available:integer", "Age"), cluster.scale)
_EVENT: Final = _Layout(
    ("Last Seen", "Type", "Reason", "Object", "+Subobject", "+Source", "Message", "+First Seen", "+Count", "+Name"),
    cluster.event,
)

_LAYOUTS: Final[Mapping[tuple[str, str], _Layout]] = {
    ("", "ConfigMap"): _Layout(("Name", "Data", "Age"), cluster.config_map),
    ("", "Endpoints"): _Layout(("Name", "Endpoints", "Age"), cluster.endpoints),
    ("", "Event"): _EVENT,
    ("", "LimitRange"): _CREATED,
    ("", "Namespace"): _Layout(("Name", "Status", "Age"), cluster.namespace),
    ("", "Node"): _Layout(_NODE, cluster.node),
    ("", "PersistentVolume"): _Layout(_VOLUME, storage.volume),
    ("", "PersistentVolumeClaim"): _Layout(_CLAIM, storage.claim),
    ("", "Pod"): _Layout(_POD, pod, pod_conditions),
    ("", "PodTemplate"): _Layout(("Name", "Containers", "Images", "Pod Labels"), workloads.pod_template),
    ("", "ReplicationController"): _Layout(_REPLICAS, workloads.replication_controller),
    ("", "ResourceQuota"): _Layout(("Name", "Request", "Limit", "Age"), cluster.quota),
    ("", "Secret"): _Layout(("Name", "Type", "Data", "Age"), cluster.secret),
    ("", "Service"): _Layout(("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"), cluster.service),
    ("apps", "ControllerRevision"): _Layout(("Name", "Controller", "Revision", "Age"), workloads.controller_revision),
    ("apps", "DaemonSet"): _Layout(_DAEMON_SET, workloads.daemon_set),
    ("apps", "Deployment"): _Layout(("Name", "Ready", "Up-to-date", "Available", "Age", *_WORKLOAD), workloads.deployment),
    ("apps", "ReplicaSet"): _Layout(_REPLICAS, workloads.replica_set),
    ("apps", "StatefulSet"): _Layout(("Name", "Ready", "Age", *_CONTAINERS), workloads.stateful_set),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _CREATED,
    ("batch", "CronJob"): _Layout(
        ("Name", "Schedule", "Timezone", "Suspend:boolean", "Active:integer", "Last Schedule", "Age", *_WORKLOAD),
        workloads.cron_job,
    ),
    ("batch", "Job"): _Layout(("Name", "Status", "Completions", "Duration", "Age", *_WORKLOAD), workloads.job),
    ("coordination.k8s.io", "Lease"): _Layout(("Name", "Holder", "Age"), cluster.lease),
    ("events.k8s.io", "Event"): _EVENT,
    ("metrics.k8s.io", "NodeMetrics"): _METRICS,
    ("metrics.k8s.io", "PodMetrics"): _METRICS,
    ("networking.k8s.io", "Ingress"): _Layout(("Name", "Class", "Hosts", "Address", "Ports", "Age"), cluster.ingress),
    ("node.k8s.io", "RuntimeClass"): _Layout(("Name", "Handler", "Age"), cluster.runtime_class),
    ("policy", "PodDisruptionBudget"): _Layout(
        ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"), workloads.budget
    ),
    (_RBAC, "ClusterRole"): _CREATED,
    (_RBAC, "ClusterRoleBinding"): _Layout(_BINDING, cluster.role_binding),
    (_RBAC, "Role"): _CREATED,
    (_RBAC, "RoleBinding"): _Layout(_BINDING, cluster.role_binding),
    (_RESOURCE, "ResourceClaim"): _Layout(("Name", "State", "Age"), storage.device_claim),
    (_RESOURCE, "ResourceSlice"): _Layout(("Name", "Node", "Driver", "Pool", "Age"), storage.slice_of_devices),
    ("scheduling.k8s.io", "PodGroup"): _Layout(("Name", "Policy", "Workload", "Status", "Age"), cluster.pod_group),
    ("scheduling.k8s.io", "PriorityClass"): _Layout(
        ("Name", "Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"), cluster.priority_class
    ),
    (_STORAGE, "CSIDriver"): _Layout(_DRIVER, storage.driver),
    (_STORAGE, "CSINode"): _Layout(("Name", "Drivers:integer", "Age"), storage.driver_node),
    (_STORAGE, "CSIStorageCapacity"): _CREATED,
    (_STORAGE, "StorageClass"): _Layout(
        ("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"), storage.storage_class
    ),
    (_STORAGE, "VolumeAttachment"): _Layout(("Name", "Attacher", "PV", "Node", "Attached:boolean", "Age"), storage.attachment),
    (_STORAGE, "VolumeAttributesClass"): _Layout(("Name", "DriverName", "Age"), storage.attributes_class),
}
