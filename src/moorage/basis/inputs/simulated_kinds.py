"""The kinds of objects that a simulation reads, and the kinds it ignores, with the reason.

A kind is read, known but ignored, or unknown. The report counts the objects of ignored and unknown kinds, so that users see
which objects had no influence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

import msgspec

from moorage.api import kinds
from moorage.api.kinds import Kind, Reader

KINDS: Final = tuple(kind for kind in kinds.KINDS if Reader.SIMULATION in kind.readers)

_BY_GROUP = {(kind.group, kind.name): kind for kind in KINDS}
_BY_VERSION = {(version, kind.name): kind for kind in KINDS for version in kind.api_versions}

#: The reason for ignoring objects of kinds that no table contains.
UNKNOWN_KIND: Final = "unknown kind"
_NOT_READ = "scheduling does not read it"
#: Kinds of a stock cluster that are ignored, in addition to those of the table of kinds that no simulation reads.
_MORE_KINDS: Final = {
    "": ("Binding",),
    "gateway.networking.k8s.io": ("Gateway", "GatewayClass", "HTTPRoute"),
    "metrics.k8s.io": ("NodeMetrics", "PodMetrics"),
}
_KNOWN = {(kind.group, kind.name) for kind in kinds.KINDS} | {
    (group, name) for group, names in _MORE_KINDS.items() for name in names
}
_REASONS: Final = {
    ("autoscaling", "HorizontalPodAutoscaler"): "replicas stay as they are given",
    ("scheduling.k8s.io", "Workload"): "scheduling reads the pod groups that are made from it",
    ("kubescheduler.config.k8s.io", "KubeSchedulerConfiguration"): "give it with --config",
}


@cache
def json_decoder(kind: Kind) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a kind's objects; making those of all kinds would take long."""
    return msgspec.json.Decoder(kind.type)


def find_kind(api_version: str, name: str) -> Kind | None:
    """Return the kind for this ``apiVersion`` and ``kind`` if it is read."""
    return _BY_VERSION.get((api_version, name))


def why_unused(api_version: str, name: str) -> str:
    """Return why objects of this ``apiVersion`` and ``kind`` are ignored."""
    group, slash, _ = api_version.rpartition("/")
    known = _BY_GROUP.get((group if slash else "", name))
    if known is not None:
        return f"this version of the API is not read; convert it to {known.api_version}"
    if reason := _REASONS.get((group, name)):
        return reason
    if (group, name) in _KNOWN:
        return _NOT_READ
    moved = [kind.api_version for kind in KINDS if kind.name == name]
    return f"{UNKNOWN_KIND}; {name} is read as {moved[0]}" if moved else UNKNOWN_KIND


def list_parts(items: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a List of objects in JSON in parts: one line for each object."""
    yield b'{"apiVersion":"v1","kind":"List","items":['
    for number, item in enumerate(items):
        yield b",\n" if number else b"\n"
        yield item
    yield b"\n]}\n"
