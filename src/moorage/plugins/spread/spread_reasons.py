"""Why spread constraints refuse nodes, and what would let a pod in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from moorage.framework.changes import Detail
from moorage.plugins.shared.term_names import selector_text, spread_name, topology_name
from moorage.plugins.spread.spread_counts import Spread
from moorage.state.view import BoolArray, NodeView


def refusing_terms(spreads: Iterable[Spread], nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
    """Yield each constraint with the rows that it rejects: without the label, or in a domain that would be too full."""
    for spread in spreads:
        closed = spread.crowded()
        closed[0] = True
        yield _name(spread), closed.take(nodes.ids(nodes.label(spread.constraint.topology_key)))


def excess(spreads: Iterable[Spread], nodes: NodeView) -> npt.NDArray[np.float64]:
    """Return for each row by how many pods it exceeds the constraints; a row without a label counts as far away."""
    beyond = np.zeros(len(nodes))
    for spread in spreads:
        ids = nodes.ids(nodes.label(spread.constraint.topology_key))
        over = np.maximum(0, spread.counts + spread.own - spread.least - spread.constraint.max_skew).astype(np.float64)
        over[0] = 1e6
        beyond += over.take(ids)
    return beyond


def explained(spreads: Iterable[Spread], node: NodeView) -> Detail | None:
    """Return why a node is rejected: a text for each constraint that rejects it."""
    said: list[tuple[str, str]] = []
    numbers: dict[str, int] = {}
    for spread in spreads:
        constraint = spread.constraint
        key, what = constraint.topology_key, topology_name(constraint.topology_key)
        column = node.label(key)
        domain = int(node.ids(column)[0])
        if not domain:
            said.append((_name(spread), f"no {key} label"))
            continue
        if not spread.crowded()[domain]:
            continue
        held, least = int(spread.counts[domain]), spread.least
        skew = held + spread.own - least
        if (found := int(spread.domains.sum())) < constraint.min_domains:
            least_text = f"0, as there are {found} of minDomains {constraint.min_domains}"
        else:
            least_text = str(least)
        text = (
            f"{what} {column.values[domain]} has {held} of {selector_text(constraint.selector)}, the minimum is {least_text}: "
            f"skew would be {skew}, maxSkew is {constraint.max_skew}"
        )
        said.append((_name(spread), text))
        numbers |= {f"{what}.count": held, f"{what}.minimum": least, f"{what}.skew": skew}
        numbers[f"{what}.maxSkew"] = constraint.max_skew
    return Detail("; ".join(text for _, text in said), tuple(term for term, _ in said), numbers) if said else None


def _name(spread: Spread) -> str:
    return spread_name(spread.constraint.topology_key, spread.constraint.selector)
