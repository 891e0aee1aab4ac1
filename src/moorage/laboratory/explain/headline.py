"""The first line of an explanation: why no node fits, in one sentence.

The sentence names the smallest conflict over the nodes that the pod may use at all; if there are none, over all nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from moorage.api.quantity import shown_amount
from moorage.framework.verdicts import Code
from moorage.laboratory.explain.refusals import ELIGIBILITY
from moorage.laboratory.explain.verdicts import Constraint, EveryVerdict, Stage

__all__ = ["why_nowhere"]

#: Plugin → the words for the pod's constraint that the plugin checks.
_NOUNS = {
    "NodeAffinity": "its node affinity",
    "InterPodAffinity": "its pod affinity",
    "PodTopologySpread": "its topology spread constraints",
    "TaintToleration": "its tolerations",
    "NodePorts": "its host ports",
    "NodeName": "its nodeName",
    "VolumeBinding": "its volumes",
    "VolumeRestrictions": "its volumes",
    "VolumeZone": "its volumes' zones",
    "NodeVolumeLimits": "the volume limits",
    "DynamicResources": "its resource claims",
    "NodeDeclaredFeatures": "the features it needs",
}


def why_nowhere(judged: EveryVerdict, family: Sequence[Constraint]) -> str:
    """Return why no node fits; ``family`` are the constraints that exclude every node together, the decisive ones."""
    rows = len(judged.snapshot.table)
    if not rows:
        return "there are no nodes"
    broken = _broken(judged)
    if broken:
        return broken
    held = _held_everywhere(judged)
    if held:
        return held
    if not family:
        return "no node accepts it"
    if len(family) == 1:
        return _alone(judged, family[0])
    nouns = list(dict.fromkeys(map(_noun, family)))
    if len(nouns) == 1:
        return f"no node satisfies {nouns[0]}"
    if len(nouns) == 2:
        return f"no node satisfies both {nouns[0]} and {nouns[1]}"
    return f"no node satisfies {', '.join(nouns[:-1])} and {nouns[-1]} together"


def _broken(judged: EveryVerdict) -> str:
    """Return the error that ends every attempt, if there is one."""
    for one in judged.refusing:
        for status in one.verdicts.statuses:
            if status is not None and status.code is Code.ERROR:
                return f"{one.name} fails: {status.message}"
    return ""


def _held_everywhere(judged: EveryVerdict) -> str:
    """Return why PreFilter rejects the pod as a whole, if it does."""
    for one in judged.refusing:
        if one.stage is Stage.PRE_FILTER and one.refused.all():
            status = one.verdicts.status(0)
            if status is not None:
                return f"{one.name} rejects it: {status.message}"
    return ""


def _noun(constraint: Constraint) -> str:
    plugin, term = constraint
    if term.startswith("nodeSelector "):
        return "its nodeSelector"
    if term.startswith("podAntiAffinity of other pods"):
        return "the anti-affinity of other pods"
    if term.startswith("podAntiAffinity "):
        return "its anti-affinity"
    if plugin == "NodeResourcesFit":
        return "the limit of pods" if term == "pods" else f"its {term} request"
    if plugin == "NodeUnschedulable":
        return "being schedulable"
    return _NOUNS.get(plugin, f"the plugin {plugin}" if plugin else "the pods nominated there")


def _alone(judged: EveryVerdict, only: Constraint) -> str:
    """Return why one constraint alone excludes every node, or every eligible one."""
    plugin, term = only
    every = bool(judged.constraints[only].all())
    eligible = "" if every else "eligible "
    match plugin:
        case "NodeResourcesFit":
            return _too_little(judged, term, eligible)
        case "NodeUnschedulable":
            return "every node is cordoned"
        case "TaintToleration":
            return f"every node has the {term}, which it does not tolerate"
        case "NodeAffinity":
            return f"no {eligible}node matches its {term.replace('nodeAffinity', 'node affinity', 1)}"
        case "InterPodAffinity" | "PodTopologySpread" | "NodePorts":
            return f"no {eligible}node satisfies {_noun(only)} ({term})"
    return f"{plugin} refuses every {eligible}node: {term}" if plugin else "the room is kept for pods nominated there"


def _too_little(judged: EveryVerdict, resource: str, eligible: str) -> str:
    if resource == "pods":
        return f"every {eligible}node is full: it has as many pods as it allows"
    nodes = judged.snapshot.nodes
    usable = np.ones(len(nodes), dtype=bool)
    for key, rows in judged.constraints.items():
        if key.plugin in ELIGIBILITY and eligible:
            usable &= ~rows
    one = next(j for j in judged.refusing if j.name == "NodeResourcesFit" and j.stage is Stage.FILTER)
    needed = next((want.amount for want in one.state if want.resource == resource), 0)
    offers = nodes.allocatable(resource)
    free = np.where(usable, np.maximum(0, offers - nodes.requested(resource)), -1)
    needs = shown_amount(resource, needed, up=True)
    if not (offers * usable).any():
        return f"no {eligible}node offers {resource}"
    if int((offers * usable).max()) < needed:
        largest = int((offers * usable).argmax())
        has = f"{judged.names[largest]}, has {shown_amount(resource, int(offers[largest]))}"
        return f"no {eligible}node is large enough: it requests {needs} {resource}, and the largest, {has}"
    at = int(free.argmax())
    most = shown_amount(resource, int(free[at]))
    return f"no {eligible}node has {needs} {resource} free: {judged.names[at]} has most, {most}"
