"""Check the expressions of a validating policy against the types of the objects that it is for, as its status tells.

Expressions are evaluated on objects without types, so that a wrong field name is an error of each request. The check compiles
them once more for each kind that a rule names without wildcards, and says what does not fit. Quantities have no type in the
schemas that kube-apiserver reads, so fields with them are unknown there.

Source  apiserver, pkg/admission/plugin/policy/validating/typechecking.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from moorage.api.cel.types import BOOL, BYTES, DOUBLE, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of
from moorage.api.documents.served_kinds import Document, KindTable, ServedKind, as_mapping
from moorage.api.schema.field_types import UNTYPED, ListOf, MapOf, Scalar, Struct
from moorage.api.schema.field_types import Type as Shape
from moorage.api.schema.schemas import kind_schema
from moorage.rules.admission.policy_expressions import PolicyError, PolicyTypes

#: The most kinds that a policy is checked for.
_MOST_KINDS: Final = 10
_SCALARS: Final[Mapping[str, Type]] = {
    "s": STRING, "i": INT, "b": BOOL, "f": DOUBLE, "y": BYTES, "T": TIMESTAMP, "U": TIMESTAMP, "O": DYN, "D": STRING,
    "X": list_of(STRING), "R": Type("struct", "kubernetes.RawExtension"), "F": Type("struct", "kubernetes.FieldsV1"),
}  # fmt: skip
_PREFIX: Final = "compilation failed: "


def expression_warnings(spec: Document, kinds: KindTable) -> list[Document]:
    """Return the warnings about the validations of a policy, by the place of the expression."""
    warnings: list[Document] = []
    checked = [*_checked_kinds(spec, kinds)]
    for at, one in enumerate(spec.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            found = [_fault(spec, str(one.get(field) or ""), kind, kinds) for kind in checked] if one.get(field) else []
            if texts := [text for text in found if text]:
                warnings.append({"fieldRef": f"spec.validations[{at}].{field}", "warning": "".join(texts)})
    return warnings


def _checked_kinds(spec: Document, kinds: KindTable) -> Iterator[ServedKind]:
    """Yield the kinds that rules name without wildcards, in order."""
    found: dict[tuple[str, str, str], ServedKind] = {}
    for rule in as_mapping(spec.get("matchConstraints")).get("resourceRules") or ():
        named = [sorted(rule.get(field) or ()) for field in ("apiGroups", "apiVersions", "resources")]
        if any("*" in names for names in named):
            continue
        for group in named[0]:
            for version in named[1]:
                for resource in named[2]:
                    kind = kinds.find(resource, group, version)
                    if kind is not None and kind in kinds.served:
                        found[kind.group, kind.version, kind.kind] = kind
    yield from (found[key] for key in sorted(found)[:_MOST_KINDS])


def _fault(spec: Document, source: str, kind: ServedKind, kinds: KindTable) -> str:
    """Return what does not fit in an expression for objects of a kind, as kube-apiserver words it; "" if all does."""
    fields: dict[str, Mapping[str, Type]] = {}
    objects = _of_kind(kind, fields)
    wanted = as_mapping(spec.get("paramKind"))
    params = kinds.find_type(str(wanted.get("apiVersion")), str(wanted.get("kind"))) if wanted else None
    types = PolicyTypes(spec, objects, DYN if params is None else _of_kind(params, fields), fields)
    try:
        for one in spec.get("variables") or ():
            try:
                types.define(str(one.get("name")), types.compiled(str(one.get("expression"))).type)
            except PolicyError:
                types.define(str(one.get("name")), DYN)
        types.compiled(source)
    except PolicyError as error:
        return f"{kind.group}/{kind.version}, Kind={kind.kind}: {str(error).removeprefix(_PREFIX)}\n"
    return ""


def _of_kind(kind: ServedKind, fields: dict[str, Mapping[str, Type]]) -> Type:
    """Return the type of a kind's objects, and add the fields of its structs. Those of custom kinds can be anything."""
    if kind.custom is not None:
        return DYN
    shape = kind_schema(kind)
    name = f"{kind.api_version}/{kind.kind}"
    fields |= {name: _fields_of(shape)}
    for held in [*_structs(shape)]:
        fields.setdefault(held.name, _fields_of(held))
    return Type("struct", name)


def _structs(shape: Shape) -> Iterator[Struct]:
    """Yield the structs within a type, each once."""
    waiting: list[Shape] = [field.type for field in shape.fields.values()] if isinstance(shape, Struct) else []
    seen: set[str] = set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, ListOf | MapOf):
            if one is not UNTYPED:
                waiting.append(one.item)
        elif isinstance(one, Struct) and one.name not in seen:
            seen.add(one.name)
            yield one
            waiting += [field.type for field in one.fields.values()]


def _fields_of(shape: Struct) -> Mapping[str, Type]:
    return {name: found for name, field in shape.fields.items() if (found := _type_of(field.type)) is not None}


def _type_of(shape: Shape) -> Type | None:
    """Return the type of a field; None for one that schemas give no type."""
    if shape is UNTYPED:
        return DYN
    if isinstance(shape, Scalar):
        return _SCALARS.get(shape.letter)
    if isinstance(shape, Struct):
        return Type("struct", shape.name)
    item = _type_of(shape.item)
    if item is None:
        return None
    return list_of(item) if isinstance(shape, ListOf) else map_of(STRING, item)
