"""RBAC rules: whether a rule allows a request, and whether the rules that a user holds cover those they want to grant.

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
    """The attributes of a request: a verb on a resource, or on a non-resource ``path``."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""

    @property
    def combined(self) -> str:
        """The resource as rules write it, such as ``pods/binding``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def allows(rule: PolicyRule, request: Attributes) -> bool:
    """Return True if a rule allows a request."""
    if not _any(rule.verbs, request.verb):
        return False
    if request.path:
        return any(_covers_path(held, request.path) for held in rule.paths)
    return (
        _any(rule.api_groups, request.group)
        and _resource(rule.resources, request.combined, request.subresource)
        and (not rule.resource_names or request.name in rule.resource_names)
    )


def _any(held: Collection[str], request: str) -> bool:
    return "*" in held or request in held


def _resource(held: Collection[str], combined: str, subresource: str) -> bool:
    return _any(held, combined) or (bool(subresource) and f"*/{subresource}" in held)


def _covers_path(held: str, request: str) -> bool:
    return held in {"*", request} or (held.endswith("*") and request.startswith(held.rstrip("*")))


# -- covering ----------------------------------------------------------------------------------------------------------


#: Cost in steps of one rule and of each combination of its values. Skipping a held rule costs one step.
_STEPS_OF_RULE: Final = 120
_STEPS_OF_PART: Final = 8


def missing(held: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Split ``wanted`` into rules with a single verb, group, resource and name; return those that ``held`` does not cover."""
    sets = [_Held(rule) for rule in held]
    return [part for rule in dict.fromkeys(wanted) for part in _lacking(sets, rule)]


def comparisons(held: Sequence[PolicyRule], wanted: Sequence[PolicyRule]) -> int:
    """Return an upper bound of the work of ``missing``, in steps of about 0.2 microseconds.

    The cost of a rule grows with the number of combinations of its values.
    """
    return sum(_steps(len(held), rule) for rule in wanted)


def _steps(held: int, rule: PolicyRule) -> int:
    pairs = len(rule.verbs) * (len(rule.api_groups) + len(rule.paths))
    parts = pairs * len(rule.resources) * max(len(rule.resource_names), 1)
    return _STEPS_OF_RULE + held * (1 + pairs) + _STEPS_OF_PART * parts


class _Held:
    """A held rule with its values as sets."""

    __slots__ = ("groups", "names", "paths", "resources", "verbs")

    def __init__(self, rule: PolicyRule) -> None:
        self.verbs, self.groups = frozenset(rule.verbs), frozenset(rule.api_groups)
        self.resources, self.names = frozenset(rule.resources), frozenset(rule.resource_names)
        self.paths = rule.paths

    def covers(self, rule: PolicyRule) -> bool:
        """Return True if this rule alone covers another. Most covered rules are covered by a single rule."""
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
        candidates = [one for one in held if _any(one.verbs, verb) and _any(one.groups, group)]
        for resource in dict.fromkeys(rule.resources):
            part = PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,))
            yield from _lacking_names(candidates, part, dict.fromkeys(rule.resource_names))
    for verb in dict.fromkeys(rule.verbs):
        paths = {path for one in held if _any(one.verbs, verb) for path in one.paths}
        for path in dict.fromkeys(rule.paths):
            if not any(_covers_path(one, path) for one in paths):
                yield PolicyRule(verbs=(verb,), paths=(path,))


def _lacking_names(held: Iterable[_Held], part: PolicyRule, names: Iterable[str]) -> Iterator[PolicyRule]:
    """Yield ``part`` (one verb, group and resource) unless it is covered; with names, a rule for each name not covered."""
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
    """Merge rules that differ only in their verb."""
    verbs: dict[PolicyRule, list[str]] = {}
    for part in parts:
        verbs.setdefault(msgspec.structs.replace(part, verbs=()), []).extend(part.verbs)
    return [msgspec.structs.replace(rule, verbs=tuple(dict.fromkeys(held))) for rule, held in verbs.items()]


def shown(rule: PolicyRule) -> str:
    """Return a rule on one line, in kube-apiserver's format."""
    parts = (
        ("APIGroups", rule.api_groups), ("Resources", rule.resources), ("NonResourceURLs", rule.paths),
        ("ResourceNames", rule.resource_names), ("Verbs", rule.verbs),
    )  # fmt: skip
    texts = [f"{name}:[{' '.join(_quoted(one) for one in values)}]" for name, values in parts if values]
    return "{" + ", ".join(texts) + "}"


def _quoted(text: str) -> str:
    return f'"{text}"'
