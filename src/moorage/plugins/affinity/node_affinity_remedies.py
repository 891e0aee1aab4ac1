"""Changes that make a node match a pod's node affinity: a label on the node, or a requirement removed from the pod."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Node, NodeSelectorRequirement, NodeSelectorTerm
from moorage.api.quantity import parse_int64
from moorage.api.selectors import compile_node_term
from moorage.framework.changes import Change, Remedies, term_text
from moorage.plugins.shared.term_names import ADDED_AFFINITY, NODE_AFFINITY, selector_name
from moorage.state.view import PodInfo

#: Labels that state facts about a node: setting them would not make them true.
_FACTS: Final = (
    "kubernetes.io/",
    "topology.kubernetes.io/",
    "node.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
    "beta.kubernetes.io/",
)
#: How many combinations are offered for one required term.
MOST: Final = 32


def labels_to_set(node: Node, key: str, value: str | None, term: str = "") -> Iterator[Change]:
    """Offer to set a label, or to remove it (None); not where the label states a fact about the node."""
    if not key.startswith(_FACTS):
        yield Change("node", "label", f"node/{node.name}", f"labels.{key}", node.labels.get(key), value, term=term)


def remedies_of_selector(pod: PodInfo, node: Node) -> Iterator[Change]:
    """Offer changes for each label of the node selector that the node lacks."""
    for key, value in pod.spec.node_selector.items():
        if node.labels.get(key) != value:
            term = selector_name(key, value)
            yield from labels_to_set(node, key, value, term)
            yield Change("pod", "drop-selector", f"pod/{pod.key}", f"nodeSelector.{key}", value, None, term=term)


def remedies_of_affinity(pod: PodInfo, node: Node, terms: Sequence[NodeSelectorTerm]) -> Iterator[Remedies]:
    """Offer, for each required term, changes that make the node match it. One matching term is enough."""
    for at, term in enumerate(terms):
        unmet = [one for one in (*term.match_expressions, *term.match_fields) if not _matches(one, term, node)]
        offers = [[*_labels(one, term, node), _dropped(pod, at, one)] for one in unmet]
        if offers:
            yield from islice(product(*offers), MOST)


def remedies_of_added_affinity(pod: PodInfo, node: Node, terms: Sequence[NodeSelectorTerm]) -> Iterator[Remedies]:
    """Offer to drop the affinity that the profile adds to every pod, or labels that make the node match one of its terms."""
    path = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    text = " or ".join(map(term_text, terms))
    target = f"config/{pod.spec.scheduler_name}/NodeAffinity"
    yield Change("config", "plugin-argument", target, path, text, None, term=ADDED_AFFINITY)
    for term in terms:
        unmet = [one for one in (*term.match_expressions, *term.match_fields) if not _matches(one, term, node)]
        offers = [[replace(label, term=ADDED_AFFINITY) for label in _labels(one, term, node)] for one in unmet]
        if offers and all(offers):
            yield from islice(product(*offers), MOST)


def _dropped(pod: PodInfo, at: int, one: NodeSelectorRequirement) -> Change:
    path = f"affinity.nodeAffinity.required[{at}]"
    return Change("pod", "drop-expression", f"pod/{pod.key}", path, term_text(one), None, term=NODE_AFFINITY)


def _matches(one: NodeSelectorRequirement, term: NodeSelectorTerm, node: Node) -> bool:
    is_field = one in term.match_fields
    alone = NodeSelectorTerm(match_fields=(one,)) if is_field else NodeSelectorTerm(match_expressions=(one,))
    compiled = compile_node_term(alone, "")
    return compiled is not None and not compiled.faults and compiled.matches(node.labels, node.name)


def _labels(one: NodeSelectorRequirement, term: NodeSelectorTerm, node: Node) -> Iterator[Change]:
    """Offer the label that would meet an expression."""
    if one in term.match_fields:
        return
    match one.operator:
        case "In" if one.values:
            yield from labels_to_set(node, one.key, one.values[0], NODE_AFFINITY)
        case "Exists":
            yield from labels_to_set(node, one.key, "true", NODE_AFFINITY)
        case "NotIn" | "DoesNotExist":
            yield from labels_to_set(node, one.key, None, NODE_AFFINITY)
        case "Gt" | "Lt" if one.values:
            bound = parse_int64(one.values[0])
            if bound is not None:
                yield from labels_to_set(node, one.key, str(bound + (1 if one.operator == "Gt" else -1)), NODE_AFFINITY)
