"""Karpenter's algebra of requirements: the values that a label may have, narrowed step by step.

A ``KeyRequirement`` is a set of values, or all values but some (``complement``), within whole numbers as bounds. Requirements
are a mapping from label to ``KeyRequirement``; a label that is not in it may have any value.

Source  karpenter, pkg/scheduling/requirement.go and requirements.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from moorage.api.core import NodeSelectorRequirement, Pod, PodSpec, Toleration
from moorage.api.node_selectors import required_nodes
from moorage.simulator.autoscalers.providers import ZONE_KEYS

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
NODE_POOL: Final = "karpenter.sh/nodepool"

#: Labels that a pod may ask for although a NodePool says nothing about them.
WELL_KNOWN: Final = frozenset({
    NODE_POOL, ZONE, "topology.kubernetes.io/region", INSTANCE_TYPE, "kubernetes.io/arch", "kubernetes.io/os", CAPACITY_TYPE,
    "node.kubernetes.io/windows-build",
})  # fmt: skip
#: Old names of well-known labels, and those that providers' drivers have for the zone.
_NORMALIZED: Final = {
    **dict.fromkeys(ZONE_KEYS, ZONE),
    "failure-domain.beta.kubernetes.io/zone": ZONE, "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": "kubernetes.io/arch", "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
}  # fmt: skip
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_LARGEST: Final = (1 << 63) - 1
#: How many values a text shows.
_SHOWN: Final = 5


class KeyRequirement(NamedTuple):
    """The values that a label may have. ``at_least`` and ``at_most`` are inclusive bounds; None: no bound."""

    key: str
    values: frozenset[str] = frozenset()
    complement: bool = False
    at_least: int | None = None
    at_most: int | None = None
    min_values: int | None = None

    @property
    def operator(self) -> str:
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    @property
    def only(self) -> str | None:
        """The one value that is left; None if there are more, or none."""
        return next(iter(self.values)) if len(self.values) == 1 and not self.complement else None

    @property
    def excludes(self) -> bool:
        """True for NotIn and DoesNotExist, which a node without the label satisfies."""
        return bool(self.values) if self.complement else not self.values

    def has(self, value: str) -> bool:
        """Return True if the label may have this value."""
        return (value in self.values) != self.complement and _within(value, self.at_least, self.at_most)

    def intersection(self, other: KeyRequirement) -> KeyRequirement:
        """Return the values that both allow, with the larger of both ``min_values``."""
        least, most = self._bounds(other)
        min_values = _either(max, self.min_values, other.min_values)
        if least is not None and most is not None and least > most:
            return KeyRequirement(self.key, min_values=min_values)
        values = self._shared(other)
        if least is not None or most is not None:
            values = frozenset(value for value in values if _within(value, least, most))
        if self.complement and other.complement:
            return KeyRequirement(self.key, values, True, least, most, min_values)
        return KeyRequirement(self.key, values, min_values=min_values)

    def _bounds(self, other: KeyRequirement) -> tuple[int | None, int | None]:
        return _either(max, self.at_least, other.at_least), _either(min, self.at_most, other.at_most)

    def _shared(self, other: KeyRequirement) -> frozenset[str]:
        """Return the values that both name: those that are left, or excluded if both are complements."""
        if self.complement:
            return self.values | other.values if other.complement else other.values - self.values
        return self.values - other.values if other.complement else self.values & other.values

    def meets(self, other: KeyRequirement) -> bool:
        """Return True if both allow a common value."""
        least, most = self._bounds(other)
        if least is not None and most is not None and least > most:
            return False
        if self.complement and other.complement:
            return True
        return any(_within(value, least, most) for value in self._shared(other))

    def __str__(self) -> str:
        text = f"{self.key} {self.operator}"
        if self.values:
            shown = sorted(self.values)
            if len(shown) > _SHOWN:
                shown = [*shown[:_SHOWN], f"and {len(shown) - _SHOWN} others"]
            text += f" [{' '.join(shown)}]"
        text += "" if self.at_least is None else f" >={self.at_least}"
        text += "" if self.at_most is None else f" <={self.at_most}"
        return text + ("" if self.min_values is None else f" minValues {self.min_values}")


#: Label → the values that it may have.
Requirements: TypeAlias = Mapping[str, KeyRequirement]


def _whole(text: str) -> int | None:
    """Return a whole number as Go's Atoi reads it; None if it is none."""
    if not _WHOLE.fullmatch(text):
        return None
    found = int(text)
    return found if -_LARGEST - 1 <= found <= _LARGEST else None


def _within(value: str, least: int | None, most: int | None) -> bool:
    if least is None and most is None:
        return True
    number = _whole(value)
    return number is not None and (least is None or number >= least) and (most is None or number <= most)


def _either(better: Callable[[int, int], int], one_: int | None, other: int | None) -> int | None:
    return other if one_ is None else one_ if other is None else better(one_, other)


def one(key: str, operator: str, values: Collection[str] = (), min_values: int | None = None) -> KeyRequirement:
    """Return the requirement of an expression; Gt and Lt become inclusive bounds. Old names of labels become current ones."""
    key = _NORMALIZED.get(key, key)
    match operator:
        case "In" | "NotIn":
            return KeyRequirement(key, frozenset(values), operator == "NotIn", min_values=min_values)
        case "Exists":
            return KeyRequirement(key, complement=True, min_values=min_values)
        case "Gt" | "Lt" | "Gte" | "Lte":
            bound = _whole(next(iter(values), "")) or 0
            if operator == "Gt" and bound == _LARGEST:
                return KeyRequirement(key)
            if operator in {"Gt", "Gte"}:
                return KeyRequirement(key, complement=True, at_least=bound + (operator == "Gt"), min_values=min_values)
            return KeyRequirement(key, complement=True, at_most=bound - (operator == "Lt"), min_values=min_values)
        case _:
            return KeyRequirement(key, min_values=min_values)


def exists(key: str) -> KeyRequirement:
    """Return what holds for a label that nothing is said about: any value."""
    return KeyRequirement(key, complement=True)


def add_to(held: dict[str, KeyRequirement], more: Iterable[KeyRequirement]) -> dict[str, KeyRequirement]:
    """Narrow requirements by others, and return them."""
    for asked in more:
        known = held.get(asked.key)
        held[asked.key] = asked if known is None else asked.intersection(known)
    return held


def merged(held: Requirements, *more: Requirements) -> dict[str, KeyRequirement]:
    """Return requirements narrowed by others."""
    found = dict(held)
    for others in more:
        add_to(found, others.values())
    return found


def of_labels(labels: Mapping[str, str]) -> dict[str, KeyRequirement]:
    """Return what labels require: each its value."""
    return add_to({}, (one(key, "In", (value,)) for key, value in labels.items()))


def of_expressions(expressions: Iterable[NodeSelectorRequirement]) -> dict[str, KeyRequirement]:
    """Return what expressions require, all together."""
    return add_to({}, (one(asked.key, asked.operator, asked.values) for asked in expressions))


def of_data(given: Iterable[Mapping[str, Any]]) -> dict[str, KeyRequirement]:
    """Return what expressions in plain data require: key, operator, values, and minValues of NodePools."""
    return add_to({}, (
        one(str(held["key"]), str(held["operator"]), tuple(map(str, held.get("values") or ())), held.get("minValues"))
        for held in given
    ))  # fmt: skip


def of_pod(spec: PodSpec, *, strict: bool = False) -> dict[str, KeyRequirement]:
    """Return what a pod asks of nodes: its selector, the first required term, and unless ``strict`` its heaviest preference."""
    found = of_labels(spec.node_selector)
    affinity, required = spec.affinity and spec.affinity.node_affinity, required_nodes(spec)
    if not strict and affinity and (preferred := affinity.preferred_during_scheduling_ignored_during_execution):
        heaviest = max(preferred, key=lambda term: term.weight)
        add_to(found, of_expressions(heaviest.preference.match_expressions).values())
    if required is not None and required.node_selector_terms:
        add_to(found, of_expressions(required.node_selector_terms[0].match_expressions).values())
    return found


def first_clash(held: Requirements, asked: Requirements) -> tuple[KeyRequirement, KeyRequirement] | None:
    """Return what is asked and held for a label on which both have no common value; None if they go together."""
    return next(_clashes(held, asked), None)


def _clashes(held: Requirements, asked: Requirements) -> Iterator[tuple[KeyRequirement, KeyRequirement]]:
    """Yield what is asked and held for each label on which both have no common value.

    Two requirements that a node without the label satisfies go together.
    """
    fewer, more = (held, asked) if len(held) <= len(asked) else (asked, held)
    for key in fewer:
        if key in more:
            mine, its = held[key], asked[key]
            if not mine.meets(its) and not (mine.excludes and its.excludes):
                yield its, mine


def incompatibility(held: Requirements, asked: Requirements, undefined: Collection[str] = frozenset()) -> str:
    """Return Karpenter's sentence on why requirements cannot be met, for each label by name; "" if they can.

    ``undefined``  labels that may be asked for although ``held`` says nothing about them
    """
    key = _unknown(held, asked, undefined)
    if key is not None:
        return f'label "{key}" does not have known values{_hint(held, key, undefined)}'
    found = sorted((mine.key, f"key {mine.key}, {mine} not in {its}") for mine, its in _clashes(held, asked))
    return "; ".join(text for _, text in found)


def is_compatible(held: Requirements, asked: Requirements, undefined: Collection[str] = frozenset()) -> bool:
    """Return True if requirements can be met; see ``incompatibility``."""
    return _unknown(held, asked, undefined) is None and first_clash(held, asked) is None


def _unknown(held: Requirements, asked: Requirements, undefined: Collection[str]) -> str | None:
    for key, wanted in asked.items():
        if key not in undefined and key not in held and not wanted.excludes:
            return key
    return None


def _hint(held: Requirements, key: str, undefined: Collection[str]) -> str:
    """Return the known label that was perhaps meant. Upstream takes any; this is the first by name."""
    suffix = key.partition("/")[2] or key
    for known in (*sorted(undefined), *sorted(held)):
        if key in known or known.endswith(suffix):
            return f' (typo of "{known}"?)'
    return ""


def text_of(requirements: Requirements | Sequence[KeyRequirement]) -> str:
    """Return requirements as Karpenter prints them in events: sorted, without the host name."""
    listed = requirements.values() if isinstance(requirements, Mapping) else requirements
    return ", ".join(sorted(str(asked) for asked in listed if asked.key != HOSTNAME))


# -- preferences -------------------------------------------------------------------------------------------------------
# Relax a pod that fits nowhere: drop one preference after the other, in Karpenter's order.
#
# Source  karpenter, pkg/controllers/provisioning/scheduling/preferences.go

#: Returns a pod without a preference, and what was dropped; None if it has none.
_Step: TypeAlias = Callable[[Pod], tuple[Pod, str] | None]
_PREFER: Final = Toleration(operator="Exists", effect="PreferNoSchedule")


def relaxed(pod: Pod, *, tolerate: bool) -> tuple[Pod, str] | None:
    """Return a pod without its next preference, and what was dropped; None if it has none left.

    ``tolerate``  a pool has a PreferNoSchedule taint: the last step tolerates these
    """
    steps = (*_STEPS, tolerating_preferences) if tolerate else _STEPS
    return next((found for step in steps if (found := step(pod)) is not None), None)


def without_first_term(pod: Pod) -> tuple[Pod, str] | None:
    """Drop the first required node affinity term, but never the last."""
    affinity, required = pod.spec.affinity, required_nodes(pod.spec)
    if affinity is None or affinity.node_affinity is None or required is None or len(required.node_selector_terms) < 2:
        return None
    left = required.replace(node_selector_terms=required.node_selector_terms[1:])
    node = affinity.node_affinity.replace(required_during_scheduling_ignored_during_execution=left)
    made = pod.replace(spec=pod.spec.replace(affinity=affinity.replace(node_affinity=node)))
    return made, "a required node affinity term"


def _without_heaviest(part: Literal["pod_affinity", "pod_anti_affinity", "node_affinity"], dropped: str) -> _Step:
    """Return the step that drops the preference with the largest weight."""

    def step(pod: Pod) -> tuple[Pod, str] | None:
        affinity = pod.spec.affinity
        held = getattr(affinity, part, None)
        if affinity is None or held is None or not held.preferred_during_scheduling_ignored_during_execution:
            return None
        terms = sorted(held.preferred_during_scheduling_ignored_during_execution, key=lambda term: -term.weight)
        held = held.replace(preferred_during_scheduling_ignored_during_execution=tuple(terms[1:]))
        return pod.replace(spec=pod.spec.replace(affinity=affinity.replace(**{part: held}))), dropped

    return step


def _without_spread(pod: Pod) -> tuple[Pod, str] | None:
    held = list(pod.spec.topology_spread_constraints)
    at = next((at for at, asked in enumerate(held) if asked.when_unsatisfiable == "ScheduleAnyway"), None)
    if at is None:
        return None
    dropped, held[at] = held[at], held[-1]  # the last takes its place, as upstream
    spec = pod.spec.replace(topology_spread_constraints=tuple(held[:-1]))
    return pod.replace(spec=spec), f"a spread constraint on {dropped.topology_key}"


_STEPS: Final[tuple[_Step, ...]] = (
    without_first_term, _without_heaviest("pod_affinity", "a preferred pod affinity"),
    _without_heaviest("pod_anti_affinity", "a preferred pod anti-affinity"),
    _without_heaviest("node_affinity", "a preferred node affinity term"), _without_spread,
)  # fmt: skip


def tolerating_preferences(pod: Pod) -> tuple[Pod, str] | None:
    """Tolerate all taints with effect PreferNoSchedule; None if the pod does."""
    if any(held.key == "" and held.operator == "Exists" and held.effect == _PREFER.effect for held in pod.spec.tolerations):
        return None
    return pod.replace(spec=pod.spec.replace(tolerations=(*pod.spec.tolerations, _PREFER))), "PreferNoSchedule taints"
