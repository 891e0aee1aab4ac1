"""Name what an API server refuses of a scenario's objects, so that a smaller scenario is as much a cluster as the whole one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.api.core import Node, Pod
from moorage.api.decode import decode
from moorage.api.defaults import default_node, default_pod
from moorage.api.validation import faults_of
from moorage.errors import MoorageError
from tools.recordings.scenarios import known_kinds

__all__ = ["refused"]

_PLACE: Final = re.compile(r"\[\d+\]")


def refused(scenario: Mapping[str, Any]) -> frozenset[str]:
    """Return the fields that are refused, each with its kind, without places in lists; and the namespaces that are missing."""
    objects = scenario["objects"]
    spaces = {one["metadata"]["name"] for one in objects if one["kind"] == "Namespace"}
    missing = {f"namespace {one['metadata'].get('namespace')}" for one in objects if one["kind"] == "Pod"}
    fields = frozenset(_PLACE.sub("", field) for data in objects for field in _fields(data))
    return fields | {one for one in missing if one.removeprefix("namespace ") not in spaces}


def _fields(data: Mapping[str, Any]) -> Iterator[str]:
    kind = data["kind"]
    try:
        found = decode(data, known_kinds()[kind], kind)
        found = default_pod(found) if isinstance(found, Pod) else default_node(found) if isinstance(found, Node) else found
        yield from (f"{kind} {fault.field}" for fault in faults_of(found))
    except (MoorageError, KeyError) as error:
        yield f"{kind}: {error}"
