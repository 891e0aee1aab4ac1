"""A profile: the plugins of one ``schedulerName``, in the order they run at each extension point.

Building a profile resolves each plugin once: its methods become steps, its promises a ``Reuse``. Apart from ``explaining``, no
other module looks up the members of a plugin. Plugins that judge one node at a time are wrapped here to judge a view of many
nodes, so that the runner of a profile handles columns only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import numpy as np

from moorage.api.releases import CURRENT, Release
from moorage.basis.printable import clip
from moorage.errors import RAISED, InputError, PluginError
from moorage.framework.answer_forms import Domains
from moorage.framework.events import Wake
from moorage.framework.handle import Handle
from moorage.framework.points import POINTS, Plugin
from moorage.framework.proven_reuse import proven_reuse
from moorage.framework.reuse import Reuse
from moorage.framework.verdicts import Hold, Reject
from moorage.state.view import IntArray, NodeView, PodInfo, Snapshot

_NO_PROMISE: Final = Reuse()
#: The modules of built-in plugins, whose classes live as long as the process and do not change.
_BUILT_IN: Final = "moorage.plugins."
_POINT_METHODS: Final = frozenset(method for methods in POINTS.values() for method in methods)
#: ``timer(point, plugin, seconds)`` receives the duration of each call.
Timer = Callable[[str, str, float], None]


def _as_declared(plugin: str, declared: tuple[Wake, ...]) -> tuple[Wake, ...]:
    return declared


@dataclass(frozen=True, slots=True)
class Step:
    """One plugin at one extension point, and its other methods that belong to the point; None for a method it does not have.

    ``one_by_one``   the plugin judges each node with a separate call, so pass few nodes
    ``reuse``        the plugin's promises
    ``single``       Filter or Score of one node
    ``by_domain``    Filter or Score by topology domain (``Domains``)
    ``normalize``    NormalizeScore, of nodes or of placements; ``over_nodes``: it also receives the nodes
    ``add_pod``, ``remove_pod``  the state of PreFilter in what-ifs
    ``unreserve``    the counterpart of Reserve
    """

    name: str
    plugin: Plugin
    call: Callable[..., Any]
    one_by_one: bool = False
    reuse: Reuse = _NO_PROMISE
    single: Step | None = None
    by_domain: Step | None = None
    normalize: Step | None = None
    over_nodes: bool = False
    add_pod: Step | None = None
    remove_pod: Step | None = None
    unreserve: Step | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Profile:
    """The plugins that run for a scheduler name. ``steps`` holds those of each extension point, in order.

    ``run_all_filters``    the other Filter plugins judge a refused node too, and its status carries all their reasons
    ``nominated_first``    a node that the pod is nominated to is tried alone before all others
    ``waking``             returns the wakes of a plugin that has this name and declares these
    ``release``            the release whose rules and words apply
    ``pod_group_post_filter``  the plugin that looks for pods to evict for a whole pod group
    ``placement_feasible``     plugins that say after each pod of a group whether enough of them can be placed
    """

    scheduler_name: str
    steps: Mapping[str, tuple[Step, ...]]
    weights: Mapping[str, int]
    percentage_of_nodes_to_score: int | None = None
    plugins: Mapping[str, Plugin] = field(default_factory=dict)
    run_all_filters: bool = False
    nominated_first: bool = True
    release: Release = CURRENT
    waking: Callable[[str, tuple[Wake, ...]], tuple[Wake, ...]] = _as_declared
    placement_weights: Mapping[str, int] = field(default_factory=dict)
    pod_group_post_filter: Step | None = None
    placement_feasible: tuple[Step, ...] = ()
    #: Plugins that have nothing to do from Reserve on for pods that they skipped in PreFilter. ``restless`` has all others, by
    #: extension point; ``rests`` tells of some of the first ones whether they have nothing to do for other pods, too.
    resting: frozenset[str] = field(init=False)
    rests: Mapping[str, Callable[[PodInfo, Snapshot], bool]] = field(init=False)
    restless: Mapping[str, tuple[Step, ...]] = field(init=False)
    #: Plugin → the version of the data that it reads from outside the cluster.
    outside: Mapping[str, Callable[[], Hashable]] = field(init=False)
    #: Methods that follow the pods that the scheduler knows, by plugin.
    followers: Mapping[str, Callable[[PodInfo | None, PodInfo | None], None]] = field(init=False)
    #: The results of ``only``, by extension point and plugins.
    _parts: dict[tuple[str, tuple[str, ...]], Profile] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        steps = [step for in_point in self.steps.values() for step in in_point]
        restless = {
            point: tuple(step for step in in_point if not step.reuse.rests_when_skipped)
            for point, in_point in self.steps.items()
        }
        object.__setattr__(self, "resting", frozenset(step.name for step in steps if step.reuse.rests_when_skipped))
        object.__setattr__(self, "restless", restless)
        outside = {step.name: step.reuse.outside for step in steps if step.reuse.outside is not None}
        following = {name: getattr(plugin, "pod_changed", None) for name, plugin in self.plugins.items()}
        object.__setattr__(self, "outside", outside)
        object.__setattr__(self, "followers", {name: call for name, call in following.items() if call is not None})
        object.__setattr__(self, "rests", {step.name: step.reuse.rests for step in steps if step.reuse.rests is not None})

    def is_at_rest(self, names: Iterable[str], pod: PodInfo, snapshot: Snapshot) -> bool:
        """Return whether these of the ``resting`` plugins have nothing to do for a pod that they did not skip."""
        for name in names:
            rests = self.rests.get(name)
            if rests is None or not rests(pod, snapshot):
                return False
        return True

    def restless_at(self, point: str) -> tuple[Step, ...]:
        """Return the plugins of an extension point that run even for pods that they skipped in PreFilter."""
        return self.restless.get(point, ())

    def at(self, point: str) -> tuple[Step, ...]:
        return self.steps.get(point, ())

    def only(self, point: str, steps: tuple[Step, ...]) -> Profile:
        """Return this profile with only these plugins at an extension point; the same object each time."""
        key = point, tuple([step.name for step in steps])
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = replace(self, steps={**self.steps, point: steps})
        return part

    def distrusting(self, names: Set[str]) -> Profile:
        """Return this profile with plugins that run for every pod, in the form for many nodes, whatever they promise."""

        def plain(step: Step) -> Step:
            return replace(step, reuse=_NO_PROMISE, single=None, by_domain=None) if step.name in names else step

        steps = {point: tuple(map(plain, in_point)) for point, in_point in self.steps.items()}
        return replace(self, steps=steps)

    def without_scores(self) -> Profile:
        """Return this profile without PreScore and Score, for callers that ask only where a pod fits."""
        return replace(self, steps={point: steps for point, steps in self.steps.items() if point not in {"preScore", "score"}})

    def timed(self, clock: Callable[[], float], timer: Timer) -> Profile:
        """Return this profile with every call measured by ``clock`` (seconds) and reported to ``timer``."""
        steps = {
            point: tuple(replace(step, call=_timed(step.call, point, step.name, clock, timer)) for step in in_point)
            for point, in_point in self.steps.items()
        }
        return replace(self, steps=steps)


def make_profile(
    scheduler_name: str,
    plugins: Mapping[str, Plugin],
    points: Mapping[str, Sequence[str]],
    weights: Mapping[str, int],
    percentage_of_nodes_to_score: int | None = None,
) -> Profile:
    """Build a profile.

    ``plugins`` by name; ``points``: extension point → names, in the order they run; ``weights`` of the score plugins. Names
    in ``points`` that are not in ``plugins`` are left out: the caller must report them.
    """
    reuse = {name: kept_reuse(plugin) for name, plugin in plugins.items()}
    methods = {name: _methods_of(plugin) for name, plugin in plugins.items()}
    steps = {
        point: tuple(_step(point, methods[name][point], name, plugins[name], reuse[name]) for name in names if name in plugins)
        for point, names in points.items()
    }
    # A plugin that scores with its PreScore disabled, if ``pre_score_disabled`` replaces that.
    alone = {name: getattr(plugins.get(name), "pre_score_disabled", None) for name in points.get("score", ())}
    for name, call in alone.items():
        if call is not None and name not in points.get("preScore", ()):
            steps["preScore"] = (*steps.get("preScore", ()), Step(name, plugins[name], call, reuse=reuse[name]))
    for_groups = (_other(name, plugin, "pod_group_post_filter") for name, plugin in plugins.items())
    judging = (_other(name, plugin, "placement_feasible") for name, plugin in plugins.items())
    return Profile(
        scheduler_name, steps, dict(weights), percentage_of_nodes_to_score, plugins,
        pod_group_post_filter=next((step for step in for_groups if step is not None), None),
        placement_feasible=tuple(step for step in judging if step is not None),
    )  # fmt: skip


# -- the members of a plugin ----------------------------------------------------------------------------------------------


def points_of(plugin: object) -> tuple[str, ...]:
    """Return the extension points that a plugin, or a plugin's class, implements, in the order they run."""
    return tuple(_methods_of(plugin))


def _methods_of(plugin: object) -> Mapping[str, str]:
    """Return the extension points that a plugin implements, each with the method that does; found once for built-in classes."""
    cls: type = type(plugin)
    is_fixed = cls.__module__.startswith(_BUILT_IN) and _POINT_METHODS.isdisjoint(_own(plugin))
    return _methods_of_class(cls) if is_fixed else _find_methods(plugin)


@cache
def _methods_of_class(cls: Hashable) -> Mapping[str, str]:
    return _find_methods(cls)


def _find_methods(plugin: object) -> Mapping[str, str]:
    found = {}
    for point, methods in POINTS.items():
        for method in methods:
            if callable(getattr(plugin, method, None)):
                found[point] = method
                break
    return found


def declared_name(plugin: object) -> str | None:
    """Return the name of a plugin or of its class; None if it is not a usable string."""
    name = getattr(plugin, "name", None)
    return name if isinstance(name, str) and name else None


def is_built_in(plugin: object) -> bool:
    """Return whether a plugin's class is one of Moorage's own."""
    return type(plugin).__module__.startswith(_BUILT_IN)


def args_of(cls: object) -> type[Any] | None:
    """Return the struct of a plugin class's arguments; None if it takes none."""
    found: type[Any] | None = getattr(cls, "Args", None)
    return found


def attach(plugin: Plugin, handle: Handle) -> None:
    """Give the plugin access to the running scheduler, if it asks for it."""
    method = getattr(plugin, "attach", None)
    if method is not None:
        method(handle)


def declared_wakes(plugin: Plugin) -> tuple[Wake, ...] | None:
    """Return the ``Wake`` values of ``wakes_on``; None if the plugin has no such method."""
    method = getattr(plugin, "wakes_on", None)
    return None if method is None else tuple(method())


def writes_pods(plugin: Plugin) -> bool:
    """Return the plugin's ``writes_pods``: whether it changes pods. False if it has no such attribute."""
    return bool(getattr(plugin, "writes_pods", False))


def binds_alone(plugin: Plugin, call: object) -> bool:
    """Return whether ``call`` is the plugin's own ``bind``, and its class says ``binds_alone``: one effect, and nothing read.

    A subclass says it itself, since it may bind otherwise.
    """
    return bool(vars(type(plugin)).get("binds_alone", False)) and call == getattr(plugin, "bind", None)


def reuse_of(plugin: Plugin) -> Reuse:
    """Return what a plugin promises. A subclass that overrides a method must repeat ``reuse``, or it promises nothing.

    Raises  InputError if ``reuse`` is no Reuse, or cannot be read
    """
    for cls in () if "reuse" in _own(plugin) else type(plugin).__mro__:
        if "reuse" in cls.__dict__:
            break
        # A built-in plugin of another release keeps the promises of the plugin that it varies.
        if cls is object or not (cls.__module__.startswith(_BUILT_IN) or _COVERED.isdisjoint(cls.__dict__)):
            return _NO_PROMISE
    try:
        declared = getattr(plugin, "reuse")  # noqa: B009 (a Plugin need not have it)
    except RAISED as error:  # it may be a property
        raise InputError(f"plugin {plugin.name} failed in reuse: {type(error).__name__}: {clip(str(error))}") from error
    if not isinstance(declared, Reuse):
        raise InputError(f"plugin {plugin.name}: declares reuse = {declared!r:.100}; declare Reuse(scope=..., signature=...)")
    return declared


def kept_reuse(plugin: Plugin) -> Reuse:
    """Return what a plugin promises, or what its methods are proven to keep if it promises nothing.

    Raises  InputError as ``reuse_of`` does
    """
    declared = reuse_of(plugin)
    if declared is not _NO_PROMISE or is_built_in(plugin):
        return declared
    return proven_reuse(plugin) or declared


def _own(plugin: object) -> Mapping[str, Any]:
    """Return the attributes of the plugin's instance, without those of its classes."""
    members: Mapping[str, Any] = getattr(plugin, "__dict__", {})
    return members


#: Methods whose answers ``reuse`` is about.
_COVERED = frozenset([
    "pre_filter", "add_pod", "remove_pod", "filter", "filter_node", "post_filter", "pre_score", "score", "score_node",
    "normalize", "normalize_over", "reserve", "permit", "pre_bind", "bind", "post_bind",
])  # fmt: skip


def _step(point: str, method: str, name: str, plugin: Plugin, reuse: Reuse) -> Step:
    call = getattr(plugin, method)
    if point == "postFilter" and not _promises_post_filter(plugin):
        reuse = replace(reuse, signature=None)
    if method == "filter_node":
        call = _lifted_filter(name, call)
    elif method == "score_node":
        call = _lifted_score(name, call)
    others = _other_methods(point, name, plugin, reuse.domains or Domains())
    return Step(name, plugin, call, method in {"filter_node", "score_node"}, reuse, **others)


def _other_methods(point: str, name: str, plugin: Plugin, domains: Domains[Any, Any]) -> dict[str, Any]:
    """Return the fields of a step that hold the plugin's other methods for an extension point."""
    match point:
        case "preFilter":
            return {"add_pod": _other(name, plugin, "add_pod"), "remove_pod": _other(name, plugin, "remove_pod")}
        case "filter":
            return {"single": _twin(name, plugin, "filter", "filter_node"), "by_domain": _form(name, plugin, domains.closed)}
        case "score":
            normalize, over = _other(name, plugin, "normalize"), _other(name, plugin, "normalize_over")
            return {
                "single": _twin(name, plugin, "score", "score_node"),
                "by_domain": _form(name, plugin, domains.scores),
                "normalize": normalize or over,
                "over_nodes": normalize is None and over is not None,
            }
        case "reserve":
            return {"unreserve": _other(name, plugin, "unreserve")}
        case "placementScore":
            return {"normalize": _other(name, plugin, "normalize_placements")}
    return {}


def _form(name: str, plugin: Plugin, call: Callable[..., Any] | None) -> Step | None:
    return None if call is None else Step(name, plugin, call)


def _other(name: str, plugin: Plugin, method: str) -> Step | None:
    return _form(name, plugin, getattr(plugin, method, None))


def _twin(name: str, plugin: Plugin, method: str, twin: str) -> Step | None:
    """Return a step for an equivalent of ``method``; None if the plugin has none, or a subclass overrides ``method`` alone."""
    for cls in type(plugin).__mro__:
        if twin in cls.__dict__:
            return _other(name, plugin, twin)
        if method in cls.__dict__:
            break
    return None


def _lifted_filter(name: str, judge: Callable[..., Hold | None]) -> Callable[[Any, NodeView], Iterable[Reject]]:
    def over_the_table(state: Any, nodes: NodeView) -> Iterable[Reject]:
        # Plugins mostly return the same object for the same reason, so that its rows are found without comparing texts.
        rows_of: dict[tuple[tuple[str, ...], bool], list[int]] = {}
        last: Hold | None = None
        rows: list[int] = []
        for at, hold in enumerate([judge(state, node) for node in nodes]):
            if hold is None:
                continue
            if hold is not last:
                if not isinstance(hold, Hold):
                    raise PluginError(name, f"returned {hold!r} in filter_node; return None, or Hold.because(reason)")
                last, rows = hold, rows_of.setdefault((hold.reasons, hold.unresolvable), [])
            rows.append(at)
        for (reasons, unresolvable), rows in rows_of.items():
            mask = nodes.false()
            mask[rows] = True
            for reason in reasons:
                yield Reject(mask, reason, unresolvable)

    return over_the_table


def _lifted_score(name: str, rate: Callable[..., int]) -> Callable[[Any, NodeView], IntArray]:
    def whole(score: object) -> int:
        if not isinstance(score, (int, np.integer)):
            raise PluginError(name, f"returned {score!r} in score_node; return an int")
        return int(score)

    def over_the_table(state: Any, nodes: NodeView) -> IntArray:
        scores = [rate(state, node) for node in nodes]
        if set(map(type, scores)) == {int}:
            try:
                return np.array(scores, dtype=np.int64)
            except OverflowError as error:
                raise PluginError(name, f"returned {max(scores, key=abs)} in score_node; return a smaller int") from error
        return np.fromiter((whole(score) for score in scores), dtype=np.int64, count=len(nodes))

    return over_the_table


def _timed(call: Callable[..., Any], point: str, name: str, clock: Callable[[], float], timer: Timer) -> Callable[..., Any]:
    def measured(*args: Any) -> Any:
        begun = clock()
        answer = call(*args)
        if point in {"filter", "preBind", "bind"} and not isinstance(answer, Hold) and hasattr(answer, "__next__"):
            answer = list(answer)
        timer(point, name, clock() - begun)
        return answer

    return measured


def _promises_post_filter(plugin: Plugin) -> bool:
    """Return whether the signature covers PostFilter: with a ``reuse`` that is declared with it, or later."""
    for members in (_own(plugin), *(cls.__dict__ for cls in type(plugin).__mro__)):
        if "reuse" in members:
            return True
        if "post_filter" in members:
            break
    return False
