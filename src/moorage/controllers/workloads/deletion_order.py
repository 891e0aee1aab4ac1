"""The order in which replicas are deleted when a controller scales down.

Source  kubernetes, pkg/controller/controller_utils.go, ActivePodsWithRanks
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from typing import Final

from moorage.api.integers import parse_int64
from moorage.apiserver.vocabulary.records import Document
from moorage.controllers.machinery.object_fields import (
    annotations_of,
    phase_of,
    ready_since,
    seconds,
    spec_of,
    status_of,
    uid_of,
)

__all__ = ["deletion_order"]

_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def deletion_order(pods: Iterable[Document], related: Iterable[Document], now: float) -> list[Document]:
    """Return pods in the order of their deletion.

    ``related`` are active pods of the same application: a pod with many of them on its node is deleted earlier. Ages are
    compared by magnitude only, so that the UID decides between pods of similar age and spreads the losses over failure domains.
    """
    crowd = Counter(spec_of(pod).get("nodeName") or "" for pod in related)

    def compare(a: Document, b: Document) -> int:
        for rule in (_by_place, _by_phase, _by_readiness, _by_cost):
            if found := rule(a, b):
                return found
        if found := crowd[spec_of(b).get("nodeName") or ""] - crowd[spec_of(a).get("nodeName") or ""]:
            return found
        return _by_age(a, b, now)

    return sorted(pods, key=cmp_to_key(compare))


def _sign(a: float, b: float) -> int:
    return (a > b) - (a < b)


def _by_place(a: Document, b: Document) -> int:
    return _sign(bool(spec_of(a).get("nodeName")), bool(spec_of(b).get("nodeName")))


def _by_phase(a: Document, b: Document) -> int:
    return _sign(_PHASES.get(phase_of(a), 0), _PHASES.get(phase_of(b), 0))


def _by_readiness(a: Document, b: Document) -> int:
    return _sign(ready_since(a) is not None, ready_since(b) is not None)


def _by_cost(a: Document, b: Document) -> int:
    return _sign(_cost(a), _cost(b))


def _cost(pod: Document) -> int:
    value = parse_int64(annotations_of(pod).get(_COST, ""))
    return 0 if value is None or abs(value) > 2**31 - 1 else value


def _by_age(a: Document, b: Document, now: float) -> int:
    ready = ready_since(a), ready_since(b)
    if ready[0] is not None and ready[1] is not None and ready[0] != ready[1]:
        return _by_magnitude(now - ready[0], now - ready[1]) or _by_uid(a, b)
    for restarts in (_restarts, _sidecar_restarts):
        if found := restarts(b) - restarts(a):
            return found
    born = [seconds(pod["metadata"].get("creationTimestamp")) for pod in (a, b)]
    if born[0] != born[1]:
        return _by_magnitude(now - born[0], now - born[1]) or _by_uid(a, b)
    return 0


def _by_magnitude(a_s: float, b_s: float) -> int:
    return _magnitude(a_s) - _magnitude(b_s)


def _magnitude(age_s: float) -> int:
    return int(math.log2(age_s * 1e9)) if age_s > 0 else -1


def _by_uid(a: Document, b: Document) -> int:
    return -1 if uid_of(a) < uid_of(b) else 1


def _restarts(pod: Document) -> int:
    return _most(status_of(pod).get("containerStatuses") or (), lambda name: True)


def _sidecar_restarts(pod: Document) -> int:
    inits: Sequence[Document] = spec_of(pod).get("initContainers") or ()
    sidecars = {one["name"] for one in inits if one.get("restartPolicy") == "Always"}
    return _most(status_of(pod).get("initContainerStatuses") or (), sidecars.__contains__)


def _most(statuses: Iterable[Document], counts: Callable[[str], bool]) -> int:
    return max((int(one.get("restartCount") or 0) for one in statuses if counts(one.get("name", ""))), default=0)
