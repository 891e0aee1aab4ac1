"""kubeconfig files: read, merged, checked, and turned into the endpoint of one context.

Several files (``KUBECONFIG=a:b``) become one as kubectl does it: for each name the first file that has it wins, and paths are
relative to the file they stand in. All that is wrong with the chosen context is told at once, in one line.

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
from typing import Any
from urllib.parse import quote, urlsplit

from moorage.api.manifests import read_documents
from moorage.api.names import check_dns1123_label
from moorage.client.credentials import ExecCommand, ExecCredentials, TokenFile
from moorage.client.endpoint import Anonymous, Credentials, Endpoint, Identity, proxy_for, tls_context
from moorage.client.kubeconfig_fields import check_fields
from moorage.errors import InputError
from moorage.files import read_bytes, read_file

__all__ = ["Kubeconfig", "Surroundings", "in_cluster", "read_kubeconfig"]

#: The most of a kubeconfig, in bytes; and how long one that comes from a pipe is waited for.
_MOST = 4 << 20
_PIPE_S = 30.0
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_USERINFO = re.compile(r"//[^/?#]*@")
#: What the name of a header may hold, in addition to letters and digits; anything else is escaped, as in client-go.
_IN_HEADERS = "!#$&'*+^`|"
_SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a context needs of the process: its environment, a steady clock, the time of day; and a place for warnings."""

    env: Mapping[str, str]
    clock: Callable[[], float]
    wall: Callable[[], datetime]
    warn: Callable[[str], None] = lambda line: None
    #: False for configurations from a stranger's hand: they must not run programs here.
    may_exec: bool = True


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a file says under one name, and the folder its paths start from."""

    data: Mapping[str, Any]
    folder: Path


@dataclass(slots=True)
class Kubeconfig:
    """One or more files as one."""

    where: str
    current: str = ""
    clusters: dict[str, _Entry] = field(default_factory=dict)
    users: dict[str, _Entry] = field(default_factory=dict)
    contexts: dict[str, _Entry] = field(default_factory=dict)

    def endpoint(self, around: Surroundings, context: str = "") -> Endpoint:
        """Return where a context leads; the current one if none is named.

        Raises  InputError naming all that is wrong with it
        """
        name = context or self.current
        if not name:
            raise InputError(f"{self.where}: no context chosen; name one with current-context")
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise InputError(f"{self.where}: context {name!r} does not exist; there are: {known}")
        return _Builder(self, around, self.contexts[name].data).build(name)


def read_kubeconfig(paths: Sequence[Path], *, must_exist: bool, warn: Callable[[str], None] = lambda line: None) -> Kubeconfig:
    """Read and merge files. ``must_exist`` is for one named by hand; of a KUBECONFIG list, missing files are left out.

    Raises  InputError
    """
    where = ":".join(str(path) for path in paths)
    merged = Kubeconfig(where)
    found = False
    for path in paths:
        if not _is_there(path):
            if must_exist:
                raise InputError(f"{path}: no such file")
            continue
        text, found = read_file(path, _MOST, pipe_s=_PIPE_S), True
        if path.is_file() and path.stat().st_mode & 0o077:
            warn(f"{path}: others can read this file, and what is in it lets them in; chmod 600 it")
        _merge(merged, path, text)
    if not found or not (merged.clusters or merged.contexts or merged.users):
        raise InputError(f"{where}: no configuration has been provided; the file is missing or empty")
    return merged


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True  # and reading it says what is wrong with it
    return True


def in_cluster(around: Surroundings, mount: Path = _MOUNT) -> Endpoint:
    """Return the endpoint that a pod is given: its service account's token and the cluster's own authority.

    Raises  InputError if this is no pod, or it was given no token
    """
    host, port = around.env.get("KUBERNETES_SERVICE_HOST", ""), around.env.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise InputError("not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; give --kubeconfig")
    ca = read_file(mount / "ca.crt")
    read_file(mount / "token")
    address = f"[{host}]" if ":" in host else host
    endpoint = Endpoint(f"https://{address}:{port}", TokenFile(mount / "token", around.clock), ca)
    tls_context(endpoint, Identity())
    return endpoint


# -- reading ------------------------------------------------------------------------------------------------------------


def _merge(merged: Kubeconfig, path: Path, text: bytes) -> None:
    where = str(path)
    document = next(read_documents(text, where), None)  # others are not looked at, as in client-go
    if document is None:
        return
    data = document.data
    if not isinstance(data, dict):
        raise InputError(f"{where}:{document.line}: expected a kubeconfig, found {_called(data)}")
    if (kind := data.get("kind", "Config")) != "Config" or data.get("apiVersion", "v1") != "v1":
        raise InputError(f"{where}: kind: expected Config of v1, found {kind} of {data.get('apiVersion', 'v1')}")
    for section, inner in _SECTIONS.items():
        _merge_section(getattr(merged, section), path, section, inner, data.get(section) or [])
    current = data.get("current-context") or ""
    if not isinstance(current, str):
        raise InputError(f"{where}: current-context: expected a name, found {_called(current)}")
    merged.current = merged.current or current


def _merge_section(into: dict[str, _Entry], path: Path, section: str, inner: str, entries: Any) -> None:
    if not isinstance(entries, list):
        raise InputError(f"{path}: {section}: expected a list, found {_called(entries)}")
    here: set[str] = set()
    for number, entry in enumerate(entries):
        place = f"{path}: {section}[{number}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise InputError(f"{place}: expected an entry with a name")
        name, data = entry["name"], entry.get(inner) or {}
        if name in here:
            raise InputError(f"{place}: the name {name!r} is used twice")
        if not isinstance(data, dict):
            raise InputError(f"{place}.{inner}: expected a mapping, found {_called(data)}")
        check_fields(inner, data, f"{place}.{inner}")
        here.add(name)
        into.setdefault(name, _Entry(data, path.parent))


def _called(data: Any) -> str:
    return {dict: "a mapping", list: "a list", str: "text", bool: "a truth value"}.get(type(data), "a number")


# -- one context ----------------------------------------------------------------------------------------------------------


class _Builder:
    """Turns one context into an endpoint, and collects what is wrong on the way."""

    def __init__(self, config: Kubeconfig, around: Surroundings, context: Mapping[str, Any]) -> None:
        self._config, self._around, self._context = config, around, context
        self._faults: list[str] = []

    def build(self, name: str) -> Endpoint:
        cluster = self._named("cluster", self._config.clusters)
        user = self._named("user", self._config.users)
        namespace = self._context.get("namespace") or "default"
        if check_dns1123_label(namespace):
            self._faults.append(f"namespace {namespace!r} is no name of a namespace")
        server, proxy = self._server(cluster), self._proxy(cluster)
        ca = self._bytes(cluster, "certificate-authority")
        insecure = cluster.data.get("insecure-skip-tls-verify") is True
        if insecure and ca is not None:
            self._faults.append("insecure-skip-tls-verify and a certificate authority cannot be given together")
        headers, identity, made = self._impersonation(user), self._identity(user), self._credentials(user, cluster, server)
        self._stop(name)
        endpoint = Endpoint(
            server, made or Anonymous(identity), ca, insecure, cluster.data.get("tls-server-name") or "",
            proxy or proxy_for(server, self._around.env), headers, namespace,
        )  # fmt: skip
        try:
            tls_context(endpoint, identity)
        except InputError as error:
            self._faults.append(str(error))
        self._stop(name)
        return endpoint

    def _stop(self, name: str) -> None:
        if self._faults:
            raise InputError(f"{self._config.where}: context {name!r}: {'; '.join(self._faults)}")

    def _named(self, what: str, known: Mapping[str, _Entry]) -> _Entry:
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
        if problem := _url_problem(server, ("http", "https")):
            self._faults.append(f"server {_without_password(server)!r} is no address of an API server: {problem}")
            return ""
        if "@" in urlsplit(server).netloc:
            # client-go sends them in the place of the user's token, and no API server takes them.
            self._faults.append(
                f"server {_without_password(server)!r} holds a name or a password; credentials go with the user"
            )
            return ""
        return str(server).rstrip("/")

    def _proxy(self, cluster: _Entry) -> str:
        proxy: str = cluster.data.get("proxy-url") or ""
        if proxy and (problem := _url_problem(proxy, ("http", "https"))):
            self._faults.append(f"proxy-url {_without_password(proxy)!r} cannot be used: {problem}")
            return ""
        return proxy

    def _bytes(self, entry: _Entry, key: str) -> bytes | None:
        """Return PEM that is given in a file or in place, as base64."""
        data, path = entry.data.get(f"{key}-data") or "", entry.data.get(key) or ""
        if data and path:
            self._faults.append(f"{key}-data and {key} are both given; one of them is enough")
            return None
        if not data and not path:
            return None
        try:
            pem = read_bytes(entry.folder / path) if path else _from_base64(data)
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

    def _identity(self, user: _Entry) -> Identity:
        certificate, key = self._bytes(user, "client-certificate"), self._bytes(user, "client-key")
        if (certificate is None) != (key is None) and not self._faults:
            missing = "client-key" if key is None else "client-certificate"
            self._faults.append(f"a certificate and its key must come together; {missing} is missing")
        token = user.data.get("token") or ""
        if any(ord(one) < 33 for one in token):
            self._faults.append("token is no bearer token: it holds blanks or control characters")
            return Identity()
        return Identity(token, certificate, key)

    def _credentials(self, user: _Entry, cluster: _Entry, server: str) -> Credentials | None:
        given = user.data
        methods = [name for name in ("token", "tokenFile", "exec", "auth-provider") if given.get(name)]
        if "token" in methods and "tokenFile" in methods:
            methods.remove("token")  # the file wins, as in client-go
        if given.get("username") or given.get("password"):
            self._faults.append("username and password are no longer taken by any API server; use a token or a certificate")
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
            return TokenFile(path, self._around.clock, self._identity_of(user))
        elif methods == ["exec"]:
            return self._exec(given["exec"], user, cluster, server)
        return None

    def _identity_of(self, user: _Entry) -> Identity:
        """The certificate of a user whose faults were noted already."""
        noted = list(self._faults)
        identity = self._identity(user)
        self._faults = noted
        return identity

    def _exec(self, given: Mapping[str, Any], user: _Entry, cluster: _Entry, server: str) -> Credentials | None:
        version, mode = given.get("apiVersion") or "", given.get("interactiveMode") or ""
        if not self._around.may_exec:
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
        command = ExecCommand(
            given["command"],
            tuple(str(one) for one in given.get("args") or ()),
            tuple((one["name"], "" if one.get("value") is None else str(one["value"])) for one in env),
            version,
            given.get("installHint") or "",
            _told_about(cluster, server) if given.get("provideClusterInfo") else None,
            str(user.folder),
        )
        return ExecCredentials(command, self._around.env, self._around.wall)

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


def _from_base64(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)


def _told_about(cluster: _Entry, server: str) -> dict[str, Any]:
    """What an exec plugin is told of the server, in the words of its own API."""
    names = {
        "certificate-authority-data": "certificate-authority-data",
        "insecure-skip-tls-verify": "insecure-skip-tls-verify",
        "tls-server-name": "tls-server-name",
        "proxy-url": "proxy-url",
    }
    told = {name: cluster.data[key] for key, name in names.items() if cluster.data.get(key)}
    extensions = cluster.data.get("extensions") or []
    own = next((one.get("extension") for one in extensions if one.get("name") == "client.authentication.k8s.io/exec"), None)
    return {"server": server, **told, **({"config": own} if own is not None else {})}


def _without_password(url: str) -> str:
    return _USERINFO.sub("//***@", url)


def _url_problem(text: str, schemes: tuple[str, ...]) -> str:
    """Say why a text is no URL with one of these schemes; "" if it is."""
    if " " in text or not text.isprintable():
        return "it holds a blank or a character that is not printed"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in schemes:
        return f"it must start with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    if not parts.hostname or port == 0:
        return "it names no host" if not parts.hostname else "0 is no port"
    if parts.query or parts.fragment:
        return "it must not have a query or a fragment"
    return ""
