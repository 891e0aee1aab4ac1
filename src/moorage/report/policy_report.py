"""The answer of ``moorage check``: which rules of a policy hold, as text, document and gates of a pipeline."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from moorage.basis.printable import counted, one_line
from moorage.report.answer import Answer, plain
from moorage.report.gates import GateResult
from moorage.report.run_values import UnplacedPod
from moorage.report.style import item, paragraph

_SIGNS = {True: "✓", False: "✗", None: "?"}
#: How many findings of a rule the text shows; the wide text and the document have all.
_SHOWN = 5


class RuleResult(Struct, frozen=True, rename="camel"):
    """Whether a rule holds.

    ``holds``     None if that was not found out in time
    ``text``      why, in one sentence; ``findings``: the pods, losses or workloads that break it
    ``level``     ``error``, or ``warning``: a rule that does not decide the exit status
    """

    name: str
    kind: str
    holds: bool | None
    text: str
    findings: tuple[str, ...] = ()
    level: str = "error"


class PolicyReport(Answer, frozen=True, kw_only=True):
    """Whether a cluster, or a change of it, keeps to a policy.

    ``pending``  the pods that stay pending; ``new_pending``: those of them that were not pending before
    """

    KIND: ClassVar[str] = "PolicyReport"

    rules: tuple[RuleResult, ...]
    policy: str
    pending: tuple[UnplacedPod, ...] = ()
    new_pending: tuple[UnplacedPod, ...] = ()

    @property
    def holds(self) -> bool | None:
        """True if every rule that is no warning holds; None if one is not known and none is broken."""
        found = {rule.holds for rule in self.rules if rule.level == "error"}
        return False if False in found else None if None in found else True

    def gates(self) -> tuple[GateResult, ...]:
        """Return the rules as gates of a pipeline. A warning passes."""
        return tuple(
            GateResult(rule.name, rule.holds is True or rule.level != "error", "; ".join([rule.text, *_first(rule.findings)]))
            for rule in self.rules
        )

    def _answer(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(
            {"policy": self.policy, "holds": self.holds, "rules": self.rules, "pending": self.pending}
        )
        return found

    def _text(self, *, wide: bool) -> str:
        lines = [self._first_block(), ""]
        for rule in self.rules:
            warned = " (warning)" if rule.level == "warning" and rule.holds is not True else ""
            first = one_line(f"{_SIGNS[rule.holds]} {rule.name}{warned}: {rule.text}")
            lines.append(paragraph(first, indent="  ", hanging="    "))
            shown = rule.findings if wide else _first(rule.findings)
            lines += [item(one, "      ") for one in shown]
        return "\n".join([*lines, "", "Verified by the engine. More: -o wide", ""])


def _first(findings: tuple[str, ...]) -> list[str]:
    """Return the first findings, and how many more there are."""
    left = len(findings) - _SHOWN
    return [*findings[:_SHOWN], *([f"and {left:,} more"] if left > 0 else [])]


def policy_summary(rules: tuple[RuleResult, ...]) -> str:
    """Return the first line: how many rules hold."""
    broken = [rule.name for rule in rules if rule.holds is False and rule.level == "error"]
    unknown = [rule.name for rule in rules if rule.holds is None and rule.level == "error"]
    warned = sum(rule.level == "warning" and rule.holds is not True for rule in rules)
    more = f" {counted(warned, 'warning')}." if warned else ""
    if broken:
        return f"{len(broken)} of {counted(len(rules), 'rule')} broken: {', '.join(broken)}.{more}"
    if unknown:
        return f"Undecided: {', '.join(unknown)}.{more}"
    if warned:
        return f"No rule of level error is broken.{more}"
    return f"All {len(rules)} rules hold." if len(rules) > 1 else "The rule holds."
