"""The first line of a comparison: the differences between B and A that chance does not explain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from moorage.basis.wording import counted
from moorage.report.gates import GateResult, MetricComparison
from moorage.report.metric_names import amount_text, kind_of, title_of

__all__ = ["comparison_summary"]

#: Metric → the words for less and for more of it, and the noun that is counted.
_COUNTED: Final[Mapping[str, tuple[str, str, str]]] = {
    "nodesUsed": ("frees {}", "uses {} more", "node"),
    "pending": ("places {} more", "leaves {} more pending", "pod"),
    "notCreated": ("creates {} more", "does not create {}", "pod"),
    "preemptions.victims": ("preempts {} fewer", "preempts {} more", "pod"),
}
#: Metrics to mention if none of the above differs.
_OTHERS: Final = ("wait.p99", "wait.p50", "cost", "fragmentation", "balance.cpu", "balance.memory", "stranded.cpu")
_GOOD, _BAD = "good", "bad"


def comparison_summary(
    metrics: Mapping[str, MetricComparison], moved: tuple[float, float, float] | None, gates: Sequence[GateResult]
) -> str:
    """Return the summary. ``moved``: how many pods are on another node, of how many, and at most how many by chance."""
    phrases = list(_phrases(metrics))
    good = [text for kind, text in phrases if kind == _GOOD]
    bad = [text for kind, text in phrases if kind == _BAD]
    outcome = " but ".join(_listed(part) for part in (good, bad) if part) or _same(metrics, moved)
    failed = [gate.gate if gate.gate == "new-pending" else gate.metric for gate in gates if not gate.passed]
    gone = f" Gate{'s' if len(failed) > 1 else ''} failed: {', '.join(dict.fromkeys(failed))}." if failed else ""
    passed = f" {counted(len(gates), 'gate')} passed." if gates and not failed else ""
    return f"{outcome[0].upper()}{outcome[1:]}.{gone}{passed}" if outcome.startswith("no ") else f"B {outcome}.{gone}{passed}"


def _listed(phrases: Sequence[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"


def _phrases(metrics: Mapping[str, MetricComparison]) -> Iterator[tuple[str, str]]:
    """Yield each difference that is not chance, in words, and whether it is an improvement."""
    found = [
        (_GOOD if one.difference < 0 else _BAD, _counted(name, one.difference))
        for name in _COUNTED
        if (one := metrics.get(name)) is not None and one.difference and not one.may_be_zero
    ]
    yield from found
    if found:
        return
    for name in _OTHERS:
        one = metrics.get(name)
        if one is not None and one.difference and not one.may_be_zero:
            better = one.difference * kind_of(name).better > 0
            yield _GOOD if better else _BAD, _changed(one)
            return


def _counted(name: str, difference: float) -> str:
    less, more, noun = _COUNTED[name]
    amount = amount_text(name, abs(difference))
    what = f"{amount} {noun if amount == '1' else noun + 's'}"
    template = less if difference < 0 else more
    if "more" in template or "fewer" in template:
        word = "more" if "more" in template else "fewer"
        what = f"{amount} {word} {noun if amount == '1' else noun + 's'}"
        template = template.replace(f"{{}} {word}", "{}")
    return template.format(what)


def _changed(one: MetricComparison) -> str:
    assert one.difference is not None
    if one.a is None or math.isinf(one.difference):
        return f"changes {title_of(one.name)} to {amount_text(one.name, one.b)}"
    verb = "lowers" if one.difference < 0 else "raises"
    return f"{verb} {title_of(one.name)} from {amount_text(one.name, one.a)} to {amount_text(one.name, one.b)}"


def _same(metrics: Mapping[str, MetricComparison], moved: tuple[float, float, float] | None) -> str:
    if moved is not None and moved[0] > moved[2]:
        return f"only moves pods: {amount_text('moved', moved[0])} of {amount_text('moved', moved[1])}"
    if all(one.exact and not one.difference for one in metrics.values()) and not (moved and moved[0]):
        return "does the same as A"
    return "no difference between A and B is beyond chance"
