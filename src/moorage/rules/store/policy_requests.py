"""What admission policies see of a request: the operation, what it is about, the objects before and after, its options
and its user.

Every write is one request. It is about a resource or one of its subresources, and its object is what the client sends there: a
``Binding`` for ``pods/binding``, a ``Scale`` for ``deployments/scale``, the options of a stream for ``pods/exec``.

Source  apiserver, pkg/admission/plugin/cel/condition.go, CreateAdmissionRequest; pkg/endpoints/handlers: create.go, update.go,
        patch.go, delete.go and rest.go (ConnectResource)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from moorage.api.cel.values import AuthorizerValue, Decide, RightsDecision
from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import Document, Review, ServedKind, served


def _may(user: str | None, parts: Mapping[str, str]) -> RightsDecision:
    """Allow everything."""
    return RightsDecision(True)


class Requester(NamedTuple):
    """Who makes the requests of this context, the warnings for them, and what the client says about them.

    ``options``: the parameters of the request (``fieldManager``, ``dryRun``, ...). ``subresource``: the subresource in the
    path, where it is stored as another one. ``is_collection``: the request names no object. ``is_judged``: policies are for it.
    ``decide`` says what the user, or another one, may do. ``annotations`` are those of the audit log; None if there is none.
    """

    user: Document
    warnings: MutableSequence[str]
    options: Document
    subresource: str = ""
    is_collection: bool = False
    is_judged: bool = True
    decide: Decide = _may
    annotations: MutableMapping[str, str] | None = None


#: Controllers read no warnings.
_CONTROLLERS: Final = Requester({"username": "system:apiserver", "groups": ["system:masters"]}, deque(maxlen=0), {})
_REQUESTER: Final[ContextVar[Requester]] = ContextVar("requester", default=_CONTROLLERS)


def requester() -> Requester:
    """Return who makes the requests of this context."""
    return _REQUESTER.get()


@contextmanager
def requested_by(
    user: User, options: Document | None = None, *, subresource: str = "", decide: Decide = _may,
    annotations: MutableMapping[str, str] | None = None,
) -> Iterator[list[str]]:  # fmt: skip
    """Let a user make the requests of the block. The list gets the warnings about them.

    ``annotations`` gets those of the audit log.
    """
    warnings: list[str] = []
    asks = Requester(user_info(user), warnings, options or {}, subresource, decide=decide, annotations=annotations)
    with as_requester(asks):
        yield warnings


@contextmanager
def as_requester(one: Requester) -> Iterator[None]:
    """Let someone make the requests of the block."""
    token = _REQUESTER.set(one)
    try:
        yield
    finally:
        _REQUESTER.reset(token)


@contextmanager
def unjudged() -> Iterator[None]:
    """Make the requests of the block without asking policies: they follow from one that was judged."""
    with as_requester(_REQUESTER.get()._replace(is_judged=False)):
        yield


@contextmanager
def of_a_collection() -> Iterator[None]:
    """Make the requests of the block for all objects of a collection, which names none of them."""
    with as_requester(_REQUESTER.get()._replace(is_collection=True)):
        yield


@contextmanager
def asking_for(options: Document | None) -> Iterator[None]:
    """Make the requests of the block with these options."""
    with as_requester(_REQUESTER.get()._replace(options=options or {})):
        yield


def annotate(key: str, value: str) -> None:
    """Annotate the request of this context in the audit log. The first value of a key stays, as in kube-apiserver."""
    annotations = _REQUESTER.get().annotations
    if annotations is not None:
        annotations.setdefault(key, value)


def user_info(user: User) -> Document:
    """Return a user as a ``UserInfo`` of the API."""
    extra = {name: [*values] for name, values in user.extra.items()}
    info: Document = {"username": user.name, "groups": [*user.groups], "uid": user.uid, "extra": extra}
    return {name: value for name, value in info.items() if value}


def sign_with_requester(request: Document) -> None:
    """Note in a new certificate signing request, in place, who makes it."""
    spec = request.get("spec")
    if isinstance(spec, dict):
        for name in ("username", "uid", "groups", "extra"):
            spec.pop(name, None)
        spec.update(requester().user)


# -- requests ----------------------------------------------------------------------------------------------------------


class KindName(NamedTuple):
    """The kind of an object."""

    group: str
    version: str
    kind: str

    def document(self) -> Document:
        return self._asdict()


class PolicyRequest(NamedTuple):
    """A request. ``object`` is None for a deletion, and ``old`` for a new object.

    ``resource`` is the one in the path, in its version; ``kind`` that of the objects, which have its ``apiVersion``.
    ``namespace`` of a namespace is its own name.
    """

    operation: str
    resource: ServedKind | Review
    subresource: str
    kind: KindName
    namespace: str
    name: str
    object: Document | None
    old: Document | None
    options: Document | None
    dry_run: bool

    @property
    def is_of_namespace(self) -> bool:
        return self.resource.resource == "namespaces" and not self.resource.group

    def values(self, matched: ServedKind | Review, kind: KindName) -> Document:
        """Return ``request`` as expressions see it. ``matched`` and ``kind``: the resource and kind that a rule matches."""
        request: Document = {
            "kind": kind.document(), "resource": _resource(matched), "subResource": self.subresource,
            "requestKind": self.kind.document(), "requestResource": _resource(self.resource),
            "requestSubResource": self.subresource, "name": self.name, "namespace": self.namespace,
            "operation": self.operation, "userInfo": _REQUESTER.get().user, "dryRun": self.dry_run, "options": self.options,
        }  # fmt: skip
        return {name: value for name, value in request.items() if value not in ("", None)}

    def authorizer(self) -> AuthorizerValue:
        """Return who says what the user of the request may do."""
        one = self.resource
        parts = {
            "group": one.group, "version": one.version, "resource": one.resource, "subresource": self.subresource,
            "namespace": self.namespace, "name": self.name,
        }  # fmt: skip
        return AuthorizerValue(_REQUESTER.get().decide, None, parts)


def _resource(one: ServedKind | Review) -> Document:
    return {"group": one.group, "version": one.version, "resource": one.resource}


def kind_name(one: ServedKind | Review) -> KindName:
    """Return the kind of a resource's objects."""
    return KindName(one.group, one.version, one.kind)


#: The subresources whose objects are of another kind than the resource's.
_PARTS: Final[Mapping[str, KindName]] = {
    "attach": KindName("", "v1", "PodAttachOptions"),
    "binding": KindName("", "v1", "Binding"),
    "eviction": KindName("policy", "v1", "Eviction"),
    "exec": KindName("", "v1", "PodExecOptions"),
    "portforward": KindName("", "v1", "PodPortForwardOptions"),
    "scale": KindName("autoscaling", "v1", "Scale"),
    "token": KindName("authentication.k8s.io", "v1", "TokenRequest"),
}
_PROXIES: Final = {"nodes": "NodeProxyOptions", "pods": "PodProxyOptions", "services": "ServiceProxyOptions"}
_NAMESPACES: Final = served("namespaces")


def request_for(
    resource: ServedKind | Review, old: Document | None, new: Document | None, subresource: str = "", *,
    name: str = "", namespace: str = "", operation: str = "", dry_run: bool = False,
) -> PolicyRequest:  # fmt: skip
    """Return a write as a request; ``new`` is None for a deletion. Without a name, the objects have it."""
    metadata = (old or new or {}).get("metadata") or {}
    name = name or str(metadata.get("name") or "")
    namespace = namespace or str(metadata.get("namespace") or "")
    if resource is _NAMESPACES:
        namespace = name
    operation = operation or ("DELETE" if new is None else "CREATE" if old is None else "UPDATE")
    asks = _REQUESTER.get()
    is_proxy = subresource == "proxy"
    kind = KindName("", "v1", _PROXIES[resource.resource]) if is_proxy else _PARTS.get(subresource) or kind_name(resource)
    head: dict[str, Any] = {"apiVersion": f"{kind.group}/{kind.version}".removeprefix("/"), "kind": kind.kind}
    before, after = (None if one is None else _headed(one, head) for one in (old, new))
    return PolicyRequest(
        operation, resource, asks.subresource or subresource, kind, namespace, "" if asks.is_collection else name, after,
        before, _options(operation, asks.options), dry_run,
    )  # fmt: skip


def _headed(document: Document, head: Document) -> Document:
    return {**head, **document, **head}


def _options(operation: str, sent: Document) -> Document | None:
    if operation == "CONNECT":
        return None
    form = {"CREATE": "CreateOptions", "DELETE": "DeleteOptions", "UPDATE": "UpdateOptions"}[operation]
    return {"kind": form, "apiVersion": "meta.k8s.io/v1", **sent}


def without_head(document: Document) -> Document:
    """Return an object without its kind and API version."""
    return {name: value for name, value in document.items() if name not in {"apiVersion", "kind"}}


def written(values: Mapping[str, Any], into: Document) -> None:
    """Replace the content of a document, in place, and keep its kind and API version where it has them."""
    head: Document = {name: into[name] for name in ("kind", "apiVersion") if name in into}
    into.clear()
    into.update({**head, **without_head(dict(values))})
