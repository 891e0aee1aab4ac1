"""Changes in words, and those of nodes and of the number of pods as kubectl commands to paste."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.workloads import ReplicaSet
from moorage.basis.printable import one_line
from moorage.framework.changes import Change
from moorage.laboratory.amount_text import people_quantity
from moorage.laboratory.costs import CHANGES
from moorage.laboratory.surroundings import Surroundings
from moorage.simulator.owners import controller_of


def describe(change: Change) -> str:
    """Return the change in a few words: its kubectl command if that is clear enough, or else the field and its new value."""
    words, template = _WORDS.get(change.verb), CHANGES["words"].get(change.verb)
    if template is not None:
        held = {"old": change.old, "new": change.new, "path": change.path, "last": change.path.partition(".")[2] or change.path}
        return one_line(template.format(**held, name=_name(change), moved=_moves(change)))
    return one_line(
        words(change) if words is not None else node_command(change) or f"{change.verb} {change.target} {change.path}"
    )


def _name(change: Change) -> str:
    return change.target.partition("/")[2]


def _moves(change: Change) -> str:
    """Return the field of a change, its old and its new value."""
    field = change.path
    kind, _, resource = field.partition(".")
    old, new = (
        people_quantity(resource, value, up=up) if kind in {"requests", "allocatable"} and isinstance(value, int) else value
        for value, up in ((change.old, True), (change.new, False))
    )
    return f"{field} := {new}" if change.old is None else f"{field} {old} → {new}"


def _corrected(change: Change) -> str:
    """Return a correction; of two terms, only the words that differ."""
    old, new = str(change.old), str(change.new)
    if change.path.startswith("affinity."):
        spaces = [json.loads(text).get("namespaces", ()) for text in (old, new)]
        if spaces[0] != spaces[1]:
            return "podAffinity namespaces {} → {}".format(*(", ".join(some) or "(its own)" for some in spaces))
        some, others = (set(re.findall(r'"([^"]*)"', text)) for text in (old, new))
        gone, come = (" ".join(sorted(one)) for one in (some - others, others - some))
        return f"{change.path.split('.')[1].split('[')[0]} {gone} → {come}"
    if change.path == "priorityClassName":
        new = "{0} ({2})".format(*new.partition("="))
    where = "" if change.target.startswith("pod/") else f"claim {_name(change)}: "
    if change.path.startswith("units."):
        return f"requests.{change.path.removeprefix('units.')} {old} → {new}"
    field = {"resources": "resource"}.get(change.path, change.path)
    return f"{where}{field} {old or '(none)'} → {new}"


def _waiting(change: Change) -> str:
    """Return what is waited for."""
    kind, _, name = change.target.partition("/")
    if kind == "node":
        return f"wait until {name} {'is back from its drain' if change.path == 'unschedulable' else 'has started'}"
    if change.path == "terminating":
        held = f", which its finalizer {change.new} holds" if change.new else ""
        return f"wait until {name} is gone from {change.old}{held}"
    what, _, until = change.path.partition(" until ")
    return f"wait until {what} ends{f' (at {until} at the latest)' if until else ''}: {name} leaves {change.old}"


def _preferred(change: Change) -> str:
    key = json.loads(str(change.old)).get("topologyKey", "")
    rule = "anti-affinity" if "Anti" in change.path else "affinity"
    per = "" if key == "kubernetes.io/hostname" else f" of {key}"
    return f"{rule}{per} required → preferred"


def _expression(change: Change) -> str:
    asked = json.loads(str(change.old))
    values = ", ".join(asked.get("values", ()))
    return f"drop node affinity {asked.get('key')} {asked.get('operator')}{f' [{values}]' if values else ''}"


def _argument(change: Change) -> str:
    profile, _, plugin = _name(change).rpartition("/")
    if change.new is None:
        what = f"drop {change.path}"
    elif change.old is None:
        what = f"{change.path} + {change.new}"
    else:
        what = f"{change.path} {change.old} → {change.new}"
    return f"{plugin} of profile {profile}: {what}"


def _created(change: Change) -> str:
    return f"create claim {_name(change)}{f' of class {change.new}' if change.new else ''}"


def _given_class(change: Change) -> str:
    name, _, value = str(change.new).partition("=")
    create = f"create PriorityClass {name} ({value}), " if change.verb == "create-class" else ""
    named = name if create else f"{name} ({value})"
    return f"{create}priorityClassName {change.old or '(none)'} → {named}"


def _added(change: Change) -> str:
    return f"add a node {change.new}{f' ({change.path})' if change.path.startswith('group ') else ''}"


def _disabled(change: Change) -> str:
    return "disable plugin {1} of profile {0}".format(*_name(change).rsplit("/", 1))


#: Changes whose words depend on more than their fields.
_WORDS: Final[Mapping[str, Callable[[Change], str]]] = {
    "drop-expression": _expression, "prefer": _preferred, "correct": _corrected, "create": _created, "wait": _waiting,
    "add-node": _added, "plugin-argument": _argument, "disable-plugin": _disabled,
    "priority-class": _given_class, "create-class": _given_class,
}  # fmt: skip


# -- commands -----------------------------------------------------------------------------------------------------------


def node_command(change: Change) -> str:
    """Return the kubectl command for a change of a node or a namespace; "" if there is none."""
    name, kind = shlex.quote(_name(change)), change.target.partition("/")[0]
    match change.verb:
        case "uncordon" | "cordon":
            return f"kubectl {change.verb} {name}"
        case "label" | "relabel":
            key = change.path.removeprefix("labels.")
            if change.new is None:
                return f"kubectl label {kind} {name} {shlex.quote(f'{key}-')}"
            over = "" if change.old is None else " --overwrite"
            return f"kubectl label {kind} {name} {shlex.quote(f'{key}={change.new}')}{over}"
        case "untaint":
            return f"kubectl taint nodes {name} {shlex.quote(_without_value(str(change.old)))}-"
        case "taint":
            return f"kubectl taint nodes {name} {shlex.quote(str(change.new))}"
    return ""


def _without_value(taint: str) -> str:
    named, _, effect = taint.rpartition(":")
    return f"{named.partition('=')[0]}:{effect}"


def workload_command(change: Change) -> str:
    """Return the command that deletes a pod, scales a workload so that it leaves, or lets its rollouts remove a pod first."""
    if change.verb in {"evict", "move"}:
        return _delete(change)
    if change.verb == "scale":
        return scale_command([change])
    namespace = _name(change).partition("/")[0]
    patch = '{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}'
    return f"kubectl patch {shlex.quote(change.path)}{in_namespace(namespace)} -p={shlex.quote(patch)}"


def scale_command(changes: Sequence[Change]) -> str:
    """Return the command that scales one workload down so that the pods of these changes leave, all of them at once."""
    first = changes[0]
    where = in_namespace(_name(first).partition("/")[0])
    left = min(int(str(one.new)) for one in scales_together(changes))
    scale = f"kubectl scale {shlex.quote(first.path)}{where} --replicas={left}"
    if first.path.startswith("statefulset/"):
        return scale
    pods = (_name(one).partition("/")[2] for one in changes)
    costs = (f"kubectl annotate pod {shlex.quote(pod)}{where} controller.kubernetes.io/pod-deletion-cost=-1" for pod in pods)
    return " && ".join([*costs, scale])


def scales_together(changes: Iterable[Change]) -> list[Change]:
    """Return changes with one pair of numbers a workload: before the first that scales it, after the last."""
    made = list(changes)
    pods: dict[tuple[str, str], set[str]] = {}
    had: dict[tuple[str, str], int] = {}
    for one in made:
        if one.verb == "scale":
            pods.setdefault(_workload(one), set()).add(one.target)
            had[_workload(one)] = max(had.get(_workload(one), 0), int(str(one.old)))
    return [
        one if one.verb != "scale" else replace(one, old=had[at], new=had[at] - len(pods[at]))
        for one, at in ((one, _workload(one)) for one in made)
    ]


def _workload(change: Change) -> tuple[str, str]:
    return _name(change).partition("/")[0], change.path


def _delete(change: Change) -> str:
    namespace, _, name = _name(change).partition("/")
    return f"kubectl delete pod {shlex.quote(name)}{in_namespace(namespace)}"


def in_namespace(namespace: str) -> str:
    """Return the option of kubectl for a namespace."""
    return "" if namespace in {"", "default"} else f" -n {shlex.quote(namespace)}"


def workload_of(pod: Pod, around: Surroundings) -> tuple[str, str] | None:
    """Return the kind and name of the workload that creates the pod from its template; None for a pod without one."""
    owner = controller_of(pod.metadata)
    if owner is None:
        return None
    if owner.kind == "ReplicaSet":
        replica_set = around.find(ReplicaSet, pod.namespace, owner.name)
        owner = (controller_of(replica_set.metadata) if replica_set is not None else None) or owner
    return owner.kind, owner.name
