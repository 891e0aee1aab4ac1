"""Run a profile's plugins for one pod: PreFilter, Filter, PreScore, Score, and PreFilter's state in what-ifs.

``moorage.core.cycle`` chooses the node. A plugin that raises, or returns an invalid answer, ends the attempt with a
``PluginError`` that names the plugin.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path, PurePath
from types import FrameType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from moorage.api.requirements import quoted
from moorage.basis.printable import clip
from moorage.errors import RAISED, AttemptError, PluginError
from moorage.framework.post_filter import PreFiltered
from moorage.framework.profile import Profile, Step
from moorage.framework.verdicts import SKIP, Code, Hold, Narrow, Reject, Skip, Status, Verdicts
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo, Snapshot

# -- plugin failures ---------------------------------------------------------------------------------------------------
# Describe an exception of a plugin: its text, the plugin's line that raised it, and the nearest name for a misspelt one.

#: Longer texts of exceptions are cut, so that the place stays within the message.
_MOST_TEXT: Final = 768
_OURS: Final = str(Path(__file__).parents[1])


def failure_text(error: BaseException) -> str:
    """Return ``KeyError: 'gpu' (my_rules.py, line 12)``, with a suggestion for a misspelt attribute or name.

    There is no place if only Moorage's own code ran: the exceptions of built-in plugins describe the input.
    """
    text = f"{type(error).__name__}: {error}"
    place = _place(error)
    return f"{clip(text, _MOST_TEXT)}{place}{_nearest(error)}" if place else text


def _place(error: BaseException) -> str:
    """Return the innermost line in the plugin's folder. Lines of libraries are skipped: the author cannot change them."""
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(_OURS)
    ]
    if not frames:
        return ""
    folder = PurePath(frames[0][0]).parent
    file, line = [(file, line) for file, line in frames if PurePath(file).is_relative_to(folder)][-1]
    return f" ({PurePath(file).name}, line {line})"


def _nearest(error: BaseException) -> str:
    if not isinstance(error, (AttributeError, NameError)) or not isinstance(error.name, str):
        return ""
    try:
        known = dir(error.obj) if isinstance(error, AttributeError) else _visible(error)
    except RAISED:  # an object of the plugin may refuse to list its attributes
        return ""
    near = get_close_matches(error.name, [name for name in known if not name.startswith("_")])
    swapped = [name for name in near if sorted(name) == sorted(error.name)]  # lable is label, not table
    return f"; did you mean {(swapped or near)[0]}?" if near else ""


def _visible(error: NameError) -> list[str]:
    """Return the names that the raising line can see."""
    frames: list[FrameType] = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [*frames[-1].f_locals, *frames[-1].f_globals, *dir(builtins)] if frames else []


MAX_SCORE = 100
#: Up to this many scores are checked one by one: a call into NumPy has a fixed cost.
_FEW = 32
#: Stands for a verdict that the form of a plugin for one node does not tell.
UNTOLD: Final = Hold(())


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of the feasible rows: ``rows`` are row numbers, the other arrays have one entry for each.

    ``raw`` holds the scores from Score by plugin in running order, ``final`` these scores normalised and weighted; ``total``
    is the sum of ``final``. ``weights`` has the weights of scores from outside the profile's plugins.
    """

    rows: npt.NDArray[np.intp]
    total: IntArray
    raw: Mapping[str, IntArray] = field(default_factory=dict)
    final: Mapping[str, IntArray] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)

    def best(self) -> npt.NDArray[np.intp]:
        """Return the row numbers that share the highest total."""
        best: npt.NDArray[np.intp] = self.rows[self.total == self.total.max()]
        return best


def ask(step: Step, point: str, *args: Any) -> Any:
    """Call a plugin; any exception becomes a ``PluginError``."""
    try:
        return step.call(*args)
    except PluginError:
        raise
    except RAISED as error:
        raise PluginError(step.name, f"failed in {point}: {failure_text(error)}") from error


def outside_versions(profile: Profile) -> tuple[Hashable, ...]:
    """Return the versions of the data that the plugins of a profile read from outside the cluster.

    Raises  PluginError
    """
    found = []
    for name, version in profile.outside.items():
        try:
            found.append(version())
            hash(found[-1])
        except RAISED as error:
            raise PluginError(name, f"failed in outside: {failure_text(error)}") from error
    return tuple(found)


def run_pre_filter(profile: Profile, pod: PodInfo, snapshot: Snapshot) -> PreFiltered:
    """Run PreFilter. All plugins run, unless one returns an unresolvable ``Hold`` or no node is left.

    Source  framework/runtime/framework.go, RunPreFilterPlugins
    """
    states: dict[str, Any] = {}
    skipped: set[str] = set()
    nodes: frozenset[str] | None = None
    narrowed_by: list[str] = []
    refused: Status | None = None
    release = profile.release
    for step in profile.at("preFilter"):
        try:
            answer = step.call(pod, snapshot)
        except PluginError:
            raise
        except RAISED as error:
            raise PluginError(step.name, f"failed in preFilter: {failure_text(error)}") from error
        if answer is SKIP or isinstance(answer, Skip):
            skipped.add(step.name)
            continue
        if isinstance(answer, Hold):
            refused = Status(answer.code, step.name, answer.reasons)
            if answer.unresolvable or release.rejection_ends_pre_filter:
                return PreFiltered(states, frozenset(skipped), refused=refused)
            continue
        if isinstance(answer, Narrow):
            narrowed_by.append(step.name)
            nodes = answer.nodes if nodes is None else nodes & answer.nodes
            answer = answer.state
        states[step.name] = answer
        if nodes is not None and not nodes:
            code = Code.UNSCHEDULABLE if release.rejection_ends_pre_filter else Code.UNRESOLVABLE
            names = " ".join(sorted(narrowed_by))
            unmet = f"plugin {names}" if len(narrowed_by) == 1 else f"plugin(s) [{names}] simultaneously"
            refused = Status(code, "", (f"node(s) didn't satisfy {unmet}",))
            break
    if nodes and release.named_nodes_must_exist and (absent := sorted(nodes - snapshot.table.row_of.keys())):
        raise AttemptError("", f"nodeinfo not found for node name {quoted(absent[0])}")
    return PreFiltered(states, frozenset(skipped), nodes, tuple(sorted(narrowed_by)), refused, release.narrowing_rejects)


def run_filter(profile: Profile, found: PreFiltered, pod: PodInfo, nodes: NodeView, verdicts: Verdicts) -> None:
    """Run Filter over a view and write each refused row's status, by the first plugin that refused it, to ``verdicts``."""
    if profile.run_all_filters:
        _run_all_filters(profile, found, pod, nodes, verdicts)
        return
    open_rows = np.ones(len(nodes), dtype=bool)
    node = nodes.one(int(nodes.row_numbers[0])) if len(nodes) == 1 else None
    for step in profile.at("filter"):
        if step.name not in found.skipped:
            state = found.state_of(step, pod)
            hold = UNTOLD if node is None else told_alone(step, state, node)
            if hold is None:
                continue
            if hold is not UNTOLD:
                verdicts.refuse(nodes.row_numbers, _status(step.name, hold.reasons, hold.unresolvable))
                return
            _judge_by(step, state, nodes, open_rows, verdicts)
            if not open_rows.any():
                return


def told_alone(step: Step, state: Any, node: NodeInfo) -> Hold | None:
    """Return the verdict of a plugin's form for one node, which is faster; ``UNTOLD`` if the form for many nodes must tell."""
    if step.single is None:
        return UNTOLD
    try:
        hold: Any = step.single.call(state, node)
    except RAISED:  # the form for many nodes reports it
        return UNTOLD
    if hold is None:
        return None
    return hold if isinstance(hold, Hold) and not hold.pending else UNTOLD


def _run_all_filters(profile: Profile, found: PreFiltered, pod: PodInfo, nodes: NodeView, verdicts: Verdicts) -> None:
    """Run every Filter plugin over every row, and merge the statuses of each row.

    Source  kube-scheduler 1.21, framework/runtime/framework.go, RunFilterPlugins; framework/interface.go, Merge
    """
    rows = nodes.row_numbers
    trials: list[Verdicts] = []
    for step in profile.at("filter"):
        if step.name not in found.skipped:
            trial = Verdicts(len(verdicts))
            _judge_by(step, found.state_of(step, pod), nodes, np.ones(len(nodes), dtype=bool), trial)
            trials.append(trial)
    for row in rows[np.any([trial.ids[rows] != 0 for trial in trials], axis=0)] if trials else ():
        said = [status for trial in trials if (status := trial.status(row)) is not None]
        verdicts.refuse(int(row), merged(said))


def merged(said: Sequence[Status]) -> Status:
    """Merge the statuses of one node: the first error alone; otherwise the most severe code, and all reasons."""
    gravest = next((one for one in said if one.code is Code.ERROR), None)
    if gravest is not None:
        return gravest
    gravest = next((one for one in said if one.code is Code.UNRESOLVABLE), said[0])
    return Status(gravest.code, gravest.plugin, tuple(reason for one in said for reason in one.reasons))


def _judge_by(step: Step, state: Any, nodes: NodeView, open_rows: BoolArray, verdicts: Verdicts) -> None:
    """Run one Filter plugin over the open rows, write the status of each row it refuses to ``verdicts``, and close that row."""
    if step.one_by_one:
        left = np.flatnonzero(open_rows)
        rejects = []
        for reject in drained(step, state, nodes.only(open_rows)):
            full = nodes.false()
            full[left[reject.rows]] = True
            rejects.append(Reject(full, reject.reason, reject.unresolvable, reject.error))
    else:
        rejects = drained(step, state, nodes)
    if rejects:
        _note_errors(step.name, rejects, nodes, open_rows, verdicts)
        _refuse(step.name, [reject for reject in rejects if not reject.error], nodes, open_rows, verdicts)


def refused_rows(step: Step, state: Any, nodes: NodeView) -> BoolArray | None:
    """Return a mask of the rows of a view that one plugin refuses, for any reason; None if it refuses none.

    Raises  PluginError if there are rows that it cannot judge
    """
    rejects = drained(step, state, nodes)
    if not rejects:
        return None
    for reject in rejects:
        if reject.error and reject.rows.any():
            raise PluginError(step.name, reject.reason)
    return rejects[0].rows if len(rejects) == 1 else np.logical_or.reduce([reject.rows for reject in rejects])


def refuses(step: Step, single: Step | None, state: Any, node: NodeInfo, nodes: NodeView) -> bool:
    """Return whether one plugin refuses a node of a view. ``single`` is its form for one node, which is used if it has one."""
    if single is not None:
        return ask(single, "filter", state, node) is not None
    mask = refused_rows(step, state, nodes.at(node.row))
    return mask is not None and bool(mask[0])


def drained(step: Step, state: Any, nodes: NodeView) -> list[Reject]:
    """Run one plugin's Filter and return all its rejects, checked."""
    try:
        rejects: list[Reject] = list(step.call(state, nodes) or ())
    except PluginError:
        raise
    except RAISED as error:
        raise PluginError(step.name, f"failed in filter: {failure_text(error)}") from error
    for reject in rejects:
        if not isinstance(reject, Reject) or np.shape(reject.rows) != (len(nodes),):
            raise PluginError(
                step.name, f"returned {reject!r} in filter; yield Reject(mask over the {len(nodes)} rows, reason)"
            )
    return rejects


def verdicts_of_rejects(plugin: str, rejects: Sequence[Reject], nodes: NodeView) -> Verdicts:
    """Return the status of each row of a whole table, given what one plugin rejects."""
    verdicts, open_rows = Verdicts(len(nodes)), np.ones(len(nodes), dtype=bool)
    if rejects:
        _note_errors(plugin, list(rejects), nodes, open_rows, verdicts)
        _refuse(plugin, [reject for reject in rejects if not reject.error], nodes, open_rows, verdicts)
    return verdicts


def _note_errors(plugin: str, rejects: list[Reject], nodes: NodeView, open_rows: BoolArray, verdicts: Verdicts) -> None:
    """Write the ERROR statuses of rows that the plugin could not judge, and close those rows."""
    for reject in rejects:
        hit = reject.rows & open_rows if reject.error else nodes.false()
        if hit.any():
            text = f'running "{plugin}" filter plugin: {reject.reason}'
            verdicts.refuse(_numbers(nodes, hit), Status(Code.ERROR, plugin, (text,)))
            open_rows &= ~hit


def _refuse(plugin: str, rejects: list[Reject], nodes: NodeView, open_rows: BoolArray, verdicts: Verdicts) -> None:
    """Write the statuses of the rows that one plugin refuses, and close them. A row in several rejects carries all reasons."""
    if len(rejects) == 1 and isinstance(rejects[0].unresolvable, bool):
        hit = rejects[0].rows & open_rows
        if hit.any():
            verdicts.refuse(_numbers(nodes, hit), _status(plugin, (rejects[0].reason,), rejects[0].unresolvable))
            open_rows &= ~hit
        return
    if not rejects:
        return
    hits = np.stack([reject.rows & open_rows for reject in rejects])
    final = np.stack([np.broadcast_to(np.asarray(reject.unresolvable), hits.shape[1:]) for reject in rejects]) & hits
    touched: BoolArray = np.any(hits, axis=0)
    if not touched.any():
        return
    at = np.flatnonzero(touched)
    kinds, which = _distinct(np.vstack([hits[:, at], final[:, at].any(axis=0)]))
    numbers = _numbers(nodes, touched)
    for kind in range(kinds.shape[1]):
        reasons = tuple(reject.reason for reject, there in zip(rejects, kinds[:-1, kind], strict=True) if there)
        verdicts.refuse(numbers[which == kind], _status(plugin, reasons, bool(kinds[-1, kind])))
    open_rows &= ~touched


def _distinct(masks: BoolArray) -> tuple[BoolArray, npt.NDArray[np.intp]]:
    """Return the distinct columns of the masks, and for each column the index of its distinct column."""
    if len(masks) > 62:
        kinds, which = np.unique(masks, axis=1, return_inverse=True)
        return kinds, which.reshape(-1)
    # A column read as a binary number: sorting numbers is many times faster than sorting columns.
    _, first, which = np.unique((1 << np.arange(len(masks))) @ masks, return_index=True, return_inverse=True)
    return masks[:, first], which


def _numbers(nodes: NodeView, mask: BoolArray) -> npt.NDArray[np.intp]:
    return np.flatnonzero(mask) if nodes.is_whole else nodes.row_numbers[mask]


def _status(plugin: str, reasons: tuple[str, ...], unresolvable: bool) -> Status:
    return Status(Code.UNRESOLVABLE if unresolvable else Code.UNSCHEDULABLE, plugin, reasons)


def run_score(profile: Profile, found: PreFiltered, pod: PodInfo, feasible: NodeView) -> Scores:
    """Run PreScore, Score and NormalizeScore, and weight the scores.

    Raises  PluginError if a normalised score is outside 0-100 or has the wrong shape
    """
    snapshot = feasible.snapshot
    states: dict[str, Any] = {}
    skipped: set[str] = set()
    for step in profile.at("preScore"):
        answer = ask(step, "preScore", pod, snapshot, feasible)
        if isinstance(answer, Skip):
            skipped.add(step.name)
        else:
            states[step.name] = answer
    total = feasible.zeros()
    raw: dict[str, IntArray] = {}
    final: dict[str, IntArray] = {}
    for step in profile.at("score"):
        if step.name in skipped:
            continue
        state = states[step.name] if step.name in states else found.states.get(step.name, pod)
        raw[step.name] = scored(step, state, feasible)
        scores = normalized(step, state, raw[step.name], feasible)
        check_range(step, scores, feasible)
        final[step.name] = scores * profile.weights.get(step.name, 1)
        total = total + final[step.name]
    return Scores(feasible.row_numbers, total, raw, final)


def scored(step: Step, state: Any, nodes: NodeView) -> IntArray:
    """Return the raw scores that one plugin gives the rows of a view."""
    return checked(step, "score", ask(step, "score", state, nodes), len(nodes))


def normalized(step: Step, state: Any, scores: IntArray, nodes: NodeView | None = None) -> IntArray:
    """Return the plugin's normalised scores; the raw ones if it does not normalise.

    ``nodes`` are the rows that were scored; required only for plugins with ``normalize_over``.
    """
    if step.normalize is None:
        return scores
    try:
        answer = step.normalize.call(state, scores, nodes) if step.over_nodes else step.normalize.call(state, scores)
    except RAISED as error:
        raise PluginError(step.name, f"failed in normalize: {failure_text(error)}") from error
    return checked(step, "normalize", answer, len(scores))


def checked(step: Step, point: str, scores: Any, rows: int) -> IntArray:
    """Return the scores of a plugin, after checking that they are an array of integers, one for each row.

    Raises  PluginError if they are not
    """
    if not isinstance(scores, np.ndarray) or scores.shape != (rows,) or scores.dtype.kind not in "iu":
        raise PluginError(
            step.name, f"returned {scores!r} in {point}; return an int64 array with one score for each of {rows} rows"
        )
    return scores


def are_in_range(scores: npt.NDArray[Any]) -> bool:
    """Return True if all scores are in 0-100."""
    if len(scores) > _FEW:
        # Read as unsigned, a negative score is a huge one. argmax is several times faster than max.
        unsigned = scores.astype(np.int64, copy=False).view(np.uint64)
        return unsigned.item(unsigned.argmax()) <= MAX_SCORE
    values: list[int] = scores.tolist()
    return not values or (min(values) >= 0 and max(values) <= MAX_SCORE)


def check_range(step: Step, scores: IntArray, feasible: NodeView) -> None:
    """Raise PluginError unless all normalised scores are in 0-100."""
    if are_in_range(scores):
        return
    wrong = np.flatnonzero((scores < 0) | (scores > MAX_SCORE))
    if len(wrong):
        at = int(wrong[0])
        name = feasible.table.nodes[int(feasible.row_numbers[at])].name
        raise PluginError(
            step.name,
            f"scored node {name} {scores[at]}; scores must be in the range [0, {MAX_SCORE}] after normalizing",
        )


def shifted(
    profile: Profile, found: PreFiltered, pod: PodInfo, others: Iterable[tuple[str, PodInfo]], node: NodeInfo
) -> PreFiltered:
    """Return the PreFilter results after pods are added to or removed from ``node``.

    ``others`` pairs ``"add_pod"`` or ``"remove_pod"`` with a pod; the node table must have been changed already.
    """
    states = dict(found.states)
    for method, other in others:
        for step in profile.at("preFilter"):
            change = step.add_pod if method == "add_pod" else step.remove_pod
            if change is not None and step.name in states:
                try:
                    states[step.name] = change.call(states[step.name], pod, other, node)
                except RAISED as error:
                    raise PluginError(step.name, f"failed in {method}: {failure_text(error)}") from error
    return PreFiltered(states, found.skipped, found.nodes, found.narrowed_by, found.refused, found.narrowing_rejects)
