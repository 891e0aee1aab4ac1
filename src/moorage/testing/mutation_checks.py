"""The part of ``check_plugin`` about shared objects: no call may change the pod, the nodes or the pods on them.

Pods, nodes and the table of nodes belong to the scheduler, and all plugins share them. A plugin that changes one of them
changes later decisions, which nothing else would explain. Here each call of the plugin is followed by a comparison of all of
them with copies from before the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from moorage.framework.plugin_runner import run_filter, run_pre_filter, run_score
from moorage.framework.profile import Profile, Step, make_profile, points_of
from moorage.framework.verdicts import Hold, Skip, Verdicts
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import failed_attempt

__all__ = ["changes_by"]

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
    seen = _Seen(pod, snapshot)
    points = points_of(plugin)
    profile = make_profile("alone", {plugin.name: plugin}, {point: [plugin.name] for point in points}, {plugin.name: 1})
    watched = replace(profile, steps={point: tuple(seen.watched(one, point) for one in profile.at(point)) for point in points})
    for call in _calls(watched, plugin, pod, snapshot):
        try:
            call()
        except Exception:  # noqa: S112 - other checks report it; what it changed before counts here
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
            yield partial(_drained, step, *arguments)
            if step.unreserve is not None:
                yield partial(_drained, step.unreserve, *arguments)
    for step in profile.at("postFilter") if found.refused is None else ():
        yield partial(_drained, step, pod, failed_attempt([plugin], pod, snapshot))


def _state(profile: Profile, pod: PodInfo, snapshot: Snapshot) -> Any:
    """Return what the plugin's PreFilter hands on, None if there is none."""
    for step in profile.at("preFilter"):
        answer = step.call(pod, snapshot)
        return None if isinstance(answer, Hold | Skip) else getattr(answer, "state", answer)
    return None


def _drained(step: Step, *arguments: Any) -> list[Any]:
    answer = step.call(*arguments)
    return list(answer) if isinstance(answer, Iterator) else [answer]


@dataclass(frozen=True)
class _Shared:
    """One shared object: how messages name it, and how to copy its fields."""

    title: str
    copy: Callable[[], Any]


class _Seen:
    """The shared objects as they were before the last call, and the ``changes`` since."""

    def __init__(self, pod: PodInfo, snapshot: Snapshot) -> None:
        table = snapshot.table
        self._shared = [_Shared("the pod", partial(_pod, pod))]
        for row in range(len(table)):
            name = table.nodes[row].metadata.name
            self._shared.append(_Shared(f"node {name}", partial(_node, snapshot, row)))
            self._shared += [_Shared(f"pod {one.name} on node {name}", partial(_pod, one)) for one in table.pods[row].values()]
        self._before = [one.copy() for one in self._shared]
        self.changes: dict[str, None] = {}

    def watched(self, step: Step, point: str) -> Step:
        """Return a step whose calls are followed by a comparison."""
        inner = {
            "single": step.single, "by_domain": step.by_domain, "normalize": step.normalize, "add_pod": step.add_pod,
            "remove_pod": step.remove_pod, "unreserve": step.unreserve,
        }  # fmt: skip
        more: dict[str, Any] = {
            name: self.watched(one, also or point) for name, also in _INNER if (one := inner[name]) is not None
        }

        def call(*arguments: Any) -> Any:
            try:
                return _drained_list(step.call(*arguments))
            finally:
                self._compare(point)

        return replace(step, call=call, **more)

    def _compare(self, point: str) -> None:
        for i, one in enumerate(self._shared):
            after = one.copy()
            for path, old, new in _differences(self._before[i], after, ""):
                self.changes[f"{point} changes {one.title}: {path} was {_shown(old)}, is {_shown(new)}"] = None
            self._before[i] = after


def _drained_list(answer: Any) -> Any:
    """Return an answer with what it still yields: a generator works while its values are taken."""
    return iter(list(answer)) if isinstance(answer, Iterator) else answer


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
