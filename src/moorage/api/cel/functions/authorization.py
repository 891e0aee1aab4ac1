"""The authorization library of CEL: ask whether the user of a request, or a service account, may do something.

    authorizer.group('apps').resource('deployments').namespace('shop').check('create').allowed()

Source  apiserver, pkg/cel/library/authz.go and cost.go
"""

from __future__ import annotations

from typing import Any, Final

from moorage.api.cel.bounds import EvalError
from moorage.api.cel.declarations import Cheap, Cost
from moorage.api.cel.values import AuthorizerValue, GroupCheck, PathCheck, ResourceCheck, RightsDecision, Value


def _path(held: AuthorizerValue, path: str) -> PathCheck:
    return PathCheck(held.decide, held.user, {"path": path})


def _group(held: AuthorizerValue, group: str) -> GroupCheck:
    return GroupCheck(held.decide, held.user, {"group": group})


def _service_account(held: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    """Return the authorizer of a service account."""
    if not namespace or not name:
        raise EvalError("a service account has a namespace and a name")
    return AuthorizerValue(held.decide, f"system:serviceaccount:{namespace}:{name}", held.resource)


def _resource(held: GroupCheck, resource: str) -> ResourceCheck:
    return ResourceCheck(held.decide, held.user, {**held.parts, "resource": resource})


def _with(part: str) -> Any:
    def extended(held: ResourceCheck, value: str) -> ResourceCheck:
        return ResourceCheck(held.decide, held.user, {**held.parts, part: value})

    return Cheap(extended)


def _check(held: PathCheck | ResourceCheck, verb: str) -> RightsDecision:
    return held.decide(held.user, {**held.parts, "verb": verb})


def _cost(args: list[Value], result: Value) -> int:
    """Return the cost of a decision."""
    return 350_000


FUNCTIONS: Final[list[tuple[str, str, Any, Cost | None]]] = [
    ("path", "authorizer . string -> pathcheck", Cheap(_path), None),
    ("group", "authorizer . string -> groupcheck", Cheap(_group), None),
    ("serviceAccount", "authorizer . string, string -> authorizer", _service_account, None),
    ("resource", "groupcheck . string -> resourcecheck", Cheap(_resource), None),
    *((name, "resourcecheck . string -> resourcecheck", _with(name), None)
      for name in ("subresource", "namespace", "name", "fieldSelector", "labelSelector")),
    ("check", "pathcheck . string -> decision", Cheap(_check), _cost),
    ("check", "resourcecheck . string -> decision", Cheap(_check), _cost),
    ("allowed", "decision . -> bool", Cheap(lambda decision: decision.is_allowed), None),
    ("reason", "decision . -> string", Cheap(lambda decision: decision.reason), None),
    ("errored", "decision . -> bool", Cheap(lambda decision: bool(decision.error)), None),
    ("error", "decision . -> string", Cheap(lambda decision: decision.error), None),
    ("jsonpatch.escapeKey", "string -> string", lambda key: key.replace("~", "~0").replace("/", "~1"), None),
]  # fmt: skip
