"""The request that changes the cluster: run a kubectl command that a page shows and the user confirms.

The server makes kubectl's requests for it in the name of the session's user, so that authorization, admission and validation
apply as for any client. The request is refused unless ``moorage up --ui-write`` allows it. Each command is reported.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec
from aiohttp import web

from moorage.api.documents.served_kinds import ServedKind, served
from moorage.api.documents.statuses import ApiError, bad_request
from moorage.api.fields.patches import json_patch, merge_patch
from moorage.basis.printable import clip, is_printable
from moorage.cluster.apiserver.schema.request_bodies import PATCH_TYPES
from moorage.interfaces.web.site import Site, Visitor, json_response, read_body

# The kubectl commands that the web interface runs, as the requests that kubectl makes for them.
#
# Only the commands that its pages show are known: cordon, uncordon, label and taint a node, label a namespace, delete, annotate
# or evict a pod, patch a pod or a workload, scale one, create a priority class, and replace an object by a patched copy, also
# several joined by ``&&``. No shell and no kubectl runs.
#
# Source  kubectl 1.36, pkg/cmd (drain, label, taint, delete, patch, create) and pkg/drain

_MOST_TEXT: Final = 1 << 16
_JSON_PATCH, _MERGE_PATCH, _STRATEGIC_PATCH = PATCH_TYPES[:3]
_VALUE: Final = re.compile(r"--value=-?[0-9]{1,10}")
_REPLICAS: Final = re.compile(r"--replicas=[0-9]{1,9}")
_EVICTION: Final = re.compile(r"/api/v1/namespaces/([^/?#]+)/pods/([^/?#]+)/eviction")
_PATCHED: Final[Mapping[str, tuple[str, str]]] = {
    "pod": ("pods", ""),
    "replicationcontroller": ("replicationcontrollers", ""),
    "job": ("jobs", "batch"),
    **{kind: (f"{kind}s", "apps") for kind in ("daemonset", "deployment", "replicaset", "statefulset")},
}


#: Makes a request in the user's name: method, path, body and media type. Returns the object of its response; raises ApiError.
Act: TypeAlias = Callable[..., Awaitable[dict[str, Any]]]


async def run_command(text: str, act: Act) -> str:
    """Run a command and return the message that kubectl prints.

    Raises  ApiError 400 for a command that is not known; 409 where kubectl refuses; what the requests raise
    """
    words = _words(text)
    if "&&" in words:
        return "\n".join([await run_command(shlex.join(some), act) for some in _parts(words, "&&")])
    if "|" in words:
        return await _replace(act, _parts(words, "|"))
    done = await _node_command(words, act) or await _pod_command(words, act) or await _other_command(words, act)
    if done:
        return done
    raise bad_request("the web interface does not run this command")


async def _node_command(words: Sequence[str], act: Act) -> str:
    match words:
        case ["kubectl", ("cordon" | "uncordon") as verb, node] if _is_name(node):
            return await _cordon(act, verb, node)
        case ["kubectl", "label", ("node" | "namespace") as kind, name, label, *over] if _is_name(name):
            if over in ([], ["--overwrite"]):
                return await _label(act, name, label, overwrite=bool(over), kind=kind)
        case ["kubectl", "taint", "nodes", node, taint] if _is_name(node):
            return await _taint(act, node, taint)
    return ""


async def _pod_command(words: Sequence[str], act: Act) -> str:
    match words:
        case ["kubectl", "delete", "pod", name, *more] if _is_name(name):
            return await _delete(act, [name, *more])
        case ["kubectl", "annotate", "pod", name, *where, note] if _is_name(name) and "=" in note:
            key, _, value = note.partition("=")
            patch = {"metadata": {"annotations": {key: value}}}
            await act("PATCH", _path(served("pods"), _namespace(where), name), patch, _MERGE_PATCH)
            return f"pod/{name} annotated"
        case ["kubectl", "create", "--raw", path, "-f", "-", "<<<", body]:
            return await _evict(act, path, body)
    return ""


async def _delete(act: Act, words: Sequence[str]) -> str:
    """Delete pods by their names, of which some may be gone with ``--ignore-not-found``."""
    lenient = "--ignore-not-found" in words
    held = [word for word in words if word != "--ignore-not-found"]
    end = held.index("-n") if "-n" in held else len(held)
    if not all(map(_is_name, held[:end])):
        return ""
    namespace = _namespace(held[end:])
    said = []
    for name in held[:end]:
        try:
            await act("DELETE", _path(served("pods"), namespace, name))
            said.append(f'pod "{name}" deleted from {namespace} namespace')
        except ApiError as error:
            if not lenient or error.code != HTTPStatus.NOT_FOUND:
                raise
    return "\n".join(said) or "no pod is left to delete"


async def _other_command(words: Sequence[str], act: Act) -> str:
    match words:
        case ["kubectl", "patch", kind, name, *where, "--type=json", patch] if patch.startswith("-p=") and _is_name(name):
            return await _patch(act, kind, _namespace(where), name, patch.removeprefix("-p="))
        case ["kubectl", "patch", what, *where, patch] if what.partition("/")[0] in _PATCHED and patch.startswith("-p="):
            kind, _, name = what.partition("/")
            path = _path(served(*_PATCHED[kind]), _namespace(where), name)
            await act("PATCH", path, _object(patch.removeprefix("-p=")), _STRATEGIC_PATCH)
            return f"{what} patched"
        case ["kubectl", "scale", what, *where, replicas] if _REPLICAS.fullmatch(replicas):
            return await _scale(act, what, _namespace(where), int(replicas.partition("=")[2]))
        case ["kubectl", "create", "priorityclass", name, value] if _is_name(name) and _VALUE.fullmatch(value):
            made = {"metadata": {"name": name}, "value": int(value.partition("=")[2])}
            await act("POST", _path(served("priorityclasses", "scheduling.k8s.io"), "", ""), made)
            return f"priorityclass.scheduling.k8s.io/{name} created"
    return ""


def _parts(words: Sequence[str], sign: str) -> list[list[str]]:
    """Return the words between signs."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == sign:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


async def _replace(act: Act, steps: Sequence[Sequence[str]]) -> str:
    """Replace an object by a copy that is patched on the way: delete it, then create it, as ``kubectl replace --force``."""
    match steps:
        case [["kubectl", "get", kind, name, *where, "-o", "json"], *patches, ["kubectl", "replace", "--force", "-f", "-"]] if (
            kind in _PATCHED and _is_name(name)
        ):
            path = _path(served(*_PATCHED[kind]), _namespace(where), name)
        case _:
            raise bad_request("the web interface does not run this command")
    document: Any = await act("GET", path)
    for one in patches:
        match one:
            case ["kubectl", "patch", "--local", "-f", "-", "-o", "json", "--type=merge", patch]:
                document = merge_patch(document, _object(patch.removeprefix("-p=")))
            case ["kubectl", "patch", "--local", "-f", "-", "-o", "json", "--type=json", patch]:
                document = json_patch(document, _object(patch.removeprefix("-p=")))
            case _:
                raise bad_request("the web interface does not run this command")
    for field in ("resourceVersion", "uid"):
        document["metadata"].pop(field, None)
    options = {"propagationPolicy": "Background"} | ({"gracePeriodSeconds": 0} if kind == "pod" else {})
    await act("DELETE", path, options)
    await act("POST", path.rpartition("/")[0], document)
    return f"{kind}/{name} replaced"


async def _scale(act: Act, what: str, namespace: str, replicas: int) -> str:
    kind, _, name = what.partition("/")
    if kind not in _PATCHED or not name:
        raise bad_request("the web interface does not run this command")
    path = f"{_path(served(*_PATCHED[kind]), namespace, name)}/scale"
    await act("PATCH", path, {"spec": {"replicas": replicas}}, _MERGE_PATCH)
    return f"{what} scaled"


def _words(text: str) -> list[str]:
    if len(text) > _MOST_TEXT or not is_printable(text):
        raise bad_request("a command is one line of printable text")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise bad_request(str(error)) from None


def _is_name(word: str) -> bool:
    return bool(word) and not word.startswith("-")


def _namespace(words: Sequence[str]) -> str:
    match words:
        case []:
            return "default"
        case ["-n", name] if _is_name(name):
            return name
    raise bad_request("the web interface does not run this command")


def _path(kind: ServedKind, namespace: str, name: str) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return "/".join(filter(None, (f"{root}{place}/{kind.resource}", quote(name, safe=""))))


async def _cordon(act: Act, verb: str, node: str) -> str:
    path, cordons = _path(served("nodes"), "", node), verb == "cordon"
    found = await act("GET", path)
    if bool(found.get("spec", {}).get("unschedulable")) == cordons:
        return f"node/{node} already {verb}ed"
    await act("PATCH", path, {"spec": {"unschedulable": True if cordons else None}}, _STRATEGIC_PATCH)
    return f"node/{node} {verb}ed"


async def _label(act: Act, node: str, label: str, *, overwrite: bool, kind: str = "node") -> str:
    path = _path(served(f"{kind}s"), "", node)
    key, assigned, value = label.partition("=")
    removes = not assigned and label.endswith("-")
    if not assigned and not removes:
        raise bad_request("at least one label update is required")
    key = key.removesuffix("-") if removes else key
    labels = (await act("GET", path)).get("metadata", {}).get("labels", {})
    if removes and key not in labels:
        return f'label "{key}" not found.\n{kind}/{node} not labeled'
    if not removes and labels.get(key) == value:
        return f"{kind}/{node} not labeled"
    if not removes and not overwrite and key in labels:
        raise ApiError(409, "Conflict", f"'{key}' already has a value ({labels[key]}), and --overwrite is false")
    await act("PATCH", path, {"metadata": {"labels": {key: None if removes else value}}}, _MERGE_PATCH)
    return f"{kind}/{node} {'unlabeled' if removes else 'labeled'}"


async def _taint(act: Act, node: str, word: str) -> str:
    path = _path(served("nodes"), "", node)
    removes = word.endswith("-")
    named, _, effect = word.removesuffix("-").rpartition(":")
    key, _, value = named.partition("=")
    if not key or not effect:
        raise bad_request(f"invalid taint spec: {word}")
    found = await act("GET", path)
    taints: list[dict[str, Any]] = found.get("spec", {}).get("taints", [])
    others = [one for one in taints if (one.get("key"), one.get("effect")) != (key, effect)]
    if removes and len(others) == len(taints):
        raise ApiError(404, "NotFound", f'taint "{key}:{effect}" not found')
    if not removes and len(others) < len(taints):
        raise ApiError(409, "Conflict", f"node {node} already has {key} taint(s) with same effect(s) and --overwrite is false")
    added = [] if removes else [{"key": key, "effect": effect, **({"value": value} if value else {})}]
    # The version of what was read: another change of the taints meanwhile is not lost.
    version = found["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": [*added, *others]}}
    await act("PATCH", path, patch, _MERGE_PATCH)
    return f"node/{node} {'untainted' if removes else 'tainted'}"


async def _patch(act: Act, kind: str, namespace: str, name: str, patch: str) -> str:
    if kind not in _PATCHED:
        raise bad_request("the web interface does not run this command")
    resource, group = _PATCHED[kind]
    await act("PATCH", _path(served(resource, group), namespace, name), _object(patch), _JSON_PATCH)
    return f"{kind}{'.' if group else ''}{group}/{name} patched"


async def _evict(act: Act, path: str, body: str) -> str:
    found = _EVICTION.fullmatch(path)
    if found is None:
        raise bad_request("the web interface does not run this command")
    await act("POST", path, _object(body))
    return f"pod/{found[2]} evicted"


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"unable to parse {text[:100]!r}: {error}") from None


#: Makes a request to the API: method, path, query, body and media type. Returns the response's JSON; raises ApiError.
_Perform = Callable[[Visitor, str, str, dict[str, str], bytes, str], Awaitable[bytes]]

_MOST_SHOWN: Final = 300
_LOG: Final = logging.getLogger(__name__)


class CommandBody(msgspec.Struct, rename="camel"):
    command: str
    dry_run: bool = False


class CommandRoute:
    """Adds the route to a site. ``report`` gets a line for each command; if ``perform`` is None, all are refused."""

    def __init__(self, site: Site, perform: _Perform | None, report: Callable[[str], None] | None) -> None:
        self._perform, self._report = perform, report or _LOG.info
        site.writable = perform is not None
        site.route("POST", "/lab/v1/commands", self._run)

    async def _run(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        if self._perform is None:
            raise ApiError(403, "Forbidden", "the web interface changes nothing: start moorage up with --ui-write")
        body: CommandBody = await read_body(request, CommandBody)
        try:
            message = await run_command(body.command, self._act(self._perform, visitor, dry_run=body.dry_run))
        except ApiError as error:
            self._log_command(visitor, body, f"refused: {error.message}")
            raise
        self._log_command(visitor, body, message)
        return json_response({"message": message + (" (server dry run)" if body.dry_run else "")})

    def _act(self, perform: _Perform, visitor: Visitor, *, dry_run: bool) -> Any:
        async def act(method: str, path: str, body: Any = None, media: str = "application/json") -> dict[str, Any]:
            query = {"dryRun": "All"} if dry_run and method != "GET" else {}
            sent = b"" if body is None else msgspec.json.encode(body)
            found: dict[str, Any] = msgspec.json.decode(await perform(visitor, method, path, query, sent, media))
            return found

        return act

    def _log_command(self, visitor: Visitor, body: CommandBody, outcome: str) -> None:
        """Report a command, unless it is a dry run, which changes nothing."""
        if not body.dry_run:
            name, command, said = (clip(one, _MOST_SHOWN) for one in (visitor.name, body.command, outcome))
            self._report(f"web interface: {name}: {command}: {said}")
