"""Match pods to the template that they were created from, for pods that name a missing revision.

A pod contains everything in its template, and more: defaults, and fields that admission and its controller added. So a pod
matches if it contains the template. If the owner's status or generation identifies the current revision, that decides, even
if webhooks changed the pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.rules.workloads.missing_pods import REVISION_HASH

#: The generation of a daemon set's template: in its annotation, and in the labels of its pods.
_CHANGES: Final = "deprecated.daemonset.template.generation"
_CHANGE: Final = "pod-template-generation"


def unknown_revision(kind: ServedKind, owner: Document, pods: Iterable[Document], known: Collection[str]) -> str:
    """Return the missing revision that most pods of the current template name in their labels; "" if there is none.

    ``known`` are the names of existing revisions.
    """
    counts: Counter[str] = Counter()
    for pod in pods:
        mark = k8s.labels_of(pod).get(REVISION_HASH, "")  # that of a daemon pod lacks the prefix with the set's name
        name = f"{k8s.name_of(owner)}-{mark}" if kind is k8s.DAEMON_SETS and mark else mark
        if name.startswith(f"{k8s.name_of(owner)}-") and name not in known and _is_current(kind, owner, pod, name):
            counts[name] += 1
    return max(sorted(counts), key=lambda name: counts[name], default="")


def _is_current(kind: ServedKind, owner: Document, pod: Document, revision: str) -> bool:
    if kind is k8s.DAEMON_SETS:
        generation = k8s.annotations_of(owner).get(_CHANGES)
        is_current = generation is not None and k8s.labels_of(pod).get(_CHANGE) == generation
    else:
        status = k8s.status_of(owner)
        is_observed = status.get("observedGeneration") == owner["metadata"].get("generation")
        is_current = is_observed and status.get("updateRevision") == revision
    return is_current or is_made_from(pod, _as_given(kind, owner))


def _as_given(kind: ServedKind, owner: Document) -> Document:
    """Return the template of a set without the fields that its controller replaces."""
    template = k8s.spec_of(owner).get("template") or {}
    spec = dict(k8s.spec_of(template))
    if kind is k8s.DAEMON_SETS and (spec.get("affinity") or {}).get("nodeAffinity"):
        spec["affinity"] = {name: value for name, value in spec["affinity"].items() if name != "nodeAffinity"}
    if kind is k8s.STATEFUL_SETS:
        spec = {name: value for name, value in spec.items() if name not in {"hostname", "subdomain"}}
        claims = {(one.get("metadata") or {}).get("name") for one in k8s.spec_of(owner).get("volumeClaimTemplates") or ()}
        spec["volumes"] = [one for one in spec.get("volumes") or () if one.get("name") not in claims]
    return {**template, "spec": spec}


def is_made_from(pod: Document, template: Document) -> bool:
    """Return whether a pod contains everything in a template."""
    metadata = template.get("metadata") or {}
    given = {name: metadata.get(name) for name in ("labels", "annotations")}
    return _holds(pod["metadata"], given) and _holds(k8s.spec_of(pod), k8s.spec_of(template))


def _holds(made: Any, given: Any) -> bool:
    if isinstance(given, dict):
        fields = made if isinstance(made, dict) else {}
        return all(_holds(fields.get(name), value) for name, value in given.items())
    if isinstance(given, list):
        items = made if isinstance(made, list) else []
        return all(any(_correspond(one, other) and _holds(one, other) for one in items) for other in given)
    return given is None or bool(made == given) or (not given and not made)


def _correspond(made: Any, given: Any) -> bool:
    """Return whether two list items correspond: they have the same name, or are not both objects."""
    return not isinstance(given, dict) or not isinstance(made, dict) or made.get("name") == given.get("name")
