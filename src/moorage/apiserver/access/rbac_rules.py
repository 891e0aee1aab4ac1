"""What a rule of RBAC lets through, and whether rules someone holds cover rules they want to give.

Source  kubernetes, pkg/apis/rbac/v1/evaluation_helpers.go; component-helpers, auth/rbac/validation/policy_comparator.go
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

import msgspec

from moorage.api.rbac import PolicyRule

__all__ = ["Attributes", "allows", "comparisons", "merged", "missing", "shown"]


class Attributes(NamedTuple):
    """What a request is about to do: a verb on a resource, or on a ``path`` that is none."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""

    @property
    def combined(self) -> str:
        """The resource as rules name it, such as ``pods/binding``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def allows(rule: PolicyRule, asked: Attributes) -> bool:
    """Return True where a rule lets a request through."""
    if not _any(rule.verbs, asked.verb):
        return False
    if asked.path:
        return any(_covers_path(held, asked.path) for held in rule.paths)
    return (
        _any(rule.api_groups, asked.group)
        and _resource(rule.resources, asked.combined, asked.subresource)
        and (not rule.resource_names or asked.name in rule.resource_names)
    )


def _any(held: Collection[str], asked: str) -> bool:
    return "*" in held or asked in held


def _resource(held: Collection[str], combined: str, subresource: str) -> bool:
    return _any(held, combined) or (bool(subresource) and f"*/{subresource}" in held)


def _covers_path(held: str, asked: str) -> bool:
    return held in {"*", asked} or (held.endswith("*") and asked.startswith(held.rstrip("*")))


# -- covering -----------------------------------------------------------------------------------------------------------


#: Steps that a rule takes, and each combination of its values that is not covered; a rule that is passed over takes one.
_STEPS_OF_RULE: Final = 120
_STEPS_OF_PART: Final = 8


def missing(held: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return what of the wanted rules is not covered by those held, as rules of one verb, group, resource and name each."""
    sets = [_Held(rule) for rule in held]
    return [part for rule in dict.fromkeys(wanted) for part in _lacking(sets, rule)]


def comparisons(held: Sequence[PolicyRule], wanted: Sequence[PolicyRule]) -> int:
    """Return how much work ``missing`` is at most, in steps of some 0.2 microseconds.

    A rule stands for every combination of its values.
    """
    return sum(_steps(len(held), rule) for rule in wanted)


def _steps(held: int, rule: PolicyRule) -> int:
    pairs = len(rule.verbs) * (len(rule.api_groups) + len(rule.paths))
    parts = pairs * len(rule.resources) * max(len(rule.resource_names), 1)
    return _STEPS_OF_RULE + held * (1 + pairs) + _STEPS_OF_PART * parts


class _Held:
    """A rule that is held, its values as sets."""

    __slots__ = ("groups", "names", "paths", "resources", "verbs")

    def __init__(self, rule: PolicyRule) -> None:
        self.verbs, self.groups = frozenset(rule.verbs), frozenset(rule.api_groups)
        self.resources, self.names = frozenset(rule.resources), frozenset(rule.resource_names)
        self.paths = rule.paths

    def covers(self, rule: PolicyRule) -> bool:
        """Return True where this rule alone covers all of another, which is so for most that are covered at all."""
        return (
            bool(rule.resources)
            and not rule.paths
            and ("*" in self.verbs or self.verbs.issuperset(rule.verbs))
            and ("*" in self.groups or self.groups.issuperset(rule.api_groups))
            and ("*" in self.resources or self.resources.issuperset(rule.resources))
            and (not self.names or (bool(rule.resource_names) and self.names.issuperset(rule.resource_names)))
        )


def _lacking(held: Sequence[_Held], rule: PolicyRule) -> Iterator[PolicyRule]:
    if any(one.covers(rule) for one in held):
        return
    for group, verb in product(dict.fromkeys(rule.api_groups), dict.fromkeys(rule.verbs)):
        fitting = [one for one in held if _any(one.verbs, verb) and _any(one.groups, group)]
        for resource in dict.fromkeys(rule.resources):
            part = PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,))
            yield from _lacking_of_one(fitting, part, dict.fromkeys(rule.resource_names))
    for verb in dict.fromkeys(rule.verbs):
        paths = {path for one in held if _any(one.verbs, verb) for path in one.paths}
        for path in dict.fromkeys(rule.paths):
            if not any(_covers_path(one, path) for one in paths):
                yield PolicyRule(verbs=(verb,), paths=(path,))


def _lacking_of_one(held: Iterable[_Held], part: PolicyRule, names: Iterable[str]) -> Iterator[PolicyRule]:
    """Yield a part if it is not covered, or what it would be for each name that is not."""
    resource = part.resources[0]
    allowed: set[str] = set()
    for one in held:
        if _resource(one.resources, resource, resource.partition("/")[2]):
            if not one.names:
                return
            allowed |= one.names
    if not names:
        yield part
    for name in names:
        if name not in allowed:
            yield msgspec.structs.replace(part, resource_names=(name,))


def merged(parts: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return rules of one verb each with those that differ in nothing else put together."""
    verbs: dict[PolicyRule, list[str]] = {}
    for part in parts:
        verbs.setdefault(msgspec.structs.replace(part, verbs=()), []).extend(part.verbs)
    return [msgspec.structs.replace(rule, verbs=tuple(dict.fromkeys(held))) for rule, held in verbs.items()]


def shown(rule: PolicyRule) -> str:
    """Return a rule on one line, as kube-apiserver words it."""
    parts = (
        ("APIGroups", rule.api_groups), ("Resources", rule.resources), ("NonResourceURLs", rule.paths),
        ("ResourceNames", rule.resource_names), ("Verbs", rule.verbs),
    )  # fmt: skip
    texts = [f"{name}:[{' '.join(_quoted(one) for one in values)}]" for name, values in parts if values]
    return "{" + ", ".join(texts) + "}"


def _quoted(text: str) -> str:
    return f'"{text}"'
