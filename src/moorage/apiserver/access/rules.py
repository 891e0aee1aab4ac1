"""What a rule of RBAC lets through, and whether rules someone holds cover rules they want to give.

Source  kubernetes, pkg/apis/rbac/v1/evaluation_helpers.go; component-helpers, auth/rbac/validation/policy_comparator.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import msgspec

from moorage.api.rbac import PolicyRule

__all__ = ["Attributes", "allows", "merged", "missing", "shown"]


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


def _any(held: Sequence[str], asked: str) -> bool:
    return "*" in held or asked in held


def _resource(held: Sequence[str], combined: str, subresource: str) -> bool:
    return _any(held, combined) or (bool(subresource) and f"*/{subresource}" in held)


def _covers_path(held: str, asked: str) -> bool:
    return held in {"*", asked} or (held.endswith("*") and asked.startswith(held.rstrip("*")))


# -- covering -----------------------------------------------------------------------------------------------------------


def missing(held: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return what of the wanted rules is not covered by those held, each as simple as it gets."""
    return [part for rule in wanted for part in _parts(rule) if not any(_covers(one, part) for one in held)]


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    """Yield a rule as rules of one verb, group, resource and name each."""
    for group, resource, verb in product(rule.api_groups, rule.resources, rule.verbs):
        part = PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,))
        if not rule.resource_names:
            yield part
        for name in rule.resource_names:
            yield msgspec.structs.replace(part, resource_names=(name,))
    for path, verb in product(rule.paths, rule.verbs):
        yield PolicyRule(verbs=(verb,), paths=(path,))


def _covers(held: PolicyRule, part: PolicyRule) -> bool:
    if not _any(held.verbs, part.verbs[0]):
        return False
    if part.paths:
        return any(_covers_path(one, part.paths[0]) for one in held.paths)
    resource = part.resources[0]
    if not _any(held.api_groups, part.api_groups[0]) or not _resource(held.resources, resource, resource.partition("/")[2]):
        return False
    return not held.resource_names or (bool(part.resource_names) and part.resource_names[0] in held.resource_names)


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
