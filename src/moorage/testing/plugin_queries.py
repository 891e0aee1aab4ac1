"""Run a single plugin: which nodes does it reject, how does it score, and which events wake a pod that it rejected?

The plugin runs as the only one of a profile, so that its answers pass through the same code as in a real decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.framework.events import Action, ClusterEvent, Resource
from moorage.framework.plugin_runner import run_filter, run_pre_filter, run_score
from moorage.framework.points import Plugin
from moorage.framework.profile import Profile, declared_wakes, make_profile, points_of
from moorage.framework.verdicts import Status, Verdicts
from moorage.state.view import NodeView, PodInfo, Snapshot


def refusals(plugin: Any, pod: PodInfo, nodes: Snapshot | NodeView) -> Mapping[str, Status]:
    """Return the status of each node that the plugin rejects, by name. Nodes that PreFilter excludes have no status.

    If PreFilter rejects the pod, every node has its status.
    """
    view = _view(nodes)
    profile = alone(plugin)
    found = run_pre_filter(profile, pod, view.snapshot)
    if found.refused is not None:
        return dict.fromkeys(view.names(), found.refused)
    if found.nodes is not None:
        view = view.only(view.named(found.nodes))
    verdicts = Verdicts(len(view.table))
    run_filter(profile, found, pod, view, verdicts)
    return {view.table.nodes[row].name: status for row, status in verdicts.refused()}


def final_scores(plugin: Any, pod: PodInfo, nodes: Snapshot | NodeView) -> Mapping[str, int] | None:
    """Return each node's normalized score, by name, with all given nodes taken as feasible; None if PreScore skips."""
    view = _view(nodes)
    profile = alone(plugin)
    scores = run_score(profile, run_pre_filter(profile, pod, view.snapshot), pod, view)
    final = scores.final.get(plugin.name)
    return None if final is None else dict(zip(view.names(), final.tolist(), strict=True))


def wakes(plugin: Plugin, pod: PodInfo, resource: Resource, action: Action, old: object = None, new: object = None) -> bool:
    """Return whether an event would wake a pod that the plugin rejected."""
    happened = ClusterEvent(resource, action)
    return any(
        wake.event.covers(happened) and (wake.when is None or wake.when(pod, old, new)) for wake in declared_wakes(plugin) or ()
    )


def alone(plugin: Any) -> Profile:
    """Return a profile of this plugin only."""
    return make_profile("alone", {plugin.name: plugin}, {point: [plugin.name] for point in points_of(plugin)}, {plugin.name: 1})


def _view(nodes: Snapshot | NodeView) -> NodeView:
    return nodes.nodes if isinstance(nodes, Snapshot) else nodes
