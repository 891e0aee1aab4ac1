"""The least change for a pod of a live scheduler: it is searched for in a copy of the cluster, which another thread makes.

``live_objects`` only collects references, so it takes a few milliseconds between two attempts. Everything else works on objects
that never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.gc_pause import collector_paused
from moorage.api.meta import Object
from moorage.config.scheduler_document import Loaded
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.cluster_trials import ClusterTrials
from moorage.laboratory.explained_changes import CHANGEABLE, ChangeLimits, with_changes
from moorage.laboratory.present import cluster_input, is_simulated
from moorage.report.explanation import Explanation
from moorage.simulator.simulate import Options

__all__ = ["with_live_changes"]

_LATE: Final = "the search for changes reached its time limit; moorage explain --live has none"


def with_live_changes(
    found: Explanation, objects: Sequence[Object], assumed: Mapping[str, str], loaded: Loaded, seed: int,
    is_late: Callable[[], bool],
) -> Explanation:  # fmt: skip
    """Return an explanation with the changes that would place its pod, until ``is_late``.

    ``objects`` are those of the API server, ``assumed`` has the nodes of pods whose bindings it has not reported yet. Extenders
    are not asked.
    """
    if found.outcome not in CHANGEABLE:
        return found
    options = Options(seed=seed, skip_extenders=True, reconfigure=lambda _: loaded)
    with collector_paused():  # a collection holds up all threads
        cluster = Cluster(cluster_input(_placed(objects, assumed)), options)
        try:
            trials = ClusterTrials(cluster, found.request.pod)
            explained = with_changes(found, trials, cluster.present(), ChangeLimits(is_late=is_late))
        finally:
            cluster.simulation.release()
    if not is_late():
        return explained
    return replace(explained, request=replace(explained.request, notes=(*explained.request.notes, _LATE)))


def _placed(objects: Iterable[Object], assumed: Mapping[str, str]) -> Iterable[Object]:
    """Yield the objects that a simulation reads, with assumed pods on their nodes."""
    for obj in objects:
        if isinstance(obj, Pod) and not obj.spec.node_name and obj.metadata.uid in assumed:
            yield replace(obj, spec=replace(obj.spec, node_name=assumed[obj.metadata.uid]))
        elif is_simulated(obj):
            yield obj
