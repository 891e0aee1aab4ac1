"""Custom resources: objects of kinds unknown to Moorage, named as in ``quotas.v1.example.com``.

The name is plural, version and group, as in kube-scheduler's ``EventsToRegister``; an empty group is the core group
(``configmaps.v1.``). Moorage keeps such an object as a plain document, beside the metadata that all objects have. Each kind has
a Python type of its own, so caches can tell kinds apart by type.

Source  kube-scheduler, eventhandlers.go, addAllEventHandlers; apimachinery, schema.ParseResourceArg
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self, cast

import msgspec

from moorage.api.decode import decode
from moorage.api.meta import Object, ObjectMeta
from moorage.api.reading.json_tree import UNREADABLE, refuse_depth
from moorage.errors import InputError

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"({_LABEL})\.({_LABEL})\.((?:{_LABEL}(?:\.{_LABEL})*)?)")


class CustomKind(NamedTuple):
    """A kind by the names in its API path. ``group`` is "" for the core group."""

    plural: str
    version: str
    group: str

    @classmethod
    def parse(cls, name: str) -> CustomKind | None:
        """Return the kind that ``plural.version.group`` names; None for another form."""
        parts = _NAME.fullmatch(name)
        return None if parts is None else cls(*parts.groups())

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return ".".join(self)


class CustomObject(Object):
    """One object. ``document`` is the whole object without ``managedFields``; it is shared and must not be changed."""

    resource: ClassVar[str] = ""  #: The name of the kind that plugins use.

    document: Mapping[str, Any] = {}

    def get(self, *path: str, default: Any = None) -> Any:
        """Return the value at a path of fields, such as ``get("spec", "limit")``; ``default`` if there is none."""
        found: Any = self.document
        for field in path:
            if not isinstance(found, Mapping) or field not in found:
                return default
            found = found[field]
        return found

    def having(self, **fields: Any) -> Self:
        """Return the object with these top-level fields of its document replaced: ``having(status={…})``."""
        return msgspec.structs.replace(self, document={**self.document, **fields})


@cache
def custom_type(name: str) -> type[CustomObject]:
    """Return the type of the objects of a kind; repeated calls return the same type."""
    made = msgspec.defstruct(
        name, [], bases=(CustomObject,), module=__name__, namespace={"resource": name}, frozen=True, kw_only=True, gc=False
    )
    return cast("type[CustomObject]", made)


def read_custom(raw: bytes | Mapping[str, Any], name: str, where: str) -> CustomObject:
    """Decode an object of the kind ``name``.

    Raises  InputError if it is not one object with valid metadata
    """
    metadata = decode(raw, Object, where).metadata
    try:
        document = dict(raw) if isinstance(raw, Mapping) else msgspec.json.decode(raw, type=dict[str, Any])
    except UNREADABLE as error:
        raise InputError(f"{where}: {metadata.name}: {error}") from None
    refuse_depth(document, f"{where}: {metadata.name}")
    given = document.get("metadata") or {}
    document["metadata"] = {key: value for key, value in given.items() if key != "managedFields"}
    return custom_type(name)(metadata=metadata, document=document)


def guess_plural(kind: str) -> str:
    """Return the likely plural of a kind, for input without a server that knows it."""
    singular = kind.lower()
    if singular.endswith("endpoints"):
        return singular
    if singular.endswith("s"):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") and singular[-2:-1] not in "aeiou" else f"{singular}s"


def with_identity(obj: CustomObject, metadata: ObjectMeta) -> CustomObject:
    """Return the object with another name, namespace or UID, in its metadata and in its document."""
    said = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
    given = {**obj.document["metadata"], **{key: value for key, value in said.items() if value}}
    return msgspec.structs.replace(obj, metadata=metadata, document={**obj.document, "metadata": given})
