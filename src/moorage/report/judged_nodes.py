"""What an autoscaler does with each node of a cluster, in one table, and what it does next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from moorage.basis.printable import counted, one_line
from moorage.report.answer import Answer, plain
from moorage.report.style import columns, item, paragraph

#: How many nodes are listed without ``-o wide``.
_LISTED = 40


class JudgedNode(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A node: ``decision`` is delete, replace or keep; ``why`` it is kept, or why it goes; ``saves``: of an hour's price."""

    node: str
    decision: str
    pool: str = ""
    why: str = ""
    saves: float | None = None


class JudgedNodes(Answer, frozen=True, kw_only=True):
    """All nodes as an autoscaler judges them, each by itself, and ``next``: what it does next to all of them, as a sentence."""

    KIND: ClassVar[str] = "JudgedNodes"

    nodes: tuple[JudgedNode, ...] = ()
    next: str = ""
    currency: str = ""
    missing: Sequence[str] = ()
    settings: str = ""

    @staticmethod
    def head(autoscaler: str, nodes: Sequence[JudgedNode]) -> str:
        """Return the first line."""
        kept = sum(one.decision == "keep" for one in nodes)
        return f"{autoscaler} keeps {kept} of {counted(len(nodes), 'node')}."

    @property
    def holds(self) -> bool:
        """Whether any node can go."""
        return any(one.decision != "keep" for one in self.nodes)

    def _answer(self) -> dict[str, Any]:
        given = {"next": self.next, "currency": self.currency, "missing": list(self.missing), "settings": self.settings}
        return {"nodes": [plain(one) for one in self.nodes]} | {
            key: held for key, held in given.items() if held not in ("", [])
        }

    def _node_names(self) -> list[str]:
        return [one.node for one in self.nodes]

    def _text(self, *, wide: bool) -> str:
        return "\n".join([paragraph(one_line(self.summary)), *self._lines(wide)]) + "\n"

    def _lines(self, wide: bool) -> Iterator[str]:
        shown = self.nodes if wide else self.nodes[:_LISTED]
        rows = [
            [
                one_line(one.node), one_line(one.pool) or "-", one.decision, "" if one.saves is None else f"{one.saves:.4g}",
                one_line(one.why),
            ]
            for one in shown
        ]  # fmt: skip
        if rows:
            yield columns(["NODE", "POOL", "DECISION", "SAVES", "WHY"], rows, right=(3,)).rstrip("\n")
        if len(shown) < len(self.nodes):
            yield f"  and {len(self.nodes) - len(shown)} more: -o wide"
        yield item(f"Next: {self.next}" if self.next else "Next: it disrupts no node.")
        if self.settings:
            yield item(f"with {self.settings}")
        for name in self.missing:
            yield item(f"not in the input: {name}")
