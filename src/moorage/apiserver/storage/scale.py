"""The ``scale`` subresource of workloads and of custom kinds.

Source  api, autoscaling/v1; kubernetes, pkg/registry/apps/deployment/storage
"""

from __future__ import annotations

from typing import Any

from moorage.api.decode import decode
from moorage.api.meta import LabelSelector, Object
from moorage.api.selectors import compile_label_selector
from moorage.api.validation.faults import nonnegative
from moorage.api.validation.metadata import object_meta
from moorage.apiserver.admission.validation import metadata_faults
from moorage.apiserver.vocabulary.custom_versions import ScalePaths
from moorage.apiserver.vocabulary.records import Document, Record
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.apiserver.vocabulary.statuses import internal, invalid, quoted
from moorage.errors import InputError

__all__ = ["check_scale", "read_scale", "write_scale"]


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
        "spec": {"replicas": wanted} if wanted else {},
        "status": {"replicas": current, **({"selector": selector} if selector else {})},
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


def check_scale(kind: ServedKind, scale: Document, name: str) -> None:
    """Check the scale that a client wants for the object of a name. Metadata of a custom kind's scale has no effect.

    Raises  ApiError 422
    """
    metadata, faults = scale["metadata"], []
    if kind.custom is None:
        faults += [*object_meta(decode({"metadata": metadata}, Object, "").metadata, True), *metadata_faults(metadata)]
    faults += nonnegative("spec.replicas", (scale.get("spec") or {}).get("replicas"))
    if faults:
        raise invalid("Scale", "autoscaling", name, faults)


def write_scale(kind: ServedKind, document: Document, wanted: Document) -> None:
    """Write the replica count of a valid ``Scale`` into a workload or a custom object.

    Raises  ApiError 500 for a custom object whose count cannot be set
    """
    replicas = (wanted.get("spec") or {}).get("replicas", 0)
    path = ".spec.replicas" if kind.custom is None or kind.custom.scale is None else kind.custom.scale.wanted
    *above, last = path.removeprefix(".").split(".")
    for name in above:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise internal(f"value cannot be set because {path} is not a map[string]interface{{}}")
    document[last] = replicas
