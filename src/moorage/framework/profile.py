"""A profile: the plugins of one ``schedulerName``, in the order they run at each extension point.

Building a profile checks once which methods each plugin has. Plugins that judge one node at a time are wrapped here to judge a
view of many nodes, so that the runner of a profile handles columns only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from moorage.errors import PluginError
from moorage.framework.points import POINTS, AnyPlugin
from moorage.framework.verdicts import Hold, Reject
from moorage.state.columns import IntArray
from moorage.state.view import NodeView

__all__ = ["Profile", "Step", "Timer", "make_profile", "other_form"]

#: ``timer(point, plugin, seconds)`` receives the duration of each call.
Timer = Callable[[str, str, float], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One plugin at one extension point.

    ``one_by_one``: it judges each node with a separate call, so pass few nodes. ``rests_when_skipped``: it has nothing to do
    here for pods that its PreFilter skipped.
    """

    name: str
    plugin: AnyPlugin
    call: Callable[..., Any]
    one_by_one: bool = False
    rests_when_skipped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """The plugins that run for a scheduler name. ``steps`` holds those of each extension point, in order.

    ``run_all_filters``    the other Filter plugins judge a refused node too, and its status carries all their reasons
    ``nominated_first``    a node that the pod is nominated to is tried alone before all others
    """

    scheduler_name: str
    steps: Mapping[str, tuple[Step, ...]]
    weights: Mapping[str, int]
    percentage_of_nodes_to_score: int | None = None
    plugins: Mapping[str, AnyPlugin] = field(default_factory=dict)
    run_all_filters: bool = False
    nominated_first: bool = True
    placement_weights: Mapping[str, int] = field(default_factory=dict)
    #: Plugins that have nothing to do from Reserve on for pods that they skipped in PreFilter; ``_restless``: all others, by
    #: point.
    resting: frozenset[str] = field(init=False)
    _restless: Mapping[str, tuple[Step, ...]] = field(init=False)

    def __post_init__(self) -> None:
        steps = [step for in_point in self.steps.values() for step in in_point]
        restless = {
            point: tuple(step for step in in_point if not step.rests_when_skipped) for point, in_point in self.steps.items()
        }
        object.__setattr__(self, "resting", frozenset(step.name for step in steps if step.rests_when_skipped))
        object.__setattr__(self, "_restless", restless)

    def restless_at(self, point: str) -> tuple[Step, ...]:
        """Return the plugins of an extension point that run even for pods that they skipped in PreFilter."""
        return self._restless.get(point, ())

    def at(self, point: str) -> tuple[Step, ...]:
        return self.steps.get(point, ())

    def timed(self, clock: Callable[[], float], timer: Timer) -> Profile:
        """Return this profile with every call measured by ``clock`` (seconds) and reported to ``timer``."""
        steps = {
            point: tuple(replace(step, call=_timed(step.call, point, step.name, clock, timer)) for step in in_point)
            for point, in_point in self.steps.items()
        }
        return replace(self, steps=steps)


def other_form(step: Step, method: str, name: str) -> Step | None:
    """Return a step that calls ``name``, an equivalent form of the plugin's ``method``.

    None if the plugin lacks it, or if a subclass overrides ``method`` alone.
    """
    plugin = step.plugin
    for cls in type(plugin).__mro__:
        if name in cls.__dict__:
            return Step(step.name, plugin, getattr(plugin, name))
        if method in cls.__dict__:
            break
    return None


def make_profile(
    scheduler_name: str,
    plugins: Mapping[str, AnyPlugin],
    points: Mapping[str, Sequence[str]],
    weights: Mapping[str, int],
    percentage_of_nodes_to_score: int | None = None,
) -> Profile:
    """Build a profile.

    ``plugins`` by name; ``points``: extension point → names, in the order they run; ``weights`` of the score plugins. Names
    in ``points`` that are not in ``plugins`` are left out: the caller must report them.
    """
    steps = {
        point: tuple(_step(point, name, plugins[name]) for name in names if name in plugins) for point, names in points.items()
    }
    return Profile(scheduler_name, steps, dict(weights), percentage_of_nodes_to_score, plugins)


def _step(point: str, name: str, plugin: AnyPlugin) -> Step:
    method = next(m for m in POINTS[point] if callable(getattr(plugin, m, None)))
    call = getattr(plugin, method)
    if method == "filter_node":
        return Step(name, plugin, _lifted_filter(name, call), one_by_one=True)
    if method == "score_node":
        return Step(name, plugin, _lifted_score(name, call), one_by_one=True)
    return Step(name, plugin, call, rests_when_skipped=bool(getattr(plugin, "rests_when_skipped", False)))


def _lifted_filter(name: str, judge: Callable[..., Hold | None]) -> Callable[[Any, NodeView], Iterable[Reject]]:
    def over_the_table(state: Any, nodes: NodeView) -> Iterable[Reject]:
        rows_of: dict[tuple[tuple[str, ...], bool], list[int]] = {}
        for at, node in enumerate(nodes):
            hold = judge(state, node)
            if hold is not None:
                if not isinstance(hold, Hold):
                    raise PluginError(name, f"answered {hold!r} in filter_node; return None, or Hold.because(reason)")
                rows_of.setdefault((hold.reasons, hold.unresolvable), []).append(at)
        for (reasons, unresolvable), rows in rows_of.items():
            mask = nodes.false()
            mask[rows] = True
            for reason in reasons:
                yield Reject(mask, reason, unresolvable)

    return over_the_table


def _lifted_score(name: str, rate: Callable[..., int]) -> Callable[[Any, NodeView], IntArray]:
    def whole(score: object) -> int:
        if not isinstance(score, (int, np.integer)):
            raise PluginError(name, f"answered {score!r} in score_node; return an int")
        return int(score)

    def over_the_table(state: Any, nodes: NodeView) -> IntArray:
        return np.fromiter((whole(rate(state, node)) for node in nodes), dtype=np.int64, count=len(nodes))

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
