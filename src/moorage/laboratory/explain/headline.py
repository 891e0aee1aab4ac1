"""The first line of an explanation: why no node fits, in one sentence.

The sentence names the smallest conflict over the nodes that the pod may use at all; if there are none, over all nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from moorage.api.quantity_amounts import shown_amount
from moorage.framework.verdicts import Code
from moorage.laboratory.explain.refusals import ELIGIBILITY
from moorage.laboratory.explain.verdicts import Constraint, EveryVerdict, Stage

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
    if whole := _broken(judged) or _held_everywhere(judged):
        return whole
    if not family:
        return "no node accepts it"
    if len(family) == 1:
        return _alone(judged, family[0])
    nouns = list(dict.fromkeys(map(_noun, family)))
    if len(nouns) == 1:
        return f"no node satisfies {nouns[0]}"
    if len(family) == 2 and {one.plugin for one in family} == {"NodeAffinity", "NodeResourcesFit"}:
        chosen, short = sorted(family)
        return _too_little(judged, short, chosen)
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
            return _too_little(judged, only)
        case "NodeUnschedulable":
            return "every node is cordoned"
        case "TaintToleration":
            return f"every node {_ban(only, 1)}"
        case "NodeAffinity":
            return f"no node matches its {_words(only)}" if every else _closed(judged, only)
        case "InterPodAffinity" | "PodTopologySpread" | "NodePorts":
            return f"no {eligible}node satisfies {_noun(only)} ({term})"
    return f"{plugin} refuses every {eligible}node: {term}" if plugin else "the room is kept for pods nominated there"


def _words(constraint: Constraint) -> str:
    return constraint.term.replace("nodeAffinity", "node affinity", 1)


def _closed(judged: EveryVerdict, chosen: Constraint) -> str:
    """Return what closes the nodes that the pod selects."""
    rows = ~judged.constraints[chosen]
    counts = [(int((rows & held).sum()), key) for key, held in judged.constraints.items() if key.plugin in ELIGIBILITY]
    selected = f"node that matches its {_words(chosen)}"
    if whole := [key for count, key in counts if count == rows.sum()]:
        return f"every {selected} {_ban(whole[0], 1)}"
    bans = ", ".join(f"{count} {_ban(key, count)}" for count, key in heapq.nlargest(2, counts, itemgetter(0)))
    return f"no {selected} is open to it: of {rows.sum()}, {bans}"


def _ban(constraint: Constraint, count: int) -> str:
    if constraint.plugin == "NodeUnschedulable":
        return "is cordoned" if count == 1 else "are cordoned"
    return f"{'has' if count == 1 else 'have'} the {constraint.term}, which it does not tolerate"


def _too_little(judged: EveryVerdict, short: Constraint, chosen: Constraint | None = None) -> str:
    """Return why no node has enough of a resource, or none of the ``chosen`` ones."""
    resource, nodes = short.term, judged.snapshot.nodes
    usable, kind = np.ones(len(nodes), dtype=bool), "node"
    if not judged.constraints[short].all():
        closing = [rows for key, rows in judged.constraints.items() if key.plugin in ELIGIBILITY or key == chosen]
        usable = ~np.any(closing, axis=0)
        kind = "eligible node" if chosen is None else f"node that matches its {_words(chosen)}"
    if resource == "pods":
        return f"every {kind} is full: it has as many pods as it allows"
    one = next(j for j in judged.refusing if j.name == "NodeResourcesFit" and j.stage is Stage.FILTER)
    needed = next((want.amount for want in one.state if want.resource == resource), 0)
    offers = nodes.allocatable(resource)
    free = np.where(usable, np.maximum(0, offers - nodes.requested(resource)), -1)
    needs = shown_amount(resource, needed, up=True)
    if not (offers * usable).any():
        return f"no {kind} offers {resource}"
    if int((offers * usable).max()) < needed:
        largest = int((offers * usable).argmax())
        has = f"{judged.names[largest]}, has {shown_amount(resource, int(offers[largest]))}"
        return f"no {kind} is large enough: it requests {needs} {resource}, and the largest, {has}"
    at = int(free.argmax())
    most = shown_amount(resource, int(free[at]))
    return f"no {kind} has {needs} {resource} free: {judged.names[at]} has most, {most}"
