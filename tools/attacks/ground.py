"""The target of attacks: an embedded API server with a seeded object of every kind, and users with few rights."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import Target
from moorage.api.documents.served_kinds import KINDS, RUNTIME_CONFIG, Document, Review, ServedKind, served
from moorage.api.documents.statuses import ApiError
from moorage.api.feature_gates import FeatureGates
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.access.service_account_tokens import AccountTokens
from moorage.cluster.apiserver.http.limits import ServerLimits
from moorage.cluster.apiserver.http.serve import open_store, serving
from moorage.cluster.apiserver.http.write_requests import create
from moorage.rules.store.store import Store
from moorage.rules.store.watches import StoreChange
from tools.attacks.objects import ATTACKED, ATTACKED_DEFINITION, valid_object
from tools.attacks.routes import CLOSED, OPEN, SEEDED

__all__ = ["ADMIN", "PLANTED", "ROBOT_NAME", "USER", "Ground", "a_ground", "granted_rights", "signing_key"]

#: A marker in every object that ordinary users may not read.
PLANTED: Final = "planted-where-only-the-administrator-reads"
#: The service account that attacks.
ROBOT_NAME: Final = "robot"
_RBAC: Final = "rbac.authorization.k8s.io"
ADMIN: Final = User("admin", ("system:masters",))
USER: Final = User("user", ("people",))
_ROBOT: Final = User(f"system:serviceaccount:{OPEN}:robot", ("system:serviceaccounts", f"system:serviceaccounts:{OPEN}"))
_ALL: Final = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]

#: The rights of the ordinary users, all in one namespace; the last entry is for cluster-scoped roles.
_RULES: Final[dict[str, list[Document]]] = {
    "user": [
        {"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods", "configmaps", "services", "pods/status", "pods/eviction"], "verbs": _ALL},
        {"apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"], "verbs": ["patch", "update", "watch"]},
    ],
    "robot": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [_RBAC], "resources": ["roles", "rolebindings"], "verbs": _ALL},
        {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["create", "update", "patch"]},
    ],
}  # fmt: skip
_ROLES: Final[Document] = {
    "apiGroups": [_RBAC],
    "resources": ["clusterroles", "clusterrolebindings"],
    "verbs": ["create", "update", "patch"],
}


class _Log(logging.Handler):
    """Collects what the server logs as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter("%(name)s %(message)s").format(record))


class Ground:
    """The attacked server: its store and port, the tokens of its users, and the writes since the last check."""

    def __init__(self, store: Store, port: int, tokens: dict[str, str], accounts: AccountTokens, log: list[str]) -> None:
        self.store = store
        self.port = port
        self.tokens = tokens
        self._accounts = accounts
        self.authorizer = Authorizer(store)
        self.users = {"user": USER, "robot": _ROBOT, "anonymous": User("system:anonymous", ("system:unauthenticated",))}
        self.log = log
        self._written: list[tuple[ServedKind, StoreChange]] = []
        self._is_torn = False
        store.follow(self._see)

    def _see(self, kind: ServedKind, change: StoreChange) -> None:
        self._written.append((kind, change))
        if change.gone and (kind.group == _RBAC or kind.kind in {"Namespace", "ServiceAccount"}):
            self._is_torn = True

    def restore(self, about: ServedKind | Review | None) -> None:
        """Recreate the seeded objects of a kind that earlier attacks deleted; everything if rights may have been deleted."""
        if self._is_torn:
            self._is_torn = False
            bootstrap_cluster(self.store)
            with suppress(ApiError):  # a namespace may be terminating
                _plant(self.store)
                self.tokens["robot"] = self._accounts.issue(OPEN, "robot", {})["status"]["token"]
        elif about is ATTACKED:
            _plant_custom_kind(self.store)
        elif isinstance(about, ServedKind):
            _plant_kind(self.store, about)
        self.written()

    def written(self) -> list[tuple[ServedKind, StoreChange]]:
        """Return the writes since the last call."""
        found, self._written = self._written, []
        return found

    def logged(self) -> list[str]:
        """Return the logged errors since the last call."""
        found = [*self.log]
        self.log.clear()
        return found


@asynccontextmanager
async def a_ground(seed: int) -> AsyncIterator[Ground]:
    """Serve a new cluster for one run of attacks."""
    gates = FeatureGates({"GenericWorkload": True})
    store = open_store(clock=lambda: 1_790_000_000.0, seed=seed, gates=gates, runtime_config=RUNTIME_CONFIG)
    try:
        _plant(store)
        accounts = AccountTokens(store, signing_key())
        token = accounts.issue(OPEN, "robot", {})["status"]["token"]
        tokens = {"anonymous": "", "user": "token-of-user", "admin": "token-of-admin", "robot": token}
        guard = Authenticator({tokens["admin"]: ADMIN, tokens["user"]: USER}, accounts=accounts)
        with _listening() as log:
            async with serving(store, guard, limits=ServerLimits(client_s=5.0)) as port:
                yield Ground(store, port, tokens, accounts, log)
    finally:
        store.close()


def signing_key() -> bytes:
    """Return a new key for tokens of service accounts."""
    made = ec.generate_private_key(ec.SECP256R1())
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return made.private_bytes(serialization.Encoding.PEM, form, plain)


@contextmanager
def _listening() -> Iterator[list[str]]:
    handler = _Log()
    loggers = [logging.getLogger(name) for name in ("moorage", "aiohttp", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _plant(store: Store) -> None:
    """Create the missing namespaces, seeded objects and rights of ordinary users."""
    for namespace in (OPEN, CLOSED):
        _create(store, served("namespaces"), "", {"metadata": {"name": namespace}})
    for kind in KINDS:
        if kind.is_served(store.kinds.gates):
            _plant_kind(store, kind)
    _plant_custom_kind(store)
    _give(store)


def _plant_kind(store: Store, kind: ServedKind) -> None:
    """Create the missing seeded objects of a kind."""
    if "create" in kind.verbs:
        for namespace in (OPEN, CLOSED) if kind.namespaced else ("",):
            mark = PLANTED if _is_secret(kind, namespace) else ""
            with suppress(ApiError):  # an earlier attack may prevent it, with a limit range or a terminating namespace
                _create(store, kind, namespace, valid_object(kind, namespace, SEEDED, mark))


def _plant_custom_kind(store: Store) -> None:
    """Create the definition of the attacked custom kind and its seeded objects, if they are missing."""
    with suppress(ApiError):  # the definition may be terminating
        _create(store, served("customresourcedefinitions", "apiextensions.k8s.io"), "", ATTACKED_DEFINITION)
    kind = store.kinds.find(ATTACKED.resource, ATTACKED.group, ATTACKED.version)
    if kind is not None:
        _plant_kind(store, kind)


def _create(store: Store, kind: ServedKind, namespace: str, document: Document) -> None:
    """Create an object with a request, unless it exists."""
    if store.find(kind, namespace, document["metadata"]["name"]) is None:
        asked = HTTPRequest("POST", "/", {}, "", "application/json", msgspec.json.encode(document), ADMIN, "attacks")
        create(store, asked, Target(kind, namespace), None)


def _is_secret(kind: ServedKind, namespace: str) -> bool:
    """Return True for objects that ordinary users may not read; they see cluster-scoped roles when they patch them."""
    return namespace == CLOSED or (not namespace and kind.group != _RBAC)


def _give(store: Store) -> None:
    """Grant the ordinary users their rights."""
    for kind, document in granted_rights():
        _create(store, kind, document["metadata"].get("namespace", ""), document)


def granted_rights() -> Iterator[tuple[ServedKind, Document]]:
    """Yield the service account, the roles and the bindings of the ordinary users."""
    account: Document = {"kind": "ServiceAccount", "name": ROBOT_NAME, "namespace": OPEN}
    subjects = {"user": {"kind": "User", "apiGroup": _RBAC, "name": "user"}, ROBOT_NAME: account}
    yield served("serviceaccounts"), {"metadata": {"name": ROBOT_NAME, "namespace": OPEN}}
    for name, rules in _RULES.items():
        metadata = {"name": f"of-{name}", "namespace": OPEN}
        yield served("roles", _RBAC), {"metadata": metadata, "rules": rules}
        ref = {"apiGroup": _RBAC, "kind": "Role", "name": f"of-{name}"}
        yield served("rolebindings", _RBAC), {"metadata": metadata, "subjects": [subjects[name]], "roleRef": ref}
    yield served("clusterroles", _RBAC), {"metadata": {"name": "of-robot"}, "rules": [_ROLES]}
    ref = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "of-robot"}
    binding: Document = {"metadata": {"name": "of-robot"}, "subjects": [account], "roleRef": ref}
    yield served("clusterrolebindings", _RBAC), binding
