"""Why node affinity refuses nodes, and what would let a pod in."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.core import Node
from moorage.api.selectors import NodeSelectorMatcher, NodeTerm, Requirement
from moorage.framework.changes import Detail
from moorage.plugins.shared.term_names import ADDED_AFFINITY, NODE_AFFINITY, expression_name, selector_name
from moorage.state.node_matching import required_node_affinity, rows_labelled, rows_matching, rows_matching_term
from moorage.state.view import BoolArray, NodeView, PodInfo


def refusing_terms(pod: PodInfo, nodes: NodeView, added: NodeSelectorMatcher | None) -> Iterator[tuple[str, BoolArray]]:
    """Yield the name of each requirement and a mask of the rows that do not meet it; ``added``: the profile's own affinity."""
    if added is not None:
        yield ADDED_AFFINITY, ~rows_matching(added, nodes)
    required = required_node_affinity(pod)
    for key, value in required.labels.items():
        yield selector_name(key, value), ~rows_labelled({key: value}, nodes)
    if required.matcher is None:
        return
    alone = _only_term(required.matcher)
    if alone is None:
        yield NODE_AFFINITY, ~rows_matching(required.matcher, nodes)
        return
    for one in alone.requirements:
        yield expression_name(one), ~rows_matching_term(NodeTerm(requirements=(one,)), nodes)
    for one in alone.fields:
        yield expression_name(one), ~rows_matching_term(NodeTerm(fields=(one,)), nodes)


def explained(pod: PodInfo, node: Node, added: NodeSelectorMatcher | None) -> Detail | None:
    """Return the requirements that a node does not meet: labels first, then expressions of the term with the fewest unmet."""
    said: list[tuple[str, str]] = []
    if added is not None and not added.matches(node.labels, node.name):
        said.append((ADDED_AFFINITY, _lacking(_nearest(added, node), node)))
    required = required_node_affinity(pod)
    for key, value in required.labels.items():
        if node.labels.get(key) != value:
            said.append((selector_name(key, value), f"{key}={value} required; {_held(key, node)}"))
    matcher = required.matcher
    if matcher is not None and not matcher.matches(node.labels, node.name):
        unmet = _nearest(matcher, node)
        alone = _only_term(matcher)
        if alone is None or not unmet:
            said.append((NODE_AFFINITY, _lacking(unmet, node)))
        else:
            said += [(expression_name(one), _lacking([one], node)) for one in unmet]
    return Detail("; ".join(text for _, text in said), tuple(term for term, _ in said)) if said else None


def _only_term(matcher: NodeSelectorMatcher) -> NodeTerm | None:
    return matcher.terms[0] if len(matcher.terms) == 1 and not matcher.terms[0].faults else None


def _nearest(matcher: NodeSelectorMatcher, node: Node) -> list[Requirement]:
    """Return the unmet requirements of the term that has the fewest; an empty list if no term can be parsed."""
    lacks = [
        [one for one in term.requirements if not one.matches(node.labels.get(one.key))]
        + [one for one in term.fields if not one.matches(node.name if one.key == "metadata.name" else "")]
        for term in matcher.terms
        if not term.faults
    ]
    return min(lacks, key=len, default=[])


def _lacking(unmet: list[Requirement], node: Node) -> str:
    if not unmet:
        return "no required term can match"
    return "; ".join(f"{one} required; {_held(one.key, node)}" for one in unmet)


def _held(key: str, node: Node) -> str:
    if key == "metadata.name":
        return f"this is {node.name}"
    value = node.labels.get(key)
    return f"no {key} label" if value is None else f"{key}={value} here"
