"""The checks of Filter and Score for ``check_plugin``: their forms agree, and what-ifs modify nothing.

A plugin may implement a point in several forms, and may follow pods in what-ifs (``add_pod``, ``remove_pod``). The scheduler
relies on that without verifying it; these checks verify it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from moorage.framework.answer_forms import ScoresByCount
from moorage.framework.plugin_runner import run_filter, run_pre_filter, scored, shifted
from moorage.framework.prefilter_state import PreFiltered
from moorage.framework.profile import Profile, make_profile, points_of, reuse_of
from moorage.framework.verdicts import Hold, Skip, Status, Verdicts
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView

__all__ = ["check_filter_forms", "check_score_forms", "check_what_ifs", "prepared", "verdicts_of"]

Statuses = dict[str, Status | None]


def check_filter_forms(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """Check that Filter gives a node the same verdict in a view of one node, by ``filter_node`` and by ``Domains.closed``."""
    profile, found = prepared(plugin, pod, snapshot)
    if found is None or plugin.name in found.skipped or not profile.at("filter"):
        return
    step = profile.at("filter")[0]
    state = found.state_of(step, pod)
    combined = verdicts_of(profile, found, pod, snapshot.nodes)
    one_node = step.single
    for row, node in enumerate(snapshot.table.nodes):
        alone = verdicts_of(profile, found, pod, NodeView(snapshot, np.array([row], dtype=np.intp)))[node.name]
        if alone != combined[node.name]:
            yield f"filter returns {_text(alone)} for node {node.name} alone, and {_text(combined[node.name])} among all nodes"
        if one_node is not None and not step.one_by_one:
            held = one_node.call(state, NodeInfo(snapshot.table, row))
            single = Status(held.code, plugin.name, held.reasons) if isinstance(held, Hold) else None
            if single != combined[node.name]:
                yield f"filter_node returns {_text(single)} for node {node.name}, and filter {_text(combined[node.name])}"
    closed = step.by_domain
    if closed is not None:
        refused = snapshot.nodes.false()
        for key, values in closed.call(state, snapshot.nodes):
            refused |= np.asarray(values)[snapshot.nodes.ids(snapshot.nodes.label(key))]
        for node, at in zip(snapshot.table.nodes, refused.tolist(), strict=True):
            if at != (combined[node.name] is not None):
                yield f"Domains.closed {'rejects' if at else 'admits'} node {node.name}, and filter does not"


def check_score_forms(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """Check that raw scores of a node are equal in a view of one node, by ``score_node`` and by ``Domains.scores``."""
    profile, found = prepared(plugin, pod, snapshot)
    if found is None or not profile.at("score"):
        return
    step = profile.at("score")[0]
    state = found.states.get(plugin.name, pod)
    for before in profile.at("preScore"):
        state = before.call(pod, snapshot, snapshot.nodes)
        if isinstance(state, Skip):
            return
    raw = scored(step, state, snapshot.nodes).tolist()
    one_node = step.single
    for row, node in enumerate(snapshot.table.nodes):
        alone = scored(step, state, NodeView(snapshot, np.array([row], dtype=np.intp))).tolist()[0]
        if alone != raw[row]:
            yield f"scores node {node.name} {alone} alone and {raw[row]} among all; compare nodes in normalize, not in score"
        if one_node is not None and not step.one_by_one:
            given = one_node.call(state, NodeInfo(snapshot.table, row))
            if given != raw[row]:
                yield f"score_node gives node {node.name} {given}, and score {raw[row]}"
    by_domain = step.by_domain
    answer = by_domain.call(state, snapshot.nodes) if by_domain is not None else None
    if isinstance(answer, ScoresByCount):
        counts = snapshot.nodes.pods_matching(answer.matcher)
        table = np.asarray(answer.raw(int(counts.max(initial=0))))
        spread = table[counts, snapshot.nodes.ids(snapshot.nodes.label(answer.key))].tolist()
        if spread != raw:
            yield f"Domains.scores gives {spread}, and score gives {raw}"
    elif answer is not None:
        key, scores = answer[:2]
        spread = np.asarray(scores)[snapshot.nodes.ids(snapshot.nodes.label(key))].tolist()
        if spread != raw:
            yield f"Domains.scores gives {spread}, and score gives {raw}"


def check_what_ifs(plugin: Any, pod: PodInfo, others: list[PodInfo], snapshot: Snapshot) -> Iterator[str]:
    """Check that ``add_pod`` and ``remove_pod`` return the state of a new PreFilter and leave the old state unchanged."""
    profile, found = prepared(plugin, pod, snapshot)
    methods = [form is not None for step in profile.at("preFilter") for form in (step.add_pod, step.remove_pod)]
    if any(methods) and not all(methods):
        yield f"has {'add_pod' if methods[0] else 'remove_pod'} without the other of add_pod and remove_pod"
    if found is None or not methods or not all(methods) or plugin.name in found.skipped:
        return
    before = verdicts_of(profile, found, pod, snapshot.nodes)
    for other in others:
        for row in range(len(snapshot.table)):
            if other.uid != pod.uid and snapshot.where(other.uid) is None:
                yield from _add_and_remove(plugin, profile, found, pod, other, snapshot, row)
                if verdicts_of(profile, found, pod, snapshot.nodes) != before:
                    yield "add_pod or remove_pod changed the state it was given; return a new one"
                    return


def _add_and_remove(
    plugin: Any, profile: Profile, found: PreFiltered, pod: PodInfo, other: PodInfo, snapshot: Snapshot, row: int
) -> Iterator[str]:
    node = NodeInfo(snapshot.table, row)
    view = NodeView(snapshot, np.array([row], dtype=np.intp))
    first = verdicts_of(profile, found, pod, view)
    with snapshot.table.what_if(row):
        snapshot.table.add_pod(row, other)
        added = shifted(profile, found, pod, [("add_pod", other)], node)
        followed = verdicts_of(profile, added, pod, view)
        if followed != first and _is_ignored(plugin, found, pod, other):
            yield f"ignores {other.name}, and after add_pod of it returns {_texts(followed)} instead of {_texts(first)}"
        _, fresh = prepared(plugin, pod, snapshot)
        if fresh is not None and plugin.name not in fresh.skipped:
            expected = verdicts_of(profile, fresh, pod, view)
            if expected != followed:
                yield f"after add_pod of {other.name} returns {_texts(followed)}, and a new PreFilter gives {_texts(expected)}"
        snapshot.table.remove_pod(row, other)
        removed = shifted(profile, added, pod, [("remove_pod", other)], node)
        last = verdicts_of(profile, removed, pod, view)
    if last != first:
        yield f"returns {_texts(first)}, and after add_pod and remove_pod of {other.name} {_texts(last)}"


def _is_ignored(plugin: Any, found: PreFiltered, pod: PodInfo, other: PodInfo) -> bool:
    ignores = reuse_of(plugin).ignores
    return ignores is not None and ignores(found.states.get(plugin.name, pod), pod, other)


def prepared(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> tuple[Profile, PreFiltered | None]:
    """Return the plugin as the only one of a profile, and its PreFilter result; None if that rejects the pod."""
    points = {point: [plugin.name] for point in points_of(plugin)}
    profile = make_profile("alone", {plugin.name: plugin}, points, {plugin.name: 1})
    found = run_pre_filter(profile, pod, snapshot)
    return profile, found if found.refused is None else None


def verdicts_of(profile: Profile, found: PreFiltered, pod: PodInfo, view: NodeView) -> Statuses:
    """Return the status of each node of a view after Filter, None for nodes that fit."""
    verdicts = Verdicts(len(view.table))
    run_filter(profile, found, pod, view, verdicts)
    return {view.table.nodes[int(row)].name: verdicts.status(int(row)) for row in view.row_numbers}


def _text(status: Status | None) -> str:
    return "yes" if status is None else f"{status.code.value}: {status.message}"


def _texts(statuses: Statuses) -> str:
    return ", ".join(f"{name}: {_text(status)}" for name, status in statuses.items())
