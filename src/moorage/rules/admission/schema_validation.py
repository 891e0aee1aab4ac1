"""Check values of custom kinds against their schema: types, bounds, patterns, formats and junctors.

An update does not report faults of parts that it does not change, so that a stricter schema does not block it (ratcheting).
The work is bounded: a check ends with a fault when its schemas ask for much more work than reading the value takes.
kube-apiserver has no such bound.

Source  kube-openapi, pkg/validation/validate and errors/schema.go; apiextensions-apiserver, pkg/apiserver/validation
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from moorage.api.cel.bounds import TooLargeError
from moorage.api.cel.regex import RegexError, compile_regex
from moorage.api.documents.served_kinds import Schema
from moorage.api.schema.custom_kinds import field_schema
from moorage.api.validation.faults import invalid, required, too_long, too_many, unsupported
from moorage.errors import Fault
from moorage.rules.admission.string_formats import checked_format, is_of_format

Faults = Iterator[Fault]
#: Marks an absent value.
ABSENT: Final[Any] = object()
#: The steps of a check (a value read by a schema in a junctor, a missing field, a fault; about 3 µs each),
#: how many more each value adds, and the work of its patterns (0.05 µs each).
MAX_CHECKS: Final = 20_000
CHECKS_PER_VALUE: Final = 2
MAX_PATTERN_WORK: Final = 2_400_000
#: So many names of required fields, or values of an enum, are one step.
_NAMES_PER_STEP: Final = 32
#: So many characters of a value are in the text of a fault.
_MOST_QUOTED: Final = 10_000
#: Faults of junctors belong to no field.
_NO_FIELD: Final = "<nil>"


class EffortExceededError(Exception):
    """A check took too many steps."""


def field_path(path: str, name: str) -> str:
    """Return the path of a field of the value at ``path``."""
    return f"{path}.{name}" if path else name


class SchemaCheck:
    """A check of one object, with limits on its work."""

    def __init__(self) -> None:
        self._checks_left = MAX_CHECKS
        self._work_left = MAX_PATTERN_WORK
        self._enums: dict[int, _Enum] = {}

    def faults(self, schema: Schema, value: Any, path: str = "", old: Any = ABSENT) -> Faults:
        """Yield the faults of a value. ``old`` is the value that it replaces."""
        try:
            yield from self._part(schema, value, path, old)
        except EffortExceededError:
            yield invalid(path or _NO_FIELD, "", "the value takes too long to validate: simplify its schema or make it smaller")

    def _spend(self, steps: int) -> None:
        self._checks_left -= steps
        if self._checks_left < 0:
            raise EffortExceededError

    def _work(self, work: int) -> None:
        self._work_left -= work
        if self._work_left < 0:
            raise EffortExceededError

    def _part(self, schema: Schema, value: Any, path: str, old: Any = ABSENT, *, inside: bool = False) -> Faults:
        """Yield the faults of a part. ``inside``: the schema is inside a junctor, which reads the part again."""
        self._spend(1 if inside else -CHECKS_PER_VALUE)
        if old is not ABSENT and old == value:
            return
        types = _types(schema)
        found = _TYPES.get(type(value), "object")
        if not _has_type(types, value, found, schema):
            yield invalid(path, found, f'{path} in body must be of type {",".join(types)}: "{found}"')
        if value is None:
            yield from self._enum(schema, value, path)
            return
        yield from self._junctors(schema, value, path)
        if found == "string":
            yield from self._text(schema, value, path)
        elif found in {"integer", "number"}:
            yield from _number(schema, value, path)
        elif found == "array":
            yield from self._list(schema, value, path, old, inside=inside)
        yield from self._enum(schema, value, path)
        if isinstance(value, dict):
            yield from self._object(schema, value, path, old, inside=inside)

    def _enum(self, schema: Schema, value: Any, path: str) -> Faults:
        allowed = schema.get("enum")
        if not allowed:
            return
        enum = self._enums.get(id(schema))
        if enum is None:
            self._spend(len(allowed) // _NAMES_PER_STEP)
            enum = self._enums[id(schema)] = _Enum(allowed)
        self._spend(len(enum.composed))
        if value not in enum:
            self._spend(1)
            yield Fault("Unsupported value", path, enum.detail, value)

    # -- strings -------------------------------------------------------------------------------------------------------

    def _text(self, schema: Schema, value: str, path: str) -> Faults:
        most, least = schema.get("maxLength"), schema.get("minLength")
        pattern, form = schema.get("pattern"), checked_format(schema.get("type", ""), schema.get("format", ""))
        if most is not None and len(value) > most:
            yield too_long(path, most)
        elif least is not None and len(value) < least:
            yield invalid(path, value, f"{path} in body should be at least {least} chars long")
        elif pattern and not self._matches(pattern, value):
            yield invalid(path, value, f"{path} in body should match '{pattern}'")
        if form and form not in {"double", "float", "int32", "int64"} and not is_of_format(form, value):
            shown = json.dumps(value[:_MOST_QUOTED], ensure_ascii=False)
            yield invalid(path, value, f"{path} in body must be of type {form}: {shown}")

    def _matches(self, pattern: str, text: str) -> bool:
        try:
            return compile_regex(pattern).find(text, self._work) is not None
        except RegexError:
            return False
        except TooLargeError:
            raise EffortExceededError from None

    # -- lists and objects ---------------------------------------------------------------------------------------------

    def _list(self, schema: Schema, value: list[Any], path: str, old: Any, *, inside: bool) -> Faults:
        items = schema.get("items")
        if isinstance(items, Mapping):
            before = old_items(schema, old)
            for i, one in enumerate(value):
                yield from self._part(items, one, f"{path}[{i}]", old_item(schema, before, one), inside=inside)
        yield from _size(schema, value, path, "Items")

    def _object(self, schema: Schema, value: dict[str, Any], path: str, old: Any, *, inside: bool) -> Faults:
        yield from _size(schema, value, path, "Properties")
        before = old if isinstance(old, dict) else {}
        for name, inner in value.items():
            below = field_schema(schema, name)
            if below is not None:
                yield from self._part(below, inner, field_path(path, name), before.get(name, ABSENT), inside=inside)
            elif schema.get("additionalProperties") is False:
                yield invalid(path, name, f"{path}.{name} in body is a forbidden property")
        names = schema.get("required", ())
        self._spend(len(names) // _NAMES_PER_STEP)
        for name in names:
            if name not in value:
                self._spend(1)
                yield required(field_path(path, name))

    # -- junctors ------------------------------------------------------------------------------------------------------

    def _junctors(self, schema: Schema, value: Any, path: str) -> Faults:
        if any_of := schema.get("anyOf"):
            failed, valid = self._alternatives(any_of, value, path, enough=1)
            if not valid:
                yield _misfit(path, "must validate at least one schema (anyOf)")
                yield from failed
        if one_of := schema.get("oneOf"):
            failed, valid = self._alternatives(one_of, value, path, enough=len(one_of))
            if valid != 1:
                how = f"Found {valid} valid alternatives" if valid else "Found none valid"
                yield _misfit(path, f"must validate one and only one schema (oneOf). {how}")
                yield from () if valid else failed
        if all_of := schema.get("allOf"):
            found = [self._again(one, value, path) for one in all_of]
            yield from (fault for faults in found for fault in faults)
            if any(found):
                yield _misfit(path, f"must validate all the schemas (allOf){'. None validated' if all(found) else ''}")
        refused = schema.get("not")
        if refused is not None and next(self._part(refused, value, path, inside=True), None) is None:
            yield _misfit(path, "must not validate the schema (not)")

    def _again(self, schema: Schema, value: Any, path: str) -> list[Fault]:
        """Return the faults of a value by a schema inside a junctor."""
        return list(self._part(schema, value, path, inside=True))

    def _alternatives(self, schemas: Iterable[Schema], value: Any, path: str, enough: int) -> tuple[list[Fault], int]:
        """Return the faults of the invalid alternative that has fewest, and the number of valid ones, up to ``enough``."""
        fewest: list[Fault] | None = None
        valid = 0
        for one in schemas:
            found = self._again(one, value, path)
            if not found:
                valid += 1
                if valid == enough:
                    break
            elif fewest is None or len(found) < len(fewest):
                fewest = found
        return fewest or [], valid


def _size(schema: Schema, value: Sequence[Any] | Mapping[str, Any], path: str, of: str) -> Faults:
    """Yield the faults of the number of items or properties."""
    least, most = schema.get(f"min{of}"), schema.get(f"max{of}")
    if least is not None and len(value) < least:
        yield invalid(path, len(value), f"{path} in body should have at least {least} {of.lower()}")
    if most is not None and len(value) > most:
        yield too_many(path, len(value), most)


def _misfit(path: str, why: str) -> Fault:
    return invalid(_NO_FIELD, "", f'"{path}" {why}')


# -- types -------------------------------------------------------------------------------------------------------------


def _types(schema: Schema) -> Sequence[str]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


_TYPES: Final = {
    type(None): "null", bool: "boolean", str: "string", int: "integer", float: "number", list: "array",
}  # fmt: skip


def _has_type(types: Sequence[str], value: Any, found: str, schema: Schema) -> bool:
    if not types or found in types:
        return True
    if value is None:
        return bool(schema.get("nullable"))
    if found == "integer":
        return "number" in types
    return found == "number" and "integer" in types and value.is_integer()


# -- scalars -----------------------------------------------------------------------------------------------------------


class _Enum:
    """The values of an enum. ``composed``: those that cannot be looked up; ``detail``: the text of a fault."""

    def __init__(self, allowed: Sequence[Any]) -> None:
        plain = [one for one in allowed if isinstance(one, str | int | float)]
        self._plain = frozenset((one, isinstance(one, bool)) for one in plain)
        self.composed = [one for one in allowed if isinstance(one, list | dict)]
        texts = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in allowed]
        self.detail = unsupported("", None, texts).detail

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, str | int | float):
            return (value, isinstance(value, bool)) in self._plain
        return value in self.composed


def _number(schema: Schema, value: float, path: str) -> Faults:
    kind, form = schema.get("type"), schema.get("format", "")
    limit = 2**31 if form == "int32" else 2**63
    if kind == "integer" and not -limit <= value < limit:
        how = f"with format {form}" if form in {"int32", "int64"} else "(default format)"
        yield invalid(_NO_FIELD, "", f"Checked value must be of type integer {how} in {path}")
    elif kind == "number" and form == "float" and abs(value) > _MAX_FLOAT32:
        yield invalid(_NO_FIELD, "", f"Checked value must be of type number with format float in {path}")
    factor = schema.get("multipleOf")
    if factor is not None and not _is_multiple(value, factor):
        yield invalid(path, value, f"{path} in body should be a multiple of {_shown(factor)}")
    most, least = schema.get("maximum"), schema.get("minimum")
    if least is not None and (value <= least if schema.get("exclusiveMinimum") else value < least):
        how = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield invalid(path, value, f"{path} in body should be {how} {_shown(least)}")
    if most is not None and (value >= most if schema.get("exclusiveMaximum") else value > most):
        how = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield invalid(path, value, f"{path} in body should be {how} {_shown(most)}")


_MAX_FLOAT32: Final = 3.4028234663852886e38


def _is_multiple(value: float, factor: float) -> bool:
    if factor <= 0:
        return False
    if isinstance(value, int) and float(factor).is_integer():
        return value % int(factor) == 0
    try:
        parts = value / factor
    except OverflowError:
        return True
    if math.isinf(parts):
        return True
    return abs(parts - round(parts)) < 1e-9 * max(1.0, abs(parts))


def _shown(number: float) -> str:
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e21 else repr(number)


# -- old items ---------------------------------------------------------------------------------------------------------


def old_items(schema: Schema, old: Any) -> Mapping[str, Any]:
    """Return the items of the old list by their keys; {} for lists without keys, whose items have no old versions."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys or schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return {}
    return {_key(keys, one): one for one in old if isinstance(one, dict)}


def old_item(schema: Schema, before: Mapping[str, Any], item: Any) -> Any:
    """Return the old item that an item of a list replaces, ABSENT if there is none."""
    if not before or not isinstance(item, dict):
        return ABSENT
    return before.get(_key(schema["x-kubernetes-list-map-keys"], item), ABSENT)


def _key(keys: Sequence[str], item: Mapping[str, Any]) -> str:
    return json.dumps([item.get(key) for key in keys])
