"""The answer of ``moorage compare``: the differences between A and B, how certain they are, and the gates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from msgspec import Struct

from moorage.basis.printable import counted, one_line, some
from moorage.report.answer import Answer, ending, plain
from moorage.report.certainty import LEVEL, holm
from moorage.report.gates import (
    COUNTED,
    ONE_RUN,
    OTHERS,
    GateResult,
    MetricComparison,
    amount_text,
    difference_text,
    evaluate,
    kind_of,
    p_text,
    parse_gate,
    title_of,
)
from moorage.report.run_values import MeasuredRun, RunMeasures, json_number
from moorage.report.short_names import some_pods
from moorage.report.style import columns, item, paragraph

# ``to_dict`` gives the document (``kind: Comparison``, ``docs/reference/compare.md``).


class MoveCount(Struct, frozen=True, rename="camel"):
    """How many pods are on another node in B than in A, ``of`` those that A was to place or evicted; means over seeds.

    ``by_chance``  for each seed, how many of them are on another node in A with the next seed
    """

    pods: float
    of: float
    by_chance: tuple[float, ...] = ()
    within_group: float = 0
    to_another_group: float = 0
    to_another_zone: float = 0
    per_seed: tuple[float, ...] = ()


class PodMove(Struct, frozen=True, omit_defaults=True):
    """A pod that is on another node in B with the first seed; an empty name of a node stands for none.

    ``cause``: the change between two releases without which it stays; "" if the releases are equal, or it was not found in time
    """

    pod: str
    a: str
    b: str
    cause: str = ""


class ReleaseChange(Struct, frozen=True):
    """A difference between the releases of A and B. ``kind``: rule, plugin, default, gate, metric or flag."""

    kind: str
    text: str


class TextChange(Struct, frozen=True):
    """A pod that stays pending in A and in B, with different messages."""

    pod: str
    a: str
    b: str


class ComparisonValues(Answer, frozen=True, kw_only=True):
    """The values of a comparison. ``names`` are those of A and B.

    ``moved``   None if a stored run has no placements
    ``moves``   of the first seed, in order of arrival
    ``runs``    all runs of A and of B, in the order of the seeds
    ``notes``   notes on the input of one side alone, such as a missing plugin
    ``release_changes``  what is different because A and B have different releases
    ``texts``            of the first seed, the texts of pending pods that differ
    """

    KIND: ClassVar[str] = "Comparison"
    NAMES_RELEASE: ClassVar[bool] = False  # the lines of A and B do

    names: tuple[str, str]
    metrics: Mapping[str, MetricComparison]
    extra: Mapping[str, MetricComparison] = {}
    moved: MoveCount | None = None
    moves: tuple[PodMove, ...] = ()
    gates: tuple[GateResult, ...] = ()
    new_pending: tuple[str, ...] = ()
    runs: tuple[tuple[MeasuredRun, ...], tuple[MeasuredRun, ...]] = ((), ())
    notes: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    release_changes: tuple[ReleaseChange, ...] = ()
    texts: tuple[TextChange, ...] = ()

    @property
    def holds(self) -> bool | None:
        """Whether every gate passed; True without gates. None if the gates would read more seeds than were run."""
        if self.gates and self.stopped is not None:
            return None
        return all(gate.passed for gate in self.gates)

    def gate(self, text: str, *, strict: bool = False) -> GateResult:
        """Return whether a gate passes, such as ``pending > +0``.

        Raises  InputError for a text that is no gate, and for a metric that the comparison does not have
        """
        return evaluate(parse_gate(text), {**self.metrics, **self.extra}, strict=strict)

    def _node_names(self) -> set[str]:
        return {node for one in self.moves for node in (one.a, one.b) if node}

    def _answer(self) -> dict[str, Any]:
        sides = zip(("a", "b"), self.names, self.notes, strict=True)
        return {
            **{side: {"name": name, "notes": list(notes)} for side, name, notes in sides},
            "metrics": {name: _metric(one) for name, one in self.metrics.items()},
            **({} if self.moved is None else {"moved": plain(self.moved)}),
            "moves": plain(self.moves),
            "newPending": list(self.new_pending),
            "gates": [{"gate": one.gate, "passed": one.passed, "metric": one.metric, "text": one.text} for one in self.gates],
            "releaseChanges": plain(self.release_changes),
            "texts": plain(self.texts),
            "runs": {"a": _runs(self.runs[0]), "b": _runs(self.runs[1])},
        }

    def _blocks(self, *, wide: bool) -> Iterator[str]:
        yield "\n".join([*_sides(self), *_alone(self)])
        yield _table(self, wide=wide)
        yield _causes(self)
        yield _moves(self) if self.moves and wide else ""
        yield _new_pending(self.new_pending, wide=wide) if self.new_pending else ""
        yield _texts(self.texts, wide=wide) if self.texts else ""
        yield _release_changes(self.release_changes) if self.release_changes else ""
        yield "\n".join(gate_lines(self.gates))
        yield "\n".join(_notes(self))
        yield ending(_certainty(self), wide=wide)


def _metric(one: MetricComparison) -> dict[str, Any]:
    interval = None if one.interval is None else [json_number(end) for end in one.interval]
    shown: dict[str, Any] = {
        "a": json_number(one.a), "b": json_number(one.b), "difference": json_number(one.difference), "interval": interval,
        "exact": one.exact, "mayBeZero": one.may_be_zero, "n": one.runs,
    }  # fmt: skip
    return shown | ({"p": json_number(one.p)} if one.p is not None else {})


def _runs(runs: Iterable[MeasuredRun]) -> list[dict[str, Any]]:
    return [
        {
            "seed": run.seed,
            "release": run.release,
            "metrics": {name: json_number(value, exactly=True) for name, value in run.metrics.items()},
            "pending": [{"pod": one.pod, "workload": one.workload, "message": one.message} for one in run.pending],
        }
        for run in runs
    ]


# -- comparison text ---------------------------------------------------------------------------------------------------
# A comparison as text for people: the answer in words, a table of metrics with their intervals, gates, moved pods.

#: The metrics in the table without ``-o wide``, if A or B has them.
_SHOWN: Final = (
    "pending", "notCreated", "nodesUsed", "cost", "wait.p50", "wait.p99", "utilisation.cpu", "utilisation.memory",
    "balance.cpu", "balance.memory", "fragmentation", "stranded.cpu", "stranded.memory", "preemptions.victims",
    "jobWait.p50", "jobWait.p90", "jobWait.p99", "jobsWaiting", "evictions", "lostHours.nvidia.com/gpu", "fairness",
)  # fmt: skip
_EVEN_IF_ZERO: Final = frozenset({"pending", "nodesUsed", "wait.p99", "utilisation.cpu", "utilisation.memory"})
#: How many pods are listed before the rest is only counted.
_LISTED = 10
#: Kinds of release changes that are printed as one sentence each.
_ONE_BY_ONE: Final = frozenset({"rule", "plugin", "default"})
#: How many pods are listed with their texts.
_TEXTS: Final = 3
#: The column of p, which is left out where chance has no part in any difference.
_P: Final = 5
#: The longest gate that fits beside its metric.
_SHORT_GATE = 20


def _sides(found: ComparisonValues) -> Iterator[str]:
    for side, name in zip("AB", found.names, strict=True):
        yield paragraph(f"{side}  {one_line(name)}", indent="  ", hanging="     ")


def _alone(found: ComparisonValues) -> Iterator[str]:
    """Yield the pods that only A has or only B has, and on which nodes they are."""
    places = {one.pod: one.b or one.a for one in found.moves}
    for side, pods in zip("AB", only_on_one_side(found.moves, found.runs), strict=True):
        if pods:
            nodes = list(dict.fromkeys(places[pod] for pod in pods))
            what = f"{counted(len(pods), 'pod')} only here: {some_pods(pods)}; on {some(nodes)}"
            yield paragraph(f"{side}  {one_line(what)}", indent="  ", hanging="     ")


# -- the table -----------------------------------------------------------------------------------------------------------


def _table(found: ComparisonValues, *, wide: bool) -> str:
    gates: dict[str, list[GateResult]] = {}
    for one in found.gates:
        gates.setdefault(one.metric, []).append(one)
    rows = [_row(one, gates.get(name, ())) for name, one in _rows(found, gates, wide=wide)]
    if found.moved is not None:
        rows += _moved_rows(found.moved, gates, wide=wide)
    header = ["", "A", "B", "B - A", "95% interval", "p", ""]
    if not any(row[_P] for row in rows):
        header, *rows = ([*row[:_P], *row[_P + 1 :]] for row in (header, *rows))
    table = columns(header, rows, right=(1, 2, 3))
    return "\n".join(f"  {line}".rstrip() for line in table.splitlines())


def _rows(
    found: ComparisonValues, gated: Mapping[str, object], *, wide: bool
) -> Iterator[tuple[str, MetricComparison]]:  # fmt: skip
    for name, one in found.metrics.items():
        shown = name in _SHOWN and (name in _EVEN_IF_ZERO or bool(one.a) or bool(one.b))
        by_class = (name.startswith("pending.") or (name.startswith("jobWait.") and name.endswith(".p90"))) and one.difference
        if wide or shown or by_class or name in gated:
            yield name, one


def _row(one: MetricComparison, gates: Sequence[GateResult]) -> list[str]:
    return [
        title_of(one.name), amount_text(one.name, one.a), amount_text(one.name, one.b),
        difference_text(one.name, one.difference), interval_text(one), shown_p(one), _signs(gates),
    ]  # fmt: skip


def interval_text(one: MetricComparison) -> str:
    """Return the interval of a difference: ``exact``, ``~`` if it contains 0, or its ends; else the extremes or ``one run``."""
    if one.exact:
        return "exact"
    if one.runs == 1:
        return ONE_RUN
    if one.interval is None:
        return f"pairs {difference_text(one.name, one.range_of[0])} … {difference_text(one.name, one.range_of[1])}"
    if one.may_be_zero:
        return "~"
    return " … ".join(difference_text(one.name, end) for end in one.interval)


def shown_p(one: MetricComparison) -> str:
    """Return the p of a difference; nothing where chance has no part in it."""
    return "" if one.exact or one.p is None else p_text(one.p)


def _signs(gates: Sequence[GateResult]) -> str:
    """Return the sign of a row's gates, and the gate if it is a single short one; all are listed below the table."""
    if not gates:
        return ""
    sign = "✓" if all(gate.passed for gate in gates) else "✗"
    is_short = len(gates) == 1 and len(gates[0].gate) <= _SHORT_GATE
    return f"{sign} {gates[0].gate if is_short else counted(len(gates), 'gate')}"


def _moved_rows(moved: MoveCount, gates: Mapping[str, Sequence[GateResult]], *, wide: bool) -> Iterator[list[str]]:
    of = amount_text("moved", moved.of)
    chance = sorted(moved.by_chance)
    by_chance = ""
    if chance:
        most = "" if chance[0] == chance[-1] else f" … {chance[-1]}/{of}"
        by_chance = f"by chance: {chance[0]}/{of}{most}"
    yield ["moved", "", f"{amount_text('moved', moved.pods)}/{of}", "", by_chance, "", _signs(gates.get("moved", ()))]
    parts = {
        "withinGroup": moved.within_group, "toAnotherGroup": moved.to_another_group, "toAnotherZone": moved.to_another_zone,
    }  # fmt: skip
    for name, value in parts.items():
        held = gates.get(f"moved.{name}", ())
        if wide or held or (value and moved.pods):
            title = title_of(f"moved.{name}").removeprefix("moved ")
            yield [f"  {title}", "", amount_text("moved", value), "", "", "", _signs(held)]


def _moves(found: ComparisonValues) -> str:
    rows = [[one.pod, one.a or "-", one.b or "-", one.cause or "-"] for one in found.moves]
    if not any(one.cause for one in found.moves):
        return f"Moved, with the first seed:\n{columns(['POD', 'A', 'B'], [row[:3] for row in rows])}"
    return f"Moved, with the first seed:\n{columns(['POD', 'A', 'B', 'BECAUSE'], rows)}"


def _causes(found: ComparisonValues) -> str:
    """Return how many pods each change between the releases moves."""
    counts = Counter(one.cause for one in found.moves if one.cause)
    lines = [item(f"{count} by: {cause}") for cause, count in counts.most_common()]
    return "\n".join(["Changes of the release that move pods, with the first seed:", *lines]) if lines else ""


def _new_pending(pods: Sequence[str], *, wide: bool) -> str:
    shown = pods if wide else pods[:_LISTED]
    more = f" and {len(pods) - len(shown)} more" if len(pods) > len(shown) else ""
    return paragraph(f"! pending in B alone: {one_line(', '.join(shown))}{more}", indent="  ", hanging="    ")


def _texts(texts: Sequence[TextChange], *, wide: bool) -> str:
    shown = texts if wide else texts[:_TEXTS]
    lines = ["Pending in both, with another text:"]
    for one in shown:
        lines.append(f"  {one_line(one.pod)}")
        lines += (
            paragraph(f"{side}  {one_line(text)}", indent="    ", hanging="       ")
            for side, text in zip("AB", (one.a, one.b), strict=True)
        )
    if len(texts) > len(shown):
        lines.append(f"  and {len(texts) - len(shown)} more")
    return "\n".join(lines)


def _release_changes(changes: Sequence[ReleaseChange]) -> str:
    """Return the release changes by kind: one line for each rule, and one for all names with the same change."""
    kinds: dict[str, list[str]] = {}
    for one in changes:
        kinds.setdefault(one.kind, []).append(one_line(one.text))
    lines = ["With the release of B:"]
    for kind, texts in kinds.items():
        said = texts if kind in _ONE_BY_ONE else _together(texts)
        lines += (paragraph(f"{kind:<7}  {text}", indent="  ", hanging=" " * 11) for text in said)
    return "\n".join(lines)


def _together(texts: Iterable[str]) -> Iterator[str]:
    """Yield ``on: A, B`` for ``A is on`` and ``B is on``."""
    names: dict[str, list[str]] = {}
    for text in texts:
        name, _, what = text.partition(" ")
        names.setdefault(what.removeprefix("is "), []).append(name)
    yield from (f"{what}: {', '.join(listed)}" for what, listed in names.items())


def gate_lines(gates: Sequence[GateResult]) -> Iterator[str]:
    """Yield a line for each gate, the failed ones first."""
    for gate in sorted(gates, key=lambda one: one.passed):
        yield paragraph(f"{'✓' if gate.passed else '✗'} {one_line(gate.text)}", indent="  ", hanging="    ")


def gates_text(found: RunMeasures) -> str:
    """Return the gates of a simulation, after what it was compared with."""
    against = f", compared with {found.against}" if found.against else ""
    return "\n".join([one_line(f"Gates{against}:"), *gate_lines(found.gates)]) + "\n"


def _notes(found: ComparisonValues) -> Iterator[str]:
    for side, notes in zip("AB", found.notes, strict=True):
        for note in notes:
            yield paragraph(f"! {side} alone: {one_line(note)}", indent="  ", hanging="    ")


def _certainty(found: ComparisonValues) -> str:
    pairs, runs = len(found.runs[1]), found.proof.runs
    what = f"{counted(pairs, 'pair')} of runs with the same arrivals and seeds ({counted(runs, 'run')} of the engine)"
    many = "" if pairs >= 5 else "; give --seeds 10 for narrower intervals" if pairs > 1 else "; one run says nothing of chance"
    return f"{what}{many}."


# -- comparison summary ------------------------------------------------------------------------------------------------

_GOOD, _BAD = "good", "bad"


def comparison_summary(
    metrics: Mapping[str, MetricComparison],
    moved: tuple[float, float, float] | None,
    gates: Sequence[GateResult],
    more: int = 0,
) -> str:
    """Return the summary.

    ``moved``  how many pods are on another node, of how many, and at most how many by chance
    ``more``   how many pods only B has, less those that only A has
    """
    phrases = list(_phrases(metrics))
    good = [text for kind, text in phrases if kind == _GOOD]
    bad = [text for kind, text in phrases if kind == _BAD]
    runs = [f"runs {counted(abs(more), 'more pod' if more > 0 else 'fewer pod')}"] if more else []
    outcome = " but ".join(_listed(part) for part in (good, bad) if part) or (runs.pop() if runs else _same(metrics, moved))
    outcome = " and ".join([*runs, outcome])
    failed = [gate.gate if gate.gate == "new-pending" else gate.metric for gate in gates if not gate.passed]
    gone = f" Gate{'s' if len(failed) > 1 else ''} failed: {', '.join(dict.fromkeys(failed))}." if failed else ""
    passed = f" {counted(len(gates), 'gate')} passed." if gates and not failed else ""
    outcome = outcome if outcome.startswith("no ") else f"B {outcome}"
    if any(one.runs == 1 for one in metrics.values()):
        outcome = f"in one run, {outcome}"
    return f"{outcome[0].upper()}{outcome[1:]}.{gone}{passed}"


def only_on_one_side(
    moves: Iterable[PodMove], runs: tuple[Sequence[MeasuredRun], Sequence[MeasuredRun]]
) -> tuple[list[str], list[str]]:
    """Return the pods with a node that only A has, and those that only B has, with the first seed."""
    waiting = {one.pod for side in runs for run in side[:1] for one in run.pending}
    held = [one for one in moves if one.pod not in waiting]
    return [one.pod for one in held if not one.b], [one.pod for one in held if not one.a]


def _listed(phrases: Sequence[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"


def _phrases(metrics: Mapping[str, MetricComparison]) -> Iterator[tuple[str, str]]:
    """Yield each difference that is not chance, in words, and whether it is an improvement."""
    claimed = _beyond_chance(metrics)
    found = [
        (_GOOD if one.difference < 0 else _BAD, _counted(name, one.difference))
        for name in COUNTED
        if (one := metrics.get(name)) is not None and one.difference and name in claimed
    ]
    yield from found
    for name in ("jobWait.p90",) if found else OTHERS:
        one = metrics.get(name)
        if one is not None and one.difference and name in claimed and not _reads_equal(one):
            better = one.difference * kind_of(name).better > 0
            yield _GOOD if better else _BAD, _changed(one)
            return


def _beyond_chance(metrics: Mapping[str, MetricComparison]) -> frozenset[str]:
    """Return the metrics of which the first line may speak: one of 20 such lines is wrong, however many metrics it looks at.

    A single run is said to be one, and its figures stand as they are.
    """
    looked_at = {name: one for name in (*COUNTED, *OTHERS) if (one := metrics.get(name)) is not None}
    certain = {name for name, one in looked_at.items() if one.exact or one.runs == 1}
    return holm({name: one.chance for name, one in looked_at.items() if name not in certain}, 1 - LEVEL) | certain


def _counted(name: str, difference: float) -> str:
    less, more, noun = COUNTED[name]
    amount = amount_text(name, abs(difference))
    what = f"{amount} {noun if amount == '1' else noun + 's'}"
    template = less if difference < 0 else more
    if "more" in template or "fewer" in template:
        word = "more" if "more" in template else "fewer"
        what = f"{amount} {word} {noun if amount == '1' else noun + 's'}"
        template = template.replace(f"{{}} {word}", "{}")
    return template.format(what)


def _reads_equal(one: MetricComparison) -> bool:
    """Return whether the figures of both sides are written alike, so that their difference says nothing to a reader."""
    return one.a is not None and amount_text(one.name, one.a) == amount_text(one.name, one.b)


def _changed(one: MetricComparison) -> str:
    assert one.difference is not None
    if one.a is None or math.isinf(one.difference):
        return f"changes {title_of(one.name)} to {amount_text(one.name, one.b)}"
    verb = "lowers" if one.difference < 0 else "raises"
    return f"{verb} {title_of(one.name)} from {amount_text(one.name, one.a)} to {amount_text(one.name, one.b)}"


def _same(metrics: Mapping[str, MetricComparison], moved: tuple[float, float, float] | None) -> str:
    if moved is not None and moved[0] > moved[2]:
        return f"only moves pods: {amount_text('moved', moved[0])} of {amount_text('moved', moved[1])}"
    if all((one.exact or one.runs == 1) and not one.difference for one in metrics.values()) and not (moved and moved[0]):
        return "does the same as A"
    return "no difference between A and B is beyond chance"
