"""Placements: sets of nodes to which a pod group may be confined, and how plugins propose and score them.

A group whose pods must stay together is tried on one placement after another, as if there were no other nodes. Of the
placements that fit, the one with the highest score is used.

Source  kube-scheduler, framework/runtime/framework.go, RunPlacementGeneratePlugins and RunPlacementScorePlugins
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moorage.errors import AttemptError, PluginError
from moorage.framework.plugin_runner import MAX_SCORE, ask
from moorage.framework.profile import Profile, Step
from moorage.framework.verdicts import Code, Hold, Status
from moorage.state.group_trees import GroupInfo, Placement, Proposal
from moorage.state.view import NodeView, Snapshot

__all__ = ["GroupInfo", "Placement", "PlacementScores", "Proposal", "run_placement_generate", "run_placement_score"]

NO_PLACEMENT = "no feasible placements found"


@dataclass(frozen=True, slots=True)
class PlacementScores:
    """Scores in the order of the proposals: ``final`` are normalised and weighted, by plugin; ``total`` is their sum."""

    total: tuple[int, ...]
    final: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def run_placement_generate(
    profile: Profile, group: GroupInfo, snapshot: Snapshot, within: NodeView | None = None
) -> tuple[Placement, ...] | Status:
    """Return the placements that the first PlacementGenerate plugin proposes; one of all nodes if there is no such plugin.

    ``within``: the nodes of the placement of the group above, if there is one; other nodes do not count.
    """
    everywhere = Placement("", snapshot.nodes if within is None else within)
    steps = profile.at("placementGenerate")
    if not steps:
        return (everywhere,)
    step = steps[0]
    try:
        answer = ask(step, "placementGenerate", group, everywhere, snapshot)
        if isinstance(answer, Hold):
            return Status(answer.code, step.name, answer.reasons)
        placements = tuple(answer)
        if not all(isinstance(placement, Placement) for placement in placements):
            raise PluginError(step.name, f"returned {answer!r} in placementGenerate; return Placements or Hold")
    except PluginError as error:
        return Status(Code.ERROR, step.name, (str(error),))
    return placements or Status(Code.UNSCHEDULABLE, step.name, (NO_PLACEMENT,))


def run_placement_score(
    profile: Profile, group: GroupInfo, proposals: Sequence[Proposal], snapshot: Snapshot
) -> PlacementScores | Status:
    """Run PlacementScore, normalise and weight the scores; return an ERROR status if a plugin fails."""
    final: dict[str, tuple[int, ...]] = {}
    for step in profile.at("placementScore"):
        try:
            final[step.name] = _scores_of(step, profile.placement_weights.get(step.name, 1), group, proposals, snapshot)
        except PluginError as error:
            return Status(Code.ERROR, step.name, (str(error),))
    total = tuple(sum(scores[at] for scores in final.values()) for at in range(len(proposals)))
    return PlacementScores(total, final)


def _scores_of(step: Step, weight: int, group: GroupInfo, proposals: Sequence[Proposal], snapshot: Snapshot) -> tuple[int, ...]:
    try:
        scores = [_score(step, ask(step, "placementScore", group, proposal, snapshot)) for proposal in proposals]
    except PluginError as error:
        text = f'running PlacementScore plugins: plugin "{step.name}" failed with: {error}'
        raise AttemptError(step.name, text) from error
    if step.normalize is not None:
        try:
            scores = [_score(step, score) for score in ask(step.normalize, "normalize", group, scores)]
        except PluginError as error:
            text = f'running NormalizePlacementScore on PlacementScore plugins: plugin "{step.name}" failed with: {error}'
            raise AttemptError(step.name, text) from error
    if len(scores) != len(proposals):
        raise PluginError(step.name, f"gave {len(scores)} scores for {len(proposals)} placements")
    for score in scores:
        if not 0 <= score <= MAX_SCORE:
            text = f'plugin "{step.name}" returns an invalid score {score}, it should in the range of [0, {MAX_SCORE}]'
            raise AttemptError(step.name, f"applying score defaultWeights on PlacementScore plugins: {text} after normalizing")
    return tuple(score * weight for score in scores)


def _score(step: Step, score: object) -> int:
    if isinstance(score, bool) or not isinstance(score, int):
        raise PluginError(step.name, f"returned {score!r} in placementScore; return a whole number")
    return score
