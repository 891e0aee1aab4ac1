"""Which change of a release moves a pod: the cluster runs as release B with one rule at a time as in release A.

A rule is a feature gate with another value, a plugin with another rule, or a trait of the release. A pod that is where A puts
it once a rule is A's moves because of that rule. Pods that no rule alone moves back move because of several together, or by
chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from dataclasses import replace as with_fields
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from moorage.api.releases.release import Release
from moorage.core.config.scheduler_document import Loaded
from moorage.core.config.upgrade import change_texts
from moorage.errors import MoorageError
from moorage.framework.profile import points_of
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.compare.measured_run import RunInput, RunSeries
from moorage.plugins import builtin_registry
from moorage.report.comparison import PodMove
from moorage.simulator.simulate import Options, load_options

SEVERAL: Final = "several changes together, or chance"
_GROUPS: Final = "groups_as_one"
#: Fields of a release that no decision depends on, or that have rows of their own.
_ASIDE: Final = frozenset({
    "name", "documents", "gates", "inert_gates", "dependent_gates", "fixed_gates", "opened_with", "gated_kinds", "variants",
    "lacks", "removed_plugins", "lacks_flags", "own_flags", "lacks_points", "compared", "legacy_flags", "policy_flags",
    "election_flags_override", "default_lock", "locks", "names_election_fields", "lease_may_equal_deadline", "open_paths",
    "serves_resource_metrics", "weight_range", "group_versions", "drops_later_pod_fields", "retries_binds",
})  # fmt: skip
#: Traits that ``change_texts`` has no words for.
_WORDS: Final = {
    _GROUPS: "pod groups are tried, refused and preempt as one",
    "nominates_gated_pods": "gated pods that name a node are nominated to it",
}


class _Rule(NamedTuple):
    """A change from A to B in words, and the configuration of B with that rule as in A."""

    text: str
    undone: Callable[[], Loaded]


def with_causes(
    moves: Sequence[PodMove], given: RunInput, options: tuple[Options, Options], seed: int, budget: TimeBudget
) -> tuple[PodMove, ...]:
    """Return moves with their causes, as far as the time allows; ``options`` are those of A and of B."""
    a, b = (load_options(one) for one in options)
    if not moves or a.release == b.release or a.gates.emulated.legacy_flags or b.gates.emulated.legacy_flags:
        return tuple(moves)
    left, found = {move.pod: move for move in moves}, dict[str, str]()
    for rule in _rules(a, b):
        if not left or budget.is_over():
            break
        try:
            run = RunSeries(given, options[1], rule.undone()).measure(seed)
        except MoorageError:  # the releases have no such mixture
            continue
        back = [pod for pod, move in left.items() if (run.placements or {}).get(pod, "") == move.a]
        found |= dict.fromkeys(back, rule.text)
        for pod in back:
            del left[pod]
    rest = "" if budget.is_over() else SEVERAL
    return tuple(replace(move, cause=found.get(move.pod, rest)) for move in moves)


def _rules(a: Loaded, b: Loaded) -> Iterator[_Rule]:
    before, after = a.gates.emulated, b.gates.emulated
    words = {**_WORDS, **(change_texts(b.profiles[0], before, after) if b.profiles else {})}
    registry = builtin_registry(a.release)
    gates = {name for name in before.gates.keys() & after.gates.keys() if a.gates[name] != b.gates[name]}
    plugins = {
        name
        for name in before.variants.keys() | after.variants.keys()
        if before.variants.get(name) != after.variants.get(name) and name in registry and name in b.registry
    }
    plugins = {name for name in plugins if set(points_of(b.registry[name])) <= set(points_of(registry[name]))}
    traits = {one.name for one in fields(Release)} - _ASIDE
    traits = {name for name in traits if getattr(before, name) != getattr(after, name)}
    if _GROUPS in traits:
        traits.discard(_GROUPS)
        others = plugins - {"DefaultPreemption", "GangScheduling"}
        yield _Rule(words[_GROUPS], lambda: _with(
            a, {name: b.gates[name] for name in gates}, {name: getattr(after, name) for name in traits},
            {name: b.registry[name] for name in others},
        ))  # fmt: skip
    for name in sorted(gates):
        text = f"gate {name} is {'on' if b.gates[name] else 'off'}"
        yield _Rule(text, partial(_with, b, gates={name: a.gates[name]}))
    for name in sorted(plugins):
        yield _Rule(words.get(name, f"the rule of {name}"), partial(_with, b, plugins={name: registry[name]}))
    for name in sorted(traits):
        text = words.get(name, name.replace("_", " "))
        yield _Rule(text, partial(_with, b, traits={name: getattr(before, name)}))


def _with(
    loaded: Loaded, gates: Mapping[str, bool] = {}, traits: Mapping[str, Any] = {}, plugins: Mapping[str, Any] = {}
) -> Loaded:
    """Return a configuration with some of its gates, traits and plugin classes replaced."""
    return with_fields(loaded, gates=loaded.gates.varied(gates, traits), registry=loaded.registry.with_classes(plugins))
