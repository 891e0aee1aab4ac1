"""NodeLabel: reject nodes that lack some labels or have others, whatever their values; prefer nodes likewise.

Reads     labels of nodes
Rejects   nodes without one of ``presentLabels``, or with one of ``absentLabels``; preemption does not help
Scores    the percentage of ``presentLabelsPreference`` and ``absentLabelsPreference`` together that the node satisfies,
          rounded down
Source    kube-scheduler 1.21, plugins/nodelabel/node_label.go
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moorage.api.feature_gates import FeatureGates
from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.changes import Detail, ExplainingPlugin, Remedies, RemedyingPlugin, TermsPlugin
from moorage.framework.points import FilterPlugin, Reusable, Reuse, Scope, ScorePlugin
from moorage.framework.verdicts import Reject
from moorage.plugins.affinity.node_affinity_remedies import labels_to_set
from moorage.plugins.resources.scoring_strategies import sub_path
from moorage.state.view import BoolArray, IntArray, NodeView, PodInfo, domain_ids

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) didn't have the requested labels"


class NodeLabelArgs(PluginArgs, frozen=True):
    """Label keys. Without any, the plugin rejects nothing and scores 0."""

    present_labels: tuple[str, ...] = ()
    absent_labels: tuple[str, ...] = ()
    present_labels_preference: tuple[str, ...] = ()
    absent_labels_preference: tuple[str, ...] = ()

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        other = "" if gates.emulated.legacy_flags else path
        preferred, avoided = self.present_labels_preference, self.absent_labels_preference
        return [
            *_conflicts(self.present_labels, self.absent_labels, path, other, "{}Labels"),
            *_conflicts(preferred, avoided, path, other, "{}LabelsPreference"),
        ]


def _conflicts(present: Sequence[str], absent: Sequence[str], path: str, other: str, field: str) -> Iterator[Fault]:
    index = {label: i for i, label in enumerate(present)}
    for i, label in enumerate(absent):
        if label in index:
            where = sub_path(path, f"{field.format('present')}[{index[label]}]")
            against = sub_path(other, f"{field.format('absent')}[{i}]")
            yield Fault("Invalid value", where, f"conflict with {against}", label)


class NodeLabel(
    FilterPlugin[PodInfo],
    ScorePlugin[PodInfo],
    ExplainingPlugin[object],
    TermsPlugin[object],
    RemedyingPlugin[object],
    Reusable,
):
    name = "NodeLabel"
    Args = NodeLabelArgs
    reuse = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=())

    def __init__(self, args: NodeLabelArgs | None = None) -> None:
        self._args = args or NodeLabelArgs()

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        refused = nodes.false()
        for met in _met(nodes, self._args.present_labels, self._args.absent_labels):
            refused |= ~met
        if refused.any():
            yield Reject(refused, REASON, unresolvable=True)

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        score, preferences = nodes.zeros(), 0
        for met in _met(nodes, self._args.present_labels_preference, self._args.absent_labels_preference):
            score += 100 * met
            preferences += 1
        return score // max(preferences, 1)

    def why(self, state: object, pod: PodInfo, node: NodeView) -> Detail | None:
        labels = node.first.labels
        said = [(key, f"no {key} label") for key in self._args.present_labels if key not in labels]
        said += [(key, f"has the label {key}") for key in self._args.absent_labels if key in labels]
        return Detail("; ".join(text for _, text in said), tuple(key for key, _ in said)) if said else None

    def terms(self, state: object, pod: PodInfo, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
        keys = (*self._args.present_labels, *self._args.absent_labels)
        for key, met in zip(keys, _met(nodes, self._args.present_labels, self._args.absent_labels), strict=True):
            yield key, ~met

    def remedies(self, state: object, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        one = node.first.node
        for key in self._args.present_labels:
            if key not in one.labels:
                yield from labels_to_set(one, key, "true", key)
        for key in self._args.absent_labels:
            if key in one.labels:
                yield from labels_to_set(one, key, None, key)


def _met(nodes: NodeView, present: Sequence[str], absent: Sequence[str]) -> Iterator[BoolArray]:
    """Yield for each label a mask of the rows that have it (``present``) or lack it (``absent``)."""
    yield from (domain_ids(nodes, key) != 0 for key in present)
    yield from (domain_ids(nodes, key) == 0 for key in absent)
