"""What happens to a new object on its way in: the admission plugins that every cluster runs, as far as scheduling cares.

A pod gets its namespace's default resources and is held to its limits, its priority class becomes a number, it tolerates
nodes in trouble for five minutes, and its runtime class adds overhead. A claim without a class gets the default one.

Source  kubernetes, plugin/pkg/admission: limitranger, priority, defaulttolerationseconds, runtimeclass, storage/storageclass
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from moorage.api.admission import (
    Admitted,
    RuntimeClass,
    add_default_tolerations,
    apply_limit_ranges,
    apply_runtime_class,
    resolve_priority,
    set_default_storage_class,
)
from moorage.api.core import LimitRange, Pod
from moorage.api.meta import Value
from moorage.api.storage import PersistentVolumeClaim, StorageClass
from moorage.api.workloads import PriorityClass
from moorage.apiserver.filling import lay_over
from moorage.apiserver.kinds import Kind
from moorage.apiserver.records import Document
from moorage.apiserver.statuses import forbidden

__all__ = ["Lookup", "admit"]

#: Finds all objects of a kind, by its struct, in a namespace ("" for kinds that have none).
Lookup = Callable[[type[Value], str], Iterable[Value]]


def admit(kind: Kind, document: Document, read: Value, find: Lookup) -> None:
    """Change a new object, in place, as admission does. ``read`` is the same object, with its defaults.

    Raises  ApiError 403 for what admission refuses, 400 for a field that does not hold what it should
    """
    rule = _RULES.get(kind.kind)
    if rule is None:
        return
    if kind.kind == "Pod" and isinstance(spec := document.get("spec"), dict):
        spec.setdefault("serviceAccountName", "default")
    after, refusals = rule(read, find)
    if refusals:
        raise forbidden(kind.resource, kind.group, document["metadata"]["name"], "; ".join(refusals))
    lay_over(document, read, after)


def _pod(read: Value, find: Lookup) -> tuple[Value, tuple[str, ...]]:
    if not isinstance(read, Pod):
        return read, ()
    ranges = [one for one in find(LimitRange, read.metadata.namespace) if isinstance(one, LimitRange)]
    priorities = {one.metadata.name: one for one in find(PriorityClass, "") if isinstance(one, PriorityClass)}
    runtimes = {one.metadata.name: one for one in find(RuntimeClass, "") if isinstance(one, RuntimeClass)}
    steps: tuple[Callable[[Pod], Admitted], ...] = (
        lambda pod: apply_limit_ranges(pod, ranges),
        lambda pod: resolve_priority(pod, priorities),
        lambda pod: Admitted(add_default_tolerations(pod)),
        lambda pod: apply_runtime_class(pod, runtimes),
    )
    pod = read
    for step in steps:
        pod, refusals = step(pod)
        if refusals:
            return pod, refusals
    return pod, ()


def _claim(read: Value, find: Lookup) -> tuple[Value, tuple[str, ...]]:
    if not isinstance(read, PersistentVolumeClaim):
        return read, ()
    return set_default_storage_class(read, [one for one in find(StorageClass, "") if isinstance(one, StorageClass)]), ()


def _priority_class(read: Value, find: Lookup) -> tuple[Value, tuple[str, ...]]:
    if isinstance(read, PriorityClass) and read.global_default:
        for other in find(PriorityClass, ""):
            if isinstance(other, PriorityClass) and other.global_default and other.metadata.name != read.metadata.name:
                why = f"PriorityClass {other.metadata.name} is already marked as default. Only one default can exist"
                return read, (why,)
    return read, ()


_RULES: Final[dict[str, Callable[[Value, Lookup], tuple[Value, tuple[str, ...]]]]] = {
    "PersistentVolumeClaim": _claim,
    "Pod": _pod,
    "PriorityClass": _priority_class,
}
