"""The kubectl commands that the web interface runs, as the requests that kubectl makes for them.

Only the commands that its pages show are known: cordon, uncordon, label and taint a node, delete a pod, patch a pod or a
workload with a JSON patch, and evict a pod. No shell and no kubectl runs.

Source  kubectl 1.36, pkg/cmd (drain, label, taint, delete, patch, create) and pkg/drain
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote

from moorage.apiserver.schema.request_bodies import PATCH_TYPES
from moorage.apiserver.vocabulary.served_kinds import ServedKind, served
from moorage.apiserver.vocabulary.statuses import ApiError, bad_request
from moorage.printable import is_printable

__all__ = ["Act", "run_command"]

_MOST_TEXT: Final = 1 << 16
_JSON_PATCH, _MERGE_PATCH, _STRATEGIC_PATCH = PATCH_TYPES[:3]
_EVICTION: Final = re.compile(r"/api/v1/namespaces/([^/?#]+)/pods/([^/?#]+)/eviction")
_PATCHED: Final[Mapping[str, tuple[str, str]]] = {
    "pod": ("pods", ""),
    "replicationcontroller": ("replicationcontrollers", ""),
    **{kind: (f"{kind}s", "apps") for kind in ("daemonset", "deployment", "replicaset", "statefulset")},
}


class Act(Protocol):
    """Makes a request in the user's name and returns the object of its response; raises ApiError."""

    def __call__(
        self, method: str, path: str, body: Any = None, media: str = "application/json"
    ) -> Awaitable[dict[str, Any]]: ...


async def run_command(text: str, act: Act) -> str:
    """Run a command and return the message that kubectl prints.

    Raises  ApiError 400 for a command that is not known; 409 where kubectl refuses; what the requests raise
    """
    words = _words(text)
    match words:
        case ["kubectl", ("cordon" | "uncordon") as verb, node] if _is_name(node):
            return await _cordon(act, verb, node)
        case ["kubectl", "label", "node", node, label] if _is_name(node):
            return await _label(act, node, label, overwrite=False)
        case ["kubectl", "label", "node", node, label, "--overwrite"] if _is_name(node):
            return await _label(act, node, label, overwrite=True)
        case ["kubectl", "taint", "nodes", node, taint] if _is_name(node):
            return await _taint(act, node, taint)
        case ["kubectl", "delete", "pod", name, *where] if _is_name(name):
            namespace = _namespace(where)
            await act("DELETE", _path(served("pods"), namespace, name))
            return f'pod "{name}" deleted from {namespace} namespace'
        case ["kubectl", "patch", kind, name, *where, "--type=json", patch] if patch.startswith("-p=") and _is_name(name):
            return await _patch(act, kind, _namespace(where), name, patch.removeprefix("-p="))
        case ["kubectl", "create", "--raw", path, "-f", "-", "<<<", body]:
            return await _evict(act, path, body)
    raise bad_request("the web interface does not run this command")


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
    return f"{root}{place}/{kind.resource}/{quote(name, safe='')}"


def _node_path(name: str) -> str:
    return _path(served("nodes"), "", name)


async def _cordon(act: Act, verb: str, node: str) -> str:
    path, cordons = _node_path(node), verb == "cordon"
    found = await act("GET", path)
    if bool(found.get("spec", {}).get("unschedulable")) == cordons:
        return f"node/{node} already {verb}ed"
    await act("PATCH", path, {"spec": {"unschedulable": True if cordons else None}}, _STRATEGIC_PATCH)
    return f"node/{node} {verb}ed"


async def _label(act: Act, node: str, label: str, *, overwrite: bool) -> str:
    path = _node_path(node)
    key, assigned, value = label.partition("=")
    removes = not assigned and label.endswith("-")
    if not assigned and not removes:
        raise bad_request("at least one label update is required")
    key = key.removesuffix("-") if removes else key
    labels = (await act("GET", path)).get("metadata", {}).get("labels", {})
    if removes and key not in labels:
        return f'label "{key}" not found.\nnode/{node} not labeled'
    if not removes and labels.get(key) == value:
        return f"node/{node} not labeled"
    if not removes and not overwrite and key in labels:
        raise ApiError(409, "Conflict", f"'{key}' already has a value ({labels[key]}), and --overwrite is false")
    await act("PATCH", path, {"metadata": {"labels": {key: None if removes else value}}}, _MERGE_PATCH)
    return f"node/{node} {'unlabeled' if removes else 'labeled'}"


async def _taint(act: Act, node: str, word: str) -> str:
    path = _node_path(node)
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
