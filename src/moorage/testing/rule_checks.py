"""The checks of Filter and Score for ``check_plugin``: their forms agree, what-ifs modify nothing, ``depends`` is correct.

A plugin may implement a point in several forms, may follow pods in what-ifs (``add_pod``, ``remove_pod``), and declares what
its answers depend on. The scheduler relies on all of that without verifying it; these checks verify it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from moorage.framework.plugin_runner import run_filter, run_pre_filter, scored, shifted
from moorage.framework.points import Depends, points_of
from moorage.framework.prefilter_state import PreFiltered
from moorage.framework.profile import Profile, make_profile, other_form
from moorage.framework.verdict_table import Verdicts
from moorage.framework.verdicts import Hold, Skip, Status
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView

__all__ = ["check_claims", "check_filter_forms", "check_score_forms", "check_what_ifs"]

Statuses = dict[str, Status | None]


def check_filter_forms(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """Check that Filter gives a node the same verdict in a view of one node, by ``filter_node`` and by ``closed_domains``."""
    profile, found = _prepared(plugin, pod, snapshot)
    if found is None or plugin.name in found.skipped or not profile.at("filter"):
        return
    step = profile.at("filter")[0]
    state = found.state_of(step, pod)
    combined = _verdicts(profile, found, pod, snapshot.nodes)
    one_node = other_form(step, "filter", "filter_node")
    for row, node in enumerate(snapshot.table.nodes):
        alone = _verdicts(profile, found, pod, NodeView(snapshot, np.array([row], dtype=np.intp)))[node.name]
        if alone != combined[node.name]:
            yield f"filter returns {_text(alone)} for node {node.name} alone, and {_text(combined[node.name])} among all nodes"
        if one_node is not None and not step.one_by_one:
            held = one_node.call(state, NodeInfo(snapshot.table, row))
            single = Status(held.code, plugin.name, held.reasons) if isinstance(held, Hold) else None
            if single != combined[node.name]:
                yield f"filter_node returns {_text(single)} for node {node.name}, and filter {_text(combined[node.name])}"
    closed = other_form(step, "filter", "closed_domains")
    if closed is not None:
        refused = snapshot.nodes.false()
        for key, values in closed.call(state, snapshot.nodes):
            refused |= np.asarray(values)[snapshot.nodes.ids(snapshot.nodes.label(key))]
        for node, at in zip(snapshot.table.nodes, refused.tolist(), strict=True):
            if at != (combined[node.name] is not None):
                yield f"closed_domains {'rejects' if at else 'admits'} node {node.name}, and filter does not"


def check_score_forms(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """Check that raw scores of a node are equal in a view of one node, by ``score_node`` and by ``domain_scores``."""
    profile, found = _prepared(plugin, pod, snapshot)
    if found is None or not profile.at("score"):
        return
    step = profile.at("score")[0]
    state = found.states.get(plugin.name, pod)
    for before in profile.at("preScore"):
        state = before.call(pod, snapshot, snapshot.nodes)
        if isinstance(state, Skip):
            return
    raw = scored(step, state, snapshot.nodes).tolist()
    one_node = other_form(step, "score", "score_node")
    for row, node in enumerate(snapshot.table.nodes):
        alone = scored(step, state, NodeView(snapshot, np.array([row], dtype=np.intp))).tolist()[0]
        if alone != raw[row]:
            yield f"scores node {node.name} {alone} alone and {raw[row]} among all; compare nodes in normalize, not in score"
        if one_node is not None and not step.one_by_one:
            given = one_node.call(state, NodeInfo(snapshot.table, row))
            if given != raw[row]:
                yield f"score_node gives node {node.name} {given}, and score {raw[row]}"
    by_domain = other_form(step, "score", "domain_scores")
    answer = by_domain.call(state, snapshot.nodes) if by_domain is not None else None
    if answer is not None:
        key, scores = answer
        spread = np.asarray(scores)[snapshot.nodes.ids(snapshot.nodes.label(key))].tolist()
        if spread != raw:
            yield f"domain_scores gives {spread}, and score gives {raw}"


def check_what_ifs(plugin: Any, pod: PodInfo, others: list[PodInfo], snapshot: Snapshot) -> Iterator[str]:
    """Check that ``add_pod`` and ``remove_pod`` return the state of a new PreFilter and leave the old state unchanged."""
    methods = [method for method in ("add_pod", "remove_pod") if callable(getattr(plugin, method, None))]
    if len(methods) == 1:
        yield f"has {methods[0]} without the other of add_pod and remove_pod"
    if len(methods) != 2:
        return
    profile, found = _prepared(plugin, pod, snapshot)
    if found is None or plugin.name in found.skipped:
        return
    before = _verdicts(profile, found, pod, snapshot.nodes)
    for other in others:
        for row in range(len(snapshot.table)):
            if other.uid != pod.uid and snapshot.where(other.uid) is None:
                yield from _add_and_remove(plugin, profile, found, pod, other, snapshot, row)
                if _verdicts(profile, found, pod, snapshot.nodes) != before:
                    yield "add_pod or remove_pod changed the state it was given; return a new one"
                    return


def _add_and_remove(
    plugin: Any, profile: Profile, found: PreFiltered, pod: PodInfo, other: PodInfo, snapshot: Snapshot, row: int
) -> Iterator[str]:
    node = NodeInfo(snapshot.table, row)
    view = NodeView(snapshot, np.array([row], dtype=np.intp))
    first = _verdicts(profile, found, pod, view)
    with snapshot.table.what_if(row):
        snapshot.table.add_pod(row, other)
        added = shifted(profile, found, pod, [("add_pod", other)], node)
        followed = _verdicts(profile, added, pod, view)
        _, fresh = _prepared(plugin, pod, snapshot)
        if fresh is not None and plugin.name not in fresh.skipped:
            expected = _verdicts(profile, fresh, pod, view)
            if expected != followed:
                yield f"after add_pod of {other.name} returns {_texts(followed)}, and a new PreFilter gives {_texts(expected)}"
        snapshot.table.remove_pod(row, other)
        removed = shifted(profile, added, pod, [("remove_pod", other)], node)
        last = _verdicts(profile, removed, pod, view)
    if last != first:
        yield f"returns {_texts(first)}, and after add_pod and remove_pod of {other.name} {_texts(last)}"


def check_claims(plugin: Any, pod: PodInfo, others: list[PodInfo], snapshot: Snapshot) -> Iterator[str]:
    """Check ``depends``: verdicts and raw scores must not change when pods are added to nodes that they do not depend on."""
    depends = getattr(plugin, "depends", Depends.CLUSTER)
    if depends is Depends.CLUSTER or not {"filter", "score"} & set(points_of(plugin)):
        return
    for row, node in enumerate(snapshot.table.nodes):
        elsewhere = [other for other in range(len(snapshot.table)) if depends is Depends.NODES or other != row]
        view = NodeView(snapshot, np.array(elsewhere, dtype=np.intp))
        before = _answers(plugin, pod, snapshot, view)
        for other in others:
            if snapshot.where(other.uid) is not None or other.uid == pod.uid:
                continue
            with snapshot.table.what_if(row):
                snapshot.table.add_pod(row, other)
                after = _answers(plugin, pod, snapshot, view)
            if after != before:
                yield f"depends on {depends.name}, but pod {other.name} on node {node.name} changes {before} to {after}"
                return


def _answers(plugin: Any, pod: PodInfo, snapshot: Snapshot, view: NodeView) -> tuple[Any, ...]:
    """Return verdicts and raw scores of a view, with a new PreFilter and PreScore."""
    profile, found = _prepared(plugin, pod, snapshot)
    if found is None:
        return ()
    said = sorted(name for name, status in _verdicts(profile, found, pod, view).items() if status is not None)
    state = found.states.get(plugin.name, pod)
    for before in profile.at("preScore"):
        state = before.call(pod, snapshot, view)
    raw = [] if isinstance(state, Skip) else [scored(step, state, view).tolist() for step in profile.at("score")]
    return said, raw


def _prepared(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> tuple[Profile, PreFiltered | None]:
    """Return the plugin as the only one of a profile, and its PreFilter result; None if that rejects the pod."""
    points = {point: [plugin.name] for point in points_of(plugin)}
    profile = make_profile("alone", {plugin.name: plugin}, points, {plugin.name: 1})
    found = run_pre_filter(profile, pod, snapshot)
    return profile, found if found.refused is None else None


def _verdicts(profile: Profile, found: PreFiltered, pod: PodInfo, view: NodeView) -> Statuses:
    verdicts = Verdicts(len(view.table))
    run_filter(profile, found, pod, view, verdicts)
    return {view.table.nodes[int(row)].name: verdicts.status(int(row)) for row in view.row_numbers}


def _text(status: Status | None) -> str:
    return "yes" if status is None else f"{status.code.value}: {status.message}"


def _texts(statuses: Statuses) -> str:
    return ", ".join(f"{name}: {_text(status)}" for name, status in statuses.items())
