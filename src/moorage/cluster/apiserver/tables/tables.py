"""The tables of ``kubectl get``: the columns of each kind.

A function of the cell modules makes the cells of a row. A column definition contains its properties: ``+Node`` is shown
with ``-o wide`` only, ``Desired:integer`` holds integers.

Source  kubernetes, pkg/printers/internalversion/printers.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from moorage.cluster.apiserver.tables import cells as workloads
from moorage.cluster.apiserver.tables import cluster_cells as cluster
from moorage.cluster.apiserver.tables import cluster_cells as storage
from moorage.cluster.apiserver.tables.cells import Cell, age, age_of, name_of, pod, pod_conditions
from moorage.cluster.apiserver.vocabulary.records import Document
from moorage.cluster.apiserver.vocabulary.served_kinds import PrinterColumn, ServedKind
from moorage.cluster.apiserver.vocabulary.statuses import bad_request, quoted

# -- custom columns ----------------------------------------------------------------------------------------------------
# The columns of a custom kind in ``kubectl get``: values at JSONPaths.
#
# A path consists of fields, indexes and simple filters: ``.spec.size``, ``.status.conditions[0].reason``,
# ``.status.conditions[?(@.type=="Ready")].status``. Cells with other paths are empty.
#
# Source  apiextensions-apiserver, pkg/registry/customresource/tableconvertor/tableconvertor.go; client-go, util/jsonpath

_NAME: Final = {
    "name": "Name", "type": "string", "format": "name", "priority": 0,
    "description": "The name of the object, which is unique within its namespace and kind.",
}  # fmt: skip


def custom_headings(columns: Sequence[PrinterColumn]) -> list[Document]:
    """Return the column definitions of a table."""
    return [dict(_NAME), *map(_heading, columns)]


def _heading(column: PrinterColumn) -> Document:
    description = column.description or f"Custom resource definition column (in JSONPath format): {column.path}"
    return {
        "name": column.name, "type": column.type, "format": column.format, "description": description,
        "priority": column.priority,
    }  # fmt: skip


def custom_cells(columns: Sequence[PrinterColumn], document: Document, now: float) -> list[Cell]:
    """Return the cells of an object's row."""
    return [name_of(document), *(_cell(column, document, now) for column in columns)]


def _cell(column: PrinterColumn, document: Document, now: float) -> Cell:
    found = find_at(document, column.path)
    if not found:
        return None
    value = found[0]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match column.type:
        case "string":
            return _as_text(value)
        case "integer":
            return int(value) if is_number else None
        case "number":
            return value if is_number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return age(value, now) if isinstance(value, str) else None
        case _:
            return None


def _as_text(value: Any) -> str:
    """Return a value as JSONPath templates print it."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


# -- paths -------------------------------------------------------------------------------------------------------------


class _Filter(NamedTuple):
    path: str
    operator: str
    value: Any


_Step = str | int | _Filter | None
_STEP: Final = re.compile(
    r"""\.(?P<field>(?:[^.\[\]\\]|\\.)+)
    | \[(?P<index>-?\d{1,9})\]
    | \['(?P<quoted>[^'\]]*)'\]
    | \[(?P<every>\*)\]
    | \[\?\(\s*@(?P<path>[\w.\-]*)\s*(?P<operator>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|-?\d+(?:\.\d+)?|true|false)\s*\)\]""",
    re.VERBOSE,
)


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[_Step, ...] | None:
    """Return the steps of a path, or None if its form is not supported."""
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            return None
        steps.append(_step(found))
        at = found.end()
    return tuple(steps)


def _step(found: re.Match[str]) -> _Step:
    if (field := found["field"]) is not None:
        return None if field == "*" else re.sub(r"\\(.)", r"\1", field)
    if found["index"] is not None:
        return int(found["index"])
    if found["quoted"] is not None:
        return str(found["quoted"])
    if found["every"] is not None:
        return None
    text = found["value"]
    value = text[1:-1] if text[0] in "\"'" else json.loads(text)
    return _Filter(found["path"], found["operator"], value)


def find_at(document: Any, path: str) -> list[Any]:
    """Return the values at a path; none if it leads nowhere."""
    steps = _steps(path)
    found = [] if steps is None else [document]
    for step in steps or ():
        found = [inner for value in found for inner in _below(value, step)]
    return found


def _below(value: Any, step: _Step) -> Iterable[Any]:
    if step is None:
        return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(step, str):
        return [value[step]] if isinstance(value, dict) and step in value else ()
    if not isinstance(value, list):
        return ()
    if isinstance(step, int):
        return [value[step]] if -len(value) <= step < len(value) else ()
    return [one for one in value if _passes(one, step)]


def _passes(value: Any, wanted: _Filter) -> bool:
    found = find_at(value, wanted.path)
    return bool(found) and (found[0] == wanted.value) is (wanted.operator == "==")


# -- tables ------------------------------------------------------------------------------------------------------------

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
        return _layout_of_fields(kind.columns) if kind.columns else _LAYOUTS.get((kind.group, kind.kind), _PLAIN)
    columns = kind.custom.columns
    return _Layout((), lambda document, now: custom_cells(columns, document, now))


@cache
def _layout_of_fields(columns: tuple[str, ...]) -> _Layout:
    """Return the layout of columns that read fields.

    Each is ``Name=.a.b``: the values at a path, ``Name=.a/.b``: of several paths, ``Name=#.a``: the number of items, or
    ``Age=@``. ``|<none>`` is shown for nothing.
    """
    named = [column.partition("=")[::2] for column in columns]
    read = [source.rpartition("|")[::2] if "|" in source else (source, "") for _, source in named]
    return _Layout(
        ("Name", *(name for name, _ in named)),
        lambda document, now: [name_of(document), *(_read_cell(source, absent, document, now) for source, absent in read)],
    )


def _read_cell(source: str, absent: str, document: Document, now: float) -> Cell:
    if source == "@":
        return age_of(document, now)
    if source.startswith("#"):
        return sum(len(found) for found in find_at(document, source[1:]) if isinstance(found, list))
    parts = [",".join(map(_as_text, find_at(document, path))) for path in source.split("/")]
    return "/".join(parts) if parts[-1] else absent


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
    ("autoscaling", "HorizontalPodAutoscaler"): _Layout(
        ("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"), workloads.autoscaler
    ),
    ("batch", "CronJob"): _Layout(
        ("Name", "Schedule", "Timezone", "Suspend:boolean", "Active:integer", "Last Schedule", "Age", *_WORKLOAD),
        workloads.cron_job,
    ),
    ("batch", "Job"): _Layout(("Name", "Status", "Completions", "Duration", "Age", *_WORKLOAD), workloads.job),
    ("certificates.k8s.io", "CertificateSigningRequest"): _Layout(
        ("Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"), cluster.signing_request
    ),
    ("coordination.k8s.io", "Lease"): _Layout(("Name", "Holder", "Age"), cluster.lease),
    ("discovery.k8s.io", "EndpointSlice"): _Layout(
        ("Name", "AddressType", "Ports", "Endpoints", "Age"), cluster.endpoint_slice
    ),
    ("events.k8s.io", "Event"): _EVENT,
    ("metrics.k8s.io", "NodeMetrics"): _METRICS,
    ("metrics.k8s.io", "PodMetrics"): _METRICS,
    ("networking.k8s.io", "Ingress"): _Layout(("Name", "Class", "Hosts", "Address", "Ports", "Age"), cluster.ingress),
    ("networking.k8s.io", "NetworkPolicy"): _Layout(("Name", "Pod-Selector", "Age"), cluster.network_policy),
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
