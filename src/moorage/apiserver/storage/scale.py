"""The ``scale`` subresource of workloads and of custom kinds.

Source  api, autoscaling/v1; kubernetes, pkg/registry/apps/deployment/storage
"""

from __future__ import annotations

from typing import Any

from moorage.api.decode import decode
from moorage.api.meta import LabelSelector
from moorage.api.selectors import compile_label_selector
from moorage.apiserver.vocabulary.custom_versions import ScalePaths
from moorage.apiserver.vocabulary.records import Document, Record
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.apiserver.vocabulary.statuses import bad_request, internal, invalid, quoted
from moorage.errors import Fault, InputError

__all__ = ["read_scale", "write_scale"]


def read_scale(kind: ServedKind, record: Record) -> Document:
    """Return the ``Scale`` of a workload or of a custom object.

    Raises  ApiError 500 for a custom object without a replica count
    """
    document = record.document()
    if kind.custom is not None and kind.custom.scale is not None:
        return _custom_scale(kind.custom.scale, document)
    spec, status = document.get("spec") or {}, document.get("status") or {}
    return _scale(document, spec.get("replicas", 0), status.get("replicas", 0), _selector(spec.get("selector")))


def _custom_scale(paths: ScalePaths, document: Document) -> Document:
    wanted = _at(document, paths.wanted)
    if wanted is None:
        raise internal(f"the spec replicas field {quoted(paths.wanted)} does not exist")
    selector = _at(document, paths.selector) if paths.selector else ""
    return _scale(document, wanted, _at(document, paths.current) or 0, selector if isinstance(selector, str) else "")


def _scale(document: Document, wanted: Any, current: Any, selector: str) -> Document:
    metadata = document["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": wanted},
        "status": {"replicas": current, "selector": selector},
    }


def _at(document: Any, path: str) -> Any:
    for name in path.removeprefix(".").split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _selector(selector: Any) -> str:
    if not isinstance(selector, dict):
        return ""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        selector = {"matchLabels": selector}
    try:
        return str(compile_label_selector(decode(selector, LabelSelector, "")))
    except InputError:
        return ""


def write_scale(kind: ServedKind, document: Document, wanted: Document) -> None:
    """Write the replica count of a ``Scale`` into a workload or a custom object.

    Raises  ApiError 400 if the count is not an integer, 422 if it is negative
    """
    spec = wanted.get("spec")
    replicas = (spec if isinstance(spec, dict) else {}).get("replicas", 0)
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise bad_request("spec.replicas: expected an integer")
    if replicas < 0:
        fault = Fault("Invalid value", "spec.replicas", "must be greater than or equal to 0", replicas)
        raise invalid("Scale", "autoscaling", document["metadata"]["name"], [fault])
    path = ".spec.replicas" if kind.custom is None or kind.custom.scale is None else kind.custom.scale.wanted
    *above, last = path.removeprefix(".").split(".")
    for name in above:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise internal(f"value cannot be set because {path} is not a map[string]interface{{}}")
    document[last] = replicas
