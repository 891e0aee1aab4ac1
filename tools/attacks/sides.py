"""The two servers of a comparison. Both are planted, restored and read through the same requests of an administrator."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from moorage.api.documents.served_kinds import KINDS, Document, ServedKind, served
from moorage.api.feature_gates import FeatureGates
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.service_account_tokens import AccountTokens
from moorage.cluster.apiserver.http.serve import open_store, serving
from moorage.errors import ConfigError
from tools.attacks.ground import ADMIN, ROBOT_NAME, USER, granted_rights, signing_key
from tools.attacks.objects import ATTACKED, ATTACKED_DEFINITION, valid_object
from tools.attacks.routes import CLOSED, OPEN, SEEDED, object_path
from tools.attacks.wire import AttackConnection, AttackResponse

__all__ = ["USER_TOKEN", "ComparedServer", "ServerAddress", "embedded_side", "is_own", "reference_side"]

#: The token of the ordinary user, which the reference must know: ``token-of-user,user,2,people`` in its token file.
USER_TOKEN: Final = "token-of-user"  # noqa: S105 - for a server that exists for a test
_JSON: Final = "application/json"
#: How long a client waits for the objects of a watch. A busy reference needs longer than the embedded server.
_GLANCE_S: Final = 0.15
#: How long a busy reference may take to answer.
_PATIENCE_S: Final = 100.0
#: How long caches of the reference (rights, definitions) may take to follow.
_FOLLOW_S: Final = 10.0
#: How long the admission of the reference may take to see a new limit range.
_ADMISSION_S: Final = 0.3
_NAMESPACES: Final = served("namespaces")
_DEFINITIONS: Final = served("customresourcedefinitions", "apiextensions.k8s.io")
#: Deleting a service deletes its endpoints, deleting a definition the objects of its kind.
_TAKES_WITH_IT: Final = {served("services"): served("endpoints"), _DEFINITIONS: ATTACKED}
_BOOTSTRAP: Final = "kubernetes.io/bootstrapping"


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens, and the token of its administrator."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    token: str

    @staticmethod
    def of(url: str, token: str, authority: Path | None = None) -> ServerAddress:
        """Return the address of a URL.

        Raises  ConfigError for a URL without a scheme and a port, and for one that leaves this machine
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or parts.port is None or parts.hostname is None:
            raise ConfigError(f"--against: {url!r} is not http(s)://ADDRESS:PORT")
        if parts.hostname not in {"127.0.0.1", "::1", "localhost"}:
            raise ConfigError(f"--against: {parts.hostname} is not this machine; attacks destroy what a server holds")
        context = None
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=authority)
        return ServerAddress(parts.hostname, parts.port, context, token)


class ComparedServer:
    """One server: its connections, the tokens of its users, and the objects that attacks begin with."""

    def __init__(self, name: str, address: ServerAddress, kinds: Iterable[ServedKind]) -> None:
        self.name = name
        self.address = address
        self.kinds = [*kinds]
        self.attacked = self._connect(address)
        self._line = self._connect(address)
        self.tokens = {"anonymous": "", "user": USER_TOKEN, "admin": address.token, "robot": ""}
        self._known: dict[str, dict[tuple[str, str], tuple[str, str]]] = {}

    @staticmethod
    def _connect(address: ServerAddress) -> AttackConnection:
        return AttackConnection(address.port, address.host, address.tls, _GLANCE_S, _PATIENCE_S)

    async def close(self) -> None:
        await self.attacked.close()
        await self._line.close()

    async def ask(self, method: str, path: str, document: Any = None, form: str = _JSON, accept: str = _JSON) -> AttackResponse:
        """Send a request as the administrator, again if the connection was closed meanwhile."""
        body = b"" if document is None else msgspec.json.encode(document)
        lines = [
            f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {self.tokens['admin']}",
            f"Accept: {accept}", f"Content-Type: {form}", "User-Agent: attacks", f"Content-Length: {len(body)}", "", "",
        ]  # fmt: skip
        raw = "\r\n".join(lines).encode() + body
        answer = await self._line.ask(raw) or await self._line.ask(raw)
        return answer or AttackResponse("", 0, {})

    # -- the state ---------------------------------------------------------------------------------------------------

    async def objects(self, kind: ServedKind) -> dict[tuple[str, str], Document]:
        """Return the objects of a kind by namespace and name, apart from those that a server has by itself."""
        answer = await self.ask("GET", object_path(kind, ""))
        if answer.code != 200:
            return {}
        found = {}
        for one in msgspec.json.decode(answer.body)["items"]:
            metadata = one["metadata"]
            if not is_own(kind, metadata):
                found[metadata.get("namespace", ""), metadata["name"]] = one
        return found

    def is_changed(self, kind: ServedKind, found: dict[tuple[str, str], Document]) -> bool:
        """Return whether the objects of a kind differ from the planted ones."""
        return _versions(found) != self._known.get(kind.qualified)

    async def plant(self) -> None:
        """Remove what an earlier run left, and create the namespaces, an object of every kind, and the users' rights."""
        await self.restore(_NAMESPACES)
        await self.restore(_DEFINITIONS)
        for kind in self.kinds:
            if kind not in {_NAMESPACES, _DEFINITIONS}:
                await self.restore(kind)

    async def restore_all(self) -> None:
        """Bring all objects back to the planted ones."""
        for kind in self.kinds:
            if self.is_changed(kind, await self.objects(kind)):
                await self.restore(kind)

    async def restore(self, kind: ServedKind) -> None:
        """Bring the objects of a kind back to the planted ones, and of the kind whose objects may go with them."""
        await self._restore(kind)
        if kind in _TAKES_WITH_IT:
            await self._restore(_TAKES_WITH_IT[kind])

    async def _restore(self, kind: ServedKind) -> None:
        found = await self.objects(kind)
        if not found and kind is not _NAMESPACES and (await self.ask("GET", object_path(kind, ""))).code == 404:
            return
        wanted = {(one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in _planted(kind)}
        before = self._known.get(kind.qualified, {})
        now = _versions(found)
        for key in found:
            if key not in wanted or before.get(key) != now[key]:
                await self._remove(kind, *key)
        missing = [one for key, one in wanted.items() if key not in found or before.get(key) != now[key]]
        for one in missing:
            await self._create(kind, one)
        if missing and kind.qualified == "serviceaccounts":
            await self._issue_token()
        if missing and kind.qualified == "limitranges":
            await asyncio.sleep(_ADMISSION_S)
        if kind is _DEFINITIONS:
            await self._until_served()
        self._known[kind.qualified] = _versions(await self.objects(kind))

    async def _create(self, kind: ServedKind, document: Document) -> None:
        namespace = document["metadata"].get("namespace", "")
        deadline = time.monotonic() + _FOLLOW_S
        answer = await self.ask("POST", object_path(kind, namespace), document)
        while answer.code in {403, 404, 409} and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
            answer = await self.ask("POST", object_path(kind, namespace), document)
        if answer.code not in {201, 409}:
            raise ConfigError(
                f"{self.name} refuses {kind.qualified} {document['metadata']['name']}: {answer.code} {answer.body!r}"
            )

    async def _remove(self, kind: ServedKind, namespace: str, name: str) -> None:
        path = object_path(kind, namespace, name)
        if kind.qualified != "customresourcedefinitions.apiextensions.k8s.io":
            await self.ask("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        await self.ask("DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
        if kind is _NAMESPACES:
            await self._finalize(path)
        await self.ask("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        deadline = time.monotonic() + _FOLLOW_S
        while (await self.ask("GET", path)).code == 200 and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    async def _finalize(self, path: str) -> None:
        answer = await self.ask("GET", path)
        if answer.code == 200:
            document = msgspec.json.decode(answer.body)
            document["spec"] = {}
            await self.ask("PUT", f"{path}/finalize", document)

    async def _issue_token(self) -> None:
        path = object_path(served("serviceaccounts"), OPEN, ROBOT_NAME, "token")
        answer = await self.ask("POST", path, {"spec": {"expirationSeconds": 36_000}})
        self.tokens["robot"] = msgspec.json.decode(answer.body)["status"]["token"]

    async def _until_served(self) -> None:
        """Wait until the custom kind is served."""
        deadline = time.monotonic() + _FOLLOW_S
        while (await self.ask("GET", object_path(ATTACKED, OPEN))).code != 200 and time.monotonic() < deadline:
            await asyncio.sleep(0.05)


def is_own(kind: ServedKind, metadata: Document) -> bool:
    """Return whether a server made an object by itself."""
    name: str = metadata["name"]
    namespace: str = metadata.get("namespace", "")
    if _BOOTSTRAP in (metadata.get("labels") or {}) or name.startswith(("system:", "system-", "moorage:")):
        return True
    if kind is _NAMESPACES:
        return name == "default" or name.startswith("kube-")
    is_usual = (kind.kind, name) in {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
    return namespace == "default" or namespace.startswith("kube-") or is_usual


def _versions(found: dict[tuple[str, str], Document]) -> dict[tuple[str, str], tuple[str, str]]:
    return {key: (one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for key, one in found.items()}


def _planted(kind: ServedKind) -> list[Document]:
    """Return the objects of a kind that attacks begin with."""
    rights = [document for of, document in granted_rights() if of is kind]
    if kind is _NAMESPACES:
        return [{"metadata": {"name": name}} for name in (OPEN, CLOSED)] + [valid_object(kind, "", SEEDED)]
    if kind is _DEFINITIONS:
        return [ATTACKED_DEFINITION, valid_object(kind, "", SEEDED)]
    if "create" not in kind.verbs:
        return rights
    return [valid_object(kind, namespace, SEEDED) for namespace in ((OPEN, CLOSED) if kind.namespaced else ("",))] + rights


def _compared_kinds() -> list[ServedKind]:
    """Return the kinds in the order of planting. Limit ranges change pods; an event is one object under two names."""
    limits = served("limitranges")
    return [limits, *(kind for kind in KINDS if kind is not limits and (kind.kind != "Event" or kind.group)), ATTACKED]


@asynccontextmanager
async def embedded_side(seed: int, *, has_groups: bool = True) -> AsyncIterator[ComparedServer]:
    """Serve an embedded API server for one run, set up as a kube-apiserver without controllers."""
    store = open_store(clock=time.time, seed=seed, gates=FeatureGates({"GenericWorkload": has_groups}))
    store.empties_namespaces = False
    try:
        accounts = AccountTokens(store, signing_key())
        guard = Authenticator({"token-of-admin": ADMIN, USER_TOKEN: USER}, accounts=accounts)
        async with serving(store, guard) as port:
            side = ComparedServer(
                "the embedded server", ServerAddress("127.0.0.1", port, None, "token-of-admin"), _compared_kinds()
            )
            await side.plant()
            yield side
            await side.close()
    finally:
        store.close()


@asynccontextmanager
async def reference_side(address: ServerAddress) -> AsyncIterator[ComparedServer]:
    """Prepare another API server for one run."""
    side = ComparedServer("the reference", address, _compared_kinds())
    try:
        await side.plant()
        yield side
    finally:
        await side.close()
