"""The ``scale`` subresource of workloads.

Source  api, autoscaling/v1; kubernetes, pkg/registry/apps/deployment/storage
"""

from __future__ import annotations

from typing import Any

from moorage.api.decode import decode
from moorage.api.meta import LabelSelector
from moorage.api.selectors import compile_label_selector
from moorage.apiserver.vocabulary.records import Document, Record
from moorage.apiserver.vocabulary.statuses import bad_request, invalid
from moorage.errors import Fault, InputError

__all__ = ["read_scale", "write_scale"]


def read_scale(record: Record) -> Document:
    """Return the ``Scale`` of a workload."""
    document = record.document()
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {"replicas": status.get("replicas", 0), "selector": _selector(spec.get("selector"))},
    }


def _selector(selector: Any) -> str:
    if not isinstance(selector, dict):
        return ""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        selector = {"matchLabels": selector}
    try:
        return str(compile_label_selector(decode(selector, LabelSelector, "")))
    except InputError:
        return ""


def write_scale(document: Document, wanted: Document) -> None:
    """Write the replica count of a ``Scale`` into a workload.

    Raises  ApiError 400 if the count is not an integer, 422 if it is negative
    """
    spec = wanted.get("spec")
    replicas = (spec if isinstance(spec, dict) else {}).get("replicas", 0)
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise bad_request("spec.replicas: expected an integer")
    if replicas < 0:
        fault = Fault("Invalid value", "spec.replicas", "must be greater than or equal to 0", replicas)
        raise invalid("Scale", "autoscaling", document["metadata"]["name"], [fault])
    document["spec"]["replicas"] = replicas
