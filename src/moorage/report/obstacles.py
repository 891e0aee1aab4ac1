"""Decisions as lines: each decision of a run in one line, and kube-scheduler's message for a pending pod in several.

The wording is not changed; only the order of the reasons and the line breaks differ from the event.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec
from msgspec import Struct

from moorage.api.selectors import EVERYTHING, Selector
from moorage.basis.printable import one_line
from moorage.core.cycle.decision import Decision
from moorage.framework.profile import Profile
from moorage.report.outcome import PodOutcome, Run
from moorage.report.style import PLAIN, Style, columns, paragraph

_HEAD: Final = re.compile(r"(?<!\S)0/\d+ nodes are available: ")
#: Each reason starts with the number of its nodes.
_BETWEEN_REASONS: Final = re.compile(r", (?=\d+ )")
_AFTER_COMMA: Final = re.compile(r"(?<=,) ")
_NUMBER: Final = re.compile(r"\d+(?= )")


def obstacle_lines(message: str, *, indent: str = "    ", style: Style = PLAIN) -> Iterator[str]:
    """Yield the lines of a message; the first reason is emphasised."""
    text = one_line(message)
    heads = list(_HEAD.finditer(text))
    if not heads:
        yield from _filled(_AFTER_COMMA.split(text), indent, style.width)
        return
    lead = text[: heads[0].start()]
    for at, head in enumerate(heads):
        end = heads[at + 1].start() if at + 1 < len(heads) else len(text)
        reasons, rest = _reasons(text[head.end() : end].strip())
        for line in _filled([f"{lead}{head[0].rstrip()}", *reasons], indent, style.width):
            yield line if at else line.replace(reasons[0], style.bold(reasons[0]), 1)
        lead = f"{rest} " if rest else ""
    if lead:
        yield paragraph(lead.rstrip(), indent=indent, hanging=f"{indent}  ", width=style.width)


def _reasons(text: str) -> tuple[list[str], str]:
    """Return the reasons, those with the most nodes first, each with its comma or full stop, and the sentence after them."""
    *some, last = _BETWEEN_REASONS.split(text)
    last, stop, rest = last.partition(". ")
    stop = stop or ("." if last.endswith(".") else "")
    ordered = sorted([*some, last.removesuffix(".")], key=_fewest_last)
    return [*(f"{reason}," for reason in ordered[:-1]), f"{ordered[-1]}{stop.strip()}"], rest


def _fewest_last(reason: str) -> int:
    number = _NUMBER.match(reason)
    return -int(number[0]) if number else 0


def _filled(parts: list[str], indent: str, width: int) -> Iterator[str]:
    """Yield lines that break between parts; a part that is longer than a line breaks at words."""
    line = indent
    for part in parts:
        longer = f"{line} {part}" if line.strip() else f"{line}{part}"
        if len(longer) <= width:
            line = longer
            continue
        if line.strip():
            yield line
            line = f"{indent}  "
        *whole, line = (paragraph(part, indent=line, hanging=f"{indent}    ", width=width) or line).split("\n")
        yield from whole
    if line.strip():
        yield line


class EventLog:
    """Collects decisions as plain data, and formats each as a line like kube-scheduler's events."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def note(self, time_s: float, attempt: int, decision: Decision) -> str:
        """Record a decision and return its line."""
        pod = decision.pod.key
        entry: dict[str, Any] = {"seconds": round(time_s, 3), "pod": pod, "attempt": attempt}
        stamp = f"{time_s:.3f}s".rjust(10)
        if decision.node is not None:
            self.entries.append({**entry, "reason": "Scheduled", "node": decision.node})
            return one_line(f"{stamp}  Scheduled         {pod}  to {decision.node}")
        entry |= {"reason": "FailedScheduling", "message": decision.message}
        outcome = decision.post_filter
        line = f"{stamp}  FailedScheduling  {pod}  {decision.message}"
        if outcome is not None and outcome.nominated:
            victims = [victim.key for victim in outcome.victims]
            entry |= {"nominatedNode": outcome.nominated, "victims": victims}
            line += f" Preempts {', '.join(victims) or 'no pods'} on {outcome.nominated}."
        self.entries.append(entry)
        return one_line(line)


# -- narrowing ---------------------------------------------------------------------------------------------------------
# Restrict the pods that a report lists by namespace, labels or names. Counts remain those of the whole run.


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The pods to list. An empty ``namespace`` and no ``names`` mean all.

    ``names``  names, or patterns such as ``web-*``, with their namespace (``namespace/name``) or without
    """

    namespace: str = ""
    selector: Selector = EVERYTHING
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != EVERY

    def keeps(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        if self.namespace and namespace != self.namespace:
            return False
        if self.names and not any(_is_called(namespace, name, wanted) for wanted in self.names):
            return False
        return self.selector.matches(labels)

    def narrowed(self, run: Run) -> Run:
        """Return the run with only the pods to list, and the groups, volumes and devices that belong to them."""
        if not self:
            return run
        pods = tuple(pod for pod in run.pods if self.keeps(pod.namespace, pod.name, pod.labels))
        keys = {f"{pod.namespace}/{pod.name}" for pod in pods}
        spaces = {pod.namespace for pod in pods}
        return replace(
            run,
            pods=pods,
            volumes=tuple(one for one in run.volumes if keys.intersection(one.pods)),
            devices=tuple(one for one in run.devices if keys.intersection(one.pods)),
            groups=tuple(one for one in run.groups if one.namespace in spaces),
            refused=tuple(one for one in run.refused if any(self.keeps(one.namespace, name, one.labels) for name in one.names)),
        )

    def unmatched(self, pods: Iterable[PodOutcome]) -> list[str]:
        """Return the names and patterns that no pod has."""
        known = [(pod.namespace, pod.name) for pod in pods]
        return [wanted for wanted in self.names if not any(_is_called(*pod, wanted) for pod in known)]

    def __str__(self) -> str:
        parts = [
            *([f"namespace {self.namespace}"] if self.namespace else []),
            *([f"selector {self.selector}"] if self.selector != EVERYTHING else []),
            *([f"pod {', '.join(self.names)}"] if self.names else []),
        ]
        return one_line("; ".join(parts))


EVERY = Narrowing()


def _is_called(namespace: str, name: str, wanted: str) -> bool:
    return fnmatchcase(f"{namespace}/{name}" if "/" in wanted else name, wanted)


# -- scores ------------------------------------------------------------------------------------------------------------
# How a node was picked: each plugin's score of each feasible node, normalized, weighted and summed up.
#
# ``ScoreLog`` records this for selected pods. Nodes are sorted by total, the highest first, then by name.

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
