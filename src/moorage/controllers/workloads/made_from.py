"""Whether a pod was made from a template, for pods that name a revision which is not there.

A pod holds all that its template says, and more: what the API server, admission and its controller added. So it is looked for
what the template says. Where the owner itself says which pods are of its present template, that counts, whatever webhooks made
of the pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Final

from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.controllers.machinery.kind_names import DAEMON_SETS, STATEFUL_SETS
from moorage.controllers.machinery.object_fields import annotations_of, labels_of, name_of, spec_of, status_of

__all__ = ["is_made_from", "unknown_revision"]

_HASH: Final = "controller-revision-hash"
#: How often a daemon set's template has changed: in its annotation, and in the labels of its pods.
_CHANGES: Final = "deprecated.daemonset.template.generation"
_CHANGE: Final = "pod-template-generation"


def unknown_revision(kind: ServedKind, owner: Document, pods: Iterable[Document], known: Collection[str]) -> str:
    """Return the name of the revision that pods of the present template are labelled with; "" if that is known, or none is.

    ``known``: the names of the revisions that are there.
    """
    counts: Counter[str] = Counter()
    for pod in pods:
        name = _revision_of(kind, owner, pod)
        if name.startswith(f"{name_of(owner)}-") and name not in known and _is_current(kind, owner, pod, name):
            counts[name] += 1
    return max(sorted(counts), key=lambda name: counts[name], default="")


def _revision_of(kind: ServedKind, owner: Document, pod: Document) -> str:
    """Return the name of a pod's revision: stateful pods are labelled with it, daemons with its last part."""
    mark = labels_of(pod).get(_HASH, "")
    return f"{name_of(owner)}-{mark}" if kind is DAEMON_SETS and mark else mark


def _is_current(kind: ServedKind, owner: Document, pod: Document, revision: str) -> bool:
    if kind is DAEMON_SETS:
        said = annotations_of(owner).get(_CHANGES)
        is_said = said is not None and labels_of(pod).get(_CHANGE) == said
    else:
        status = status_of(owner)
        is_of_now = status.get("observedGeneration") == owner["metadata"].get("generation")
        is_said = is_of_now and status.get("updateRevision") == revision
    return is_said or is_made_from(pod, _as_given(kind, owner))


def _as_given(kind: ServedKind, owner: Document) -> Document:
    """Return the template of a set without what its controller replaces."""
    template = spec_of(owner).get("template") or {}
    spec = dict(spec_of(template))
    if kind is DAEMON_SETS and (spec.get("affinity") or {}).get("nodeAffinity"):
        spec["affinity"] = {name: value for name, value in spec["affinity"].items() if name != "nodeAffinity"}
    if kind is STATEFUL_SETS:
        spec = {name: value for name, value in spec.items() if name not in {"hostname", "subdomain"}}
        claims = {(one.get("metadata") or {}).get("name") for one in spec_of(owner).get("volumeClaimTemplates") or ()}
        spec["volumes"] = [one for one in spec.get("volumes") or () if one.get("name") not in claims]
    return {**template, "spec": spec}


def is_made_from(pod: Document, template: Document) -> bool:
    """Say whether a pod has all that a template says."""
    metadata = template.get("metadata") or {}
    given = {name: metadata.get(name) for name in ("labels", "annotations")}
    return _holds(pod["metadata"], given) and _holds(spec_of(pod), spec_of(template))


def _holds(made: Any, given: Any) -> bool:
    if isinstance(given, dict):
        fields = made if isinstance(made, dict) else {}
        return all(_holds(fields.get(name), value) for name, value in given.items())
    if isinstance(given, list):
        items = made if isinstance(made, list) else []
        return all(any(_is_it(one, other) and _holds(one, other) for one in items) for other in given)
    return given is None or bool(made == given) or (not given and not made)


def _is_it(made: Any, given: Any) -> bool:
    """Say of two items of a list whether they have the same name, if they have any."""
    return not isinstance(given, dict) or not isinstance(made, dict) or made.get("name") == given.get("name")
