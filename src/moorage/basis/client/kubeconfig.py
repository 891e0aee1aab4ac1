"""Read, merge and validate kubeconfig files, and turn a context into an endpoint.

Several files (``KUBECONFIG=a:b``) are merged like in kubectl: for each name the first file wins, and paths are relative to
their file. All faults of the selected context are reported together on one line.

Source  client-go/tools/clientcmd: loader.go, validation.go
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from moorage.api.names import check_dns1123_label
from moorage.api.reading.manifests import read_documents
from moorage.api.reading.text_mistakes import explained
from moorage.basis.client import credentials
from moorage.basis.files import read_bytes, read_file
from moorage.errors import InputError

# The fields of kubeconfig entries and their types.
#
# An invalid entry is rejected even if no selected context uses it, as in client-go. The message names the field and the
# types, never the value, which may be secret. Fields that are not listed here are ignored. Arguments and environment
# variables may be integers, which client-go requires to be quoted.
#
# Source  client-go: tools/clientcmd/api/v1/types.go

_Text = str | None
_Texts = list[str] | None
_TYPE: Final = re.compile(r"Expected `(.*?)(?: \| null)?`, got `(.*?)`")
_PLACE: Final = re.compile(r" - at (?:`key` in )?`\$(.*?)`$")


class _Extension(msgspec.Struct):
    name: _Text = None


class _Cluster(msgspec.Struct, rename="kebab"):
    server: _Text = None
    tls_server_name: _Text = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: _Text = None
    certificate_authority_data: _Text = None
    proxy_url: _Text = None
    extensions: list[_Extension] | None = None


class _Variable(msgspec.Struct):
    name: _Text = None
    value: str | int | None = None


class _Exec(msgspec.Struct, rename="camel"):
    command: _Text = None
    args: list[str | int] | None = None
    env: list[_Variable] | None = None
    api_version: _Text = None
    install_hint: _Text = None
    provide_cluster_info: bool | None = None
    interactive_mode: _Text = None


class _User(msgspec.Struct, rename="kebab"):
    client_certificate: _Text = None
    client_certificate_data: _Text = None
    client_key: _Text = None
    client_key_data: _Text = None
    token: _Text = None
    token_file: _Text = msgspec.field(default=None, name="tokenFile")
    as_: _Text = msgspec.field(default=None, name="as")
    as_uid: _Text = None
    as_groups: _Texts = None
    as_user_extra: dict[str, _Texts] | None = None
    username: _Text = None
    password: _Text = None
    auth_provider: dict[str, Any] | None = None
    exec: _Exec | None = None


class _Context(msgspec.Struct):
    cluster: _Text = None
    user: _Text = None
    namespace: _Text = None


_SHAPES: Final = {"cluster": _Cluster, "user": _User, "context": _Context}


def check_fields(inner: str, data: dict[str, Any], place: str) -> None:
    """Check the field types of an entry. ``inner`` is ``cluster``, ``user`` or ``context``.

    Raises  InputError
    """
    try:
        msgspec.convert(data, _SHAPES[inner])
    except msgspec.ValidationError as error:
        raise InputError(f"{place}{_message(str(error))}") from None


def _message(message: str) -> str:
    where, types = _PLACE.search(message), _TYPE.match(message)
    path = where[1] if where else ""
    return f"{path}: expected {types[1]}, found {types[2]}" if types else f"{path}: {message}"


#: Maximum size of a kubeconfig in bytes, and how long to wait for one from a pipe.
_MAX_BYTES = 4 << 20
_PIPE_S = 30.0
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_USERINFO = re.compile(r"//[^/?#]*@")
#: Characters of a header name in addition to letters and digits; others are percent-encoded, as in client-go.
_IN_HEADERS = "!#$&'*+^`|"
#: Matches a key and its colon, even without a blank after the colon; and the keys whose values messages may show.
_KEY = re.compile(r"""([\w.-]+)["']?\s*:(?!//)""")
_ITEM = re.compile(r"\s*(?:- )?")
_HARMLESS = frozenset({
    "apiVersion", "kind", "preferences", "clusters", "cluster", "server", "tls-server-name", "insecure-skip-tls-verify",
    "user", "contexts", "context", "current-context", "namespace", "users", "name",
})  # fmt: skip
_SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """The environment that a context reads: variables, a monotonic clock, the wall clock, and a sink for warnings."""

    env: Mapping[str, str]
    clock: Callable[[], float]
    wall: Callable[[], datetime]
    warn: Callable[[str], None] = lambda line: None
    #: False for untrusted configurations, which must not run programs.
    may_exec: bool = True


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named entry of a file, and the folder that its paths are relative to."""

    data: Mapping[str, Any]
    folder: Path


@dataclass(slots=True)
class Kubeconfig:
    """One or more merged files."""

    source: str
    current: str = ""
    clusters: dict[str, _Entry] = field(default_factory=dict)
    users: dict[str, _Entry] = field(default_factory=dict)
    contexts: dict[str, _Entry] = field(default_factory=dict)

    def endpoint(self, environment: ClientEnvironment, context: str = "") -> credentials.Endpoint:
        """Return the endpoint of a context, by default the current one.

        Raises  InputError with all faults of the context
        """
        name = context or self.current
        if not name:
            raise InputError(f"{self.source}: no context chosen; name one with current-context")
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise InputError(f"{self.source}: context {name!r} does not exist; there are: {known}")
        return _Builder(self, environment, self.contexts[name].data).build(name)


def read_kubeconfig(paths: Sequence[Path], *, must_exist: bool, warn: Callable[[str], None] = lambda line: None) -> Kubeconfig:
    """Read and merge files. ``must_exist`` is for a file named explicitly; missing files of a KUBECONFIG list are skipped.

    Raises  InputError
    """
    source = ":".join(str(path) for path in paths)
    merged = Kubeconfig(source)
    found = False
    for path in paths:
        if not _exists(path):
            if must_exist:
                raise InputError(f"{path}: no such file")
            continue
        text, found = read_file(path, _MAX_BYTES, pipe_s=_PIPE_S), True
        if text and path.is_file() and path.stat().st_mode & 0o077:
            warn(f"{path}: this file contains credentials and others can read it; chmod 600 it")
        _merge(merged, path, text)
    if not found:
        raise InputError(f"{source}: no such file")
    if not (merged.clusters or merged.contexts or merged.users):
        raise InputError(f"{source}: no configuration has been provided; the file is missing or empty")
    return merged


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True  # reading it reports the error
    return True


def in_cluster(environment: ClientEnvironment, mount: Path = _MOUNT) -> credentials.Endpoint:
    """Return the in-cluster endpoint: the pod's service account token and the cluster's CA.

    Raises  InputError outside a pod, or without a token
    """
    host, port = environment.env.get("KUBERNETES_SERVICE_HOST", ""), environment.env.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise InputError(
            "no kubeconfig found, and not in a cluster (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set):"
            " set KUBECONFIG, give --kubeconfig FILE, or clientConnection.kubeconfig in the file of --config"
        )
    ca = read_file(mount / "ca.crt")
    read_file(mount / "token")
    address = f"[{host}]" if ":" in host else host
    endpoint = credentials.Endpoint(f"https://{address}:{port}", credentials.TokenFile(mount / "token", environment.clock), ca)
    credentials.tls_context(endpoint, credentials.Identity())
    return endpoint


def without_secrets(line: str) -> str:
    """Return a line of a kubeconfig up to the first value that may be secret."""
    keys = list(_KEY.finditer(line))
    for key in keys:
        if key[1] not in _HARMLESS:
            return f"{line[: key.end()]} …"
    start = _ITEM.match(line)
    return line if keys or not line.strip() or start is None else f"{start[0]}…"


# -- reading -----------------------------------------------------------------------------------------------------------


def _merge(merged: Kubeconfig, path: Path, text: bytes) -> None:
    source = str(path)
    try:
        document = next(read_documents(text, source), None)  # further documents are ignored, as in client-go
    except InputError as error:
        raise explained(error, source, text, without_secrets) from None
    if document is None:
        return
    data = document.data
    if not isinstance(data, dict):
        raise InputError(f"{source}:{document.line}: expected a kubeconfig, found {_type_name(data)}")
    if (kind := data.get("kind", "Config")) != "Config" or data.get("apiVersion", "v1") != "v1":
        raise InputError(f"{source}: kind: expected Config of v1, found {kind} of {data.get('apiVersion', 'v1')}")
    for section, inner in _SECTIONS.items():
        _merge_section(getattr(merged, section), path, section, inner, data.get(section) or [])
    current = data.get("current-context") or ""
    if not isinstance(current, str):
        raise InputError(f"{source}: current-context: expected a name, found {_type_name(current)}")
    merged.current = merged.current or current


def _merge_section(into: dict[str, _Entry], path: Path, section: str, inner: str, entries: Any) -> None:
    if not isinstance(entries, list):
        raise InputError(f"{path}: {section}: expected a list, found {_type_name(entries)}")
    here: set[str] = set()
    for number, entry in enumerate(entries):
        place = f"{path}: {section}[{number}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise InputError(f"{place}: expected an entry with a name")
        name, data = entry["name"], entry.get(inner) or {}
        if name in here:
            raise InputError(f"{place}: the name {name!r} is used twice")
        if not isinstance(data, dict):
            raise InputError(f"{place}.{inner}: expected a mapping, found {_type_name(data)}")
        check_fields(inner, data, f"{place}.{inner}")
        here.add(name)
        into.setdefault(name, _Entry(data, path.parent))


def _type_name(data: Any) -> str:
    return {dict: "a mapping", list: "a list", str: "text", bool: "a truth value"}.get(type(data), "a number")


# -- one context -------------------------------------------------------------------------------------------------------


class _Builder:
    """Turns a context into an endpoint, collecting faults."""

    def __init__(self, config: Kubeconfig, environment: ClientEnvironment, context: Mapping[str, Any]) -> None:
        self._config, self._environment, self._context = config, environment, context
        self._faults: list[str] = []

    def build(self, name: str) -> credentials.Endpoint:
        cluster = self._entry("cluster", self._config.clusters)
        user = self._entry("user", self._config.users)
        namespace = self._context.get("namespace") or "default"
        if check_dns1123_label(namespace):
            self._faults.append(f"namespace {namespace!r} is not a valid namespace name")
        server, proxy = self._server(cluster), self._proxy(cluster)
        ca = self._bytes(cluster, "certificate-authority")
        insecure = cluster.data.get("insecure-skip-tls-verify") is True
        if insecure and ca is not None:
            self._faults.append("insecure-skip-tls-verify and a certificate authority cannot be given together")
        headers, identity = self._impersonation(user), self._identity(user)
        made = self._credentials(user, identity, cluster, server)
        self._raise_if_faulty(name)
        made = made or self._pair(user, identity) or credentials.FixedCredentials(identity)
        endpoint = credentials.Endpoint(
            server, made, ca, insecure, cluster.data.get("tls-server-name") or "",
            proxy or credentials.proxy_for(server, self._environment.env), headers, namespace,
        )  # fmt: skip
        try:
            credentials.tls_context(endpoint, identity)
        except InputError as error:
            self._faults.append(str(error))
        self._raise_if_faulty(name)
        return endpoint

    def _raise_if_faulty(self, name: str) -> None:
        if self._faults:
            raise InputError(f"{self._config.source}: context {name!r}: {'; '.join(self._faults)}")

    def _entry(self, what: str, known: Mapping[str, _Entry]) -> _Entry:
        name = self._context.get(what) or ""
        if name in known:
            return known[name]
        if name or what == "cluster":
            self._faults.append(f"{what} {name!r} does not exist" if name else f"no {what} was specified")
        return _Entry({}, Path())

    def _server(self, cluster: _Entry) -> str:
        server = cluster.data.get("server") or ""
        if not server:
            if cluster.data or not self._faults:
                self._faults.append("the cluster has no server defined")
            return ""
        if problem := _url_problem(server):
            self._faults.append(f"server {_without_password(server)!r} is not the address of an API server: {problem}")
            return ""
        if "@" in urlsplit(server).netloc:
            # client-go sends them instead of the user's token, and no API server accepts them.
            self._faults.append(
                f"server {_without_password(server)!r} contains a user name or password; put credentials in the user entry"
            )
            return ""
        return str(server).rstrip("/")

    def _proxy(self, cluster: _Entry) -> str:
        proxy: str = cluster.data.get("proxy-url") or ""
        if proxy and (problem := _url_problem(proxy)):
            self._faults.append(f"proxy-url {_without_password(proxy)!r} cannot be used: {problem}")
            return ""
        return proxy

    def _bytes(self, entry: _Entry, key: str) -> bytes | None:
        """Return PEM data from a file or from inline base64."""
        data, path = entry.data.get(f"{key}-data") or "", entry.data.get(key) or ""
        if data and path:
            self._faults.append(f"{key}-data and {key} are both given; one of them is enough")
            return None
        if not data and not path:
            return None
        try:
            pem = read_bytes(entry.folder / path) if path else base64.b64decode("".join(data.split()), validate=True)
        except InputError as error:
            self._faults.append(f"{key} {path}: {error}")
            return None
        except (binascii.Error, ValueError):
            self._faults.append(f"{key}-data is not base64")
            return None
        if b"-----BEGIN " not in pem:
            self._faults.append(f"{key} {path} holds no PEM" if path else f"{key}-data holds no PEM")
            return None
        return pem

    def _identity(self, user: _Entry) -> credentials.Identity:
        certificate, key = self._bytes(user, "client-certificate"), self._bytes(user, "client-key")
        if (certificate is None) != (key is None) and not self._faults:
            missing = "client-key" if key is None else "client-certificate"
            self._faults.append(f"a certificate and its key must come together; {missing} is missing")
        token = user.data.get("token") or ""
        if any(ord(one) < 33 for one in token):
            self._faults.append("token is not a valid bearer token: it contains blanks or control characters")
            return credentials.Identity()
        return credentials.Identity(token, certificate, key)

    def _credentials(
        self, user: _Entry, identity: credentials.Identity, cluster: _Entry, server: str
    ) -> credentials.Credentials | None:  # fmt: skip
        given = user.data
        methods = [name for name in ("token", "tokenFile", "exec", "auth-provider") if given.get(name)]
        if "token" in methods and "tokenFile" in methods:
            methods.remove("token")  # the file wins, as in client-go
        if given.get("username") or given.get("password"):
            self._faults.append("username and password are no longer supported by any API server; use a token or a certificate")
        if "auth-provider" in methods:
            self._faults.append("auth-provider was removed from Kubernetes; use exec")
        if len(methods) > 1:
            self._faults.append(f"more than one authentication method is given ({', '.join(methods)}); at most one is allowed")
        elif methods == ["tokenFile"]:
            path = user.folder / given["tokenFile"]
            try:
                read_bytes(path)
            except InputError as error:
                self._faults.append(f"tokenFile {path}: {error}")
            return credentials.TokenFile(path, self._environment.clock, identity, self._pair(user, identity))
        elif methods == ["exec"]:
            return self._exec(given["exec"], user, cluster, server)
        return None

    def _pair(self, user: _Entry, identity: credentials.Identity) -> credentials.PairFiles | None:
        """Return the client certificate and key that files hold; None if none does."""
        certificate, key = (
            user.folder / path if (path := user.data.get(name)) else None for name in ("client-certificate", "client-key")
        )
        if certificate is None and key is None:
            return None
        return credentials.PairFiles(certificate, key, self._environment.clock, identity)

    def _exec(self, given: Mapping[str, Any], user: _Entry, cluster: _Entry, server: str) -> credentials.Credentials | None:
        version, mode = given.get("apiVersion") or "", given.get("interactiveMode") or ""
        if not self._environment.may_exec:
            self._faults.append("exec is not allowed here: this configuration may not run programs")
        if not given.get("command"):
            self._faults.append("exec.command must be given")
        if version not in _EXEC_VERSIONS:
            self._faults.append(f"exec.apiVersion {version!r} is not one of {', '.join(_EXEC_VERSIONS)}")
        elif version == _EXEC_VERSIONS[0] and not mode:
            self._faults.append("exec.interactiveMode must be given: Never, IfAvailable or Always")
        if mode not in {"", "Never", "IfAvailable", "Always"}:
            self._faults.append(f"exec.interactiveMode {mode!r} is not one of Never, IfAvailable, Always")
        if mode == "Always":
            self._faults.append("exec.interactiveMode Always needs a terminal, which a scheduler does not have")
        env = given.get("env") or []
        if not all(one.get("name") for one in env):
            self._faults.append("exec.env: every variable must have a name")
        if self._faults:
            return None
        command = credentials.ExecCommand(
            given["command"],
            tuple(str(one) for one in given.get("args") or ()),
            tuple((one["name"], "" if one.get("value") is None else str(one["value"])) for one in env),
            version,
            given.get("installHint") or "",
            _cluster_info(cluster, server) if given.get("provideClusterInfo") else None,
            str(user.folder),
        )
        return credentials.ExecCredentials(command, self._environment.env, self._environment.wall)

    def _impersonation(self, user: _Entry) -> tuple[tuple[str, str], ...]:
        given = user.data
        name, uid = given.get("as") or "", given.get("as-uid") or ""
        groups, extra = given.get("as-groups") or [], given.get("as-user-extra") or {}
        if not name:
            if uid or groups or extra:
                self._faults.append("as-uid, as-groups and as-user-extra need a user to act as: as")
            return ()
        headers = [("Impersonate-User", name), *(("Impersonate-Group", group) for group in groups)]
        if uid:
            headers.append(("Impersonate-Uid", uid))
        for key, values in extra.items():
            headers += [(f"Impersonate-Extra-{quote(key, safe=_IN_HEADERS)}", value) for value in values or ()]
        return tuple(headers)


def _cluster_info(cluster: _Entry, server: str) -> dict[str, Any]:
    """Return the cluster information for an exec plugin, with the field names of its API."""
    names = ("certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name", "proxy-url")
    settings = {name: cluster.data[name] for name in names if cluster.data.get(name)}
    extensions = cluster.data.get("extensions") or []
    own = next((one.get("extension") for one in extensions if one.get("name") == "client.authentication.k8s.io/exec"), None)
    return {"server": server, **settings, **({"config": own} if own is not None else {})}


def _without_password(url: str) -> str:
    return _USERINFO.sub("//***@", url)


def _url_problem(text: str) -> str:
    """Return why a text is not a URL for HTTP, or ""."""
    if " " in text or not text.isprintable():
        return "it contains a blank or an unprintable character"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in {"http", "https"}:
        return "it must start with http:// or https://"
    if not parts.hostname or port == 0:
        return "it names no host" if not parts.hostname else "0 is not a port"
    if parts.query or parts.fragment:
        return "it must not have a query or a fragment"
    return ""
