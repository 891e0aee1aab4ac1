"""Likely typing errors: names in a pod's constraints that no node has, with the closest name that nodes have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from moorage.api.selectors import Requirement
from moorage.laboratory.verdicts import Constraint, EveryVerdict
from moorage.plugins.term_names import selector_name, taint_name
from moorage.state.node_matching import required_node_affinity
from moorage.wording import counted

__all__ = ["closest_names"]

_CLOSE = 0.6


def closest_names(judged: EveryVerdict) -> tuple[str, ...]:
    """Return a sentence for each name that the pod asks for and no node has, with the closest name that nodes do have."""
    return tuple(dict.fromkeys((*_labels(judged), *_resources(judged), *_topologies(judged), *_tolerations(judged))))


def _everywhere(judged: EveryVerdict, constraint: Constraint) -> bool:
    rows = judged.constraints.get(constraint)
    return rows is not None and bool(rows.all())


def _labels(judged: EveryVerdict) -> Iterator[str]:
    required = required_node_affinity(judged.pod)
    for key, value in required.labels.items():
        if _everywhere(judged, Constraint("NodeAffinity", selector_name(key, value))):
            yield from _label(judged, key, (value,))
    for term in required.matcher.terms if required.matcher is not None else ():
        for asked in term.requirements:
            if asked.operator in {"In", "Exists"} and _is_met_nowhere(judged, asked):
                yield from _label(judged, asked.key, asked.values)


def _is_met_nowhere(judged: EveryVerdict, asked: Requirement) -> bool:
    return not any(asked.matches(node.labels.get(asked.key)) for node in judged.snapshot.table.nodes)


def _label(judged: EveryVerdict, key: str, values: Iterable[str]) -> Iterator[str]:
    """Yield the closest match for a label that no node has: another value of its key, or another key."""
    held = Counter(node.labels[key] for node in judged.snapshot.table.nodes if key in node.labels)
    if not held:
        yield from _key(judged, key, "label")
        return
    for value in values:
        close = get_close_matches(value, list(held), 1, _CLOSE)
        if close:
            yield f"No node has {key}={value}; closest is {key}={close[0]}, on {counted(held[close[0]], 'node')}."
        else:
            others = ", ".join(f"{known} on {number}" for known, number in held.most_common(3))
            yield f"No node has {key}={value}; values of {key}: {others}{', …' if len(held) > 3 else ''}."


def _key(judged: EveryVerdict, key: str, what: str) -> Iterator[str]:
    keys = Counter(known for node in judged.snapshot.table.nodes for known in node.labels)
    own = key.rpartition("/")[2]
    alike = [known for known in keys if get_close_matches(own, [known.rpartition("/")[2]], 1, _CLOSE)]
    close = get_close_matches(key, alike, 1, _CLOSE)
    near = f"; closest is {close[0]}, on {counted(keys[close[0]], 'node')}" if close else ""
    yield f"No node has the {what} {key}{near}."


def _resources(judged: EveryVerdict) -> Iterator[str]:
    nodes = judged.snapshot.table.nodes
    for constraint in judged.constraints:
        name = constraint.term
        if constraint.plugin != "NodeResourcesFit" or not _everywhere(judged, constraint):
            continue
        if not any(name in node.status.allocatable for node in nodes):
            offered = Counter(known for node in nodes for known in node.status.allocatable)
            close = get_close_matches(name, [known for known in offered if "/" in known or "-" in known], 1, _CLOSE)
            near = f"; closest is {close[0]}, on {counted(offered[close[0]], 'node')}" if close else ""
            yield f"No node offers {name}{near}."


def _topologies(judged: EveryVerdict) -> Iterator[str]:
    pod = judged.pod
    keys = [one.topology_key for one in pod.spec.topology_spread_constraints if one.when_unsatisfiable == "DoNotSchedule"]
    for key in dict.fromkeys([*keys, *(term.topology_key for term in pod.required_affinity)]):
        if key and not judged.snapshot.table.labels.is_anywhere(key):
            yield from _key(judged, key, "topology label")


def _tolerations(judged: EveryVerdict) -> Iterator[str]:
    """Yield tolerations that almost match a taint of nodes that refuse the pod."""
    held = [one for one in judged.pod.spec.tolerations if one.key and not one.key.startswith("node.kubernetes.io/")]
    for taint in judged.snapshot.table.taints.values:
        for one in taint:
            refuses = Constraint("TaintToleration", taint_name(one)) in judged.constraints
            for toleration in held if refuses else ():
                if toleration.key == one.key and toleration.operator in {"", "Equal"} and toleration.value != one.value:
                    yield f"It tolerates {one.key}={toleration.value}; the taint is {one.key}={one.value}."
                elif toleration.key == one.key and toleration.effect and toleration.effect != one.effect:
                    yield f"It tolerates {one.key} with effect {toleration.effect}; the taint's effect is {one.effect}."
                elif toleration.key != one.key and get_close_matches(toleration.key, [one.key], 1, 0.8):
                    yield f"It tolerates {toleration.key}; the taint's key is {one.key}."
