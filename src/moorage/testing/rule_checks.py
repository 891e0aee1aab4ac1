"""The checks of Filter and Score for ``check_plugin``: their forms agree, and what-ifs modify nothing.

A plugin may implement a point in several forms, and may follow pods in what-ifs (``add_pod``, ``remove_pod``). The scheduler
relies on that without verifying it; these checks verify it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np

from moorage.errors import RAISED
from moorage.framework.answer_forms import ScoresByCount
from moorage.framework.plugin_runner import run_filter, run_pre_filter, run_score, scored, shifted
from moorage.framework.post_filter import PreFiltered
from moorage.framework.profile import Profile, Step, points_of, reuse_of
from moorage.framework.verdicts import Hold, Skip, Status, Verdicts
from moorage.state.view import NodeInfo, NodeView, PodInfo, Snapshot
from moorage.testing.builders import failed_attempt
from moorage.testing.plugin_queries import alone

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
    answer = None if step.by_domain is None else step.by_domain.call(state, snapshot.nodes)
    if answer is not None:
        refused = snapshot.nodes.false()
        for key, values in answer:
            refused |= np.asarray(values)[snapshot.nodes.ids(snapshot.nodes.label(key))]
        for node, at in zip(snapshot.table.nodes, refused.tolist(), strict=True):
            if at != (combined[node.name] is not None):
                yield f"Domains.closed {'rejects' if at else 'admits'} node {node.name}, and filter does not"


def check_score_forms(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """Check that raw scores of a node are equal in a view of one node, by ``score_node`` and by ``Domains.scores``."""
    for step, state, scores in raw_scores(plugin, pod, snapshot, snapshot.nodes):
        raw = scores.tolist()
        for row, node in enumerate(snapshot.table.nodes):
            lone = scored(step, state, NodeView(snapshot, np.array([row], dtype=np.intp))).tolist()[0]
            if lone != raw[row]:
                yield f"scores node {node.name} {lone} alone and {raw[row]} among all; compare nodes in normalize, not in score"
            if step.single is not None and not step.one_by_one:
                given = step.single.call(state, NodeInfo(snapshot.table, row))
                if given != raw[row]:
                    yield f"score_node gives node {node.name} {given}, and score {raw[row]}"
        answer = None if step.by_domain is None else step.by_domain.call(state, snapshot.nodes)
        if answer is None:
            continue
        if isinstance(answer, ScoresByCount):
            key, counts = answer.key, snapshot.nodes.pods_matching(answer.matcher)
            by_domain = np.asarray(answer.raw(int(counts.max(initial=0))))[counts]
        else:
            key, by_domain = answer[0], np.broadcast_to(answer[1], (len(raw), len(answer[1])))
        spread = by_domain[np.arange(len(raw)), snapshot.nodes.ids(snapshot.nodes.label(key))].tolist()
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
    profile = alone(plugin)
    found = run_pre_filter(profile, pod, snapshot)
    return profile, found if found.refused is None else None


def verdicts_of(profile: Profile, found: PreFiltered, pod: PodInfo, view: NodeView) -> Statuses:
    """Return the status of each node of a view after Filter, None for nodes that fit."""
    verdicts = Verdicts(len(view.table))
    run_filter(profile, found, pod, view, verdicts)
    return {view.table.nodes[int(row)].name: verdicts.status(int(row)) for row in view.row_numbers}


def raw_scores(plugin: Any, pod: PodInfo, snapshot: Snapshot, view: NodeView) -> Iterator[tuple[Step, Any, Any]]:
    """Yield the Score step, its state and its raw scores; nothing if PreFilter rejects the pod or PreScore skips."""
    profile, found = prepared(plugin, pod, snapshot)
    if found is None:
        return
    state = found.states.get(plugin.name, pod)
    for before in profile.at("preScore"):
        state = before.call(pod, snapshot, view)
    if not isinstance(state, Skip):
        yield from ((step, state, scored(step, state, view)) for step in profile.at("score"))


def _text(status: Status | None) -> str:
    return "yes" if status is None else f"{status.code.value}: {status.message}"


def _texts(statuses: Statuses) -> str:
    return ", ".join(f"{name}: {_text(status)}" for name, status in statuses.items())


# -- mutation checks ---------------------------------------------------------------------------------------------------
# The part of ``check_plugin`` about shared objects: no call may change the pod, the nodes or the pods on them.
#
# Pods, nodes and the table of nodes belong to the scheduler, and all plugins share them. A plugin that changes one of them
# changes later decisions, which nothing else would explain. Here each call of the plugin is followed by a comparison of all of
# them with copies from before the call.

#: The steps inside a step, by the name of the method.
_INNER: Final = (
    ("single", ""), ("by_domain", ""), ("normalize", "normalizeScore"), ("add_pod", "addPod"), ("remove_pod", "removePod"),
    ("unreserve", "unreserve"),
)  # fmt: skip
_POD_ATTRIBUTES: Final = ("labels", "name", "namespace", "priority", "uid")
#: Shown in place of values that are absent, and of long ones.
_ABSENT: Final = "absent"
_SHOWN: Final = 60


def changes_by(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """Yield each field of a shared object that a call of the plugin changes, with the extension point."""
    seen, profile = _Seen(pod, snapshot), alone(plugin)
    steps = {point: tuple(seen.watched(one, point) for one in profile.at(point)) for point in points_of(plugin)}
    watched = replace(profile, steps=steps)
    for call in _calls(watched, plugin, pod, snapshot):
        try:
            call()
        except RAISED:
            continue
    yield from seen.changes


def _calls(profile: Profile, plugin: Any, pod: PodInfo, snapshot: Snapshot) -> Iterator[Callable[[], object]]:
    """Yield calls of all extension points with valid arguments."""
    node = snapshot.table.nodes[0].name
    found = run_pre_filter(profile, pod, snapshot)
    if found.refused is None:
        yield lambda: run_filter(profile, found, pod, snapshot.nodes, Verdicts(len(snapshot.table)))
        yield lambda: run_score(profile, found, pod, snapshot.nodes)
    for point in ("preEnqueue", "reserve", "permit", "preBind", "bind", "postBind"):
        for step in profile.at(point):
            arguments = (pod,) if point == "preEnqueue" else (_state(profile, pod, snapshot), pod, node)
            yield partial(step.call, *arguments)
            if step.unreserve is not None:
                yield partial(step.unreserve.call, *arguments)
    for step in profile.at("postFilter") if found.refused is None else ():
        yield partial(step.call, pod, failed_attempt([plugin], pod, snapshot))


def _state(profile: Profile, pod: PodInfo, snapshot: Snapshot) -> Any:
    """Return what the plugin's PreFilter hands on, None if there is none."""
    for step in profile.at("preFilter"):
        answer = step.call(pod, snapshot)
        return None if isinstance(answer, Hold | Skip) else getattr(answer, "state", answer)
    return None


class _Seen:
    """The shared objects as they were before the last call, and the ``changes`` since."""

    def __init__(self, pod: PodInfo, snapshot: Snapshot) -> None:
        table = snapshot.table
        #: How messages name an object, and how to copy its fields.
        self._shared: list[tuple[str, Callable[[], Any]]] = [("the pod", partial(_pod, pod))]
        for row in range(len(table)):
            name = table.nodes[row].metadata.name
            self._shared.append((f"node {name}", partial(_node, snapshot, row)))
            self._shared += [(f"pod {one.name} on node {name}", partial(_pod, one)) for one in table.pods[row].values()]
        self._before = [copy() for _, copy in self._shared]
        self.changes: dict[str, None] = {}

    def watched(self, given: Step, point: str) -> Step:
        """Return a step whose calls are followed by a comparison."""
        more: dict[str, Any] = {
            name: self.watched(one, also or point) for name, also in _INNER if (one := getattr(given, name)) is not None
        }

        def call(*arguments: Any) -> Any:
            try:
                answer = given.call(*arguments)
                # A generator works while its values are taken.
                return iter(list(answer)) if isinstance(answer, Iterator) else answer
            finally:
                self._compare(point)

        return replace(given, call=call, **more)

    def _compare(self, point: str) -> None:
        for i, (title, copy) in enumerate(self._shared):
            after = copy()
            for path, old, new in _differences(self._before[i], after, ""):
                self.changes[f"{point} changes {title}: {path} was {_shown(old)}, is {_shown(new)}"] = None
            self._before[i] = after


def _pod(pod: PodInfo) -> Any:
    derived = {name: getattr(pod, name) for name in _POD_ATTRIBUTES}
    if pod.labels is pod.pod.metadata.labels:
        del derived["labels"]
    return {**msgspec.to_builtins(pod.pod), **msgspec.to_builtins(derived)}


def _node(snapshot: Snapshot, row: int) -> Any:
    table = snapshot.table
    figures = ("pod_count", "allowed_pods", "nonzero_cpu", "nonzero_memory")
    return {
        **msgspec.to_builtins(table.nodes[row]),
        **{name: int(getattr(table, name).data[row]) for name in figures},
        "pods": [one.name for one in table.pods[row].values()],
    }


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two copies differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _differences(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{path}.{name}" if path else str(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, other, f"{path}[{i}]")
    elif old != new:
        yield path, old, new


def _shown(value: Any) -> str:
    text = value if value is _ABSENT else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
