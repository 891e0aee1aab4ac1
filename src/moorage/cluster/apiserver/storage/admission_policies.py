"""Admission policies: which are for a request, their parameters, and what they do to it.

A policy is in force through its bindings. Those that change objects run before the object is checked, those that refuse
requests after. Policies do not apply to policies and their bindings.

Source  apiserver, pkg/admission/plugin/policy: generic/plugin.go, matching/matching.go, validating/dispatcher.go,
        mutating/dispatcher.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.cel.values import as_cel
from moorage.api.meta import LabelSelector
from moorage.api.selectors import label_selector_matches
from moorage.cluster.apiserver.fields.field_merge import merge
from moorage.cluster.apiserver.fields.patches import json_patch
from moorage.cluster.apiserver.schema.schemas import kind_schema
from moorage.cluster.apiserver.storage.list_selection import Selection
from moorage.cluster.apiserver.storage.object_reader import ObjectReader
from moorage.cluster.apiserver.storage.policy_expressions import Expressions, PolicyError, UnmetRule
from moorage.cluster.apiserver.vocabulary.records import Record
from moorage.cluster.apiserver.vocabulary.served_kinds import Document, ServedKind, served
from moorage.cluster.apiserver.vocabulary.statuses import ApiError, Cause, forbidden

_GROUP: Final = "admissionregistration.k8s.io"
_KINDS: Final = {
    "Validating": (served("validatingadmissionpolicies", _GROUP), served("validatingadmissionpolicybindings", _GROUP)),
    "Mutating": (served("mutatingadmissionpolicies", _GROUP), served("mutatingadmissionpolicybindings", _GROUP)),
}
#: Kinds to which policies do not apply.
_EXEMPT: Final = frozenset(kind for pair in _KINDS.values() for kind in pair)
_NAMESPACES: Final = served("namespaces")
_CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}


class _Requester(NamedTuple):
    """Who makes the requests of this context, and the warnings for them."""

    user: Document
    warnings: list[str]


_CONTROLLERS: Final = _Requester({"username": "system:apiserver", "groups": ["system:masters"]}, [])
_REQUESTER: Final[ContextVar[_Requester]] = ContextVar("requester", default=_CONTROLLERS)


@contextmanager
def requested_by(user: str, groups: Iterable[str]) -> Iterator[list[str]]:
    """Let a user make the requests of the block. The list gets the warnings of policies."""
    made = _Requester({"username": user, "groups": [*groups]}, [])
    token = _REQUESTER.set(made)
    try:
        yield made.warnings
    finally:
        _REQUESTER.reset(token)


class _Request(NamedTuple):
    """A write of an object. ``object`` is None for a deletion, and ``old`` for a new object."""

    operation: str
    kind: ServedKind
    subresource: str
    namespace: str
    name: str
    object: Document | None
    old: Document | None
    dry_run: bool

    def values(self, namespace: Document | None) -> dict[str, Any]:
        kind = {"group": self.kind.group, "version": self.kind.version, "kind": self.kind.kind}
        resource = {"group": self.kind.group, "version": self.kind.version, "resource": self.kind.resource}
        request = {
            "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
            "subResource": self.subresource, "name": self.name, "namespace": self.namespace, "operation": self.operation,
            "userInfo": _REQUESTER.get().user, "dryRun": self.dry_run,
        }  # fmt: skip
        return {
            "object": as_cel(self.object), "oldObject": as_cel(self.old), "request": as_cel(request),
            "namespaceObject": as_cel(namespace), "params": None,
        }  # fmt: skip


class AdmissionPolicies:
    """The policies of a store. Those that an API server serves from the start are none, which costs writes nothing."""

    def __init__(self, store: ObjectReader) -> None:
        self._store = store
        self._compiled: dict[tuple[str, int], Expressions | PolicyError] = {}

    def mutate(
        self, kind: ServedKind, old: Document | None, new: Document, subresource: str = "", *, dry_run: bool = False
    ) -> bool:
        """Change an object as policies say, in place; return whether one did.

        Raises  ApiError for an error in a policy that must not be passed over
        """
        if not self._is_in_force("Mutating", kind):
            return False
        changed = False
        request = _request(kind, old, new, subresource, dry_run=dry_run)
        for policy, binding, params in self._matching("Mutating", request):
            for values in self._inputs(request, params):
                with _guarded(request, policy, binding, "MutatingAdmissionPolicy"):
                    for form, patch in self._expressions(policy).mutations(values):
                        made = _patched(kind, new, form, patch)
                        changed = changed or made != new
                        new.clear()
                        new.update(made)
                        values["object"] = as_cel(new)
        return changed

    def check(
        self, kind: ServedKind, old: Document | None, new: Document | None, subresource: str = "", *, dry_run: bool = False
    ) -> None:
        """Check a write against the policies; ``new`` is None for a deletion.

        Raises  ApiError for the first violation that denies the request
        """
        if not self._is_in_force("Validating", kind):
            return
        request = _request(kind, old, new, subresource, dry_run=dry_run)
        for policy, binding, params in self._matching("Validating", request):
            for values in self._inputs(request, params):
                with _guarded(request, policy, binding, "ValidatingAdmissionPolicy"):
                    for failed in self._expressions(policy).failures(values):
                        _act(request, policy, binding, failed)

    def _is_in_force(self, form: str, kind: ServedKind) -> bool:
        return self._store.count(_KINDS[form][1]) > 0 and kind not in _EXEMPT

    def _expressions(self, policy: Record) -> Expressions:
        """Return the compiled expressions of a policy.

        Raises  PolicyError
        """
        key = (policy.name, policy.version)
        if key not in self._compiled:
            for other in [one for one in self._compiled if one[0] == policy.name]:
                del self._compiled[other]
            try:
                self._compiled[key] = Expressions(policy.document()["spec"])
            except PolicyError as error:
                self._compiled[key] = error
        found = self._compiled[key]
        if isinstance(found, PolicyError):
            raise found
        return found

    def _matching(self, form: str, request: _Request) -> Iterator[tuple[Record, Document, list[Document | None]]]:
        """Yield the policies for a request with each binding, and its parameters."""
        policies, bindings = _KINDS[form]
        for held in self._store.all(bindings):
            binding = held.document()
            policy = self._store.find(policies, "", (binding.get("spec") or {}).get("policyName", ""))
            if policy is None:
                continue
            spec = policy.document()["spec"]
            rules = (spec.get("matchConstraints"), binding["spec"].get("matchResources"))
            if all(one is None or self._is_matched(one, request, needs_rules=at == 0) for at, one in enumerate(rules)):
                yield policy, binding, self._params(policy, binding, request, form)

    def _params(self, policy: Record, binding: Document, request: _Request, form: str) -> list[Document | None]:
        """Return the parameters of a binding, each of which is applied; [None] for a policy without parameters.

        Raises  ApiError if there must be some, and there are none
        """
        wanted, reference = policy.document()["spec"].get("paramKind"), binding["spec"].get("paramRef")
        if not wanted or not reference:
            return [None]
        kind = self._store.kinds.find_type(wanted["apiVersion"], wanted["kind"])
        found: list[Document | None] = []
        if kind is not None:
            namespace = (reference.get("namespace") or request.namespace) if kind.namespaced else ""
            if reference.get("name"):
                one = self._store.find(kind, namespace, reference["name"])
                found = [] if one is None else [one.document()]
            else:
                held = self._store.all(kind, Selection(namespace))
                found = [one.document() for one in held if _selects(reference.get("selector"), one.labels)]
        if not found and reference.get("parameterNotFoundAction") != "Allow":
            why = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
            with _guarded(request, policy, binding, f"{form}AdmissionPolicy"):
                raise PolicyError(why)
        return found

    def _inputs(self, request: _Request, params: Iterable[Document | None]) -> Iterator[dict[str, Any]]:
        namespace = None
        if request.namespace and request.kind is not _NAMESPACES:
            held = self._store.find(_NAMESPACES, "", request.namespace)
            namespace = None if held is None else held.document()
        for one in params:
            yield {**request.values(namespace), "params": as_cel(one)}

    def _is_matched(self, wanted: Document, request: _Request, *, needs_rules: bool) -> bool:
        labels = self._namespace_labels(request)
        if labels is not None and not _selects(wanted.get("namespaceSelector"), labels):
            return False
        objects = [one for one in (request.object, request.old) if one is not None]
        if not any(_selects(wanted.get("objectSelector"), one["metadata"].get("labels") or {}) for one in objects):
            return False
        if any(_fits(rule, request) for rule in wanted.get("excludeResourceRules") or ()):
            return False
        rules = wanted.get("resourceRules") or ()
        return any(_fits(rule, request) for rule in rules) or not (rules or needs_rules)

    def _namespace_labels(self, request: _Request) -> Mapping[str, str] | None:
        """Return the labels that a namespace selector sees; None for an object without namespace, which always matches."""
        if request.kind is _NAMESPACES:
            held = request.object or request.old or {}
            return dict(held["metadata"].get("labels") or {})
        if not request.namespace:
            return None
        found = self._store.find(_NAMESPACES, "", request.namespace)
        return {} if found is None else found.labels


def _request(kind: ServedKind, old: Document | None, new: Document | None, subresource: str, *, dry_run: bool) -> _Request:
    metadata = (old or new or {"metadata": {}})["metadata"]
    operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    before, after = (None if one is None else {**head, **one} for one in (old, new))
    return _Request(
        operation, kind, subresource, metadata.get("namespace") or "", metadata.get("name") or "", after, before, dry_run
    )


def _fits(rule: Document, request: _Request) -> bool:
    """Return whether a rule with operations is for a request."""

    def has(field: str, value: str) -> bool:
        return bool({"*", value} & {*(rule.get(field) or ())})

    whole = f"{request.kind.resource}/{request.subresource}" if request.subresource else request.kind.resource
    resources = {*(rule.get("resources") or ())}
    any_part = {"*/*", f"{request.kind.resource}/*", *([f"*/{request.subresource}"] if request.subresource else ["*"])}
    scope = rule.get("scope") or "*"
    names = rule.get("resourceNames") or ()
    return (
        has("operations", request.operation) and has("apiGroups", request.kind.group)
        and has("apiVersions", request.kind.version) and bool(resources & {whole, *any_part})
        and scope in {"*", "Namespaced" if request.kind.namespaced else "Cluster"}
        and (not names or request.name in names)
    )  # fmt: skip


def _selects(selector: Any, labels: Mapping[str, str]) -> bool:
    return not selector or label_selector_matches(msgspec.convert(selector, LabelSelector), labels)


def _patched(kind: ServedKind, document: Document, form: str, patch: Any) -> Document:
    """Return an object with the result of a mutation applied.

    Raises  PolicyError for a result that is no patch, or does not apply
    """
    try:
        if form == "JSONPatch" and isinstance(patch, list) and all(isinstance(one, dict) for one in patch):
            made = json_patch(document, patch)
        elif form == "ApplyConfiguration" and isinstance(patch, dict):
            made = merge(kind_schema(kind), document, patch)
        else:
            raise PolicyError(f"expression for {form} must evaluate to {'a list' if form == 'JSONPatch' else 'an object'}")
    except ApiError as error:
        raise PolicyError(str(error)) from None
    if not isinstance(made, dict):
        raise PolicyError("the result is no object")
    head = {"apiVersion", "kind", "metadata"}
    fixed = {name: document["metadata"].get(name) for name in ("name", "namespace", "uid")}
    if any((made.get("metadata") or {}).get(name) != value for name, value in fixed.items()):
        raise PolicyError("a mutation must not change the identity of the object")
    return {name: value for name, value in made.items() if name in document or name not in head or name == "metadata"}


@contextmanager
def _guarded(request: _Request, policy: Record, binding: Document, form: str) -> Iterator[None]:
    """Deny the request for an error of the block, unless the policy says to ignore errors."""
    try:
        yield
    except PolicyError as error:
        if (policy.document()["spec"].get("failurePolicy") or "Fail") != "Ignore":
            raise _denied(request, f"{form} {_named(policy, binding)} denied request: {error}", "Invalid") from None


def _act(request: _Request, policy: Record, binding: Document, failed: UnmetRule) -> None:
    """Do what a binding says about a violation.

    Raises  ApiError
    """
    actions = binding["spec"].get("validationActions") or ()
    if "Warn" in actions:
        name, bound = policy.name, binding["metadata"]["name"]
        why = f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{bound}': {failed.message}"
        _REQUESTER.get().warnings.append(why)
    if "Deny" in actions:
        why = f"ValidatingAdmissionPolicy {_named(policy, binding)} denied request: {failed.message}"
        raise _denied(request, why, failed.reason)


def _named(policy: Record, binding: Document) -> str:
    return f"'{policy.name}' with binding '{binding['metadata']['name']}'"


def _denied(request: _Request, why: str, reason: str) -> ApiError:
    error = forbidden(request.kind.resource, request.kind.group, request.name, why, [Cause("", why, "")])
    error.reason, error.code = reason, _CODES.get(reason, 422)
    return error
