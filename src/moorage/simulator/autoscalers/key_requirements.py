"""Karpenter's algebra of requirements: the values that a label may have, narrowed step by step.

A ``KeyRequirement`` is a set of values, or all values but some (``complement``), within whole numbers as bounds. Requirements
are a mapping from label to ``KeyRequirement``; a label that is not in it may have any value.

Source  karpenter, pkg/scheduling/requirement.go and requirements.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from moorage.api.core import NodeSelectorRequirement, PodSpec

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
#: Old names of well-known labels.
_NORMALIZED: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
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


def add_to(held: dict[str, KeyRequirement], more: Iterable[KeyRequirement]) -> None:
    """Narrow requirements by others."""
    for asked in more:
        known = held.get(asked.key)
        held[asked.key] = asked if known is None else asked.intersection(known)


def merged(held: Requirements, *more: Requirements) -> dict[str, KeyRequirement]:
    """Return requirements narrowed by others."""
    found = dict(held)
    for others in more:
        add_to(found, others.values())
    return found


def of_labels(labels: Mapping[str, str]) -> dict[str, KeyRequirement]:
    """Return what labels require: each its value."""
    found: dict[str, KeyRequirement] = {}
    add_to(found, (one(key, "In", (value,)) for key, value in labels.items()))
    return found


def of_expressions(expressions: Iterable[NodeSelectorRequirement]) -> dict[str, KeyRequirement]:
    """Return what expressions require, all together."""
    found: dict[str, KeyRequirement] = {}
    add_to(found, (one(asked.key, asked.operator, asked.values) for asked in expressions))
    return found


def of_data(given: Iterable[Mapping[str, Any]]) -> dict[str, KeyRequirement]:
    """Return what expressions in plain data require: key, operator, values, and minValues of NodePools."""
    found: dict[str, KeyRequirement] = {}
    for one_ in given:
        values = tuple(map(str, one_.get("values") or ()))
        add_to(found, (one(str(one_["key"]), str(one_["operator"]), values, one_.get("minValues")),))
    return found


def of_pod(spec: PodSpec, *, strict: bool = False) -> dict[str, KeyRequirement]:
    """Return what a pod asks of nodes: its selector, the first required term, and unless ``strict`` its heaviest preference."""
    found = of_labels(spec.node_selector)
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None:
        return found
    if not strict and (preferred := affinity.preferred_during_scheduling_ignored_during_execution):
        heaviest = max(preferred, key=lambda term: term.weight)
        add_to(found, of_expressions(heaviest.preference.match_expressions).values())
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None and required.node_selector_terms:
        add_to(found, of_expressions(required.node_selector_terms[0].match_expressions).values())
    return found


def first_clash(held: Requirements, asked: Requirements) -> tuple[KeyRequirement, KeyRequirement] | None:
    """Return what is asked and held for the first label on which both have no common value; None if they go together.

    Two requirements that a node without the label satisfies go together.
    """
    fewer, more = (held, asked) if len(held) <= len(asked) else (asked, held)
    for key in fewer:
        if key in more:
            mine, its = held[key], asked[key]
            if not mine.meets(its) and not (mine.excludes and its.excludes):
                return its, mine
    return None


def incompatibility(held: Requirements, asked: Requirements, undefined: Collection[str] = frozenset()) -> str:
    """Return Karpenter's sentence on why requirements cannot be met; "" if they can.

    ``undefined``  labels that may be asked for although ``held`` says nothing about them
    """
    key = _unknown(held, asked, undefined)
    if key is not None:
        return f'label "{key}" does not have known values{_hint(held, key, undefined)}'
    found = first_clash(held, asked)
    return "" if found is None else f"key {found[0].key}, {found[0]} not in {found[1]}"


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
