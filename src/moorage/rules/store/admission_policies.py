"""Admission policies: which are for a request, their parameters, and what they do to it.

A policy is in force through its bindings. Those that change objects run before the object is checked, those that refuse
requests after. Policies do not apply to policies and their bindings.

Source  apiserver, pkg/admission/plugin/policy: generic/plugin.go, matching/matching.go, validating/dispatcher.go,
        mutating/dispatcher.go
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.cel.values import as_cel
from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import Document, Review, ServedKind, served
from moorage.api.documents.statuses import ApiError, Cause, bounded, forbidden, internal
from moorage.api.fields.field_merge import merge, type_faults
from moorage.api.fields.patches import PatchTestError, json_patch
from moorage.api.meta import LabelSelector
from moorage.api.schema.field_types import UNTYPED, ListOf, MapOf, Scalar, Struct, Type
from moorage.api.schema.normalization import FieldTypeError, conform
from moorage.api.schema.schemas import kind_schema
from moorage.api.schema.versions import convert
from moorage.api.selectors import label_selector_matches
from moorage.rules.admission.policy_expressions import Expressions, PolicyError, UnmetRule
from moorage.rules.store.list_selection import Selection
from moorage.rules.store.object_reader import ObjectReader
from moorage.rules.store.policy_requests import (
    KindName,
    PolicyRequest,
    annotate,
    kind_name,
    request_for,
    requester,
    written,
)

_GROUP: Final = "admissionregistration.k8s.io"
_KINDS: Final = {
    "Validating": (served("validatingadmissionpolicies", _GROUP), served("validatingadmissionpolicybindings", _GROUP)),
    "Mutating": (served("mutatingadmissionpolicies", _GROUP), served("mutatingadmissionpolicybindings", _GROUP)),
}
#: Resources to which policies do not apply: policies and their bindings, and reviews.
_EXEMPT: Final = frozenset((kind.group, kind.resource) for pair in _KINDS.values() for kind in pair)
_EXEMPT_GROUPS: Final = frozenset(["authentication.k8s.io", "authorization.k8s.io"])
_NAMESPACES: Final = served("namespaces")
_CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}


#: The annotation with the violations of a request, and how many it shows; the longest value of another, in bytes.
_VIOLATIONS: Final = "validation.policy.admission.k8s.io/validation_failure"
_MOST_VIOLATIONS: Final = 50
_LONGEST_ANNOTATION: Final = 10 * 1024
#: What Go escapes in the strings of JSON.
_HTML: Final = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"})


#: A policy, a binding, and the number of its parameter.
_Invocation = tuple[str, str, int]


class _Match(NamedTuple):
    """A policy for a request with a binding and its parameters.

    ``resource``: the resource in the version that its rules name.
    """

    policy: Record
    binding: Document
    params: list[Document | None]
    resource: ServedKind | Review


class AdmissionPolicies:
    """The policies of a store. Those that an API server serves from the start are none, which costs writes nothing."""

    def __init__(self, store: ObjectReader) -> None:
        self._store = store
        self._compiled: dict[tuple[str, int], Expressions] = {}

    def mutate(
        self, kind: ServedKind, old: Document | None, new: Document, subresource: str = "", *, dry_run: bool = False,
        sent: ServedKind | None = None,
    ) -> bool:  # fmt: skip
        """Change an object as policies say, in place; return whether one did. ``sent``: the kind in the version of the client.

        Raises  ApiError for an error in a policy that must not be passed over
        """
        if not self._is_in_force("Mutating", kind) or not requester().is_judged:
            return False
        request = request_for(sent or kind, *_in_version(sent, kind, old, new), subresource, dry_run=dry_run)
        if not self.mutate_request(request):
            return False
        assert request.object is not None
        made = request.object
        if sent is not None and sent is not kind:
            convert(kind, sent, made)
        written(made, new)
        return True

    def mutate_request(self, request: PolicyRequest) -> bool:
        """Change the object of a request as policies say, in place; return whether one did.

        Raises  ApiError as ``mutate``
        """
        if request.object is None or not self._is_in_force("Mutating", request.resource):
            return False
        before = copy.deepcopy(request.object)
        if invoked := self._invoke(request, None):
            self._invoke(request, invoked)
        return request.object != before

    def _invoke(self, request: PolicyRequest, before: Set[_Invocation] | None) -> Set[_Invocation]:
        """Apply the policies, or a second time those of ``before`` that ask for it; return the invocations that applied.

        Source  apiserver, pkg/admission/plugin/policy/mutating/dispatcher.go, dispatchInvocations
        """
        invoked: set[_Invocation] = set()
        errors = _Errors()
        assert request.object is not None
        for match in self._matching("Mutating", request, errors):
            if before is not None and match.policy.document()["spec"].get("reinvocationPolicy") != "IfNeeded":
                continue
            seen, kind = _seen(request, match.resource)
            assert seen.object is not None
            shape = kind_schema(_as_review(seen.kind) if _is_part(seen) else match.resource)
            for number, values in enumerate(self._inputs(seen, match, kind)):
                invocation = match.policy.name, str(match.binding["metadata"]["name"]), number
                if before is not None and invocation not in before:
                    continue
                with errors.kept_of(match):
                    for form, made in self._expressions(match.policy).mutations(values):
                        with errors.kept_of(match):
                            document = _patched(shape, seen.object, form, made())
                            invoked.add(invocation)
                            if document != seen.object:
                                written(document, seen.object)
                                if seen.object is not request.object:
                                    written(_in(request.resource, match.resource, seen.object), request.object)
                                values["object"] = as_cel(seen.object)
        errors.check(request)
        return invoked

    def check(
        self, kind: ServedKind, old: Document | None, new: Document | None, subresource: str = "", *, dry_run: bool = False,
        sent: ServedKind | None = None,
    ) -> None:  # fmt: skip
        """Check a write against the policies; ``new`` is None for a deletion. ``sent``: as in ``mutate``.

        Raises  ApiError for the first violation that denies the request
        """
        if self._is_in_force("Validating", kind) and requester().is_judged:
            old, new = _in_version(sent, kind, old, new)
            self.check_request(request_for(sent or kind, old, new, subresource, dry_run=dry_run))

    def check_request(self, request: PolicyRequest) -> None:
        """Check a request against the policies.

        Raises  ApiError as ``check``
        """
        if not self._is_in_force("Validating", request.resource):
            return
        denials: list[ApiError] = []
        errors, audit = _Errors(), _AuditEntries()
        for match in self._matching("Validating", request, errors):
            seen, kind = _seen(request, match.resource)
            for values in self._inputs(seen, match, kind):
                expressions = self._expressions(match.policy)
                for failed in expressions.failures(values):
                    denials += _act(request, match, failed, audit)
                for key, value in expressions.annotations(values, wanted=requester().annotations is not None):
                    if isinstance(value, str):
                        audit.annotate(match, key, value)
                    else:
                        denials.append(_denied(request, match, str(value), "Invalid"))
        audit.publish()
        denials += (_denied(request, match, why, "Invalid") for match, why in errors.found)
        if denials:
            raise denials[0]

    def admit_request(self, request: PolicyRequest) -> None:
        """Change and check the object of a request that is not stored.

        Raises  ApiError as ``mutate`` and ``check``
        """
        self.mutate_request(request)
        self.check_request(request)

    @property
    def are_in_force(self) -> bool:
        """Whether any policy is bound."""
        return any(self._store.count(bindings) for _, bindings in _KINDS.values())

    def _is_in_force(self, form: str, resource: ServedKind | Review) -> bool:
        return (
            self._store.count(_KINDS[form][1]) > 0
            and (resource.group, resource.resource) not in _EXEMPT
            and resource.group not in _EXEMPT_GROUPS
        )

    def _expressions(self, policy: Record) -> Expressions:
        """Return the compiled expressions of a policy."""
        key = (policy.name, policy.version)
        if key not in self._compiled:
            for other in [one for one in self._compiled if one[0] == policy.name]:
                del self._compiled[other]
            self._compiled[key] = Expressions(policy.document()["spec"])
        return self._compiled[key]

    def _matching(self, form: str, request: PolicyRequest, errors: _Errors) -> Iterator[_Match]:
        """Yield the policies for a request with each binding, and its parameters. ``errors`` gets why there are none."""
        policies, bindings = _KINDS[form]
        equivalents = self._equivalents(request)
        for held in self._store.all(bindings):
            binding = held.document()
            policy = self._store.find(policies, "", (binding.get("spec") or {}).get("policyName", ""))
            if policy is None:
                continue
            spec = policy.document()["spec"]
            resource = self._matched(spec.get("matchConstraints") or {}, request, equivalents, needs_rules=True)
            wanted = binding["spec"].get("matchResources")
            if resource is None or (wanted and self._matched(wanted, request, equivalents, needs_rules=False) is None):
                continue
            match = _Match(policy, binding, [], resource)
            with errors.kept_of(match):
                match = match._replace(params=self._params(match, request))
                yield match

    def _equivalents(self, request: PolicyRequest) -> list[ServedKind]:
        """Return the other resources that a rule may name for a request: the resource in its other versions."""
        resource = request.resource
        if isinstance(resource, Review):
            return []
        storage = resource.storage
        events = storage.native == "Event"
        return [
            one for one in self._store.kinds.served
            if one is not resource and (one.storage is storage or (events and one.native == "Event"))
            and (not request.subresource or request.subresource in one.subresources)
        ]  # fmt: skip

    def _params(self, match: _Match, request: PolicyRequest) -> list[Document | None]:
        """Return the parameters of a binding, each of which is applied; [None] for a policy without parameters.

        Raises  PolicyError if there must be some, and there are none
        """
        wanted, reference = match.policy.document()["spec"].get("paramKind"), match.binding["spec"].get("paramRef")
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
            raise PolicyError(why)
        return found

    def _inputs(self, request: PolicyRequest, match: _Match, kind: KindName) -> Iterator[dict[str, Any]]:
        """Yield the variables of expressions, for each parameter."""
        namespace = None
        if request.namespace and not request.is_of_namespace:
            held = self._store.find(_NAMESPACES, "", request.namespace)
            namespace = None if held is None else _namespace_object(held.document())
        given = {
            "object": as_cel(request.object), "oldObject": as_cel(request.old),
            "request": as_cel(request.values(match.resource, kind)), "namespaceObject": as_cel(namespace),
            "authorizer": request.authorizer(),
        }  # fmt: skip
        for one in match.params:
            yield {**given, "params": as_cel(one)}

    def _matched(
        self, wanted: Document, request: PolicyRequest, equivalents: Iterable[ServedKind], *, needs_rules: bool
    ) -> ServedKind | Review | None:
        """Return the resource in the version that the rules name, None if they are not for a request."""
        labels = self._namespace_labels(request)
        if labels is not None and not _selects(wanted.get("namespaceSelector"), labels):
            return None
        if (selector := wanted.get("objectSelector")) and not any(
            _selects(selector, one["metadata"].get("labels") or {})
            for one in (request.object, request.old) if one is not None and isinstance(one.get("metadata"), dict)
        ):  # fmt: skip
            return None
        others = equivalents if wanted.get("matchPolicy", "Equivalent") == "Equivalent" else ()
        if _first_fit(wanted.get("excludeResourceRules") or (), request, others) is not None:
            return None
        rules = wanted.get("resourceRules") or ()
        return _first_fit(rules, request, others) if rules or needs_rules else request.resource

    def _namespace_labels(self, request: PolicyRequest) -> Mapping[str, str] | None:
        """Return the labels that a namespace selector sees; None for an object without namespace, which always matches."""
        if request.is_of_namespace and not request.subresource and request.object is not None:
            return dict(request.object["metadata"].get("labels") or {})
        if not request.namespace:
            return None
        found = self._store.find(_NAMESPACES, "", request.namespace)
        return {} if found is None else found.labels


def _namespace_object(namespace: Document) -> Document:
    """Return what expressions see of a namespace."""
    hidden = {"managedFields", "ownerReferences", "selfLink"}
    metadata = {name: value for name, value in namespace["metadata"].items() if name not in hidden}
    return {"metadata": metadata, "spec": namespace.get("spec") or {}, "status": namespace.get("status") or {}}


# -- versions ----------------------------------------------------------------------------------------------------------


def _is_part(request: PolicyRequest) -> bool:
    """Return whether the objects of a request are of another kind than the resource's."""
    return request.kind != kind_name(request.resource)


def _in_version(
    sent: ServedKind | None, kind: ServedKind, old: Document | None, new: Document | None
) -> tuple[Document | None, Document | None]:  # fmt: skip
    """Return copies of stored objects in the version of a client; the objects themselves if that is the stored one."""
    if sent is None or sent is kind:
        return old, new
    before, after = (None if one is None else _in(sent, kind, one) for one in (old, new))
    return before, after


def _in(wanted: ServedKind | Review, held: ServedKind | Review, document: Document) -> Document:
    """Return a copy of an object in another version of its kind."""
    made = copy.deepcopy(document)
    if isinstance(wanted, Review) or isinstance(held, Review) or wanted is held:
        return made
    if wanted.custom is not None or wanted.storage is not held.storage:
        return {**made, "apiVersion": wanted.api_version}
    if held.stored_as is not None:
        convert(held.storage, held, made)
    if wanted.stored_as is not None:
        convert(wanted, wanted.storage, made)
    return made


def _seen(request: PolicyRequest, matched: ServedKind | Review) -> tuple[PolicyRequest, KindName]:
    """Return a request with its objects in the version that a policy names, and their kind."""
    if matched is request.resource or _is_part(request):
        return request, request.kind
    old, new = (None if one is None else _in(matched, request.resource, one) for one in (request.old, request.object))
    return request._replace(old=old, object=new), kind_name(matched)


# -- rules -------------------------------------------------------------------------------------------------------------


def _first_fit(
    rules: Iterable[Document], request: PolicyRequest, others: Iterable[ServedKind]
) -> ServedKind | Review | None:  # fmt: skip
    """Return the resource that one of the rules names: that of the request or, if none does, one of the others."""
    if any(_fits(rule, request, request.resource) for rule in rules):
        return request.resource
    return next((one for rule in rules for one in others if _fits(rule, request, one)), None)


def _fits(rule: Document, request: PolicyRequest, resource: ServedKind | Review) -> bool:
    """Return whether a rule with operations is for a request about a resource."""

    def has(field: str, value: str) -> bool:
        return bool({"*", value} & {*(rule.get(field) or ())})

    scope = rule.get("scope") or "*"
    names = rule.get("resourceNames") or ()
    return (
        has("operations", request.operation) and has("apiGroups", resource.group) and has("apiVersions", resource.version)
        and any(_names(one, resource.resource, request.subresource) for one in rule.get("resources") or ())
        and scope in {"*", "Namespaced" if request.namespace and not request.is_of_namespace else "Cluster"}
        and (not names or request.name in names)
    )  # fmt: skip


def _names(pattern: str, resource: str, subresource: str) -> bool:
    """Return whether a pattern such as ``pods``, ``pods/*`` or ``*/scale`` is for a resource or a subresource of it."""
    whole, _, part = pattern.partition("/")
    return whole in {"*", resource} and part in {subresource, "*"}


def _selects(selector: Any, labels: Mapping[str, str]) -> bool:
    return not selector or label_selector_matches(msgspec.convert(selector, LabelSelector), labels)


def _as_review(kind: KindName) -> Review:
    return Review(kind.group, kind.kind, "", version=kind.version)


def _patched(shape: Struct, document: Document, form: str, patch: Any) -> Document:
    """Return an object with the result of a mutation applied.

    Raises  PolicyError for a result that is no patch, or does not apply; ApiError 500 for a patch that adds unknown fields
    """
    made = (_with_patch if form == "JSONPatch" else _with_configuration)(shape, document, patch)
    if not isinstance(made, dict):
        raise PolicyError("the result is no object")
    head = {"apiVersion", "kind", "metadata"}
    fixed = {name: document["metadata"].get(name) for name in ("name", "namespace", "uid")} if "metadata" in document else {}
    if any((made.get("metadata") or {}).get(name) != value for name, value in fixed.items()):
        raise PolicyError("a mutation must not change the identity of the object")
    return {name: value for name, value in made.items() if name in document or name not in head or name == "metadata"}


def _with_patch(shape: Struct, document: Document, patch: Any) -> Any:
    try:
        made = json_patch(document, patch)
    except PatchTestError:
        return document  # a patch whose test fails is not applied
    except ApiError as error:
        raise PolicyError(f"JSON Patch: {error}") from None
    try:
        _, unknown = conform(shape, made)
    except FieldTypeError as misfit:
        raise internal(str(misfit)) from None
    if unknown:
        shown = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise internal(f"strict decoding error: {shown}")
    return made


def _with_configuration(shape: Struct, document: Document, config: Document) -> Any:
    _, faults = bounded(type_faults(shape, config))
    if faults:
        why = faults[0] if len(faults) == 1 else "errors:\n" + "\n".join(f"  {fault}" for fault in faults)
        raise PolicyError(f"failed to convert patch object to typed object: {why}")
    if atomics := [*_atomics(shape, config, "")]:
        why = f"may not mutate atomic arrays, maps or structs: {', '.join(atomics)}"
        raise PolicyError(f"invalid ApplyConfiguration: {why}")
    try:
        return merge(shape, document, config)
    except ApiError as error:
        raise PolicyError(str(error)) from None


def _atomics(shape: Type, value: Any, path: str) -> Iterator[str]:
    """Yield the paths of atomic lists and objects in a configuration, which would replace what others put there."""
    if isinstance(shape, Scalar) or shape is UNTYPED:
        return
    if isinstance(value, dict) and isinstance(shape, Struct | MapOf):
        if shape.is_atomic:
            yield path
        for name, inner in value.items():
            field = shape.fields.get(name) if isinstance(shape, Struct) else None
            below = shape.item if isinstance(shape, MapOf) else None if field is None else field.type
            if below is not None:
                yield from _atomics(below, inner, f"{path}.{name}")
    elif isinstance(value, list) and isinstance(shape, ListOf):
        if shape.is_atomic:
            yield path
        for at, inner in enumerate(value):
            yield from _atomics(shape.item, inner, f"{path}[{at}]")


class _Errors:
    """The errors of policies that do not ignore theirs."""

    def __init__(self) -> None:
        self.found: list[tuple[_Match, str]] = []

    @contextmanager
    def kept_of(self, match: _Match) -> Iterator[None]:
        """Keep an error of the block, unless the policy says to ignore it."""
        try:
            yield
        except PolicyError as error:
            if (match.policy.document()["spec"].get("failurePolicy") or "Fail") != "Ignore":
                self.found.append((match, str(error)))

    def check(self, request: PolicyRequest) -> None:
        """Refuse a request if a mutation failed.

        Raises  ApiError 403
        """
        if not self.found:
            return
        shown = [f"policy {_named(match)} denied request: {why}" for match, why in self.found]
        group, resource = request.resource.group, request.resource.resource
        causes = [Cause("", one, "") for one in shown]
        raise ApiError(403, "Invalid", shown[0], group=group, kind=resource, name=_name_of(request), causes=causes)


class _AuditEntries:
    """What the policies add to the audit log about one request: their annotations, and the violations.

    Source  apiserver, pkg/admission/plugin/policy/validating/dispatcher.go
    """

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}
        self._violations: list[Document] = []

    def annotate(self, match: _Match, key: str, value: str) -> None:
        """Add an annotation; those of several bindings or parameters are joined."""
        value = value.encode()[:_LONGEST_ANNOTATION].decode("utf-8", "ignore")
        values = self._values.setdefault(f"{match.policy.name}/{key}", [])
        if value not in values:
            values.append(value)

    def violated(self, match: _Match, failed: UnmetRule) -> None:
        self._violations.append({
            "message": failed.message, "policy": match.policy.name, "binding": match.binding["metadata"]["name"],
            "expressionIndex": failed.place, "validationActions": match.binding["spec"]["validationActions"],
        })  # fmt: skip

    def publish(self) -> None:
        """Annotate the request."""
        for key, values in self._values.items():
            annotate(key, ", ".join(values))
        if self._violations:
            shown = msgspec.json.encode(self._violations[:_MOST_VIOLATIONS]).decode()
            annotate(_VIOLATIONS, shown.translate(_HTML))


def _act(request: PolicyRequest, match: _Match, failed: UnmetRule, audit: _AuditEntries) -> Iterator[ApiError]:
    """Do what a binding says about a violation; yield the denial, if it denies."""
    actions = match.binding["spec"].get("validationActions") or ()
    if "Audit" in actions:
        audit.violated(match, failed)
    if "Warn" in actions:
        name, bound = match.policy.name, match.binding["metadata"]["name"]
        why = f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{bound}': {failed.message}"
        requester().warnings.append(why)
    if "Deny" in actions:
        yield _denied(request, match, failed.message, failed.reason)


def _named(match: _Match) -> str:
    return f"'{match.policy.name}' with binding '{match.binding['metadata']['name']}'"


def _denied(request: PolicyRequest, match: _Match, why: str, reason: str) -> ApiError:
    why = f"ValidatingAdmissionPolicy {_named(match)} denied request: {why}"
    error = forbidden(request.resource.resource, request.resource.group, _name_of(request), why, [Cause("", why, "")])
    error.reason, error.code = reason, _CODES.get(reason, 422)
    return error


def _name_of(request: PolicyRequest) -> str:
    """Return the name of an object as errors about requests show it."""
    if request.name or request.object is None:
        return request.name or "Unknown"
    metadata = request.object.get("metadata")
    if not isinstance(metadata, dict):
        return "Unknown/errorGettingName"
    return str(metadata.get("name") or metadata.get("generateName") or "Unknown")
