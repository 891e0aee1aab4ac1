"""Changes that let a pod onto a node with taints: removing the taint, or adding a toleration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from moorage.api.core import Node, Taint
from moorage.framework.changes import Change, taint_text
from moorage.plugins.shared.term_names import CORDON, taint_name

_CORDON: Final = "node.kubernetes.io/unschedulable"


def tolerate(pod_key: str, taint: Taint, term: str) -> Change:
    """Return the change that adds a toleration for exactly this taint."""
    return Change("pod", "tolerate", f"pod/{pod_key}", "tolerations", None, taint_text(taint), term=term)


def remedies_of_cordon(node: Node, term: str = CORDON) -> Iterator[Change]:
    """Offer to uncordon a node. A toleration is not offered: a pod with one would return to nodes that are being drained."""
    yield Change("node", "uncordon", f"node/{node.name}", "unschedulable", True, False, term=term)


def remedies_of_taints(node: Node, pod_key: str, taints: Iterable[Taint]) -> Iterator[Change]:
    """Offer changes for each taint. The taint of a cordon is removed when the node is uncordoned."""
    for taint in taints:
        term = taint_name(taint)
        if taint.key == _CORDON and node.spec.unschedulable:
            yield from remedies_of_cordon(node, term)
            continue
        yield Change("node", "untaint", f"node/{node.name}", "taints", taint_text(taint), None, term=term)
        yield tolerate(pod_key, taint, term)
