"""Explain pods that do not exist, because a resource quota or a limit range refused them."""

from __future__ import annotations

from moorage.api.quantity import exact
from moorage.report.explanation import ExplainRequest, Explanation, PodStanding, Proof
from moorage.report.outcome import QuotaAmount, RefusedPods
from moorage.wording import counted

__all__ = ["explain_not_created"]


def explain_not_created(request: ExplainRequest, refused: RefusedPods) -> Explanation:
    """Return the explanation of the pods of one workload, or of one pod, that were not created for one reason."""
    text = _why(refused)
    return Explanation(
        request=request,
        outcome="notCreated",
        summary=f"{_subject(refused)}: {text}.",
        standing=PodStanding("notCreated", text=text, ended_by=_ended_by(refused)),
        not_created=refused,
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
