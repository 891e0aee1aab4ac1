"""Answer the review kinds: SelfSubjectReview, TokenReview, the subject access reviews and SelfSubjectRulesReview.

Source  kubernetes, pkg/registry/authentication and pkg/registry/authorization; pkg/apis/authorization/validation
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import Document, Review, as_mapping
from moorage.api.documents.statuses import ApiError, bad_request, invalid
from moorage.api.selectors import SelectorError, parse_selector
from moorage.api.validation.faults import Faults
from moorage.api.validation.faults import invalid as invalid_field
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.rbac import Attributes, Authorizer
from moorage.cluster.apiserver.access.service_account_tokens import ISSUER
from moorage.rules.admission.pod_checks import RULES
from moorage.rules.store.list_selection import field_terms

# Selectors in access reviews: their validation, and errors for requirements that cannot be parsed.
#
# RBAC decides without selectors. A selector that cannot be parsed does not fail a review; its status names it.
#
# Source  kubernetes, pkg/apis/authorization/validation; pkg/registry/authorization/util/helpers.go

_PATH: Final = "spec.resourceAttributes"
_WITH_VALUES: Final = frozenset(["In", "NotIn"])
_WITHOUT_VALUES: Final = frozenset(["DoesNotExist", "Exists"])
_KINDS: Final = ("fieldSelector", "labelSelector")


def selector_faults(attributes: Document) -> Faults:
    """Yield the faults of the selectors in the resource attributes of a review."""
    return RULES.faults("ResourceAttributes", attributes, _PATH)


def selector_errors(attributes: Document) -> str:
    """Return an error for each selector that the decision ignores, at least in part, because it cannot be parsed."""
    ignored = [f"{_PATH}.{kind} {how}" for kind in _KINDS if (how := _ignored(kind, attributes.get(kind) or {}))]
    return "; ".join(ignored)


def _ignored(kind: str, selector: Document) -> str:
    asked, raw = selector.get("requirements") or (), selector.get("rawSelector")
    if asked:
        read = [_IS_READ[kind](one) for one in asked]
        parsed, is_whole = any(read), all(read)
    else:
        parsed, is_whole = False, not raw or _is_selector(kind, raw)
    return "" if is_whole else f"{'partially ' if parsed else ''}ignored due to parse error"


def _is_selector(kind: str, raw: str) -> bool:
    try:
        _PARSERS[kind](raw)
    except (ApiError, SelectorError):
        return False
    return True


_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {"fieldSelector": field_terms, "labelSelector": parse_selector}
#: By kind of selector: returns whether a valid requirement is evaluated. Those on fields must have exactly one value.
_IS_READ: Final[Mapping[str, Callable[[Document], bool]]] = {
    "fieldSelector": lambda one: one.get("operator") in _WITH_VALUES and len(one.get("values") or ()) == 1,
    "labelSelector": lambda one: one.get("operator") in _WITH_VALUES | _WITHOUT_VALUES,
}


def answer(
    review: Review, document: Document, user: User, authenticator: Authenticator, authorizer: Authorizer, namespace: str = ""
) -> Document:
    """Return a review with its status filled in. ``namespace`` is the namespace in the request path.

    Raises  ApiError 422 if the spec is invalid, 400 if a field has the wrong type
    """
    spec = as_mapping(document.get("spec"))
    if review.kind.endswith("AccessReview") and (faults := [*_access_faults(review, document, spec, namespace)]):
        raise invalid("", review.group, "", faults)
    status = _status(review, spec, user, authenticator, authorizer)
    if review.kind == "SelfSubjectRulesReview":
        document = {"metadata": {}, "spec": {}}
    return {**document, "apiVersion": f"{review.group}/{review.version}", "kind": review.kind, "status": status}


def _status(review: Review, spec: Document, user: User, authenticator: Authenticator, authorizer: Authorizer) -> Document:
    match review.kind:
        case "SelfSubjectReview":
            return {"userInfo": _info(user)}
        case "TokenReview":
            return _token(spec, authenticator)
        case "SelfSubjectRulesReview":
            return _rules(user, _text(spec, "namespace"), authorizer)
        case "SelfSubjectAccessReview":
            return _access(user, spec, authorizer)
        case _:
            groups = tuple(str(one) for one in _list(spec, "groups"))
            return _access(User(_text(spec, "user"), groups, _text(spec, "uid")), spec, authorizer)


#: Metadata that requests may have: managed fields, and what the server itself fills in.
_KEPT: Final = frozenset(["managedFields", "creationTimestamp", "selfLink"])


def _access_faults(review: Review, document: Document, spec: Document, namespace: str) -> Faults:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        yield invalid_field("spec.nonResourceAttributes", _go_path(path), why)
    elif resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid_field("spec.resourceAttributes", resource, why)
    if review.kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        yield invalid_field("spec.user", "", "at least one of user or group must be specified")
    yield from selector_faults(as_mapping(resource))
    metadata, kept = as_mapping(document.get("metadata")), _KEPT | {"namespace"} if review.namespaced else _KEPT
    if any(value for name, value in metadata.items() if name not in kept):
        yield invalid_field("metadata", metadata, f"must be empty{' except for namespace' if review.namespaced else ''}")
    if review.namespaced and resource is not None and (found := _text(as_mapping(resource), "namespace")) != namespace:
        yield invalid_field("spec.resourceAttributes.namespace", found, "must match metadata.namespace")
    if review.namespaced and path is not None:
        yield invalid_field("spec.nonResourceAttributes", _go_path(path), "disallowed on this kind of request")


def _go_path(path: Any) -> Document:
    attributes = as_mapping(path)
    return {"Path": _text(attributes, "path"), "Verb": _text(attributes, "verb")}


def _access(user: User, spec: Document, authorizer: Authorizer) -> Document:
    verdict = authorizer.judge(user, _attributes(spec))
    shown = {"reason": verdict.reason, "evaluationError": selector_errors(as_mapping(spec.get("resourceAttributes")))}
    return {"allowed": verdict.allowed, **{name: text for name, text in shown.items() if text}}


def _attributes(spec: Document) -> Attributes:
    if spec.get("resourceAttributes") is None:
        attributes = as_mapping(spec.get("nonResourceAttributes"))
        # A NUL path matches no rule, and it keeps the request a non-resource request when the path is empty.
        return Attributes(_text(attributes, "verb"), path=_text(attributes, "path") or "\0")
    attributes = as_mapping(spec["resourceAttributes"])
    fields = {name: _text(attributes, name) for name in ("verb", "group", "resource", "subresource", "name", "namespace")}
    return Attributes(**fields)


def _rules(user: User, namespace: str, authorizer: Authorizer) -> Document:
    if not namespace:
        raise bad_request("no namespace on request")
    grants = authorizer.grants(user, namespace)
    rules: list[Document] = [msgspec.to_builtins(rule) for grant in grants for rule in grant.rules]
    found: Document = {
        "resourceRules": [rule for rule in rules if "resources" in rule],
        "nonResourceRules": [rule for rule in rules if "nonResourceURLs" in rule],
        "incomplete": False,
    }
    if faults := [grant.fault for grant in grants if grant.fault]:
        found |= {"incomplete": True, "evaluationError": "; ".join(faults)}
    return found


# -- token and self subject reviews ------------------------------------------------------------------------------------


def _token(spec: Document, authenticator: Authenticator) -> Document:
    token = _text(spec, "token")
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    audiences = tuple(str(one) for one in _list(spec, "audiences"))
    identity = authenticator.authenticate_token(token, audiences or (ISSUER,))
    if identity is None:
        return {"user": {}, "error": "invalid bearer token"}
    found: Document = {"authenticated": True, "user": _info(identity.user)}
    return {**found, "audiences": list(identity.audiences)} if audiences else found


def _info(user: User) -> Document:
    extra = {key: list(values) for key, values in user.extra.items()}
    shown = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    return {key: value for key, value in shown.items() if value}


def _text(document: Document, name: str) -> str:
    value = document.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"{name}: expected a string")
    return value or ""


def _list(document: Document, name: str) -> list[Any]:
    value = document.get(name) or []
    if not isinstance(value, list):
        raise bad_request(f"{name}: expected a list")
    return value
