"""The parts that all Kubernetes objects share: the base class, metadata, references and label selectors.

Objects are frozen values that hold only what scheduling reads; decoding drops undeclared fields. Field names are Python's, and
``msgspec`` translates them to the wire's camelCase.
"""

from __future__ import annotations

from typing import Annotated, Any, Self, TypeAlias, dataclass_transform

import msgspec

#: An integer as wide as Go's; decoding refuses wider ones, and validation those that are too wide for their field.
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
#: A quantity in its wire form: ``"100m"``, ``"1Gi"``, ``2``. See ``moorage.api.quantity``.
Quantity: TypeAlias = str | Int64 | float
#: Resource name to quantity, for example ``{"cpu": "100m", "memory": "1Gi"}``.
ResourceList: TypeAlias = dict[str, Quantity]


# msgspec passes "frozen" on to subclasses; type checkers take it from the nearest dataclass_transform, hence this one.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all API values: immutable, compared by content, decoded without tracking by the garbage collector."""

    def replace(self, **fields: Any) -> Self:
        """Return a copy with other values for these fields: ``pod.replace(spec=pod.spec.replace(priority=5))``.

        Raises  TypeError for a field that the type does not have
        """
        return msgspec.structs.replace(self, **fields)


class OwnerReference(Value):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Value):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    generation: Int64 = 0


class Object(Value):
    """Base of everything that the API server stores: a value with metadata."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels

    @property
    def key(self) -> str:
        """``namespace/name``, or ``name`` for an object without a namespace."""
        metadata = self.metadata
        return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def is_older(version: str, than: str) -> bool:
    """Return True if a resource version is certainly older than another; False if either is not a number."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


class LabelSelectorRequirement(Value):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Value):
    """An absent selector (None) matches nothing, an empty one everything; fields therefore are ``LabelSelector | None``."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
