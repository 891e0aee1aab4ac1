"""The part of ``check_plugin`` about ``reuse``: does each promise hold on the samples?"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from msgspec import structs

from moorage.api.core import Container, NodeSpec, NodeStatus, ObjectMeta, Pod, PodSpec, Toleration
from moorage.framework.answer_forms import NOTHING_TO_DO
from moorage.framework.plugin_runner import normalized
from moorage.framework.profile import reuse_of
from moorage.framework.reuse import Reuse, Scope
from moorage.framework.verdicts import Hold, Narrow, Skip
from moorage.state.view import NodeView, PodInfo, Snapshot
from moorage.testing.rule_checks import prepared, raw_scores, verdicts_of


def check_reuse(plugin: Any, pod: PodInfo, others: list[PodInfo], snapshot: Snapshot) -> Iterator[str]:
    """Yield each promise in ``reuse`` that does not hold for this pod."""
    reuse = reuse_of(plugin)
    yield from _check_signature(reuse, pod)
    yield from _check_key(plugin, reuse, [pod, *others], snapshot)
    yield from _check_scope(plugin, reuse.scope, pod, others, snapshot)
    if reuse.scope is Scope.USAGE:
        yield from _check_usage(plugin, pod, snapshot)
    if reuse.scope <= Scope.NODE_PODS:
        yield from _check_normalize(plugin, pod, snapshot)
        yield from _check_other_nodes(plugin, reuse, pod, snapshot)
    yield from _check_skips(plugin, reuse, pod, snapshot)


def _check_signature(reuse: Reuse, pod: PodInfo) -> Iterator[str]:
    if reuse.signature is None:
        return
    signature = reuse.signature(pod)
    if signature is None:
        return
    if signature != reuse.signature(PodInfo(pod.pod)):
        yield f"gives the same pod the signatures {signature!r} and {reuse.signature(PodInfo(pod.pod))!r}"
    try:
        hash(tuple(signature.items()))
    except TypeError as error:
        yield f"signature {signature!r} cannot be hashed ({error}); use tuples and frozensets"
    meta = structs.replace(pod.pod.metadata, name=f"{pod.name}-copy", uid=f"{pod.uid}-copy", annotations={"copied": "true"})
    other = reuse.signature(PodInfo(structs.replace(pod.pod, metadata=meta)))
    if reuse.signature_reads is not None and signature != other:
        yield f"gives pods of one shape the signatures {signature!r} and {other!r}; without signature_reads it may read more"


def _check_key(plugin: Any, reuse: Reuse, pods: list[PodInfo], snapshot: Snapshot) -> Iterator[str]:
    """Pods with equal signatures get equal verdicts and raw scores, whatever else differs between them."""
    if reuse.signature is None:
        return
    answers: dict[Hashable, tuple[str, tuple[Any, ...]]] = {}
    for pod in [*pods, *(variant for one in pods for variant in _variants(one))]:
        signature = reuse.signature(pod)
        if signature is None or pod.spec.node_name:
            continue
        try:
            key = frozenset(signature.items())
        except TypeError:
            return  # reported already
        told, known = _answers(plugin, pod, snapshot, snapshot.nodes), answers.get(key)
        if known is None:
            answers[key] = pod.name, told
        elif known[1] != told:
            yield (
                f"gives pods {known[0]} and {pod.name} the signature {dict(signature)!r}, but answers {known[1]} and {told}; "
                "add what it reads of a pod to its signature"
            )
            return


def _variants(pod: PodInfo) -> Iterator[PodInfo]:
    """Yield copies of a pod that differ from it in one thing each."""
    meta, spec = pod.pod.metadata, pod.pod.spec
    more = {"cpu": "3", "memory": "1Gi"}
    larger = tuple(structs.replace(one, resources=structs.replace(one.resources, requests=more)) for one in spec.containers)
    others: dict[str, dict[str, Any]] = {
        "name": {"metadata": {}},
        "label": {"metadata": {"labels": {**meta.labels, "app": "other"}}},
        "annotation": {"metadata": {"annotations": {"example.com/changed": "yes"}}},
        "namespace": {"metadata": {"namespace": "elsewhere"}},
        "priority": {"spec": {"priority": (spec.priority or 0) + 1}},
        "node-selector": {"spec": {"node_selector": {"disk": "ssd"}}},
        "tolerations": {"spec": {"tolerations": (Toleration(operator="Exists"),)}},
        "requests": {"spec": {"containers": larger}},
        "image": {"spec": {"containers": tuple(structs.replace(one, image="other:1") for one in spec.containers)}},
        "service-account": {"spec": {"service_account_name": "other"}},
    }
    for what, changed in others.items():
        named = {"name": f"{pod.name}-other-{what}", "uid": f"{pod.uid}-other-{what}", **changed.get("metadata", {})}
        new_spec = structs.replace(spec, **changed.get("spec", {}))
        yield PodInfo(structs.replace(pod.pod, metadata=structs.replace(meta, **named), spec=new_spec))


def _check_scope(plugin: Any, scope: Scope, pod: PodInfo, others: list[PodInfo], snapshot: Snapshot) -> Iterator[str]:
    """Verdicts and raw scores stay the same when pods come to nodes outside the scope."""
    if scope > Scope.NODE_PODS:
        return
    for row, node in enumerate(snapshot.table.nodes):
        view = _rows(snapshot, [other for other in range(len(snapshot.table)) if scope is Scope.NODE or other != row])
        before = _answers(plugin, pod, snapshot, view)
        for other in others:
            if snapshot.where(other.uid) is not None or other.uid == pod.uid:
                continue
            with snapshot.table.what_if(row):
                snapshot.table.add_pod(row, other)
                after = _answers(plugin, pod, snapshot, view)
            if after != before:
                yield f"scope is {scope.name}, but pod {other.name} on node {node.name} changes {before} to {after}"
                return


def _check_other_nodes(plugin: Any, reuse: Reuse, pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """Verdicts and raw scores stay the same when other nodes are updated, unless ``other_nodes`` says so."""
    table = snapshot.table
    for row, node in enumerate(table.nodes):
        rest = _rows(snapshot, [other for other in range(len(table)) if other != row])
        before = _answers(plugin, pod, snapshot, rest), reuse.other_nodes and reuse.other_nodes(table)
        other = structs.replace(
            node, metadata=structs.replace(node.metadata, labels={}), spec=NodeSpec(unschedulable=True), status=NodeStatus()
        )
        restore = table.save_node(row)
        table.update_node(other)
        after = _answers(plugin, pod, snapshot, rest), reuse.other_nodes and reuse.other_nodes(table)
        table.update_node(node)
        restore()
        if after[0] != before[0] and after[1] == before[1]:
            yield f"scope is {reuse.scope.name}, but an update of node {node.name} changes other nodes; declare other_nodes"
            return


def _check_usage(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """Verdicts and raw scores stay the same when the pods of a node are replaced by bare ones with the same requests."""
    for row, node in enumerate(snapshot.table.nodes):
        view = _rows(snapshot, [row])
        before = _answers(plugin, pod, snapshot, view)
        with snapshot.table.what_if(row):
            for other in tuple(snapshot.table.pods[row].values()):
                snapshot.table.remove_pod(row, other)
                snapshot.table.add_pod(row, _bare(other))
            after = _answers(plugin, pod, snapshot, view)
        if after != before:
            yield f"scope is USAGE, but other pods with the same requests on node {node.name} change {before} to {after}"
            return


def _bare(pod: PodInfo) -> PodInfo:
    """Return a pod that requests the same and is otherwise plain."""

    def plain(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(Container(name=c.name, resources=c.resources, restart_policy=c.restart_policy) for c in containers)

    spec = PodSpec(
        containers=plain(pod.spec.containers), init_containers=plain(pod.spec.init_containers), overhead=pod.spec.overhead,
        resources=pod.spec.resources, node_name=pod.spec.node_name,
    )  # fmt: skip
    meta = ObjectMeta(name=f"{pod.name}-bare", namespace="elsewhere", uid=f"{pod.uid}-bare")
    return PodInfo(Pod(metadata=meta, spec=spec, status=pod.status))


def _check_normalize(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """The normalized score of a node follows from its raw score and the highest raw score."""
    for step, state, raw in raw_scores(plugin, pod, snapshot, snapshot.nodes):
        if step.normalize is None or step.over_nodes:
            continue
        together = normalized(step, state, raw).tolist()
        for row, node in enumerate(snapshot.table.nodes):
            alone = normalized(step, state, np.array([raw[row], raw.max()]))[0]
            if alone != together[row]:
                yield f"normalizes the score {raw[row]} of node {node.name} to {together[row]}, alone with the highest {alone}"
                return


def _check_skips(plugin: Any, reuse: Reuse, pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """``idle``, ``narrows_to`` and ``rests_when_skipped`` announce what PreFilter and later points do."""
    profile, _ = prepared(plugin, pod, snapshot)
    pre_filter = [step.call(pod, snapshot) for step in profile.at("preFilter")]
    pre_score = [step.call(pod, snapshot, snapshot.nodes) for step in profile.at("preScore")]
    is_idle = reuse.idle is not None and reuse.idle(pod, snapshot).now
    if is_idle and not all(isinstance(answer, Skip) for answer in (*pre_filter, *pre_score)):
        yield "is idle, but pre_filter or pre_score does not skip"
    if reuse.signature is not None and reuse.signature(pod) is NOTHING_TO_DO:
        refused, *scores = _answers(plugin, pod, snapshot, snapshot.nodes) or ([], [])
        skips = all(isinstance(answer, Skip) for answer in pre_filter)
        if refused or not skips or any(len(set(raw)) > 1 for one in scores for raw in one):
            yield f"has nothing to do for pod {pod.name}, but refuses {refused}, scores {scores} or does not skip in pre_filter"
    names = None if reuse.narrows_to is None else reuse.narrows_to(pod)
    if names is not None and not all(
        isinstance(answer, Hold) or (isinstance(answer, Narrow) and answer.nodes == names) for answer in pre_filter
    ):
        yield f"narrows_to announces {sorted(names)}, but pre_filter answers {pre_filter}"
    skips = any(isinstance(answer, Skip) for answer in pre_filter)
    holds = any(isinstance(answer, Hold) for answer in pre_filter)
    if reuse.rests_when_skipped and (skips or (reuse.rests is not None and not holds and reuse.rests(pod, snapshot))):
        states = [None if isinstance(one, Skip) else one.state if isinstance(one, Narrow) else one for one in pre_filter]
        for point in ("reserve", "permit", "preBind"):
            for step in profile.at(point):
                answer = step.call(states[0], pod, snapshot.table.nodes[0].name)
                if answer is not None and (isinstance(answer, Hold) or not hasattr(answer, "__iter__") or list(answer)):
                    why = "for a pod that pre_filter skipped" if skips else "for a pod that it rests for"
                    yield f"rests_when_skipped, but {point} answers {answer!r} {why}"


def _answers(plugin: Any, pod: PodInfo, snapshot: Snapshot, view: NodeView) -> tuple[Any, ...]:
    """Return the names of refused nodes and the raw scores of a view, with PreFilter and PreScore run again."""
    profile, found = prepared(plugin, pod, snapshot)
    if found is None:
        return ()
    refused = sorted(name for name, status in verdicts_of(profile, found, pod, view).items() if status is not None)
    return refused, [raw.tolist() for _, _, raw in raw_scores(plugin, pod, snapshot, view)]


def _rows(snapshot: Snapshot, rows: list[int]) -> NodeView:
    return NodeView(snapshot, np.array(rows, dtype=np.intp))
