"""Changes in words, and as kubectl commands to paste.

A change of a pod is made where the pod comes from: ``kubectl patch`` of its workload. Its patch is the difference between the
pod before and after, so it names exactly the fields that change.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api.core import Object, Pod, PodSpec, ReplicationController
from moorage.api.workloads import DaemonSet, Deployment, ReplicaSet, StatefulSet
from moorage.basis.printable import one_line
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.amount_text import people_quantity
from moorage.laboratory.cluster_objects import NOTHING_AROUND, Surroundings
from moorage.laboratory.costs import CHANGES
from moorage.laboratory.edit.pod_changes import POD_CHANGES
from moorage.simulator.owners import controller_of

#: Workloads whose template can be changed.
_PATCHED: Final[Mapping[str, type[Object]]] = {
    kind.__name__: kind for kind in (Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController)
}
#: Fields of an existing pod that the API server lets clients change.
_MUTABLE: Final = frozenset(["tolerate", "ungate"])


# -- words ------------------------------------------------------------------------------------------------------------


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
    field = {"resources": "resource"}.get(change.path, change.path)
    return f"{where}{field} {old or '(none)'} → {new}"


def _waiting(change: Change) -> str:
    """Return what is waited for."""
    kind, _, name = change.target.partition("/")
    if kind == "node":
        return f"wait until {name} {'is back from its drain' if change.path == 'unschedulable' else 'has started'}"
    if change.path == "terminating":
        return f"wait until {name} is gone from {change.old}"
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


def _added(change: Change) -> str:
    return f"add a node {change.new}{f' ({change.path})' if change.path.startswith('group ') else ''}"


def _disabled(change: Change) -> str:
    return "disable plugin {1} of profile {0}".format(*_name(change).rsplit("/", 1))


#: Changes whose words depend on more than their fields.
_WORDS: Final[Mapping[str, Callable[[Change], str]]] = {
    "drop-expression": _expression, "prefer": _preferred, "correct": _corrected, "create": _created, "wait": _waiting,
    "add-node": _added, "plugin-argument": _argument, "disable-plugin": _disabled,
}  # fmt: skip


# -- commands -----------------------------------------------------------------------------------------------------------


def command_of(change: Change, around: Surroundings = NOTHING_AROUND) -> str:
    """Return the kubectl command that makes the change; "" if there is none. ``around`` finds the owners of pods."""
    if change.verb in {"evict", "move"}:
        return _delete(change)
    if change.verb in {"scale", "surge"}:
        return _workload_command(change)
    if change.target.startswith("pod/"):
        namespace, _, name = _name(change).partition("/")
        pod = around.find(Pod, namespace, name)
        return _patch(pod, change, around) if isinstance(pod, Pod) and change.verb in POD_CHANGES else ""
    return node_command(change)


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


def _workload_command(change: Change) -> str:
    """Return the command that scales a workload so that this pod leaves, or that lets its rollouts remove a pod first."""
    namespace, _, pod = _name(change).partition("/")
    if change.verb == "surge":
        patch = '{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}'
        return f"kubectl patch {shlex.quote(change.path)}{_in(namespace)} -p={shlex.quote(patch)}"
    scale = f"kubectl scale {shlex.quote(change.path)}{_in(namespace)} --replicas={change.new}"
    if change.path.startswith("statefulset/"):
        return scale
    return f"kubectl annotate pod {shlex.quote(pod)}{_in(namespace)} controller.kubernetes.io/pod-deletion-cost=-1 && {scale}"


def _delete(change: Change) -> str:
    namespace, _, name = _name(change).partition("/")
    return f"kubectl delete pod {shlex.quote(name)}{_in(namespace)}"


def _in(namespace: str) -> str:
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


def _patch(pod: Pod, change: Change, around: Surroundings) -> str:
    workload = workload_of(pod, around)
    kind, name = workload or ("Pod", pod.name)
    if kind not in _PATCHED and not (kind == "Pod" and change.verb in _MUTABLE):
        return ""
    made_from = pod if kind == "Pod" else replace(pod, spec=_template(kind, name, pod, around))
    try:
        changed = POD_CHANGES[change.verb](made_from, change)
    except InputError:  # the template does not have the fields that admission added to the pod
        return ""
    before, after = (msgspec.to_builtins(one.spec) for one in (made_from, changed))
    patch = list(_difference(before, after, "/spec" if kind == "Pod" else "/spec/template/spec"))
    text = json.dumps(patch, separators=(",", ":"), ensure_ascii=False)
    return f"kubectl patch {kind.lower()} {shlex.quote(name)}{_in(pod.namespace)} --type=json -p={shlex.quote(text)}"


def _template(kind: str, name: str, pod: Pod, around: Surroundings) -> PodSpec:
    """Return the pod spec in a workload's template; the pod's own spec if the workload is not in the input."""
    workload = around.find(_PATCHED[kind], pod.namespace, name)
    template = getattr(getattr(workload, "spec", None), "template", None)
    if template is not None and template.spec.containers:
        return template.spec  # type: ignore[no-any-return]
    return pod.spec


def _difference(before: Any, after: Any, path: str) -> Iterator[dict[str, Any]]:
    """Yield the operations of a JSON patch. Lists are compared element by element, unless they become shorter."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            at = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in after and isinstance(before[key], dict) and path.endswith("/spec"):
                yield from _difference(before[key], {}, at)
            elif key not in after:
                yield {"op": "remove", "path": at}
            elif key not in before:
                yield {"op": "add", "path": at, "value": after[key]}
            else:
                yield from _difference(before[key], after[key], at)
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) <= len(after):
        for i, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from _difference(one, other, f"{path}/{i}")
        yield from ({"op": "add", "path": f"{path}/-", "value": one} for one in after[len(before) :])
    else:
        yield {"op": "replace", "path": path, "value": after}
