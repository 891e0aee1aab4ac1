"""``python -m tools.differential apiserver``: ask a kube-apiserver and the embedded API server the same, and compare.

Both servers get the objects of `api_objects.yaml`. A run draws requests about them from a seed: creations, replacements and
patches with mutated objects (`api_mutations.py`), subresources, lists, tables and deletions. Most writes are dry runs, so that
each request finds the same state; a part of them creates an object, changes it and deletes it. Answers are compared whole: what
each server chooses by itself (uids, times, versions) counts as equal. The differences are grouped by their kind, the most
frequent first, and one example of each group is made smaller while it shows the same difference.

The reference must have no controllers and nothing that matters: the run writes to it.

    python -m tools.real_cluster start --nodes 0 --no-controllers --scheduler none --directory build/cluster
    python -m tools.differential apiserver --cluster build/cluster --seed 1 --count 3000
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import copy
import http.client
import json
import random
import ssl
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import KindTable
from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import find_release
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.service_account_tokens import AccountTokens
from moorage.cluster.apiserver.http.serve import open_store, serving
from tools.differential.api_answers import Answer, Difference, Request, differences, masked
from tools.differential.api_known import known
from tools.differential.api_mutations import Document, Mutator, Schemas

__all__ = ["main"]

_OBJECTS: Final = Path(__file__).with_name("api_objects.yaml")
_JSON: Final = "application/json"
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_APPLY: Final = "application/apply-patch+yaml"
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
_PARTIAL: Final = "application/json;as=PartialObjectMetadata{};v=v1;g=meta.k8s.io"
_NAMESPACE: Final = "berth"
_TOKEN: Final = "token-of-admin"  # noqa: S105 - for servers that exist for a test


# -- servers -----------------------------------------------------------------------------------------------------------


class Side:
    """A connection of an administrator to one of the servers."""

    def __init__(self, name: str, host: str, port: int, token: str, tls: ssl.SSLContext | None = None) -> None:
        self.name = name
        self._host, self._port, self._tls = host, port, tls
        self._connection: http.client.HTTPConnection | None = None
        self._token = token

    def ask(self, request: Request) -> Answer:
        """Send a request and return the answer; once more if the connection was closed meanwhile."""
        for attempt in range(2):
            try:
                return self._asked(request)
            except (http.client.HTTPException, ConnectionError):
                self._connection = None
                if attempt:
                    break
        return Answer(0, "the connection was closed")

    def _asked(self, request: Request) -> Answer:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._host, self._port, timeout=60)
            if self._tls is not None:
                self._connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=60)
        raw = None if request.body is None else json.dumps(request.body, separators=(",", ":")).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Accept": request.accept, "User-Agent": "differential"}
        if raw is not None:
            headers["Content-Type"] = request.form
        self._connection.request(request.method, request.path, raw, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        warnings = tuple(value for name, value in answer.getheaders() if name.lower() == "warning")
        try:
            return Answer(answer.status, json.loads(text), warnings)
        except ValueError:
            return Answer(answer.status, text.decode("utf-8", "replace"), warnings)

    def get(self, path: str) -> Any:
        """Return the document at a path, {} if there is none."""
        found = self.ask(Request("GET", path)).body
        return found if isinstance(found, dict) else {}


def _signing_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, plain)


@contextmanager
def embedded(release: str = "1.37") -> Iterator[Side]:
    """Serve an embedded API server without controllers in a thread."""
    ready, done = threading.Event(), threading.Event()
    ports: list[int] = []
    emulated = find_release(release)
    if emulated is None:
        raise SystemExit(f"error: --release: {release!r} is no release that can be emulated")

    async def serve() -> None:
        store = open_store(clock=time.time, seed=1, gates=FeatureGates(release=emulated.name))
        store.empties_namespaces = False
        accounts = AccountTokens(store, _signing_key())
        guard = Authenticator(
            {_TOKEN: User("admin", ("system:masters", "system:authenticated"), uid="admin")}, accounts=accounts
        )
        async with serving(store, guard) as port:
            ports.append(port)
            ready.set()
            await asyncio.to_thread(done.wait)
        store.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    if not ready.wait(30):
        raise RuntimeError("the embedded server did not start")
    try:
        yield Side("here", "127.0.0.1", ports[0], _TOKEN)
    finally:
        done.set()
        thread.join(10)


def reference(url: str, token: str, authority: Path | None) -> Side:
    """Return the connection to a kube-apiserver on this machine."""
    parts = urlsplit(url)
    if parts.hostname not in {"127.0.0.1", "::1", "localhost"} or parts.port is None:
        raise SystemExit(f"error: --against: {url!r} is no address of this machine with a port")
    tls = None
    if parts.scheme == "https":
        tls = ssl.create_default_context(cafile=authority)
        if authority is None:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return Side("there", parts.hostname, parts.port, token, tls)


# -- objects -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Base:
    """An object that requests are about. ``alone``: it is never stored."""

    document: Document
    resource: str
    namespaced: bool
    alone: bool
    parts: Mapping[str, Document]
    verbs: frozenset[str]

    @property
    def kind(self) -> str:
        group = self.document["apiVersion"].rpartition("/")[0]
        return f"{self.resource}.{group}" if group else self.resource

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def collection(self) -> str:
        version, namespace = self.document["apiVersion"], self.document["metadata"].get("namespace", "")
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return f"{root}/namespaces/{namespace}/{self.resource}" if self.namespaced else f"{root}/{self.resource}"

    def path(self, name: str = "", part: str = "") -> str:
        return "/".join(filter(None, (self.collection, name or self.name, part)))


@cache
def _signing_request() -> str:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))  # every run asks for the same
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "web")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, None)
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def read_bases(there: Side) -> list[Base]:
    """Return the objects of the table, with names, as the reference serves their kinds."""
    documents = list(yaml.safe_load(_OBJECTS.read_text()))
    kinds = {
        (version, one["kind"]): one
        for version in {one["object"]["apiVersion"] for one in documents}
        for one in there.get(f"/apis/{version}" if "/" in version else f"/api/{version}").get("resources") or ()
        if "/" not in one["name"]
    }
    found = []
    for i, one in enumerate(documents):
        document = one["object"]
        about = kinds.get((document["apiVersion"], document["kind"]))
        if about is None and document["kind"] == "Boat":
            about = {"name": "boats", "namespaced": True, "verbs": [*_VERBS]}
        if about is None:
            sys.stderr.write(f"{document['apiVersion']} {document['kind']}: the reference does not serve it\n")
            continue
        document["metadata"].setdefault("name", f"base-{i}")
        if about["namespaced"]:
            document["metadata"].setdefault("namespace", _NAMESPACE)
        if document["kind"] == "CertificateSigningRequest":
            document["spec"]["request"] = _signing_request()
        found.append(
            Base(
                document,
                about["name"],
                about["namespaced"],
                bool(one.get("alone")),
                one.get("parts") or {},
                frozenset(about["verbs"]),
            )
        )
    return found


def planted_bases(kinds: KindTable) -> Iterator[tuple[str, Document]]:
    """Yield the objects of the table that are stored, each with the path of its collection, in the order of their creation."""
    documents = list(yaml.safe_load(_OBJECTS.read_text()))
    for i, one in enumerate(documents):
        document = one["object"]
        document["metadata"].setdefault("name", f"base-{i}")
        if document["kind"] == "CertificateSigningRequest":
            document["spec"]["request"] = _signing_request()
    for one in sorted(documents, key=lambda one: one["object"]["kind"] != "CustomResourceDefinition"):
        document, version = one["object"], one["object"]["apiVersion"]
        if one.get("alone") and document["kind"] != "CustomResourceDefinition":
            continue
        kind = kinds.find_type(version, document["kind"])
        name, is_namespaced = ("boats", True) if kind is None else (kind.resource, kind.namespaced)
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if is_namespaced:
            document["metadata"].setdefault("namespace", _NAMESPACE)
            root += f"/namespaces/{document['metadata']['namespace']}"
        yield f"{root}/{name}", document


_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def plant(sides: Sequence[Side], bases: Sequence[Base]) -> None:
    """Create the namespaces, their accounts and the objects on both servers."""
    first = [Request("POST", "/api/v1/namespaces", {"metadata": {"name": name}}) for name in (_NAMESPACE, "quay")]
    first += [
        Request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
        for name in (_NAMESPACE, "quay")
    ]
    for side in sides:
        for request in first:
            _created(side, request)
    for base in sorted(bases, key=lambda base: base.document["kind"] != "CustomResourceDefinition"):
        for side in sides:
            if base.document["kind"] == "Boat":
                _wait_served(side, base)
            if not base.alone or base.document["kind"] == "CustomResourceDefinition":
                if base.document["kind"] == "Event":  # those of an earlier run expire within this one
                    side.ask(Request("DELETE", base.path()))
                _created(side, Request("POST", base.collection, base.document))


def _created(side: Side, request: Request) -> None:
    answer = side.ask(request)
    if answer.code not in {201, 409}:
        sys.stderr.write(f"{side.name}: {request.method} {request.path}: {answer.code} {answer.message[:500]}\n")


def _wait_served(side: Side, base: Base) -> None:
    deadline = time.monotonic() + 20
    while side.ask(Request("GET", base.collection)).code != 200 and time.monotonic() < deadline:
        time.sleep(0.1)


# -- requests ----------------------------------------------------------------------------------------------------------


class Drawer:
    """Draws the requests of a seed."""

    def __init__(self, bases: Sequence[Base], schemas: Schemas, seed: int) -> None:
        self._bases = bases
        self._schemas = schemas
        self._seed = seed

    def sequence(self, number: int) -> list[Request]:
        """Return the requests of one number: a dry run, a read, or the life of an object."""
        rng = random.Random(f"{self._seed}/{number}")  # noqa: S311 - chance, not secrecy
        base = rng.choice(self._bases)
        schema = self._schemas.of_kind(base.document["apiVersion"], base.document["kind"])
        mutator, draw = Mutator(self._schemas, rng), rng.random()
        if draw < 0.08:
            return [self._read(base, rng)]
        if draw < 0.14 and not base.alone:
            return self._life(base, schema, mutator, rng, number)
        if draw < 0.30 and base.parts and not base.alone:
            return [self._part(base, schema, mutator, rng)]
        if draw < 0.62 or base.alone:
            return [self._create(base, schema, mutator, rng)]
        return [self._change(base, schema, mutator, rng, "?dryRun=All")]

    @staticmethod
    def _create(base: Base, schema: Mapping[str, Any], mutator: Mutator, rng: random.Random) -> Request:
        made = mutator.mutated(base.document, schema) if rng.random() < 0.95 else copy.deepcopy(base.document)
        if not _needs_its_name(base):
            made["metadata"]["name"] = "made"
            if rng.random() < 0.03:
                del made["metadata"]["name"]
                made["metadata"]["generateName"] = "gen-"
        strict = rng.choice(("", "", "&fieldValidation=Strict"))
        return Request("POST", f"{base.collection}?dryRun=All{strict}", made, kind=base.kind, label="create")

    @staticmethod
    def _change(
        base: Base,
        schema: Mapping[str, Any],
        mutator: Mutator,
        rng: random.Random,
        query: str,
        name: str = "",
        part: str = "",
        document: Document | None = None,
    ) -> Request:
        before = base.document if document is None else document
        before = {**before, "metadata": {**before["metadata"], "name": name or base.name}}
        after = mutator.mutated(before, schema)
        path, kind = base.path(name, part) + query, f"{base.kind}/{part}" if part else base.kind
        draw = rng.random()
        if draw < 0.4:
            return Request("PUT", path, after, kind=kind, label="replace")
        if draw < 0.6:
            patch = merge_patch(before, after)
            return Request("PATCH", path, patch, _MERGE, kind=kind, label="merge")
        if draw < 0.75 and base.document["kind"] != "Boat":
            return Request("PATCH", path, merge_patch(before, after), _STRATEGIC, kind=kind, label="strategic")
        if draw < 0.85:
            return Request("PATCH", path, json_patch(before, after), _JSON_PATCH, kind=kind, label="json patch")
        after = {"apiVersion": base.document["apiVersion"], "kind": base.document["kind"], **after}
        force = rng.choice(("", "&force=true"))
        mark = "&" if query else "?"
        return Request("PATCH", f"{path}{mark}fieldManager=differential{force}", after, _APPLY, kind=kind, label="apply")

    def _part(self, base: Base, schema: Mapping[str, Any], mutator: Mutator, rng: random.Random) -> Request:
        part = rng.choice(sorted(base.parts))
        sent = base.parts[part]
        if "kind" in sent:
            own = self._schemas.of_kind(sent["apiVersion"], sent["kind"])
            body = {**sent, "metadata": {"name": base.name, "namespace": base.document["metadata"].get("namespace", "")}}
            body = mutator.mutated(body, own) if rng.random() < 0.8 else body
            method = "PUT" if part == "scale" else "POST"
            return Request(method, f"{base.path(part=part)}?dryRun=All", body, kind=f"{base.kind}/{part}", label=method.lower())
        whole = _with(base.document, sent)
        return self._change(base, schema, mutator, rng, "?dryRun=All", part=part, document=whole)

    def _read(self, base: Base, rng: random.Random) -> Request:
        accept = rng.choice(
            (
                _JSON,
                _TABLE,
                _TABLE,
                _PARTIAL.format(""),
                _PARTIAL.format("List"),
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
            )
        )
        if rng.random() < 0.4:
            return Request("GET", base.path(), accept=accept, kind=base.kind, label="get")
        query = {
            name: value
            for name, value in (
                ("labelSelector", rng.choice(("", "app=web", "app in (web,x)", "!app", "a==b", "=", "a b"))),
                (
                    "fieldSelector",
                    rng.choice(
                        ("", "metadata.name=base-1", "metadata.namespace!=x", "status.phase=Running", "spec.nodeName=", "x=y")
                    ),
                ),
                ("limit", rng.choice(("", "", "1", "x", "-1"))),
                ("resourceVersionMatch", rng.choice(("", "", "", "Exact", "x"))),
                ("resourceVersion", rng.choice(("", "", "0", "x"))),
                ("includeObject", rng.choice(("", "", "Object", "None", "x"))),
            )
            if value and rng.random() < 0.5
        }
        return Request("GET", f"{base.collection}?{urlencode(query)}", accept=accept, kind=base.kind, label="list")

    def _life(self, base: Base, schema: Mapping[str, Any], mutator: Mutator, rng: random.Random, number: int) -> list[Request]:
        """Return the requests that create an object, change it twice, read it and delete it."""
        name = base.name if _needs_its_name(base) else f"life-{number}"
        if _needs_its_name(base):
            return [self._create(base, schema, mutator, rng)]
        document = {**copy.deepcopy(base.document), "metadata": {**copy.deepcopy(base.document["metadata"]), "name": name}}
        made = [Request("POST", base.collection, document, kind=base.kind, label="create")]
        made += [self._change(base, schema, mutator, rng, "", name) for _ in range(2)]
        if "status" in base.parts:
            whole = _with(base.document, base.parts["status"])
            made.append(self._change(base, schema, mutator, rng, "", name, "status", whole))
        made.append(Request("GET", base.path(name), kind=base.kind, label="get"))
        propagation = rng.choice(
            (
                {},
                {"propagationPolicy": "Background"},
                {"propagationPolicy": "Foreground"},
                {"propagationPolicy": "x"},
                {"gracePeriodSeconds": -1},
            )
        )
        made.append(
            Request(
                "DELETE",
                base.path(name),
                {"apiVersion": "v1", "kind": "DeleteOptions", **propagation},
                kind=base.kind,
                label="delete",
            )
        )
        made.append(
            Request("PATCH", base.path(name), {"metadata": {"finalizers": None}}, _MERGE, kind=base.kind, label="release")
        )
        made.append(Request("DELETE", f"{base.path(name)}?gracePeriodSeconds=0", kind=base.kind, label="delete"))
        return made


def _needs_its_name(base: Base) -> bool:
    return base.document["kind"] in {"CustomResourceDefinition", "APIService", "IPAddress", "CSIDriver", "Namespace"}


def _with(document: Document, more: Mapping[str, Any]) -> Document:
    """Return a document with the fields of another one, in each place of both."""
    made = copy.deepcopy(document)
    for name, value in more.items():
        held = made.get(name)
        made[name] = _with(held, value) if isinstance(held, dict) and isinstance(value, dict) else copy.deepcopy(value)
    return made


def merge_patch(before: Any, after: Any) -> Any:
    """Return the JSON merge patch from one document to another."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    made = {name: None for name in before if name not in after}
    return made | {
        name: merge_patch(before[name], value) if name in before else value
        for name, value in after.items()
        if name not in before or before[name] != value or type(before[name]) is not type(value)
    }


def json_patch(before: Any, after: Any, path: str = "") -> list[Document]:
    """Return the operations of a JSON patch from one document to another. Lists of other lengths are replaced."""
    if isinstance(before, dict) and isinstance(after, dict):
        made = [{"op": "remove", "path": f"{path}/{_escaped(name)}"} for name in before if name not in after]
        for name, value in after.items():
            if name not in before:
                made.append({"op": "add", "path": f"{path}/{_escaped(name)}", "value": value})
            else:
                made += json_patch(before[name], value, f"{path}/{_escaped(name)}")
        return made
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [one for i, pair in enumerate(zip(before, after, strict=True)) for one in json_patch(*pair, f"{path}/{i}")]
    return [] if before == after and type(before) is type(after) else [{"op": "replace", "path": path, "value": after}]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


# -- comparison --------------------------------------------------------------------------------------------------------


@dataclass
class Group:
    """Requests whose answers differ in the same way."""

    requests: list[Request] = field(default_factory=list)
    first: Difference | None = None
    reason: str = ""


@dataclass
class Outcome:
    """What a run found."""

    asked: int = 0
    codes: int = 0
    alike: int = 0
    wanted: Counter[str] = field(default_factory=Counter)
    groups: dict[tuple[Any, ...], Group] = field(default_factory=dict)

    def add(self, request: Request, ours: Answer, theirs: Answer) -> None:
        """Count a request with both answers; what is not on purpose is a difference."""
        self.asked += 1
        found = None
        for one in differences(ours, theirs):
            if reason := known(request, one):
                self.wanted[reason] += 1
            else:
                found = one
                break
        self.codes += found is None or found.aspect != "code"
        self.alike += found is None
        if found is not None:
            group = self.groups.setdefault((request.kind, *found.kind), Group())
            group.first = group.first or found
            group.requests.append(request)


class Comparison:
    """The same requests to two servers."""

    def __init__(self, here: Side, there: Side) -> None:
        self._sides = (here, there)

    def run(self, drawer: Drawer, numbers: range) -> Outcome:
        """Ask all requests of some numbers."""
        outcome = Outcome()
        for number in numbers:
            for request in drawer.sequence(number):
                if (asked := self._ask(request)) is not None:
                    outcome.add(request, *asked)
        return outcome

    def _ask(self, request: Request) -> tuple[Answer, Answer] | None:
        try:
            json.dumps(request.body)
        except (TypeError, ValueError):
            return None
        ours, theirs = (side.ask(request) for side in self._sides)
        return ours, theirs

    def smaller(self, request: Request, wanted: Difference, tries: int = 80) -> Request:
        """Return a request with less in its body that shows the same difference."""
        if not isinstance(request.body, dict) or "dryRun" not in request.path:
            return request
        best = request
        for path in _parts_of(request.body):
            if tries <= 0:
                break
            body = copy.deepcopy(best.body)
            if not _remove(body, path):
                continue
            tries -= 1
            candidate = replace(best, body=body)
            found = differences(*(side.ask(candidate) for side in self._sides))
            if any(one.kind == wanted.kind for one in found):
                best = candidate
        return best


def _parts_of(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of a document, holders before what they hold, and later items before earlier ones."""
    found: list[tuple[str | int, ...]] = []
    level: list[tuple[tuple[str | int, ...], Any]] = [(path, value)]
    while level:
        below: list[tuple[tuple[str | int, ...], Any]] = []
        for place, one in level:
            pairs = [*one.items()] if isinstance(one, dict) else [*enumerate(one)][::-1] if isinstance(one, list) else []
            below += [((*place, name), inner) for name, inner in pairs]
        found += [place for place, _ in below if place not in {("apiVersion",), ("kind",), ("metadata",), ("metadata", "name")}]
        level = below
    return found


def _remove(document: Any, path: tuple[str | int, ...]) -> bool:
    for step in path[:-1]:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return False
    try:
        del document[path[-1]]
    except (KeyError, IndexError, TypeError):
        return False
    return True


# -- the command -------------------------------------------------------------------------------------------------------


def read_schemas(there: Side, bases: Sequence[Base]) -> Schemas:
    """Return the schemas that the reference publishes for the kinds of the objects and of their subresources."""
    versions = sorted(
        {base.document["apiVersion"] for base in bases} | {"autoscaling/v1", "policy/v1", "authentication.k8s.io/v1"}
    )
    found = {}
    for version in versions:
        document = there.get(f"/openapi/v3/{'apis' if '/' in version else 'api'}/{version}")
        if isinstance(document, dict) and "components" in document:
            found[version] = document["components"]["schemas"]
    return Schemas(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; exit with 1 if fewer answers are alike than asked for."""
    given = _parser().parse_args(arguments)
    if given.cluster is not None:
        ready = json.loads((given.cluster / "ready.json").read_text())
        given.against, given.token, given.ca = ready["server"], ready["token"], Path(ready["ca"])
    there = reference(given.against or "", given.token, given.ca)
    bases = read_bases(there)
    if given.only:
        wanted = set(given.only.split(","))
    with embedded(given.release) as here:
        plant((here, there), bases)
        schemas = read_schemas(there, bases)
        chosen = [base for base in bases if not given.only or base.kind in wanted or base.resource in wanted]
        comparison = Comparison(here, there)
        start = time.monotonic()
        outcome = comparison.run(Drawer(chosen, schemas, given.seed), range(given.first, given.first + given.count))
        seconds = time.monotonic() - start
        _report(outcome, comparison, given)
    shares = [100 * part / max(outcome.asked, 1) for part in (outcome.codes, outcome.alike)]
    sys.stdout.write(
        f"seed {given.seed}: {outcome.asked} requests in {seconds:.0f}s, {shares[0]:.2f}% of codes and {shares[1]:.2f}% of "
        f"whole answers alike, {sum(outcome.wanted.values())} differences on purpose, {len(outcome.groups)} groups of others\n"
    )
    return int(shares[0] < given.codes or shares[1] < given.answers)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.differential apiserver", description=__doc__)
    parser.add_argument(
        "--cluster", type=Path, metavar="FOLDER", help="the folder of `tools.real_cluster start --no-controllers`"
    )
    parser.add_argument("--against", metavar="URL", help="instead, a kube-apiserver on this machine")
    parser.add_argument("--token", default=_TOKEN, help=f"the token of its administrator [{_TOKEN}]")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="the certificate that verifies it [any]")
    parser.add_argument("--release", default="1.37", help="the release that the embedded server emulates [1.37]")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the requests [0]")
    parser.add_argument("--count", type=int, default=1000, help="how many requests, or lives of objects [1000]")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one [0]")
    parser.add_argument("--only", metavar="RESOURCES", help="only requests about these resources, separated by commas")
    parser.add_argument("--groups", type=int, default=40, help="how many groups to print [40]")
    parser.add_argument("--tries", type=int, default=0, help="how often to try to make the example of a group smaller [0]")
    parser.add_argument("--codes", type=float, default=99.5, help="the share of codes that must be alike, in percent [99.5]")
    parser.add_argument("--answers", type=float, default=95.0, help="the share of whole answers that must be alike [95]")
    parser.add_argument(
        "--by", choices=("kind", "fault"), default="kind", help="group by resource and fault, or by fault alone [kind]"
    )
    return parser


def _report(outcome: Outcome, comparison: Comparison, given: argparse.Namespace) -> None:
    groups: defaultdict[tuple[Any, ...], list[Group]] = defaultdict(list)
    for key, group in outcome.groups.items():
        groups[key if given.by == "kind" else key[1:]].append(group)
    ordered = sorted(groups.values(), key=lambda some: -sum(len(group.requests) for group in some))
    for some in ordered[: given.groups]:
        first = some[0]
        assert first.first is not None
        example = comparison.smaller(first.requests[0], first.first, given.tries) if given.tries else first.requests[0]
        kinds = Counter(f"{request.label} {request.kind}" for group in some for request in group.requests)
        names = ", ".join(f"{name} ({count})" for name, count in kinds.most_common(6))
        sys.stdout.write(f"{sum(kinds.values())} x {first.first.aspect} {first.first.at}: {names}\n")
        sys.stdout.write(f"    here:  {masked(first.first.here)[:700]}\n    there: {masked(first.first.there)[:700]}\n")
        shown = f"{example.method} {example.path} {example.form if example.body is not None else example.accept}"
        sys.stdout.write(f"    {shown}\n")
        if given.tries and example.body is not None:
            sys.stdout.write(f"    {json.dumps(example.body)[:1500]}\n")
        sys.stdout.write("\n")
