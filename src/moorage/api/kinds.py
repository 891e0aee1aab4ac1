"""The table of kinds: one row for each kind of Kubernetes object, with its names and who reads it.

A new kind is one row in ``kinds.json``, whose properties are those of ``Kind``; the struct of a kind has its name, and
``module`` is where it stands in this package. From the row a simulation reads the kind, a scheduler watches it, the embedded
server stores and serves it, and events name it. Readers add only what is theirs, such as the server's short names.

Source  kube-apiserver 1.36 and 1.37, discovery
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache
from importlib import import_module
from typing import Any, Final

from moorage.api.meta import Object
from moorage.basis import text_of


class Reader(Flag):
    """Which programs read the objects of a kind, in addition to the embedded server."""

    NONE = 0
    SIMULATION = auto()
    SCHEDULER = auto()
    BOTH = SIMULATION | SCHEDULER


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object.

    ``resource``   its plural name in paths
    ``type``       the struct that its objects decode to; ``Object`` if only metadata is read
    ``versions``   the API versions that can be read; the first one is written
    ``gate``       the feature gate that must be enabled for the kind to be served, or the group and version that an API server
                   serves with ``--runtime-config``; "" if none
    ``readers``    which programs read it: a simulation from files, a scheduler by list and watch
    """

    group: str
    name: str
    resource: str
    type: type[Object] = Object
    namespaced: bool = True
    versions: tuple[str, ...] = ("v1",)
    gate: str = ""
    readers: Reader = Reader.NONE

    @property
    def api_version(self) -> str:
        return self.api_versions[0]

    @property
    def api_versions(self) -> tuple[str, ...]:
        return tuple(f"{self.group}/{version}" if self.group else version for version in self.versions)

    @property
    def slot(self) -> str:
        """The plural of its name as a Python identifier: ``csi_nodes``, ``priority_classes``."""
        return _slot(self.name)


@cache
def _slot(name: str) -> str:
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return re.sub(r"y$", "ie", f"{snake}e" if snake.endswith("s") else snake) + "s"


def _kind(row: Mapping[str, Any]) -> Kind:
    module = row.get("module")
    return Kind(
        row["group"],
        row["name"],
        row["resource"],
        type=Object if module is None else getattr(import_module(f"moorage.api.{module}"), row["name"]),
        namespaced=row.get("namespaced", True),
        versions=tuple(row.get("versions", ("v1",))),
        gate=row.get("gate", ""),
        readers=Reader[row.get("readers", "NONE")],
    )


#: All kinds, by group; within a group in the order in which the server lists them.
KINDS: Final = tuple(map(_kind, json.loads(text_of("moorage.api", "kinds.json"))))

KIND_OF_TYPE: Final[Mapping[type[Object], Kind]] = {kind.type: kind for kind in KINDS if kind.type is not Object}


def find_kind(name: str, group: str = "") -> Kind:
    """Return the row of a kind.

    Raises  LookupError if the table has no such kind
    """
    found = next((kind for kind in KINDS if (kind.group, kind.name) == (group, name)), None)
    if found is None:
        raise LookupError(f"{name}.{group}".rstrip("."))
    return found
