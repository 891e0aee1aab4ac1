"""Requests to scheduler extenders and their replies, as the JSON that kube-scheduler exchanges.

Replies are untrusted. Every invalid reply raises ``ExtenderError`` with Go's message, and no other exception. As in Go, field
names are case-insensitive, unknown fields and anything after the first value are ignored, and null means absent.

Source  kube-scheduler/extender/v1/types.go; kube-scheduler 1.36, extender.go; encoding/json
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from moorage.api.core import Node, Pod
from moorage.api.reading.json_tree import UNREADABLE
from moorage.basis.printable import clip
from moorage.errors import AttemptError

T = TypeVar("T")

#: Returns an object's full JSON; None if it is not known. Objects in this process hold only the fields that scheduling reads.
Whole: TypeAlias = Callable[[Node | Pod], bytes | None]
#: The plugin name that stands for all extenders.
EXTENDER: Final = "Extender"
_INT64: Final = range(-(2**63), 2**63)
_PASSWORD: Final = re.compile(r"^(\w+://[^/?#@:]*):[^/?#]*@")
_DECODER: Final = msgspec.json.Decoder()


#: The most JSON values in a reply; each takes far more memory than its text.
MOST_VALUES: Final = 1_000_000
#: The most characters of reasons that are kept from one reply; the rest is left out.
MOST_TEXT: Final = 1 << 16
_LEFT_OUT: Final = "(more was said than is kept)"


class ExtenderError(AttemptError):
    """A call to an extender failed, or its reply reports an error or is invalid. The text is cut at 1 KiB."""

    def __init__(self, text: str) -> None:
        super().__init__(EXTENDER, clip(text))


def shown(url: str) -> str:
    """Return a URL with its password masked, as Go masks it."""
    return _PASSWORD.sub(r"\1:***@", url)


class FilterReply(NamedTuple):
    """A reply to filter: passing nodes by ``names`` or ``nodes`` (None for the form not used), and failed ones: node → text."""

    names: tuple[str, ...] | None
    nodes: tuple[str, ...] | None
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


class MetaVictims(NamedTuple):
    """UIDs of pods to preempt on a node, and how many of them violate a disruption budget."""

    uids: tuple[str, ...]
    violations: int


# -- requests ------------------------------------------------------------------------------------------------------------


def partial(obj: Node | Pod) -> bytes | None:
    """Return None: the full JSON of no object is known."""
    return None


def node_args(pod: Pod, nodes: Iterable[Node], names: Iterable[str], *, by_name: bool, whole: Whole = partial) -> bytes:
    """Return the body of a filter or prioritize request, with nodes either in full or by name."""
    listed = None if by_name else {"metadata": {}, "items": [_node(node, whole) for node in nodes]}
    return msgspec.json.encode({"Pod": _pod(pod, whole), "Nodes": listed, "NodeNames": list(names) if by_name else None})


def preempt_args(pod: Pod, victims: Mapping[str, tuple[Iterable[Pod], int]], *, by_uid: bool, whole: Whole = partial) -> bytes:
    """Return the body of a preempt request. ``victims``: node → the pods, and how many violate a disruption budget."""
    named: dict[str, Any] = {}
    for node, (pods, violations) in victims.items():
        listed = [{"UID": one.uid} if by_uid else _pod(one, whole) for one in pods]
        named[node] = {"Pods": listed, "NumPDBViolations": violations}
    forms = {"NodeNameToVictims": None if by_uid else named, "NodeNameToMetaVictims": named if by_uid else None}
    return msgspec.json.encode({"Pod": _pod(pod, whole), **forms})


def bind_args(pod: Pod, node: str) -> bytes:
    """Return the body of a bind request."""
    return msgspec.json.encode({"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node})


def _node(node: Node, whole: Whole) -> msgspec.Raw | dict[str, Any]:
    """Return a node's full JSON if known, else its known fields and the fields that the API always includes."""
    json = whole(node)
    return {"metadata": {}, "spec": {}, "status": {}, **msgspec.to_builtins(node)} if json is None else msgspec.Raw(json)


def _pod(pod: Pod, whole: Whole) -> msgspec.Raw | dict[str, Any]:
    """Return a pod's JSON, as ``_node`` does for a node."""
    json = whole(pod)
    if json is not None:
        return msgspec.Raw(json)
    plain = {"metadata": {}, "spec": {}, "status": {}, **msgspec.to_builtins(pod)}
    spec = plain["spec"]
    spec.setdefault("schedulerName", pod.spec.scheduler_name)
    spec.setdefault("restartPolicy", pod.spec.restart_policy)
    spec.setdefault("terminationGracePeriodSeconds", pod.spec.termination_grace_period_seconds)
    for container in (*spec.setdefault("containers", []), *spec.get("initContainers", ())):
        container.setdefault("resources", {})
    return plain


# -- replies -------------------------------------------------------------------------------------------------------------


def read_filter_reply(body: bytes) -> FilterReply:
    """Read a reply to filter.

    Raises  ExtenderError
    """
    reply = _struct(_first_value(body), "ExtenderFilterResult")
    texts = _Texts()
    failed = texts.of(reply, "FailedNodes")
    unresolvable = texts.of(reply, "FailedAndUnresolvableNodes")
    names = reply.get("nodenames")
    if names is not None:
        names = tuple(_text(name, "ExtenderFilterResult.NodeNames") for name in _list(names, "ExtenderFilterResult.NodeNames"))
    nodes = reply.get("nodes")
    if nodes is not None:
        items = _struct(nodes, "NodeList", "ExtenderFilterResult.Nodes").get("items")
        nodes = tuple(_node_name(item) for item in _list(items, "NodeList.items"))
    _raise_own_error(reply, "ExtenderFilterResult")
    return FilterReply(names, nodes, failed, unresolvable)


def _node_name(item: Any) -> str:
    metadata = _struct(item, "Node", "NodeList.items").get("metadata")
    return _text(_struct(metadata, "ObjectMeta", "Node.metadata").get("name"), "ObjectMeta.name")


def read_priorities(body: bytes) -> list[tuple[str, int]]:
    """Read a reply to prioritize: nodes and their scores, with repeated entries.

    Raises  ExtenderError
    """
    priorities: list[tuple[str, int]] = []
    for entry in _list(_first_value(body), "", "v1.HostPriorityList"):
        priority = _struct(entry, "HostPriority")
        host = _text(priority.get("host"), "HostPriority.Host")
        priorities.append((host, _integer(priority.get("score"), "HostPriority.Score")))
    return priorities


def read_preempt_reply(body: bytes) -> dict[str, MetaVictims]:
    """Read a reply to preempt: the victims on each node.

    Raises  ExtenderError
    """
    field = "ExtenderPreemptionResult.NodeNameToMetaVictims"
    victims: dict[str, MetaVictims] = {}
    by_node = _struct(_first_value(body), "ExtenderPreemptionResult").get("nodenametometavictims")
    for node, entry in _of_type(by_node, dict, field, "map").items():
        on_node = _struct(entry, "MetaVictims", field)
        pods = _list(on_node.get("pods"), "MetaVictims.Pods")
        uids = tuple(_text(_struct(one, "MetaPod", "MetaVictims.Pods").get("uid"), "MetaPod.UID") for one in pods)
        victims[node] = MetaVictims(uids, _integer(on_node.get("numpdbviolations"), "MetaVictims.NumPDBViolations"))
    return victims


def check_bind_reply(body: bytes) -> None:
    """Read a reply to bind.

    Raises  ExtenderError if the reply reports an error or is invalid
    """
    _raise_own_error(_struct(_first_value(body), "ExtenderBindingResult"), "ExtenderBindingResult")


def _raise_own_error(reply: Mapping[str, Any], kind: str) -> None:
    error = _text(reply.get("error"), f"{kind}.Error")
    if error:
        raise ExtenderError(error)


# -- JSON, as Go reads it ------------------------------------------------------------------------------------------------


def _first_value(body: bytes) -> Any:
    """Decode the first JSON value of a reply."""
    if sum(map(body.count, (b",", b"{", b"["))) > MOST_VALUES:
        raise ExtenderError(f"the reply holds more than {MOST_VALUES} values")
    try:
        return _DECODER.decode(body)
    except UNREADABLE:
        pass
    text = body.decode("utf-8", "replace")
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if start == len(text):
        raise ExtenderError("EOF")
    try:
        return json.JSONDecoder(parse_constant=_refused).raw_decode(text, start)[0]
    except json.JSONDecodeError as error:
        raise ExtenderError(_as_go_says(text, error)) from None
    except (ValueError, RecursionError) as error:
        raise ExtenderError(f"the reply cannot be read: {error}") from None


def _refused(word: str) -> Any:
    raise ExtenderError(f"invalid character {word[:1]!r} looking for beginning of value")


def _as_go_says(text: str, error: json.JSONDecodeError) -> str:
    if error.pos >= len(text) or error.msg.startswith("Unterminated"):
        return "unexpected EOF"
    if error.msg == "Expecting value":
        return f"invalid character {text[error.pos]!r} looking for beginning of value"
    return f"invalid character {text[error.pos]!r}: {error.msg}"


def _struct(value: Any, kind: str, field: str = "") -> dict[str, Any]:
    """Return the fields of an object by lower-case name; empty for null. The last of repeated fields wins."""
    return {name.lower(): inner for name, inner in _of_type(value, dict, field, f"v1.{kind}").items()}


def _of_type(value: Any, wanted: type[T], field: str, kind: str) -> T:
    """Return a value of this type; its zero value for null. ``kind`` is the type in Go."""
    if value is None:
        return wanted()
    if not isinstance(value, wanted):
        raise _mismatch(value, field, kind)
    return value


class _Texts:
    """The reasons of one reply. Each text is cut at 1 KiB, and all distinct texts together at ``MOST_TEXT`` characters."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        self._left = MOST_TEXT

    def of(self, reply: Mapping[str, Any], name: str) -> dict[str, str]:
        field = f"ExtenderFilterResult.{name}"
        found = _of_type(reply.get(name.lower()), dict, field, "map")
        return {_sound(node): self._short(_text(text, field)) for node, text in found.items()}

    def _short(self, text: str) -> str:
        kept = self._kept.get(text)
        if kept is None:
            kept = clip(text)
            self._left -= len(kept)
            if self._left < 0:
                return _LEFT_OUT
            self._kept[text] = kept
        return kept


def _list(value: Any, field: str, kind: str = "list") -> list[Any]:
    return _of_type(value, list, field, kind)


def _text(value: Any, field: str) -> str:
    return _sound(_of_type(value, str, field, "string"))


def _sound(text: str) -> str:
    """Return the text with U+FFFD in place of each unpaired surrogate, as Go decodes it."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _integer(value: Any, field: str) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or value not in _INT64:
        raise _mismatch(value, field, "int64")
    return value


def _mismatch(value: Any, field: str, kind: str) -> ExtenderError:
    found = {dict: "object", list: "array", bool: "bool", str: "string"}.get(type(value)) or f"number {value}"
    place = f"Go struct field {field} of type {kind}" if field else f"Go value of type {kind}"
    return ExtenderError(f"json: cannot unmarshal {found} into {place}")
