"""The order in which replicas are deleted when a controller scales down.

Source  kubernetes, pkg/controller/controller_utils.go, ActivePodsWithRanks
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cmp_to_key
from typing import Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.api.quantity import parse_int64

_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def deletion_order(pods: Iterable[Document], related: Iterable[Document], now: float) -> list[Document]:
    """Return pods in the order of their deletion.

    ``related`` are active pods of the same application: a pod with many of them on its node is deleted earlier. Ages are
    compared by magnitude only, so that the UID decides between pods of similar age and spreads the losses over failure domains.
    """
    crowd = Counter(k8s.spec_of(pod).get("nodeName") or "" for pod in related)

    def rank(pod: Document) -> tuple[bool, int, bool, int, int]:
        node = k8s.spec_of(pod).get("nodeName") or ""
        return bool(node), _PHASES.get(k8s.phase_of(pod), 0), k8s.is_ready(pod), _cost(pod), -crowd[node]

    def compare(a: Document, b: Document) -> int:
        one, other = rank(a), rank(b)
        return _by_age(a, b, now) if one == other else -1 if one < other else 1

    return sorted(pods, key=cmp_to_key(compare))


def _cost(pod: Document) -> int:
    value = parse_int64(k8s.annotations_of(pod).get(_COST, ""))
    return 0 if value is None or abs(value) > 2**31 - 1 else value


def _by_age(a: Document, b: Document, now: float) -> int:
    ready = k8s.ready_since(a), k8s.ready_since(b)
    if ready[0] is not None and ready[1] is not None and ready[0] != ready[1]:
        return _magnitude(now - ready[0]) - _magnitude(now - ready[1]) or _by_uid(a, b)
    for more, fewer in zip(_restarts(b), _restarts(a), strict=True):
        if more != fewer:
            return more - fewer
    born = [k8s.seconds(pod["metadata"].get("creationTimestamp")) for pod in (a, b)]
    if born[0] != born[1]:
        return _magnitude(now - born[0]) - _magnitude(now - born[1]) or _by_uid(a, b)
    return 0


def _magnitude(age_s: float) -> int:
    return int(math.log2(age_s * 1e9)) if age_s > 0 else -1


def _by_uid(a: Document, b: Document) -> int:
    return -1 if k8s.uid_of(a) < k8s.uid_of(b) else 1


def _restarts(pod: Document) -> tuple[int, int]:
    """Return how often the container that restarted most has done so, and the sidecar that did."""
    inits: Sequence[Document] = k8s.spec_of(pod).get("initContainers") or ()
    sidecars = {one["name"] for one in inits if one.get("restartPolicy") == "Always"}
    own, of_inits = (k8s.status_of(pod).get(part) or () for part in ("containerStatuses", "initContainerStatuses"))
    counted = own, [one for one in of_inits if one.get("name", "") in sidecars]
    most, of_sidecars = (max((int(one.get("restartCount") or 0) for one in held), default=0) for held in counted)
    return most, of_sidecars
