"""Pods that are pending in the input because a scheduler refused them, and that would be placed if scheduled now.

The scheduler of a cluster writes why it refused a pod into the condition PodScheduled. If Moorage places such a pod, either the
cluster has changed since, or its scheduler has another configuration or other plugins than Moorage was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Pod
from moorage.basis.printable import one_line, some
from moorage.report.atlas import entries, reasons_of
from moorage.report.explanation import Explanation, PodStanding
from moorage.simulator.simulate import Options

#: How the state of such a pod begins.
REFUSED: Final = "a scheduler refused it"
#: The reason of a pod with scheduling gates, which no scheduler has tried.
_GATED: Final = "SchedulingGated"
#: The beginnings of the reasons of Kubernetes' plugins, of any release, that are not in the atlas.
_KNOWN: Final = (
    "Insufficient ", "Too many pods", "node(s) didn't have the requested labels",
    "node(s) didn't match Pod's required features",
    "node(s) didn't match pod affinity", "node(s) didn't match scheduler-enforced node affinity",
    "node(s) didn't match service affinity", "node(s) didn't match the requested node name",
    "node(s) didn't satisfy existing pods anti-affinity rules", "node(s) did not have", "node(s) didn't find available",
    "node(s) had no available disk", "node(s) had taint", "node(s) had untolerated taint",
    "node(s) had volume node affinity conflict", "node(s) unavailable due to", "node(s) exceed max volume count",
    "node(s) were unschedulable", "node(s) had condition",
)  # fmt: skip


def refusal_in(pod: Pod) -> str:
    """Return the message with which a scheduler refused a pod that has no node; "" if it has not."""
    if pod.spec.node_name or pod.status.phase in ENDED_PHASES:
        return ""
    found = (one for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False")
    return next((one.message for one in found if one.message and one.reason != _GATED), "")


def unknown_reasons(message: str) -> list[str]:
    """Return the reasons for nodes in an event's text that none of Kubernetes' plugins gives, in their order."""
    asked = (one for one in reasons_of(message) if one.startswith("node(s) "))
    return [one for one in asked if not one.startswith(_KNOWN) and one not in _of_atlas()]


@cache
def _of_atlas() -> frozenset[str]:
    return frozenset(reason for entry in entries() for reason in entry.reasons)


def as_in_input(found: Iterable[Explanation], pods: Iterable[Pod], options: Options) -> list[Explanation]:
    """Return the explanations, of placed pods that are pending in the input as those of pending pods. ``pods``: the input's."""
    found = list(found)
    placed = {one.pod for one in found if one.outcome in {"placed", "preempts"}}
    refused = {pod.key: message for pod in pods if pod.key in placed and (message := refusal_in(pod))}
    configured = options.config is not None or bool(options.plugins)
    return [_pending(one, refused[one.pod], configured) if one.pod in refused else one for one in found]


def _pending(one: Explanation, message: str, configured: bool) -> Explanation:
    here = f"{one.pod} is on {one.node}"
    rest = one.summary.removeprefix(here).replace(", after it evicted ", " after it evicts ")
    return replace(
        one,
        outcome="pending",
        summary=f"{one.pod} is pending; scheduled now, it would go to {one.node}{rest}",
        node="",
        standing=PodStanding(
            "unschedulable", f"{REFUSED}: {message}", causes=(*_causes(message, configured), *one.standing.causes)
        ),
        message=message,
    )


def _causes(message: str, configured: bool) -> Iterator[str]:
    """Yield what the scheduler of the cluster said, and what may explain that Moorage places the pod."""
    yield f"The scheduler of the cluster refused it: {one_line(message)}"
    given = "that of --config and --plugins" if configured else "the default one (give --config and --plugins)"
    unknown = unknown_reasons(message)
    if unknown:
        named = some([f"{one!r}" for one in unknown])
        yield f"No plugin of Kubernetes gives the reason {named}: the scheduler has another configuration than {given}."
    else:
        yield f"Either the cluster has changed since, or its scheduler has another configuration than {given}."
