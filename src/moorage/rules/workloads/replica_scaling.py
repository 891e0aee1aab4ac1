"""The next sizes of a deployment's replica sets.

Source  kubernetes, pkg/controller/deployment/rolling.go and sync.go (scale); util/deployment_util.go, NewRSNewReplicas
"""

from __future__ import annotations

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.api.quantity import parse_int64
from moorage.rules.workloads import replica_set
from moorage.rules.workloads.replica_set import DESIRED, size_of


def grow_new(new: Document, old: list[Document], wanted: int, most: int) -> int:
    """Return the size of the new replica set: up to ``wanted``, while all sets together have at most ``most`` replicas."""
    size = size_of(new)
    if size >= wanted:
        return wanted
    room = most - size - sum(map(size_of, old))
    return size + max(0, min(room, wanted - size))


def shrink_old(new: Document, old: list[Document], least: int) -> dict[str, int]:
    """Return the new sizes, by UID, of the old sets to scale down, so that ``least`` replicas in total stay available."""
    total = size_of(new) + sum(map(size_of, old))
    idle_new = size_of(new) - int(k8s.status_of(new).get("availableReplicas") or 0)
    spare = total - least - idle_new
    if spare <= 0:
        return {}
    sizes = _without_unavailable(old, spare)
    available = sum(int(k8s.status_of(one).get("availableReplicas") or 0) for one in (*old, new))
    budget = available - least
    for one in sorted(old, key=k8s.age_order):
        size = sizes.get(k8s.uid_of(one), size_of(one))
        taken = min(size, max(0, budget))
        if taken:
            sizes[k8s.uid_of(one)] = size - taken
            budget -= taken
    return sizes


def _without_unavailable(old: list[Document], spare: int) -> dict[str, int]:
    """Return the new sizes, by UID, of the old sets after removing up to ``spare`` unavailable replicas."""
    sizes: dict[str, int] = {}
    for one in sorted(old, key=k8s.age_order):
        unavailable = size_of(one) - int(k8s.status_of(one).get("availableReplicas") or 0)
        taken = min(spare, max(0, unavailable))
        if taken:
            sizes[k8s.uid_of(one)] = size_of(one) - taken
            spare -= taken
    return sizes


def spread(new: Document | None, old: list[Document], wanted: int, most: int, rolls: bool) -> dict[str, int]:
    """Return the new sizes, by UID, after a deployment was scaled: in proportion if several sets have replicas."""
    sets = [*old, new] if new is not None else old
    active = [one for one in sets if size_of(one)]
    if len(active) <= 1:
        target = active[0] if active else new if new is not None else max(old, key=k8s.age_order, default=None)
        return {} if target is None else {k8s.uid_of(target): wanted}
    if new is not None and _is_saturated(new, wanted):
        return {k8s.uid_of(one): 0 for one in active if one is not new}
    if not rolls:
        return {}
    change = (most if wanted else 0) - sum(map(size_of, active))
    # The largest first; with equal size, the newest first when scaling up and the oldest first when scaling down.
    by_age = sorted(active, key=k8s.age_order, reverse=change > 0)
    return _shared(sorted(by_age, key=size_of, reverse=True), change, wanted, most)


def _shared(sets: list[Document], change: int, wanted: int, most: int) -> dict[str, int]:
    sizes: dict[str, int] = {}
    given = 0
    for one in sets:
        share = _share(one, wanted, most)
        left = change - given
        part = min(share, left) if change > 0 else max(share, left)
        part = 0 if not change or not left else part
        sizes[k8s.uid_of(one)] = size_of(one) + part
        given += part
    first = k8s.uid_of(sets[0])
    sizes[first] = max(0, sizes[first] + change - given)
    return sizes


def _share(one: Document, wanted: int, most: int) -> int:
    if not wanted:
        return -size_of(one)
    before = parse_int64(k8s.annotations_of(one).get(replica_set.MAX, "")) or 0
    if before <= 0:
        return 0
    return k8s.rounded(size_of(one) * most / before) - size_of(one)


def _is_saturated(new: Document, wanted: int) -> bool:
    """Return True if the new set's size, available replicas and annotation of desired replicas all equal ``wanted``."""
    asked = k8s.annotations_of(new).get(DESIRED)
    return size_of(new) == wanted and asked == str(wanted) and int(k8s.status_of(new).get("availableReplicas") or 0) == wanted
