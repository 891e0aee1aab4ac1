"""How a node was picked: each plugin's score of each feasible node, normalized, weighted and summed up.

``ScoreLog`` records this for selected pods. Nodes are sorted by total, the highest first, then by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from moorage.basis.printable import one_line
from moorage.core.cycle.decision import Decision
from moorage.framework.profile import Profile
from moorage.report.style import columns

#: How many nodes the text shows; documents have all of them.
SHOWN = 10


class PluginScore(Struct, frozen=True):
    """One plugin's score of one node: raw, normalized by NormalizeScore (0-100), and that times the weight."""

    plugin: str = msgspec.field(name="name")
    raw: int
    normalized: int
    weight: int
    weighted: int


class NodeScores(Struct, frozen=True):
    """One node. ``total`` is the sum of the weighted scores; plugins are in running order."""

    name: str
    total: int
    plugins: tuple[PluginScore, ...]


@dataclass(frozen=True, slots=True)
class NodeScoring:
    """How a node was picked for a pod; ``looked_at`` counts the nodes that were filtered.

    ``silent`` are the Score plugins that skipped the pod; ``message`` says why there is no node.
    """

    pod: str
    node: str | None
    looked_at: int
    nodes: tuple[NodeScores, ...] = ()
    silent: tuple[str, ...] = ()
    message: str = ""

    @property
    def best(self) -> tuple[str, ...]:
        """The nodes that share the highest total."""
        return tuple(node.name for node in self.nodes if node.total == self.nodes[0].total)

    # -- as text ------------------------------------------------------------------------------------------------------

    def as_text(self) -> str:
        """Return the explanation: one line, and a table if any plugin scored."""
        lines = [one_line(self._headline())]
        if self.nodes and self.nodes[0].plugins:
            lines.append(
                columns(["NODE", "PLUGIN", "RAW", "NORMALISED", "WEIGHT", "WEIGHTED"], self._rows(), right=(2, 3, 4, 5))
            )
        if len(self.nodes) > SHOWN:
            lines.append(f"… and {len(self.nodes) - SHOWN} more nodes")
        if self.silent:
            lines.append(one_line(f"nothing to say about this pod: {', '.join(self.silent)}"))
        return "\n".join(lines) + "\n"

    def _headline(self) -> str:
        if not self.nodes:
            where = "no node" if self.node is None else f"{self.node}, without scores"
            return f"{self.pod}: {where}" + (f"; {self.message}" if self.message else "")
        fit = f"{self.pod}: {len(self.nodes)} of {self.looked_at} nodes fit"
        if len(self.best) == 1:
            return f"{fit}; {self.node} has the highest total"
        return f"{fit}; {len(self.best)} share the highest total, and {self.node} is drawn from them"

    def _rows(self) -> Iterator[Sequence[str]]:
        for node in self.nodes[:SHOWN]:
            name = node.name + (" *" if node.name == self.node else "")
            for score in node.plugins:
                yield [name, score.plugin, str(score.raw), str(score.normalized), str(score.weight), str(score.weighted)]
                name = ""
            yield ["", "total", "", "", "", str(node.total)]

    def as_data(self) -> dict[str, Any]:
        """Return the explanation as plain data, for JSON."""
        return {
            "pod": self.pod,
            "node": self.node,
            "best": list(self.best),
            "silent": list(self.silent),
            "nodes": msgspec.to_builtins(self.nodes),
        } | ({"message": self.message} if self.message else {})


def scoring_of(decision: Decision, profile: Profile, names: Sequence[str]) -> NodeScoring:
    """Return how a node was picked. ``names`` are the node names by row at the time of the decision."""
    pod, scores = decision.pod.key, decision.scores
    if scores is None:
        return NodeScoring(pod, decision.node, decision.evaluated, message=decision.message)
    weights = {name: scores.weights.get(name) or profile.weights.get(name, 1) for name in scores.raw}
    raw = {name: given.tolist() for name, given in scores.raw.items()}
    final = {name: given.tolist() for name, given in scores.final.items()}
    nodes = [
        NodeScores(
            names[row],
            int(scores.total[at]),
            tuple(
                PluginScore(name, raw[name][at], (once := final[name][at] // weight), weight, once * weight)
                for name, weight in weights.items()
            ),
        )
        for at, row in enumerate(scores.rows.tolist())
    ]
    silent = tuple(step.name for step in profile.at("score") if step.name not in raw)
    return NodeScoring(pod, decision.node, decision.evaluated, tuple(sorted(nodes, key=lambda n: (-n.total, n.name))), silent)


class ScoreLog:
    """How nodes were picked for the selected pods, in the order of the decisions."""

    def __init__(self, pods: Collection[str]) -> None:
        """``pods``: names, with their namespace (``namespace/name``) or without."""
        self._pods = frozenset(pods)
        self.entries: list[NodeScoring] = []

    def wants(self, decision: Decision) -> bool:
        """Return whether the decision's pod is selected. Decisions that were revoked are not recorded a second time."""
        asked = decision.pod.key in self._pods or decision.pod.name in self._pods
        return asked and decision.refused_after is None

    def note(self, scoring: NodeScoring) -> None:
        self.entries.append(scoring)

    def missing(self) -> list[str]:
        """Return the selected pods without a decision."""
        seen = {name for entry in self.entries for name in (entry.pod, entry.pod.partition("/")[2])}
        return sorted(self._pods - seen)

    def as_text(self) -> str:
        """Return all entries as text, then a line for each selected pod without a decision."""
        texts = [entry.as_text() for entry in self.entries]
        return "\n".join([*texts, *(f"{one_line(pod)}: no decision was made about such a pod\n" for pod in self.missing())])

    def as_data(self) -> list[dict[str, Any]]:
        """Return all entries as plain data."""
        return [entry.as_data() for entry in self.entries]
