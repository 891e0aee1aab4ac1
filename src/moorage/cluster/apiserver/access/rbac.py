"""RBAC: whether the roles and bindings in the store allow a request.

Members of ``system:masters`` may do everything. Any other request is allowed if a rule allows it in a role that a binding
grants to the user, to one of their groups or to their service account. There are no deny rules.

The authorizer caches bindings and the rules of each user until an object of the four RBAC kinds changes.

Source  kubernetes, plugin/pkg/auth/authorizer/rbac/rbac.go; pkg/registry/rbac/validation/rule.go
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from moorage.api.documents.http_messages import MASTERS, User
from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import ServedKind, served
from moorage.api.documents.statuses import ApiError, forbidden, quoted
from moorage.api.rbac import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject
from moorage.rules.admission.strategy import decode_document
from moorage.rules.store.store import Store
from moorage.rules.store.watches import StoreChange

# RBAC rules: whether a rule allows a request, and whether the rules that a user holds cover those they want to grant.
#
# Source  kubernetes, pkg/apis/rbac/v1/evaluation_helpers.go; component-helpers, auth/rbac/validation/policy_comparator.go


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
        return any(covers_path(held, request.path) for held in rule.paths)
    return (
        _any(rule.api_groups, request.group)
        and _resource(rule.resources, request.combined, request.subresource)
        and (not rule.resource_names or request.name in rule.resource_names)
    )


def _any(held: Collection[str], request: str) -> bool:
    return "*" in held or request in held


def _resource(held: Collection[str], combined: str, subresource: str) -> bool:
    return _any(held, combined) or (bool(subresource) and f"*/{subresource}" in held)


def covers_path(held: str, request: str) -> bool:
    """Return whether a path of a rule, which may end with ``*``, covers a requested one."""
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
            if not any(covers_path(one, path) for one in paths):
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
    texts = [name + ':["' + '" "'.join(values) + '"]' for name, values in parts if values]
    return "{" + ", ".join(texts) + "}"


# -- rbac authorizer ---------------------------------------------------------------------------------------------------

T = TypeVar("T")
_GROUP: Final = "rbac.authorization.k8s.io"
ROLES: Final = served("roles", _GROUP)
CLUSTER_ROLES: Final = served("clusterroles", _GROUP)
ROLE_BINDINGS: Final = served("rolebindings", _GROUP)
CLUSTER_ROLE_BINDINGS: Final = served("clusterrolebindings", _GROUP)
_KINDS: Final = frozenset([ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS])
#: Maximum number of users whose rules are cached.
_MOST_USERS: Final = 4096


class Verdict(NamedTuple):
    allowed: bool
    reason: str = ""


class Grant(NamedTuple):
    """The rules that one binding grants. ``fault`` says why its role could not be resolved, in which case there
    are no rules.
    """

    source: str
    rules: tuple[PolicyRule, ...]
    fault: str = ""


#: The subjects of a binding with their positions, by the kind and the name of the user or group that each refers to.
_Subjects = Mapping[tuple[str, str], tuple[int, Subject]]


class _Binding(NamedTuple):
    """A binding: its subjects, its namespace ("" for a cluster role binding) and the rules that it grants."""

    name: str
    namespace: str
    subjects: _Subjects
    ref: RoleRef
    rules: tuple[PolicyRule, ...]
    fault: str


class Authorizer:
    """Authorizes requests by the roles and bindings of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bound: list[_Binding] | None = None
        self._held: dict[tuple[str, tuple[str, ...]], dict[str, list[Grant]]] = {}
        self._rules = _Decoded(_rules_of)
        self._subjects = _Decoded(_subjects_of)
        store.follow(self._on_change)

    def _on_change(self, kind: ServedKind, change: StoreChange) -> None:
        if kind in _KINDS:
            self._bound = None
            self._held.clear()

    def judge(self, user: User, attributes: Attributes) -> Verdict:
        """Return whether a user may make a request, with the reason or the faults met."""
        if MASTERS in user.groups:
            return Verdict(True)
        faults = []
        for grant in self.grants(user, attributes.namespace):
            if grant.fault:
                faults.append(grant.fault)
            elif any(allows(rule, attributes) for rule in grant.rules):
                return Verdict(True, f"RBAC: allowed by {grant.source}")
        listed = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
        return Verdict(False, f"RBAC: {listed}" if faults else "")

    def check(self, user: User, attributes: Attributes) -> None:
        """Check that a user may make a request.

        Raises  ApiError 403 with kube-apiserver's message
        """
        verdict = self.judge(user, attributes)
        if not verdict.allowed:
            raise denied(user, attributes, verdict.reason)

    def rules_for(self, user: User, namespace: str) -> list[PolicyRule]:
        """Return every rule that a user holds in a namespace, including cluster-wide rules."""
        return [rule for grant in self.grants(user, namespace) for rule in grant.rules]

    def grants(self, user: User, namespace: str) -> list[Grant]:
        """Return what bindings grant a user in a namespace, including cluster-wide grants; "" returns only the latter."""
        key = (user.name, user.groups)
        held = self._held.get(key)
        if held is None:
            if len(self._held) >= _MOST_USERS:
                self._held.clear()
            held = self._held[key] = {}
            for binding in self._bindings():
                if (subject := _first_of(binding.subjects, user)) is not None:
                    grant = Grant(_source(binding, subject), binding.rules, binding.fault)
                    held.setdefault(binding.namespace, []).append(grant)
        everywhere = held.get("", [])
        return [*everywhere, *held[namespace]] if namespace and namespace in held else everywhere

    def _bindings(self) -> list[_Binding]:
        if self._bound is None:
            self._rules.renew()
            self._subjects.renew()
            self._bound = [*self._of_kind(CLUSTER_ROLE_BINDINGS), *self._of_kind(ROLE_BINDINGS)]
        return self._bound

    def _of_kind(self, kind: ServedKind) -> Iterator[_Binding]:
        for record in self._store.all(kind):
            found = self._subjects.of(kind, record)
            if found is not None:
                yield _Binding(record.name, record.namespace, *found, *self.role_of(found[1], record.namespace))

    def role_of(self, ref: RoleRef, namespace: str) -> tuple[tuple[PolicyRule, ...], str]:
        """Return the rules of the role that a binding references, or no rules and the reason."""
        kind = ROLES if ref.kind == "Role" else CLUSTER_ROLES
        record = self._store.find(kind, namespace if kind.namespaced else "", ref.name)
        if record is None:
            return (), f"{kind.kind.lower()}.{_GROUP} {quoted(ref.name)} not found"
        return self._rules.of(kind, record), ""


class _Decoded(Generic[T]):
    """A cache of decoded objects. The entry of an object is replaced when its version changes."""

    def __init__(self, decode: Callable[[ServedKind, Record], T]) -> None:
        self._decode = decode
        self._held: dict[tuple[ServedKind, str], tuple[Record, T]] = {}
        self._before = self._held

    def renew(self) -> None:
        """Start a new generation: entries that are not used before the next call are dropped."""
        self._before, self._held = self._held, {}

    def of(self, kind: ServedKind, record: Record) -> T:
        key = kind, record.key
        held = self._held.get(key) or self._before.get(key)
        if held is None or held[0] is not record:
            held = record, self._decode(kind, record)
        self._held[key] = held
        return held[1]


def _rules_of(kind: ServedKind, record: Record) -> tuple[PolicyRule, ...]:
    found = decode_document(kind, record.document())
    return found.rules if isinstance(found, (Role, ClusterRole)) else ()


def _subjects_of(kind: ServedKind, record: Record) -> tuple[_Subjects, RoleRef] | None:
    found = decode_document(kind, record.document())
    if not isinstance(found, (ClusterRoleBinding, RoleBinding)):
        return None
    subjects: dict[tuple[str, str], tuple[int, Subject]] = {}
    for position, subject in enumerate(found.subjects):
        if name := _name_of(subject, record.namespace):
            subjects.setdefault(name, (position, subject))
    return subjects, found.role_ref


def _first_of(subjects: _Subjects, user: User) -> Subject | None:
    """Return the first subject that refers to a user or one of their groups; None if there is none."""
    names = (("User", user.name), *(("Group", group) for group in user.groups))
    found = [subjects[name] for name in names if name in subjects]
    return min(found, key=itemgetter(0))[1] if found else None


def _name_of(subject: Subject, namespace: str) -> tuple[str, str] | None:
    """Return the kind and the name of the user or group that a subject refers to; None for an unknown kind."""
    if subject.kind in {"User", "Group"}:
        return subject.kind, subject.name
    home = subject.namespace or namespace
    if subject.kind == "ServiceAccount" and home:
        return "User", f"system:serviceaccount:{home}:{subject.name}"
    return None


def _source(binding: _Binding, subject: Subject) -> str:
    subject_name = subject.name
    if subject.kind == "ServiceAccount":
        subject_name = f"{subject.name}/{subject.namespace or binding.namespace}"
    name = f"{binding.name}/{binding.namespace}" if binding.namespace else binding.name
    kind = "RoleBinding" if binding.namespace else "ClusterRoleBinding"
    return f"{kind} {quoted(name)} of {binding.ref.kind} {quoted(binding.ref.name)} to {subject.kind} {quoted(subject_name)}"


def denied(user: User, attributes: Attributes, reason: str = "") -> ApiError:
    """Return the 403 error for a request that its user may not make.

    Source  apiserver, pkg/endpoints/handlers/responsewriters/errors.go
    """
    more = f": {reason}" if reason else ""
    who, home = (_html_escaped(quoted(text)) for text in (user.name, attributes.namespace))
    if attributes.path:
        why = f"User {who} cannot {attributes.verb} path {_html_escaped(quoted(attributes.path))}{more}"
        return ApiError(403, "Forbidden", f"forbidden: {why}", routed=False)
    what = f"resource {quoted(attributes.combined)} in API group {quoted(attributes.group)}"
    place = f"in the namespace {home}" if attributes.namespace else "at the cluster scope"
    why = f"User {who} cannot {attributes.verb} {what} {place}{more}"
    return forbidden(attributes.resource, attributes.group, attributes.name, why)


def _html_escaped(text: str) -> str:
    """Return a text with HTML escaped, so that no browser renders it as a page."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
