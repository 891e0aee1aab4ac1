"""A scheduler's verdicts on one pod, and the scores of the nodes that fit, as columns over all nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from msgspec.structs import replace as with_fields

from moorage.api.core import Pod
from moorage.core.cycle.cycle import rate
from moorage.core.cycle.search import ring_position
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import InputError, PluginError
from moorage.framework.profile import Profile
from moorage.laboratory.explain.verdicts import engine_view, verdicts_of_all
from moorage.state.pod_info import PodInfo

__all__ = ["score_columns", "verdict_columns"]


def verdict_columns(scheduler: Scheduler, profiles: Mapping[str, Profile], pod: Pod) -> dict[str, Any]:
    """Return the first refusal of each node: its position in ``reasons``, or -1 where the pod fits.

    Raises  InputError for a pod that no profile tries
    """
    profile = _profile(profiles, pod)
    with _unplaced(scheduler, pod) as free:
        judged = verdicts_of_all(profile, free, scheduler.snapshot, scheduler.queue.nominated)
        first, kinds = judged.kinds
        statuses = [judged.first(int(row)) for row in first]
    reasons: dict[tuple[str, str], int] = {}
    places = []
    for status in statuses:
        if status is None:
            places.append(-1)
        else:
            key = (status.plugin, "; ".join(status.reasons))
            places.append(reasons.setdefault(key, len(reasons)))
    verdicts = np.array(places, dtype=np.int64)[kinds].tolist() if places else []
    return {
        "pod": pod.key,
        "nodes": judged.names,
        "verdicts": verdicts,
        "reasons": [{"plugin": plugin, "text": text} for plugin, text in reasons],
    }


def score_columns(scheduler: Scheduler, profiles: Mapping[str, Profile], pod: Pod) -> dict[str, Any]:
    """Return the normalised scores of the nodes that fit, by plugin, with the weights.

    The nodes are in the order in which equal totals are broken: the first of the best is chosen.

    Raises  InputError for a pod that no profile tries, or whose plugins fail
    """
    profile, seed = _profile(profiles, pod), scheduler.cycle.seed
    with _unplaced(scheduler, pod) as free:
        snapshot = scheduler.snapshot
        try:
            found, verdicts = engine_view(profile, free, snapshot, scheduler.queue.nominated)
            feasible = np.flatnonzero(verdicts.feasible)
            scores = rate(profile, found, free, snapshot, feasible) if len(feasible) else None
        except PluginError as error:
            raise InputError(str(error)) from None
        plugins = [] if scores is None else list(scores.final)
        weights = [] if scores is None else [scores.weights.get(one) or profile.weights.get(one, 1) for one in plugins]
        order = np.argsort(snapshot.table.name_hash.view[feasible] - np.uint64(ring_position(free.uid, seed)), kind="stable")
        names = [snapshot.table.nodes[row].name for row in feasible[order]]
    return {
        "pod": pod.key,
        "nodes": names,
        "plugins": plugins,
        "weights": weights,
        "normalised": [
            (scores.final[one] // max(1, weight))[order].tolist() for one, weight in zip(plugins, weights, strict=True)
        ] if scores is not None else [],
    }  # fmt: skip


def _profile(profiles: Mapping[str, Profile], pod: Pod) -> Profile:
    profile = profiles.get(pod.spec.scheduler_name)
    if profile is None:
        raise InputError(f"{pod.key}: its schedulerName is {pod.spec.scheduler_name}, which no profile here has")
    return profile


@contextmanager
def _unplaced(scheduler: Scheduler, pod: Pod) -> Iterator[PodInfo]:
    """Remove the pod from its node while the block runs, so that its own usage does not count against it."""
    free = PodInfo(with_fields(pod, spec=with_fields(pod.spec, node_name="")))
    cluster = scheduler.cluster
    row = cluster.table.row_of.get(cluster.node_of(pod.uid) or pod.spec.node_name)
    held = None if row is None else cluster.table.pods[row].get(pod.uid)
    if row is None or held is None:
        yield free
        return
    with cluster.table.what_if(row):
        cluster.table.remove_pod(row, held)
        yield free
