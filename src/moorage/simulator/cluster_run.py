"""Runs a cluster input: expand workloads, admit objects, and pass everything to the engine in a sensible order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace as with_fields
from typing import Final

from moorage.api.core import Object, OwnerReference, Pod
from moorage.api.feature_gates import FeatureGates
from moorage.api.gc_pause import collector_paused
from moorage.api.odd_amounts import odd_memory
from moorage.basis.printable import counted, some
from moorage.framework.dropped_fields import ignored_fields_note
from moorage.report.outcome import InputNote, Run
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.job_groups import create_for
from moorage.simulator.missing_references import find_missing
from moorage.simulator.owners import controller_title
from moorage.simulator.quota_retries import QuotaRetries
from moorage.simulator.simulate import Options, Prepared, prepare, simulate
from moorage.simulator.simulation import SimulatedAttempt

#: States of pods that are on no node any more.
_GONE: Final = frozenset(["Deleted", "Finished", "Preempted"])
_NO_NODES = "no nodes in the input, so that no pod can be scheduled: kubectl get nodes -o yaml prints them"


def simulate_cluster(
    given: ClusterInput, options: Options,
    *, on_attempt: Callable[[SimulatedAttempt], None] | None = None, prepared: Prepared | None = None,
    titles: dict[str, str] | None = None,
) -> tuple[ClusterInput, Run]:  # fmt: skip
    """Schedule every pending pod of a cluster, including pods that its workloads lack.

    Pods on nodes that are not in the input are deleted, unless the input has no node at all. Pods that a quota or a limit range
    refuses are created when other pods have left room for them, or not at all. ``prepared``: the empty simulation to run,
    instead of one made for these options. ``titles``: filled with the workloads of
    pods by UID; the caller adds those of pods that come later.
    Returns the cluster with all its pods, and the run.
    Raises  ConfigError, InputError
    """
    with collector_paused():
        created = create_for(given, options)
        cluster, lost = created.cluster, created.lost
        workloads = {} if titles is None else titles
        workloads.update(workload_names(cluster, (*lost.pods, *(one.pod for one in created.refused))))
        notes = [*input_notes(cluster), *lost.notes()]
    prepared = prepared or prepare(options, on_attempt)
    notes += ignored_fields(cluster, prepared[0].scheduler.gates)
    retries = QuotaRetries.watch(created.creation, prepared[0])
    run = simulate(
        objects_of(cluster),
        options,
        on_attempt=on_attempt,
        notes=notes,
        workloads=workloads,
        gone=lost.records(),
        prepared=prepared,
    )
    _, refused = retries.refused(cluster.pods, workloads)
    whole = with_fields(cluster, pods=(*cluster.pods, *retries.later))
    shared = (InputNote("Remark", text) for text in shared_volumes(whole, run))
    return whole, with_fields(run, notes=(*run.notes, *retries.notes(), *shared), refused=refused)


def objects_of(cluster: ClusterInput) -> Iterator[Object]:
    """Yield every object that the scheduler may read: first other objects, then nodes, then placed pods, pending pods last."""
    yield from cluster.namespaces
    yield from cluster.custom
    yield from cluster.others
    for group in (
        cluster.services, cluster.replication_controllers, cluster.replica_sets, cluster.stateful_sets,
        cluster.pod_disruption_budgets, cluster.composite_pod_groups, cluster.pod_groups,
        cluster.storage_classes, cluster.persistent_volumes, cluster.persistent_volume_claims,
        cluster.csi_drivers, cluster.csi_nodes, cluster.csi_storage_capacities, cluster.volume_attachments,
        cluster.device_classes, cluster.device_taint_rules, cluster.resource_slices, cluster.resource_claims,
        cluster.resource_claim_templates,
    ):  # fmt: skip
        yield from group
    yield from cluster.nodes
    yield from (pod for pod in cluster.pods if pod.spec.node_name)
    yield from (pod for pod in cluster.pods if not pod.spec.node_name)


def input_notes(cluster: ClusterInput) -> list[InputNote]:
    """Return notes on the input: what was not used, references to missing objects, other remarks."""
    report = cluster.report
    notes = [InputNote("Unused", str(unused)) for unused in report.unused]
    notes += [InputNote("MissingReference", str(missing)) for missing in find_missing(cluster)]
    notes += [InputNote("Remark", text) for text in (*report.notes, *odd_amounts(cluster.pods))]
    notes += [InputNote("Remark", text) for text in _nodes_without_pods(cluster)]
    if not cluster.nodes and any(not pod.spec.node_name for pod in cluster.pods):
        notes.append(InputNote("Remark", _NO_NODES))
    return notes


def _nodes_without_pods(cluster: ClusterInput) -> Iterator[str]:
    """Yield a note if nodes say how much they have, but not how many pods, so that they take none."""
    names = [one.name for one in cluster.nodes if one.status.allocatable and "pods" not in one.status.allocatable]
    if names:
        yield f"{counted(len(names), 'node')} without pods in status.allocatable, so no pod fits there: {some(names)}"


def shared_volumes(cluster: ClusterInput, run: Run) -> Iterator[str]:
    """Yield a note on each ReadWriteOnce claim that pods on several nodes use: it attaches to one of them at a time."""
    only = {one.key for one in cluster.persistent_volume_claims if set(one.spec.access_modes) == {"ReadWriteOnce"}}
    if not only:
        return
    gone = {f"{one.namespace}/{one.name}" for one in run.pods if one.state in _GONE}
    nodes = {pod.key: pod.spec.node_name for pod in cluster.pods if pod.spec.node_name}
    nodes |= {f"{one.namespace}/{one.name}": one.node for one in run.in_state("Placed")}
    nodes = {key: node for key, node in nodes.items() if key not in gone}
    users: dict[str, dict[str, str]] = {}
    for pod in cluster.pods:
        for volume in pod.spec.volumes if pod.key in nodes else ():
            key = f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}" if volume.persistent_volume_claim else ""
            if key in only:
                users.setdefault(key, {})[nodes[pod.key]] = pod.key
    for key, held in users.items():
        if len(held) > 1:
            where = some([f"{pod} on {node}" for node, pod in held.items()])
            yield (
                f"claim {key} is ReadWriteOnce and used by {where}: the scheduler does not check that, and the volume attaches "
                "to one node at a time (Multi-Attach)"
            )


def odd_amounts(pods: Iterable[Pod]) -> Iterator[str]:
    """Yield a note on each amount of memory in thousandths of a byte."""
    seen: set[int] = set()  # the ids of specs, which the pods of a workload share
    for pod in pods:
        if id(pod.spec) not in seen:
            seen.add(id(pod.spec))
            for one in (*pod.spec.init_containers, *pod.spec.containers):
                yield from (f"pod {pod.key}: {text}" for text in odd_memory(one))


def ignored_fields(cluster: ClusterInput, gates: FeatureGates) -> list[InputNote]:
    """Return notes on fields of pods and jobs that the emulated release ignores, if there are any."""
    notes = [*gates.lacking, ignored_fields_note(cluster.pods, gates)]
    jobs = [] if gates["WorkloadWithJob"] else [job.key for job in cluster.jobs if job.spec.scheduling is not None]
    if jobs:
        notes.append(
            f"spec.scheduling of {counted(len(jobs), 'job')} ignored, for the gate WorkloadWithJob is off: {some(jobs)}"
        )
    return [InputNote("Remark", note) for note in notes if note]


def workload_names(cluster: ClusterInput, more: Iterable[Pod] = ()) -> dict[str, str]:
    """Return, by pod UID, the workload that people name: the Deployment instead of its ReplicaSet.

    ``more``: pods that are no longer in the cluster.
    """
    above: dict[tuple[str, str, str], str] = {}
    for kind, owned in (("ReplicaSet", cluster.replica_sets), ("Job", cluster.jobs)):
        for one in owned:
            title = controller_title(one.metadata)
            if title:
                above[kind, one.metadata.namespace, one.metadata.name] = title
    names: dict[str, str] = {}
    #: By namespace and the id of the owner references, which pods of a workload share: the references, and the name.
    known: dict[tuple[str, int], tuple[tuple[OwnerReference, ...], str]] = {}
    for pod in (*more, *cluster.pods):
        metadata = pod.metadata
        owners = metadata.owner_references
        if not owners:
            continue
        key = metadata.namespace, id(owners)
        found = known.get(key)
        if found is None:
            direct = controller_title(metadata)
            kind, _, name = direct.partition("/")
            found = known[key] = owners, above.get((kind, metadata.namespace, name), direct)
        if found[1]:
            names[metadata.uid] = found[1]
    return names
