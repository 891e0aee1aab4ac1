"""Changes of one pod: its requests, tolerations, rules, ports, priority and gates.

Each function takes a pod and a change, and returns the changed pod. It raises InputError, with what the pod has, if the pod
has nothing of what the change is about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api import core
from moorage.api.pod_requests import RequestOptions, amount, pod_requests
from moorage.errors import InputError
from moorage.framework.changes import Change, port_text, term_text
from moorage.laboratory.amount_text import with_requests

_FIT: Final = RequestOptions(use_status=False)
_INDEXED: Final = re.compile(r"\[(\d+)\]")


def _lacks(pod: core.Pod, what: str, found: Sequence[str]) -> InputError:
    has = f"it has {', '.join(found)}" if found else "it has none"
    return InputError(f"pod/{pod.key}: no {what}; {has}")


def _with_spec(pod: core.Pod, **fields: Any) -> core.Pod:
    return replace(pod, spec=replace(pod.spec, **fields))


# -- requests ---------------------------------------------------------------------------------------------------------


def request_of(pod: core.Pod, resource: str) -> int:
    """Return what the pod requests as a whole, in the scheduler's units."""
    return pod_requests(pod, _FIT).requests.get(resource, 0)


def _request(pod: core.Pod, change: Change) -> core.Pod:
    resource = change.path.removeprefix("requests.")
    goal, overhead = _whole(change), amount(resource, pod.spec.overhead.get(resource, 0))
    if goal < overhead:
        raise InputError(f"pod/{pod.key}: requests.{resource} cannot be below the overhead of its runtime class, {overhead}")
    changed = _with_request(pod, resource, goal - overhead)
    if request_of(changed, resource) != goal:
        raise InputError(
            f"pod/{pod.key}: no request of {goal} {resource}; its containers come to {request_of(changed, resource)}"
        )
    return changed


def _with_request(pod: core.Pod, resource: str, goal: int) -> core.Pod:
    """Set the sum of the containers' requests. A reduction is taken from the container that requests most."""
    level = pod.spec.resources
    if level is not None and level.requests:
        return _with_spec(pod, resources=with_requests(level, resource, goal))
    init = _capped(pod.spec.init_containers, resource, goal)
    sidecars = sum(_asks(one, resource) for one in init if one.restart_policy == "Always")
    return _with_spec(pod, init_containers=init, containers=_summing_to(pod.spec.containers, resource, goal - sidecars))


def _asks(container: core.Container, resource: str) -> int:
    return amount(resource, container.resources.requests.get(resource, 0))


def _set(container: core.Container, resource: str, count: int) -> core.Container:
    return replace(container, resources=with_requests(container.resources, resource, count))


def _capped(containers: Sequence[core.Container], resource: str, goal: int) -> tuple[core.Container, ...]:
    """Lower what init containers request until each fits, with the sidecars that were started before it."""
    started = 0
    capped: list[core.Container] = []
    for one in containers:
        count = min(_asks(one, resource), goal - started)
        capped.append(one if count == _asks(one, resource) else _set(one, resource, count))
        if one.restart_policy == "Always":
            started += count
    return tuple(capped)


def _summing_to(containers: Sequence[core.Container], resource: str, goal: int) -> tuple[core.Container, ...]:
    counts = [_asks(one, resource) for one in containers]
    surplus = sum(counts) - goal
    if surplus < 0 and counts:
        counts[0] -= surplus
    while surplus > 0:
        most = max(range(len(counts)), key=counts.__getitem__)
        taken = min(surplus, counts[most])
        counts[most], surplus = counts[most] - taken, surplus - taken
    return tuple(
        one if count == _asks(one, resource) else _set(one, resource, count)
        for one, count in zip(containers, counts, strict=True)
    )


def _whole(change: Change) -> int:
    if not isinstance(change.new, int) or isinstance(change.new, bool) or change.new < 0:
        raise InputError(f"{change.target}: {change.path} must be a whole number of at least 0, not {change.new!r}")
    return change.new


# -- tolerations, node selector and node affinity -------------------------------------------------------------------------


def parse_taint(text: str) -> core.Taint:
    """Read ``key=value:Effect`` or ``key:Effect``, as kubectl writes taints.

    Raises  InputError
    """
    named, colon, effect = text.rpartition(":")
    key, _, value = named.partition("=")
    if not colon or not key or effect not in {"NoSchedule", "NoExecute", "PreferNoSchedule"}:
        raise InputError(f"{text!r} is no taint; write key=value:Effect with NoSchedule, NoExecute or PreferNoSchedule")
    return core.Taint(key=key, value=value, effect=effect)


def _tolerate(pod: core.Pod, change: Change) -> core.Pod:
    taint = parse_taint(str(change.new))
    operator = "Equal" if taint.value else "Exists"
    toleration = core.Toleration(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)
    held = pod.spec.tolerations
    return pod if toleration in held else _with_spec(pod, tolerations=(*held, toleration))


def _drop_selector(pod: core.Pod, change: Change) -> core.Pod:
    key, held = change.path.removeprefix("nodeSelector."), pod.spec.node_selector
    if key not in held:
        raise _lacks(pod, f"nodeSelector {key}", sorted(held))
    return _with_spec(pod, node_selector={name: value for name, value in held.items() if name != key})


def _drop_expression(pod: core.Pod, change: Change) -> core.Pod:
    """Drop one expression of a node affinity term. A term without expressions matches no node, so the whole rule goes then."""
    affinity = pod.spec.affinity or core.Affinity()
    rules = affinity.node_affinity or core.NodeAffinity()
    required = rules.required_during_scheduling_ignored_during_execution or core.NodeSelector()
    terms = list(required.node_selector_terms)
    at = _index(change.path)
    if at >= len(terms):
        raise _lacks(pod, f"node affinity term {at}", [str(i) for i in range(len(terms))])
    expressions = tuple(one for one in terms[at].match_expressions if term_text(one) != change.old)
    fields = tuple(one for one in terms[at].match_fields if term_text(one) != change.old)
    if (expressions, fields) == (terms[at].match_expressions, terms[at].match_fields):
        raise _lacks(pod, f"expression {change.old}", [*map(term_text, (*expressions, *fields))])
    terms[at] = core.NodeSelectorTerm(match_expressions=expressions, match_fields=fields)
    left = core.NodeSelector(node_selector_terms=tuple(terms)) if expressions or fields else None
    changed = replace(rules, required_during_scheduling_ignored_during_execution=left)
    return _with_spec(pod, affinity=replace(affinity, node_affinity=changed))


def _node_name(pod: core.Pod, change: Change) -> core.Pod:
    return _with_spec(pod, node_name=str(change.new or ""))


# -- spreading and pod affinity -----------------------------------------------------------------------------------------------


def _index(path: str) -> int:
    found = _INDEXED.search(path)
    if found is None:
        raise InputError(f"{path!r} names no term; write its number in brackets, such as topologySpreadConstraints[0].maxSkew")
    return int(found[1])


def _with_constraint(pod: core.Pod, path: str, **fields: Any) -> core.Pod:
    held, at = pod.spec.topology_spread_constraints, _index(path)
    if at >= len(held):
        raise _lacks(pod, f"topologySpreadConstraints[{at}]", [one.topology_key for one in held])
    changed: core.TopologySpreadConstraint = replace(held[at], **fields)
    return _with_spec(pod, topology_spread_constraints=(*held[:at], changed, *held[at + 1 :]))


def _max_skew(pod: core.Pod, change: Change) -> core.Pod:
    if _whole(change) < 1:
        raise InputError(f"{change.target}: maxSkew must be at least 1")
    return _with_constraint(pod, change.path, max_skew=change.new)


def _honor_taints(pod: core.Pod, change: Change) -> core.Pod:
    return _with_constraint(pod, change.path, node_taints_policy=str(change.new))


def _min_domains(pod: core.Pod, change: Change) -> core.Pod:
    if _whole(change) < 1:
        raise InputError(f"{change.target}: minDomains must be at least 1")
    return _with_constraint(pod, change.path, min_domains=change.new)


def _schedule_anyway(pod: core.Pod, change: Change) -> core.Pod:
    """Set ``whenUnsatisfiable``. ``minDomains`` is valid only with DoNotSchedule, so it goes with it."""
    policy = str(change.new)
    if policy not in {"DoNotSchedule", "ScheduleAnyway"}:
        raise InputError(f"{change.target}: whenUnsatisfiable is DoNotSchedule or ScheduleAnyway, not {policy!r}")
    without = {"min_domains": None} if policy == "ScheduleAnyway" else {}
    return _with_constraint(pod, change.path, when_unsatisfiable=policy, **without)


_SLOTS: Final = {"podAffinity": "pod_affinity", "podAntiAffinity": "pod_anti_affinity"}


def _prefer(pod: core.Pod, change: Change) -> core.Pod:
    """Turn a required term of pod affinity or anti-affinity into a preferred one of the greatest weight."""
    slot = _SLOTS.get(change.path.removeprefix("affinity."))
    rules: core.PodAffinity | None = getattr(pod.spec.affinity, slot, None) if slot else None
    required = rules.required_during_scheduling_ignored_during_execution if rules is not None else ()
    dropped = tuple(term for term in required if term_text(term) == change.old)
    if not dropped or rules is None or slot is None or pod.spec.affinity is None:
        raise _lacks(pod, f"required term {change.old} of {change.path}", [*map(term_text, required)])
    weighted = tuple(core.WeightedPodAffinityTerm(weight=100, pod_affinity_term=term) for term in dropped)
    changed = replace(
        rules,
        required_during_scheduling_ignored_during_execution=tuple(term for term in required if term not in dropped),
        preferred_during_scheduling_ignored_during_execution=(
            *rules.preferred_during_scheduling_ignored_during_execution, *weighted,
        ),
    )  # fmt: skip
    return _with_spec(pod, affinity=replace(pod.spec.affinity, **{slot: changed}))


# -- ports, priority, gates ---------------------------------------------------------------------------------------------------


def _drop_port(pod: core.Pod, change: Change) -> core.Pod:
    spec = pod.spec
    containers, init = (_without_port(some, change) for some in (spec.containers, spec.init_containers))
    if (containers, init) == (spec.containers, spec.init_containers):
        held = [port_text(p.protocol, p.host_ip, p.host_port) for one in spec.containers for p in one.ports if p.host_port]
        raise _lacks(pod, f"host port {change.old}", held)
    return _with_spec(pod, containers=containers, init_containers=init)


def _without_port(containers: Sequence[core.Container], change: Change) -> tuple[core.Container, ...]:
    def is_meant(port: Any) -> bool:
        return bool(port.host_port) and port_text(port.protocol, port.host_ip, port.host_port) == change.old

    return tuple(
        replace(one, ports=tuple(replace(p, host_port=0, host_ip="") if is_meant(p) else p for p in one.ports))
        if any(is_meant(port) for port in one.ports)
        else one
        for one in containers
    )


def _priority(pod: core.Pod, change: Change) -> core.Pod:
    if not isinstance(change.new, int):
        raise InputError(f"{change.target}: priority must be a whole number, not {change.new!r}")
    return _with_spec(pod, priority=change.new, priority_class_name="")


def _priority_class(pod: core.Pod, change: Change) -> core.Pod:
    """Give the pod a priority class, written ``NAME=VALUE``, with which it preempts pods of lower priority."""
    name, _, value = str(change.new).partition("=")
    return _with_spec(pod, priority_class_name=name, priority=int(value), preemption_policy="PreemptLowerPriority")


def _preemption_policy(pod: core.Pod, change: Change) -> core.Pod:
    return _with_spec(pod, preemption_policy=str(change.new))


def _ungate(pod: core.Pod, change: Change) -> core.Pod:
    name, held = change.path.removeprefix("schedulingGates."), pod.spec.scheduling_gates
    left = tuple(gate for gate in held if gate.name != name)
    if left == held:
        raise _lacks(pod, f"scheduling gate {name}", [gate.name for gate in held])
    return _with_spec(pod, scheduling_gates=left)


def _scheduler_name(pod: core.Pod, change: Change) -> core.Pod:
    return _with_spec(pod, scheduler_name=str(change.new))


def _claim(pod: core.Pod, change: Change) -> core.Pod:
    name = change.path.removeprefix("volumes.")
    if not any(one.name == name and one.persistent_volume_claim is not None for one in pod.spec.volumes):
        raise _lacks(pod, f"volume {name} with a claim", [one.name for one in pod.spec.volumes if one.persistent_volume_claim])
    volumes = tuple(
        replace(one, persistent_volume_claim=replace(one.persistent_volume_claim, claim_name=str(change.new)))
        if one.name == name and one.persistent_volume_claim is not None
        else one
        for one in pod.spec.volumes
    )
    return _with_spec(pod, volumes=volumes)


# -- corrections --------------------------------------------------------------------------------------------------------------


def _correct(pod: core.Pod, change: Change) -> core.Pod:
    """Replace one name of a pod by another: a label of a node, a resource, a claim, a term."""
    path, old, new = change.path, str(change.old), str(change.new)
    if path == "nodeSelector":
        (key, _, value), (meant, _, to) = old.partition("="), new.partition("=")
        if pod.spec.node_selector.get(key) != value:
            raise _lacks(pod, f"nodeSelector {old}", [f"{name}={held}" for name, held in pod.spec.node_selector.items()])
        renamed = ((meant, to) if name == key else (name, held) for name, held in pod.spec.node_selector.items())
        return _with_spec(pod, node_selector=dict(renamed))
    if path.startswith("volumes."):
        return _claim(pod, change)
    if path == "priorityClassName":
        name, _, value = new.partition("=")
        return _with_spec(pod, priority_class_name=name, priority=int(value))
    if path.startswith("resourceClaims."):
        asked = path.removeprefix("resourceClaims.")
        found = (replace(one, resource_claim_name=new) if one.name == asked else one for one in pod.spec.resource_claims)
        return _with_spec(pod, resource_claims=tuple(found))
    if path.startswith("topologySpreadConstraints"):
        return _with_constraint(pod, path, topology_key=new)
    if path.startswith("units."):
        return _request(pod, replace(change, path=f"requests.{path.removeprefix('units.')}", new=amount("cpu", new)))
    if path == "resources":
        init, containers = (
            tuple(_renamed(one, old, new) for one in some) for some in (pod.spec.init_containers, pod.spec.containers)
        )
        return _with_spec(pod, init_containers=init, containers=containers)
    text = msgspec.json.encode(pod.spec.affinity, order="deterministic").decode()
    if old not in text:
        raise InputError(f"pod/{pod.key}: {path} has no {old}")
    return _with_spec(pod, affinity=msgspec.json.decode(text.replace(old, new, 1), type=core.Affinity))


def _renamed(container: core.Container, old: str, new: str) -> core.Container:
    """Return a container that asks for another resource."""
    held = container.resources
    requests, limits = (
        {new if name == old else name: count for name, count in some.items()} for some in (held.requests, held.limits)
    )
    return replace(container, resources=replace(held, requests=requests, limits=limits))


def _match_label_keys(pod: core.Pod, change: Change) -> core.Pod:
    held = pod.spec.topology_spread_constraints[_index(change.path)]
    return _with_constraint(pod, change.path, match_label_keys=(*held.match_label_keys, str(change.new)))


#: Verb → how a pod changes.
POD_CHANGES: Final[Mapping[str, Callable[[core.Pod, Change], core.Pod]]] = {
    "request": _request,
    "tolerate": _tolerate,
    "tolerate-own": _tolerate,
    "correct": _correct,
    "match-label-keys": _match_label_keys,
    "drop-selector": _drop_selector,
    "drop-expression": _drop_expression,
    "node-name": _node_name,
    "max-skew": _max_skew,
    "min-domains": _min_domains,
    "honor-taints": _honor_taints,
    "schedule-anyway": _schedule_anyway,
    "prefer": _prefer,
    "drop-port": _drop_port,
    "priority": _priority,
    "priority-class": _priority_class,
    "create-class": _priority_class,
    "preemption-policy": _preemption_policy,
    "ungate": _ungate,
    "scheduler-name": _scheduler_name,
    "claim": _claim,
    "move": _node_name,
}
