"""``compare``: is B better than A? Two configurations, releases or clusters, run with the same arrivals and seeds.

Each seed makes a pair of runs. A also runs with one more seed: the pods that A itself moves from one seed to the next are the
noise floor, and a number of moved pods that is not above it says nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.releases import RELEASES, STABLE, Gate, Release
from moorage.api.releases.metrics import Spec, metrics_of
from moorage.basis.printable import counted
from moorage.core.config.api_versions import ApiVersion
from moorage.core.config.profiles import ResolvedProfile
from moorage.core.config.scheduler_document import Loaded
from moorage.core.config.show import listed, plain_struct
from moorage.core.config.upgrade import rules_between
from moorage.errors import ConfigError, InputError
from moorage.laboratory.budget import TimeBudget, results_of
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.compare.input_digest import input_digest
from moorage.laboratory.compare.measured_run import RunInput, RunSeries, measure_run
from moorage.laboratory.compare.moved_pods import NodePlaces, moved_metrics, moves_of, new_pending, new_pending_metric
from moorage.laboratory.compare.paired_metrics import paired_metrics
from moorage.laboratory.compare.release_causes import with_causes
from moorage.laboratory.compare.run_inputs import input_of_runs
from moorage.laboratory.compare.typical_mix import typical_mix
from moorage.laboratory.frames import ColumnFrame, frame_of
from moorage.report import comparison
from moorage.report.answer import AnswerRequest, Proof
from moorage.report.gates import MetricComparison, evaluate_all, parse_gate
from moorage.report.run_values import MeasuredRun
from moorage.simulator.simulate import IDLE, Options, load_options
from moorage.simulator.trace import Trace

if TYPE_CHECKING:
    from moorage.simulator.kueue.batch_jobs import QueuedCluster  # loaded only for inputs with queues


# The differences between two loaded configurations due to their releases: rules, plugins, gates, defaults, metrics.
#
# Only differences that affect these profiles are listed, from A to B. A rule names the last release that did not have it.


def release_changes(a: Loaded, b: Loaded) -> Iterator[comparison.ReleaseChange]:
    """Yield the differences; none if both have the same release."""
    if a.release == b.release:
        return
    before = {profile.scheduler_name: profile for profile in a.profiles}
    both = [(before[one.scheduler_name], one) for one in b.profiles if one.scheduler_name in before]
    emulated = RELEASES[a.release], RELEASES[b.release]
    for kind, texts in (
        ("rule", _each(rules_between(old, *emulated) for old, _ in both)),
        ("plugin", _each(_plugins(old, new, a.version, b.version) for old, new in both)),
        ("default", _each(_defaults(*pair) for pair in both)),
        ("gate", _gates(a, b)),
        ("metric", _metrics(a, b)),
        ("flag", _flags(*emulated)),
    ):
        yield from (comparison.ReleaseChange(kind, text) for text in texts)


def changed_texts(a: MeasuredRun, b: MeasuredRun) -> Iterator[comparison.TextChange]:
    """Yield the pods that are pending in both runs, with different texts."""
    before = {one.pod: one.message for one in a.pending}
    for one in b.pending:
        if one.message != before.get(one.pod, one.message):
            yield comparison.TextChange(one.pod, before[one.pod], one.message)


def _each(found: Iterator[Iterator[str]]) -> Iterator[str]:
    """Yield each text once."""
    yield from dict.fromkeys(text for texts in found for text in texts)


def _plugins(a: ResolvedProfile, b: ResolvedProfile, of_a: ApiVersion, of_b: ApiVersion) -> Iterator[str]:
    before, after = _points(a, of_a), _points(b, of_b)
    for name in dict.fromkeys([*before, *after]):
        gained = [point for point in after.get(name, ()) if point not in before.get(name, ())]
        lost = [point for point in before.get(name, ()) if point not in after.get(name, ())]
        if gained:
            yield f"{name} runs at {', '.join(gained)}"
        if lost:
            yield f"{name} no longer runs at {', '.join(lost)}"
        weights = a.weights.get(name), b.weights.get(name)
        if None not in weights and weights[0] != weights[1]:
            yield f"{name} has the weight {weights[1]}, not {weights[0]}"


def _points(profile: ResolvedProfile, version: ApiVersion) -> dict[str, list[str]]:
    """Return the extension points of each plugin that ``config show`` lists."""
    found: dict[str, list[str]] = {}
    for point in profile.points:
        for name in listed(profile, point, version):
            found.setdefault(name, []).append(point)
    return found


def _defaults(a: ResolvedProfile, b: ResolvedProfile) -> Iterator[str]:
    for name, args in b.args.items():
        if name not in a.args:
            continue
        before, after = _flat(a.args[name]), _flat(args)
        for argument in dict.fromkeys([*before, *after]):
            if before.get(argument) != after.get(argument):
                was = f", was {_shown(before[argument])}" if argument in before else ""
                yield (
                    f"{name}: {argument} is {_shown(after[argument])}{was}"
                    if argument in after
                    else f"{name}: {argument} is gone"
                )


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the fields of arguments that are set, by their paths."""
    plain = plain_struct(value) if isinstance(value, msgspec.Struct) else value
    if not isinstance(plain, Mapping):
        return {} if plain is None else {path: plain}
    found: dict[str, Any] = {}
    for name, part in plain.items():
        found |= _flat(part, f"{path}.{name}" if path else name)
    return found


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _gates(a: Loaded, b: Loaded) -> Iterator[str]:
    before, after = RELEASES[a.release], RELEASES[b.release]
    for name in sorted(before.gates.keys() | after.gates.keys()):
        old, new = before.gates.get(name), after.gates.get(name)
        if old is not None and new is not None:
            yield from _changed_gate(name, a.gates[name], b.gates[name], is_locked=new.locked and not old.locked)
        elif old is not None:
            yield from _gone_gate(name, old, is_open=a.gates[name], after=after)
        elif new is not None:
            yield from _new_gate(name, new, is_open=b.gates[name], was_there=name in before.inert_gates)


def _changed_gate(name: str, was: bool, is_open: bool, *, is_locked: bool) -> Iterator[str]:
    word = "on" if is_open else "off"
    if was != is_open:
        yield f"{name} is {word}{', and locked' if is_locked else ''}"
    elif is_locked:
        yield f"{name} is locked {word}"


def _gone_gate(name: str, gate: Gate, *, is_open: bool, after: Release) -> Iterator[str]:
    """Yield what became of a gate that changes no decision in the other release."""
    group = after.opened_with.get(name)
    if group is not None:
        yield f"{name} is part of {group}"
    elif gate.stage == STABLE and is_open:
        return  # on in both
    elif gate.default and name in after.inert_gates:
        yield f"{name} graduated, always on"
    elif gate.default and after.fixed_gates.get(name, True):
        yield f"{name} is removed; always on"
    elif is_open:
        yield f"{name} is unknown; always off"


def _new_gate(name: str, gate: Gate, *, is_open: bool, was_there: bool) -> Iterator[str]:
    """Yield what a gate brings that changes no decision in the other release, where it is always on if ``was_there``."""
    if gate.stage == STABLE and is_open:
        return
    if was_there and gate.default:
        yield f"{name} {'can be set' if is_open else 'is off'}"
    elif is_open:
        yield f"{name} is on"


def _metrics(a: Loaded, b: Loaded) -> Iterator[str]:
    """Yield what differs in the metrics that are shown. A metric with another name counts as two."""
    before, after = _shown_metrics(a), _shown_metrics(b)
    hidden = {spec.name for spec in metrics_of(b.release).values() if spec.hidden and spec.deprecated}
    for name in sorted({*before, *after}):
        if name not in before:
            yield f"{name} is new"
        elif name not in after:
            yield f"{name} is {'hidden, because it is deprecated' if name in hidden else 'gone'}"
        else:
            yield from (f"{name} {text}" for text in _changed_metric(before[name], after[name]))


def _changed_metric(old: Spec, new: Spec) -> Iterator[str]:
    if old.stability != new.stability:
        yield f"is {new.stability.lower()}"
    if new.deprecated and not old.deprecated:
        yield "is deprecated"
    if old.labels != new.labels:
        yield f"has the labels {', '.join(new.labels)}, not {', '.join(old.labels)}"
    if old.buckets != new.buckets:
        yield f"has {len(new.buckets)} buckets from {new.buckets[0]:g} to {new.buckets[-1]:g}"


def _shown_metrics(loaded: Loaded) -> dict[str, Spec]:
    specs = metrics_of(loaded.release).values()
    return {spec.name: spec for spec in specs if not spec.hidden and (not spec.gate or loaded.gates[spec.gate])}


def _flags(a: Release, b: Release) -> Iterator[str]:
    for name in sorted((a.lacks_flags ^ b.lacks_flags) | (a.own_flags ^ b.own_flags)):
        is_known = name in b.own_flags or (name not in b.lacks_flags and name not in a.own_flags)
        yield f"--{name} is {'known' if is_known else 'unknown'}"


class Comparison(comparison.ComparisonValues, frozen=True, kw_only=True):
    """The answer of ``moorage compare``; see ``ComparisonValues``."""

    @property
    def frame(self) -> ColumnFrame:
        """The metrics as columns: one row for each."""
        names = ("metric", "a", "b", "difference", "low", "high", "exact", "p", "n")
        rows = [
            (one.name, one.a, one.b, one.difference, *(one.interval or (None, None)), one.exact, one.p, one.runs)
            for one in self.metrics.values()
        ]
        return frame_of(names, rows)


@dataclass(frozen=True, slots=True)
class CompareSetting:
    """How to compare.

    ``replace_all``  place all pods again, not only the pending ones
    ``all_nodes``    metrics count nodes that are not ready or not schedulable as well
    ``prices``       price of a node by its name, its group or its instance type
    ``gates``        conditions such as ``pending > +0``
    ``strict``       gates fail when any part of the interval is beyond the threshold
    ``names``        the names of A and B; empty: the names of their configurations
    ``timing``       report the decisions per second as well, which differ from run to run
    """

    replace_all: bool = False
    all_nodes: bool = False
    prices: Mapping[str, float] = field(default_factory=dict)
    gates: tuple[str, ...] = ()
    strict: bool = False
    names: tuple[str, str] = ("", "")
    timing: bool = False
    queues: tuple[QueuedCluster, QueuedCluster] | None = None


@dataclass(frozen=True, slots=True)
class _Side:
    """A or B: the input of its runs, and the options of their scheduler."""

    given: RunInput
    options: Options
    places: NodePlaces
    name: str


_SETTING = CompareSetting()
_Sides = tuple[_Side, _Side]


def compare(
    cluster: Cluster | Trace,
    a: Options | None = None,
    b: Options | None = None,
    seeds: Iterable[int] = range(10),
    *,
    other: Cluster | None = None,
    baseline: Sequence[MeasuredRun] = (),
    setting: CompareSetting = _SETTING,
    request: AnswerRequest | None = None,
    executor: Executor | None = None,
    on_run: Callable[[int, int], None] | None = None,
    time_limit_s: float | None = None,
    budget: TimeBudget | None = None,
) -> Comparison:
    """Run a cluster with options A and with options B for each seed, and return the differences. The cluster is unchanged.

    ``cluster``   or a trace, whose pods arrive on its nodes and end; each seed draws which pods arrive at which of its times
    ``a``, ``b``  None: the cluster's own options
    ``other``     the cluster of B, if it is another one
    ``baseline``  stored runs of A: A does not run, and ``seeds`` are those of the stored runs
    ``executor``  executes the runs; None: they run in this process, one after the other, with the same result
    ``on_run``    is called with the number of finished runs and the number of all runs
    ``time_limit_s``  ends the runs after any pair: the answer has the seeds before; None: no limit
    ``budget``    in place of ``time_limit_s``: a limit that has begun already

    Raises  ConfigError; InputError without a seed, for a text that is no gate, and for an unknown metric
    """
    gates = [parse_gate(text) for text in setting.gates]
    trace = cluster if isinstance(cluster, Trace) else None
    if isinstance(cluster, Trace):
        if other is not None or setting.queues is not None or setting.replace_all:
            raise InputError("a trace is compared on its own nodes, without another cluster, queues or replace_all")
        cluster = Cluster.from_objects(list(cluster.nodes))
    sides = _sides(cluster, other or cluster, a, b, setting)
    if trace is not None:
        sides = _with_trace(sides, trace)
    wanted = tuple(dict.fromkeys(seeds)) if not baseline else tuple(run.seed for run in baseline)
    if not wanted:
        raise InputError("no seed to compare with; give at least one")
    digest = input_digest(cluster.input()) if request is None else str(request.digest)
    budget = (budget or TimeBudget(time_limit_s, time.monotonic)).part()
    request = request or _request(sides, wanted, digest)
    runs = _make_runs(sides, wanted, baseline, executor, on_run, budget)
    if len(runs.b) < len(wanted):
        budget.leave(f"the differences with {counted(len(wanted) - len(runs.b), 'more seed')}")
        request = replace(request, seeds=wanted[: len(runs.b)])
    metrics = paired_metrics(runs.a, runs.b, timing=setting.timing)
    moved, extra = _moved(runs, sides)
    pairs = list(_known_placements(runs.a[:1], runs.b[:1]))
    moves = tuple(moves_of(*pairs[0])) if pairs else ()
    if other is not None and other is not cluster:
        moves += tuple(_input_alone(cluster.input().pods, other.input().pods, {one.pod for one in moves}))
    if sides[0].given is sides[1].given and trace is None:
        moves = with_causes(moves, sides[1].given, (sides[0].options, sides[1].options), runs.b[0].seed, budget)
    extra["newPending"] = new_pending_metric(runs.a, runs.b)
    gone, new = comparison.only_on_one_side(moves, (runs.a, runs.b))
    results = evaluate_all(gates, {**metrics, **extra}, strict=setting.strict)
    return Comparison(
        request=request,
        stopped=budget.stopped,
        summary=comparison.comparison_summary(metrics, _moved_share(moved), results, len(new) - len(gone)),
        proof=Proof("run", runs=runs.made),
        names=(sides[0].name, sides[1].name),
        metrics=metrics,
        extra=extra,
        moved=moved,
        moves=moves,
        gates=results,
        new_pending=tuple(one.pod for one in new_pending(runs.a[0].pending, runs.b[0].pending)),
        runs=(runs.a, runs.b),
        notes=_one_sided(runs),
        release_changes=tuple(release_changes(*(load_options(side.options) for side in sides))) if not baseline else (),
        texts=tuple(changed_texts(runs.a[0], runs.b[0])),
    )


# -- the sides -----------------------------------------------------------------------------------------------------------


def _sides(cluster: Cluster, other: Cluster, a: Options | None, b: Options | None, setting: CompareSetting) -> _Sides:
    options = (a or cluster.options, b or other.options)
    loaded = [load_side(side, one) for side, one in zip("AB", options, strict=True)]
    both = {profile.scheduler_name for profile in loaded[0].profiles} & {one.scheduler_name for one in loaded[1].profiles}
    again = both if setting.replace_all else ()
    inputs = [
        input_of_runs(one, again=again, prices=setting.prices, all_nodes=setting.all_nodes)
        for one in ((cluster,) if other is cluster else (cluster, other))
    ]
    if setting.queues is not None:
        inputs = [with_fields(inputs[at - len(inputs)], queues=queued) for at, queued in enumerate(setting.queues)]
    names = [
        name or f"{one.where}, kube-scheduler {held.release}{held.gates.emulated.basis}"
        for name, one, held in zip(setting.names, options, loaded, strict=True)
    ]
    places = [NodePlaces.of(one.nodes) for one in inputs]
    return (_Side(inputs[0], options[0], places[0], names[0]), _Side(inputs[-1], options[1], places[-1], names[1]))


def _with_trace(sides: _Sides, trace: Trace) -> _Sides:
    """Return the sides with the pods of a trace, which make the typical mix."""
    held = sides[0].given
    mix = tuple(typical_mix(arrival.pod for arrival in trace.arrivals))
    given = with_fields(held, trace=trace, setting=with_fields(held.setting, shapes=mix))
    return (with_fields(sides[0], given=given), with_fields(sides[1], given=given))


def load_side(side: str, options: Options) -> Loaded:
    """Return the configuration of a side.

    Raises  ConfigError that names the side and its release
    """
    try:
        return load_options(options)
    except ConfigError as error:
        release = "" if options.emulate is None else f", kube-scheduler {options.emulate}"
        raise ConfigError(f"{side}{release}: {str(error).splitlines()[0]}", error.faults) from None


def _request(sides: _Sides, seeds: tuple[int, ...], digest: str) -> AnswerRequest:
    release = load_options(sides[1].options).release
    question = {"compare": {"a": sides[0].name, "b": sides[1].name}}
    notes = tuple(note.text for note in sides[0].given.notes)
    return AnswerRequest(release=release, seeds=seeds, digest=digest, notes=notes, question=question)


# -- the runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of A and of B by seed, and the run of A with the next seed; ``made`` counts the runs executed by this object."""

    a: tuple[MeasuredRun, ...]
    b: tuple[MeasuredRun, ...]
    further: MeasuredRun | None
    made: int


def _make_runs(
    sides: _Sides,
    seeds: tuple[int, ...],
    baseline: Sequence[MeasuredRun],
    executor: Executor | None,
    on_run: Callable[[int, int], None] | None,
    budget: TimeBudget,
) -> _Runs:
    """Make the runs of A and B in turns, until the budget is spent; one pair at least."""
    of_a = () if baseline else (*seeds, _next_seed(seeds))
    turns = [
        (side, seed) for pair in zip_longest(of_a, seeds) for side, seed in zip((0, 1), pair, strict=True) if seed is not None
    ]
    found: tuple[list[MeasuredRun], list[MeasuredRun]] = ([], [])
    least = 1 if baseline else 2
    for (side, _), run in zip(turns, _made(sides, turns, executor, budget, least), strict=False):
        found[side].append(run)
        if on_run is not None:
            on_run(len(found[0]) + len(found[1]), len(turns))
    of_b = tuple(found[1])
    made = len(found[0]) + len(of_b)
    if baseline:
        return _Runs(tuple(baseline)[: len(of_b)], of_b, None, made)
    further = found[0][len(of_b)] if len(found[0]) > len(of_b) else None
    return _Runs(tuple(found[0][: len(of_b)]), of_b, further, made)


def _next_seed(seeds: Sequence[int]) -> int:
    """Return the first number after the last seed that is not among the seeds."""
    seed = seeds[-1] + 1
    while seed in seeds:
        seed += 1
    return seed


def _made(
    sides: _Sides, turns: Sequence[tuple[int, int]], executor: Executor | None, budget: TimeBudget, least: int
) -> Iterator[MeasuredRun]:
    """Yield the runs of each side and seed in turn, until the budget is spent."""
    if executor is not None:
        jobs = [(sides[side].given, with_fields(sides[side].options, seed=seed)) for side, seed in turns]
        waiting: list[Future[MeasuredRun]] = [executor.submit(measure_run, given, options) for given, options in jobs]
        yield from results_of(waiting, budget, least)
        return
    series = [RunSeries(side.given, side.options) for side in sides]
    took_s = 0.0
    for number, (side, seed) in enumerate(turns):
        if number >= least and budget.is_over():
            return
        if number >= least and budget.left_s < took_s:  # the next run would end after the limit
            budget.note_spent()
            return
        before_s = budget.left_s
        yield series[side].measure(seed)
        took_s = before_s - budget.left_s


# -- what differs --------------------------------------------------------------------------------------------------------

_Placed = Mapping[str, str]


def _moved(runs: _Runs, sides: _Sides) -> tuple[comparison.MoveCount | None, dict[str, MetricComparison]]:
    pairs = list(_known_placements(runs.a, runs.b))
    if len(pairs) < len(runs.b):
        return None, {}
    following = (*runs.a[1:], *((runs.further,) if runs.further is not None else ()))
    chance = list(_known_placements(runs.a, following))
    places = NodePlaces(
        {**sides[1].places.groups, **sides[0].places.groups}, {**sides[1].places.zones, **sides[0].places.zones}
    )
    return moved_metrics(pairs, chance, places)


def _moved_share(moved: comparison.MoveCount | None) -> tuple[float, float, float] | None:
    return None if moved is None else (moved.pods, moved.of, max(moved.by_chance, default=0))


def _known_placements(some: Sequence[MeasuredRun], others: Sequence[MeasuredRun]) -> Iterator[tuple[_Placed, _Placed]]:
    for one, other in zip(some, others, strict=False):
        if one.placements is not None and other.placements is not None:
            yield one.placements, other.placements


def _input_alone(a: Iterable[Pod], b: Iterable[Pod], known: Collection[str]) -> Iterator[comparison.PodMove]:
    """Yield the pods that have a node in the input of one side and are not in that of the other."""
    before, after = ({pod.key: pod.spec.node_name for pod in pods} for pods in (a, b))
    for pod in sorted((before.keys() ^ after.keys()) - set(known)):
        if node := before.get(pod) or after.get(pod):
            yield comparison.PodMove(pod, *((node, "") if pod in before else ("", node)))


def _one_sided(runs: _Runs) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the notes on the input that one side alone has; a plugin that the other side runs is not idle."""
    sides = runs.a[0].notes, runs.b[0].notes
    of_a, of_b = (
        tuple(one for one in mine if one not in other and not one.endswith(IDLE)) for mine, other in (sides, sides[::-1])
    )
    return of_a, of_b
