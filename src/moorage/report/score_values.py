"""Why a node was chosen, as values: contributions of plugins, the margin, and what would flip the choice."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class ScoreShare(Struct, frozen=True, rename="camel"):
    """One plugin's score of one node: raw, normalised to 0-100, and weighted."""

    plugin: str
    raw: int
    normalised: int
    weight: int
    contribution: int


class NodeTotal(Struct, frozen=True, rename="camel"):
    """One feasible node: its rank (1 for the highest total), its total, and the parts that add up to it."""

    node: int
    rank: int
    total: int
    shares: tuple[ScoreShare, ...]


class Flip(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A single change that would move the pod to another node; at ``ties_at`` both nodes have equal totals.

    ``kind``: weight, disable, usage, label or withoutNode.
    """

    kind: str
    text: str
    to: int | None = None
    plugin: str = ""
    at: int | None = None
    ties_at: int | None = None


class ScoreReport(Struct, frozen=True, rename="camel"):
    """How the node was chosen; ``margin`` is the winner's lead over ``runner_up``, ``split`` how plugins add up to it.

    ``tied`` are the nodes that share the highest total. ``unscored`` counts feasible nodes that a sampled search left out.
    """

    nodes: tuple[NodeTotal, ...]
    winner: int
    runner_up: int | None
    margin: int
    near_tie: bool
    tied: tuple[int, ...] = ()
    split: Mapping[str, int] = {}
    flips: tuple[Flip, ...] = ()
    feasible: int = 0
    refused: int = 0
    unscored: int = 0
