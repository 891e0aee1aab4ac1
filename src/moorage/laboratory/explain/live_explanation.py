"""Explain a pod in the state of a live scheduler. Nothing changes, and no changes are searched for.

What needs the state is found first, and another thread can do the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.core.engine.scheduler import Scheduler
from moorage.framework.profile import Profile
from moorage.laboratory.explain.explained_changes import CHANGEABLE
from moorage.laboratory.explain.explained_state import ExplainedState
from moorage.laboratory.explain.explanation import Findings, Subject, find_now
from moorage.report.explanation import ExplainRequest, Explanation

__all__ = ["explain_live", "may_change", "unsearched"]

#: Said by answers that could have changes.
_UNSEARCHED: Final = "changes that would place the pod were not searched for; leave changes=0 out of the address"


def explain_live(
    scheduler: Scheduler, profiles: Mapping[str, Profile], pod: Pod, *, taken_at: str, notes: tuple[str, ...] = ()
) -> Findings:
    """Find why a pod is pending or, if it has a node, where it would go if it were scheduled again now.

    ``profiles`` are used instead of the scheduler's own, which may record the time of each call.
    """
    request = ExplainRequest(
        pod=pod.key, release=scheduler.gates.release, seeds=(scheduler.cycle.seed,), taken_at=taken_at, notes=notes
    )
    return find_now(ExplainedState(scheduler, profiles, scheduler.now), Subject(request, pod))


def may_change(found: Findings) -> bool:
    """Return whether changes could be searched for, as the pod has no node."""
    return found.explanation.outcome in CHANGEABLE


def unsearched(found: Explanation) -> Explanation:
    """Return an explanation with the note that no changes were searched for, if there could be any."""
    if found.outcome not in CHANGEABLE:
        return found
    return replace(found, request=replace(found.request, notes=(*found.request.notes, _UNSEARCHED)))
