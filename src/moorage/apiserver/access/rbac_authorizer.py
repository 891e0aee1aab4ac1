"""May they? Role-based access control over the roles and bindings in the store.

Members of ``system:masters`` may do everything. For everybody else the answer is yes where one rule of one role says so that
a binding gives to the user, to a group of theirs or to their service account; there is no rule that says no.

Bindings are read once and kept until one of the four kinds changes; what a user holds is kept with them.

Source  kubernetes, plugin/pkg/auth/authorizer/rbac/rbac.go; pkg/registry/rbac/validation/rule.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from moorage.api.rbac import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject
from moorage.apiserver.access.rbac_rules import Attributes, allows
from moorage.apiserver.admission.strategy import read
from moorage.apiserver.storage.store import Store
from moorage.apiserver.storage.watch_cache import Change
from moorage.apiserver.vocabulary.served_kinds import ServedKind, served
from moorage.apiserver.vocabulary.statuses import ApiError, forbidden, forbidden_path, quoted
from moorage.apiserver.vocabulary.users import MASTERS, User

__all__ = ["Authorizer", "Verdict", "denied"]

_GROUP: Final = "rbac.authorization.k8s.io"
ROLES: Final = served("roles", _GROUP)
CLUSTER_ROLES: Final = served("clusterroles", _GROUP)
ROLE_BINDINGS: Final = served("rolebindings", _GROUP)
CLUSTER_ROLE_BINDINGS: Final = served("clusterrolebindings", _GROUP)
_KINDS: Final = frozenset([ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS])
#: Users whose rules are kept at hand.
_MOST_USERS: Final = 4096


class Verdict(NamedTuple):
    allowed: bool
    reason: str = ""


class Grant(NamedTuple):
    """One role that a binding gives. ``fault`` says why it gives nothing."""

    source: str
    rules: tuple[PolicyRule, ...]
    fault: str = ""


class _Bound(NamedTuple):
    """A binding: whom it names, in which namespace ("" for all), and what it gives."""

    name: str
    namespace: str
    subjects: tuple[Subject, ...]
    ref: RoleRef
    rules: tuple[PolicyRule, ...]
    fault: str


class Authorizer:
    """Judges requests by a store's roles and bindings."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bound: list[_Bound] | None = None
        self._held: dict[tuple[str, tuple[str, ...]], dict[str, list[Grant]]] = {}
        store.follow(self._see)

    def _see(self, kind: ServedKind, change: Change) -> None:
        if kind in _KINDS:
            self._bound = None
            self._held.clear()

    def judge(self, user: User, asked: Attributes) -> Verdict:
        """Say whether a user may, and why or what is amiss."""
        if MASTERS in user.groups:
            return Verdict(True)
        faults = []
        for grant in self.grants(user, asked.namespace):
            if grant.fault:
                faults.append(grant.fault)
            elif any(allows(rule, asked) for rule in grant.rules):
                return Verdict(True, f"RBAC: allowed by {grant.source}")
        listed = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
        return Verdict(False, f"RBAC: {listed}" if faults else "")

    def check(self, user: User, asked: Attributes) -> None:
        """Pass, or raise.

        Raises  ApiError 403, in kube-apiserver's words
        """
        verdict = self.judge(user, asked)
        if not verdict.allowed:
            raise denied(user, asked, verdict.reason)

    def rules_for(self, user: User, namespace: str) -> list[PolicyRule]:
        """Return every rule that a user holds in a namespace, those that hold everywhere included."""
        return [rule for grant in self.grants(user, namespace) for rule in grant.rules]

    def grants(self, user: User, namespace: str) -> list[Grant]:
        """Return what bindings give a user in a namespace; "" asks for what holds everywhere."""
        key = (user.name, user.groups)
        held = self._held.get(key)
        if held is None:
            if len(self._held) >= _MOST_USERS:
                self._held.clear()
            held = self._held[key] = self._gather(user)
        everywhere = held.get("", [])
        return [*everywhere, *held[namespace]] if namespace and namespace in held else everywhere

    def _gather(self, user: User) -> dict[str, list[Grant]]:
        held: dict[str, list[Grant]] = {}
        for bound in self._bindings():
            subject = next((one for one in bound.subjects if _means(one, bound.namespace, user)), None)
            if subject is not None:
                grant = Grant(_source(bound, subject), bound.rules, bound.fault)
                held.setdefault(bound.namespace, []).append(grant)
        return held

    def _bindings(self) -> list[_Bound]:
        if self._bound is None:
            self._bound = [*self._cluster_wide(), *self._in_namespaces()]
        return self._bound

    def _cluster_wide(self) -> Iterator[_Bound]:
        for record in self._store.all(CLUSTER_ROLE_BINDINGS):
            found = read(CLUSTER_ROLE_BINDINGS, record.document())
            if isinstance(found, ClusterRoleBinding):
                yield _Bound(record.name, "", found.subjects, found.role_ref, *self.role_of(found.role_ref, ""))

    def _in_namespaces(self) -> Iterator[_Bound]:
        for record in self._store.all(ROLE_BINDINGS):
            found = read(ROLE_BINDINGS, record.document())
            if isinstance(found, RoleBinding):
                given = self.role_of(found.role_ref, record.namespace)
                yield _Bound(record.name, record.namespace, found.subjects, found.role_ref, *given)

    def role_of(self, ref: RoleRef, namespace: str) -> tuple[tuple[PolicyRule, ...], str]:
        """Return the rules of the role that a binding names, or none and why."""
        kind = ROLES if ref.kind == "Role" else CLUSTER_ROLES
        record = self._store.find(kind, namespace if kind.namespaced else "", ref.name)
        if record is None:
            return (), f"{kind.kind.lower()}.{_GROUP} {quoted(ref.name)} not found"
        found = read(kind, record.document())
        return (found.rules, "") if isinstance(found, (Role, ClusterRole)) else ((), "")


def _means(subject: Subject, namespace: str, user: User) -> bool:
    match subject.kind:
        case "User":
            return subject.name == user.name
        case "Group":
            return subject.name in user.groups
        case "ServiceAccount":
            home = subject.namespace or namespace
            return bool(home) and user.name == f"system:serviceaccount:{home}:{subject.name}"
        case _:
            return False


def _source(bound: _Bound, subject: Subject) -> str:
    whom = subject.name
    if subject.kind == "ServiceAccount":
        whom = f"{subject.name}/{subject.namespace or bound.namespace}"
    kind, name = ("RoleBinding", f"{bound.name}/{bound.namespace}") if bound.namespace else ("ClusterRoleBinding", bound.name)
    return f"{kind} {quoted(name)} of {bound.ref.kind} {quoted(bound.ref.name)} to {subject.kind} {quoted(whom)}"


def denied(user: User, asked: Attributes, reason: str = "") -> ApiError:
    """Return the refusal of a request that its user may not make.

    Source  apiserver, pkg/endpoints/handlers/responsewriters/errors.go
    """
    more = f": {reason}" if reason else ""
    who = _harmless(quoted(user.name))
    if asked.path:
        why = f"User {who} cannot {asked.verb} path {_harmless(quoted(asked.path))}{more}"
        return forbidden_path(why)
    what = f"resource {quoted(asked.combined)} in API group {quoted(asked.group)}"
    place = f"in the namespace {_harmless(quoted(asked.namespace))}" if asked.namespace else "at the cluster scope"
    why = f"User {who} cannot {asked.verb} {what} {place}{more}"
    return forbidden(asked.resource, asked.group, asked.name, why)


def _harmless(text: str) -> str:
    """Return a text that no browser takes for a page."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
