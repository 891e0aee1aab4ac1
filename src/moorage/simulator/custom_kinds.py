"""Objects of kinds that plugins name: which of them a dump holds, and the names of their kinds.

A plugin names a kind by its plural, an object by its singular. The kind's CustomResourceDefinition connects them, but a dump
may lack it; the plural is then guessed as kubectl guesses it. A definition may follow its objects, so objects are kept as they
are until everything is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from moorage.api.custom_objects import CustomKind, CustomObject, guess_plural, read_custom, with_identity
from moorage.api.decode import decode
from moorage.api.meta import Object
from moorage.controllers.machinery.object_fields import stable_uid
from moorage.errors import InputError
from moorage.inputs.objects import FoundObject

__all__ = ["CustomReader", "ReadObject"]

_DEFINITION: Final = "CustomResourceDefinition"
_NAMESPACED, _CLUSTER_SCOPED = "Namespaced", "Cluster"


class _Names(Object):
    kind: str = ""
    plural: str = ""


class _DefinitionSpec(Object):
    group: str = ""
    names: _Names = _Names()
    scope: str = ""


class _Definition(Object):
    spec: _DefinitionSpec = _DefinitionSpec()


class ReadObject(NamedTuple):
    """An object of a named kind; ``kind`` is the kind in the object itself."""

    obj: CustomObject
    kind: str
    where: str

    @property
    def title(self) -> str:
        space = f"{self.obj.namespace}/" if self.obj.namespace else ""
        return f"{self.kind} {space}{self.obj.name}"


class CustomReader:
    """Keeps objects that may be of a named kind until ``objects`` is called."""

    def __init__(self, names: Iterable[str]) -> None:
        kinds = (CustomKind.parse(name) for name in names)
        self._kinds = tuple(kind for kind in kinds if kind is not None)
        self._versions = {kind.api_version for kind in self._kinds}
        self._definitions: dict[tuple[str, str], _DefinitionSpec] = {}
        self._kept: list[FoundObject] = []

    def take(self, found: FoundObject) -> bool:
        """Examine an object; return True if this reader keeps it, so that the caller need not count it as unused."""
        if self._kinds and found.kind == _DEFINITION and found.api_version.startswith("apiextensions.k8s.io/"):
            self._define(found)
        # The core group has no definitions, so an object's kind decides at once.
        kept = found.api_version in self._versions and ("/" in found.api_version or self._kind_of(found) is not None)
        if kept:
            self._kept.append(found)
        return kept

    def _define(self, found: FoundObject) -> None:
        payload = found.payload if isinstance(found.payload, dict) else bytes(found.payload)
        spec = decode(payload, _Definition, found.where).spec
        self._definitions[spec.group, spec.names.kind] = spec

    def _plural(self, group: str, kind: str) -> str:
        spec = self._definitions.get((group, kind))
        return spec.names.plural if spec is not None and spec.names.plural else guess_plural(kind)

    def _kind_of(self, found: FoundObject) -> CustomKind | None:
        group = found.api_version.rpartition("/")[0]
        plural = self._plural(group, found.kind)
        return next((one for one in self._kinds if (one.api_version, one.plural) == (found.api_version, plural)), None)

    def unclaimed(self) -> Iterator[FoundObject]:
        """Yield the kept objects that turned out to be of no named kind."""
        return (found for found in self._kept if self._kind_of(found) is None)

    def why_unused(self, api_version: str, kind: str) -> str | None:
        """Return why objects of a named kind are not read in this version; None if no plugin names the kind."""
        group, slash, _ = api_version.rpartition("/")
        plural = self._plural(group, kind) if slash else ""
        named = next((one for one in self._kinds if slash and (one.group, one.plural) == (group, plural)), None)
        return None if named is None else f"this version of the API is not read; a plugin names {named}"

    def objects(self, faults: list[str]) -> Iterator[ReadObject]:
        """Yield the objects of named kinds in input order; add the faults of invalid ones to ``faults``."""
        for found in self._kept:
            kind = self._kind_of(found)
            if kind is None:
                continue
            try:
                yield ReadObject(self._identified(found, kind), found.kind, found.where)
            except InputError as error:
                faults += str(error).splitlines()

    def _identified(self, found: FoundObject, kind: CustomKind) -> CustomObject:
        """Return the object with a namespace, as its kind's scope requires if that is known, and a UID."""
        payload = found.payload if isinstance(found.payload, dict) else bytes(found.payload)
        given = read_custom(payload, str(kind), found.where)
        given = given.having(apiVersion=found.api_version, kind=found.kind)  # items of a list may leave these out
        metadata = given.metadata
        if not metadata.name:
            raise InputError(f"{found.where}: {found.kind}: metadata.name: Required value: a name is required")
        spec = self._definitions.get((kind.group, found.kind))
        scope = "" if spec is None else spec.scope
        space = "" if scope == _CLUSTER_SCOPED else metadata.namespace or ("default" if scope == _NAMESPACED else "")
        uid = metadata.uid or stable_uid(found.kind, space, metadata.name)
        return with_identity(given, replace(metadata, namespace=space, uid=uid))
