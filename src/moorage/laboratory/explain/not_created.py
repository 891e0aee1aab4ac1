"""Explain pods that do not exist because a quota or a limit range refused them, and say what makes room in the quota."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from moorage.api.core import ENDED_PHASES, Pod
from moorage.api.quantity import exact
from moorage.basis.printable import counted
from moorage.framework.changes import Change
from moorage.laboratory.amount_text import quantity_of
from moorage.laboratory.costs import Costs
from moorage.report.explanation import Explanation, PodStanding, Proof
from moorage.report.explanation_values import AtomReport, ChangeReport, ExplainRequest
from moorage.report.outcome import QuotaAmount, RefusedPods
from moorage.state.pod_info import PodInfo

__all__ = ["explain_not_created"]

NO_WORKLOADS: Final[Mapping[str, str]] = {}
_SCALED: Final = frozenset(["Deployment", "StatefulSet", "ReplicaSet"])


def explain_not_created(
    request: ExplainRequest, refused: RefusedPods, pods: Iterable[Pod] = (), workloads: Mapping[str, str] = NO_WORKLOADS
) -> Explanation:
    """Return the explanation of the pods of one workload, or of one pod, that were not created for one reason.

    ``pods`` exist, and ``workloads`` are the names of their workloads, by UID
    """
    text = _why(refused)
    return Explanation(
        request=request,
        outcome="notCreated",
        summary=f"{_subject(refused)}: {text}.",
        standing=PodStanding("notCreated", text=text, ended_by=_ended_by(refused)),
        not_created=refused,
        changes=tuple(_changes(refused, pods, workloads)),
        message=refused.message,
        proof=Proof("exhaustive"),
    )


def _subject(refused: RefusedPods) -> str:
    missing = len(refused.names)
    if not refused.workload:
        return f"{refused.namespace}/{refused.names[0]} does not exist"
    kind, _, name = refused.workload.partition("/")
    verb = "does" if missing == 1 else "do"
    return f"{missing} of {counted(refused.wanted, 'pod')} of {kind} {refused.namespace}/{name} {verb} not exist"


def _why(refused: RefusedPods) -> str:
    said = refused.message.partition(" is forbidden: ")[2]
    if not refused.amounts:
        return said.removeprefix("failed ") if refused.by == "ResourceQuota" else said
    lacks = ", ".join(f"{one.resource} (used {one.used} of {one.hard}, requested {one.requested})" for one in refused.amounts)
    return f"quota {refused.quota} is full for {lacks}"


def _ended_by(refused: RefusedPods) -> tuple[str, ...]:
    """Return, in words, the limits of the quota with which all missing pods could be created."""
    return tuple(
        f"quota {refused.quota}: {one.resource} of {_enough(one, len(refused.names))} or more" for one in refused.amounts
    )


def _enough(one: QuotaAmount, pods: int) -> str:
    total = exact(one.used)
    for _ in range(pods):
        total = total.plus(exact(one.requested))
    return str(total)


# -- what makes room ---------------------------------------------------------------------------------------------------


def _changes(refused: RefusedPods, pods: Iterable[Pod], workloads: Mapping[str, str]) -> Iterator[ChangeReport]:
    """Yield what lets all missing pods be created: another workload of the namespace scaled down, or a larger quota."""
    if not refused.amounts:
        return
    held: dict[str, list[PodInfo]] = {}
    for pod in pods:
        name, lives = workloads.get(pod.uid, ""), pod.status.phase not in ENDED_PHASES
        if lives and pod.namespace == refused.namespace and name != refused.workload and name.partition("/")[0] in _SCALED:
            held.setdefault(name, []).append(PodInfo(pod))
    # the largest workload first: it misses some of its pods least
    for name, some in sorted(held.items(), key=lambda one: (-len(one[1]), one[0])):
        gone = _fewer(refused, some)
        if gone is not None:
            workload, left = f"{name.partition('/')[0].lower()}/{name.partition('/')[2]}", len(some) - gone
            change = Change("cluster", "scale", f"pod/{some[0].key}", workload, len(some), left)
            command = f"kubectl scale {shlex.quote(workload)} -n {refused.namespace} --replicas={left}"
            yield _report(change, f"scale {workload} {len(some)} → {left}", command, "scale", f"the owner of {workload}")
            break
    hard = {one.resource: _enough(one, len(refused.names)) for one in refused.amounts}
    command = (
        f"kubectl patch resourcequota {shlex.quote(refused.quota)} -n {refused.namespace} --type=merge "
        f"-p={shlex.quote(json.dumps({'spec': {'hard': hard}}, separators=(',', ':')))}"
    )
    old, new = ({one.resource: one.hard for one in refused.amounts}, hard)
    text = ", ".join(f"{name} {old[name]} → {new[name]}" for name in hard)
    target = f"resourcequota/{refused.namespace}/{refused.quota}"
    change = Change("cluster", "quota", target, "hard", json.dumps(old), json.dumps(hard))
    yield _report(change, f"raise quota {refused.quota}: {text}", command, "grow", "the cluster team")


def _fewer(refused: RefusedPods, pods: list[PodInfo]) -> int | None:
    """Return how many pods of a workload have to go; None if that is all of them, or if the quota does not count them."""
    most = 0
    for one in refused.amounts:
        resource = one.resource.removeprefix("requests.")
        each = 1 if resource == "pods" else min(pod.requests.get(resource, 0) for pod in pods)
        freed = exact(str(each) if resource == "pods" else quantity_of(resource, each)).nano
        lack = exact(_enough(one, len(refused.names))).nano - exact(one.hard).nano
        if one.resource.startswith(("limits.", "count/")) or not freed:
            return None
        most = max(most, -(-lack // freed))
    return most if most < len(pods) else None


def _report(change: Change, text: str, command: str, kind: str, who: str) -> ChangeReport:
    cost = Costs().cost_of(change)
    atom = AtomReport(change.owner, change.verb, change.target, text, cost, change.path, change.old, change.new)
    return ChangeReport(change.owner, cost, (atom,), (command,), (), kind=kind, who=who)
