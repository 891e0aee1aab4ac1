"""What an autoscaler does about one pod or one node: the node that it adds, or the sentence and the pods that keep it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from moorage.basis.printable import one_line
from moorage.report.answer import Answer
from moorage.report.style import columns, item, paragraph

#: How many types the text names.
_TYPES = 5

AutoscalerDecision = Literal["add", "existing", "none", "delete", "replace", "keep"]
_WORDS: Mapping[AutoscalerDecision, str] = {
    "add": "adds a node for", "existing": "adds no node: a node has room for", "none": "adds no node for",
    "delete": "removes", "replace": "replaces", "keep": "keeps",
}  # fmt: skip


class AutoscalerAnswer(Answer, frozen=True, kw_only=True):
    """The answer about ``thing``, such as ``pod shop/web-0`` or ``node/node-1``.

    ``why``     the autoscaler's sentences: one for each pool that cannot take a pod, or the event that keeps a node
    ``pods``    that hold a node, each with the reason; ``types``: of the new node, the cheapest first
    ``price``   of an hour: of the new node, or what is saved; ``settings``: the autoscaler's, and where they come from
    """

    KIND: ClassVar[str] = "AutoscalerAnswer"

    thing: str
    decision: AutoscalerDecision
    why: tuple[str, ...] = ()
    node: str = ""
    pool: str = ""
    pods: Mapping[str, str] = {}
    types: tuple[str, ...] = ()
    price: float | None = None
    currency: str = ""
    missing: Sequence[str] = ()
    settings: str = ""

    @staticmethod
    def head(decision: AutoscalerDecision, thing: str, autoscaler: str = "Karpenter") -> str:
        """Return the first line."""
        return f"{autoscaler} {_WORDS[decision]} {thing}."

    @property
    def holds(self) -> bool:
        """Whether the pod gets a node, or the node can go."""
        return self.decision not in {"none", "keep"}

    def _answer(self) -> dict[str, Any]:
        given = {
            "node": self.node, "nodePool": self.pool, "why": list(self.why), "pods": dict(self.pods), "types": list(self.types),
            "price": self.price, "currency": self.currency, "missing": list(self.missing), "settings": self.settings,
        }  # fmt: skip
        known = {key: held for key, held in given.items() if held not in ("", [], {}, None)}
        return {"thing": self.thing, "decision": self.decision} | known

    def _node_names(self) -> Collection[str]:
        return [self.node] if self.node else []

    def _text(self, *, wide: bool) -> str:
        return "\n".join([paragraph(one_line(self.summary)), *self._lines(wide)]) + "\n"

    def _lines(self, wide: bool) -> Iterator[str]:
        if self.types:
            shown = self.types if wide else self.types[:_TYPES]
            more = f" and {len(self.types) - len(shown)} more" if len(shown) < len(self.types) else ""
            pool = f"of NodePool {self.pool}, " if self.pool else ""
            yield item(f"→ {pool}the cheapest first: {', '.join(shown)}{more}")
        elif self.pool and self.decision == "add":
            yield f"  → of pool {one_line(self.pool)}"
        if self.node and self.decision == "existing":
            yield f"  → {one_line(self.node)}"
        if self.price is not None:
            word = "an hour costs" if self.decision == "add" else "an hour saves"
            yield f"  {word} {self.price:.4g} {self.currency or '(currency not given)'}"
        for why in self.why:
            mark = "→" if self.holds else "✗"
            yield item(f"{mark} {why}")
        if self.pods:
            rows = [[one_line(name), one_line(told)] for name, told in self.pods.items()]
            yield columns(["HELD BY", "WHY"], rows).rstrip("\n")
        if self.settings:
            yield item(f"with {self.settings}")
        for name in self.missing:
            yield item(f"not in the input: {name}")
