"""Normalize documents to their kind, like decoding into Go structs and encoding again: types, unknown fields, nulls.

A value of the wrong type is rejected with the message of Go's decoder. Unknown fields are dropped and reported; nulls and
empty omitempty fields are dropped. Quantities and times are returned in canonical form.

Source  sigs.k8s.io/json; apimachinery, pkg/api/resource and pkg/apis/meta/v1 (time.go, micro_time.go)
"""

from __future__ import annotations

import base64
import binascii
import copy
import datetime
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.documents.statuses import go_word
from moorage.api.quantity import NANO_PER_MILLI, QuantityError, canonical, milli_value, parse
from moorage.api.reading.json_tree import WrittenFloat, plain_floats
from moorage.api.schema.field_types import UNTYPED, Field, ListOf, MapOf, Scalar, Struct, Type
from moorage.api.schema.schemas import kind_schema, schema
from moorage.basis import text_of

#: Maximum number of unknown or duplicate fields that Go's decoder reports.
MAX_UNKNOWN: Final = 100


class FieldTypeError(Exception):
    """A value that its field cannot hold, with the message of Go's decoder.

    ``converted`` is the message for a value that was decoded before and fails in conversion.
    """

    def __init__(self, text: str, converted: str = "") -> None:
        super().__init__(text)
        self.converted = converted or text


class _WrongType(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, what: str, go: str, letter: str = "") -> None:
        self.what = what
        self.go = go
        self.path: list[str] = []
        self.owner = ""
        self.letter = letter


#: Position of a value: the steps that lead to it, the last one first. Paths are built only for error messages, as
#: building one for every value below a long key would take quadratic time.
Place: TypeAlias = tuple[Any, str | int] | None


def steps_of(place: Place) -> tuple[str | int, ...]:
    """Return the steps to a position, the first one first."""
    steps: list[str | int] = []
    while place is not None:
        place, step = place
        steps.append(step)
    return tuple(reversed(steps))


def path_of(place: Place) -> str:
    """Return a position in readable form: ``spec.containers[0].image``."""
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")


class _Notes(NamedTuple):
    """What is found beside the values: the paths of unknown fields, and the places of empty lists and maps.

    ``scalars`` are the readers of scalars by the letter of their type.
    """

    unknown: list[str]
    emptied: list[tuple[Place, Any]]
    scalars: Mapping[str, Callable[[Any, str], Any]]


def conform(
    shape: Struct, document: Any, emptied: list[tuple[Place, Any]] | None = None, *, wraps: bool = False
) -> tuple[Document, list[str]]:
    """Return a document normalized to its kind, and the paths of unknown fields. ``emptied`` gets the empty lists and maps,
    with their places. ``wraps``: the document was decoded before and is converted, where Go cuts off the upper bits of numbers.

    Raises  FieldTypeError for a value of the wrong type
    """
    notes = _Notes([], [] if emptied is None else emptied, _CONVERTED if wraps else _SCALARS)
    try:
        return _struct(shape, document, None, notes), notes.unknown
    except _WrongType as wrong:
        where = ".".join([wrong.owner, *reversed(wrong.path)])
        place = f"Go struct field {where}" if wrong.path else "Go value"
        text = f"json: cannot unmarshal {wrong.what} into {place} of type {wrong.go}"
        raise FieldTypeError(text, _converted(wrong.what, wrong.go, wrong.letter)) from None


def _converted(what: str, go: str, letter: str = "") -> str:
    """Return the message of Go's unstructured converter for a value of the wrong type."""
    word, _, literal = what.partition(" ")
    kind = {"array": "slice", "object": "map", "number": "float64" if "." in literal else "int64"}.get(word, word)
    if go.startswith("map["):
        return f"cannot restore map from {kind}"
    if go.startswith("[]"):
        return f"cannot restore slice from {kind}"
    plain = _KINDS.get(letter, go)
    if "." in go and not letter:
        return f"cannot restore struct from: {kind}"
    if (kind == "int64" and plain == "string") or (kind == "float64" and go in _INTEGERS):
        return f"cannot convert {kind} to {go}"
    return f"unrecognized type: {plain}"


#: The kinds in Go of the letters of scalars that have named types.
_KINDS: Final = {"s": "string", "b": "bool", "f": "float64"}


def _struct(shape: Struct, value: Any, place: Place, notes: _Notes) -> Document:
    if not isinstance(value, dict):
        raise _WrongType(go_word(value), shape.full_go)
    fields = shape.fields
    kept: Document = {}
    for name, inner in value.items():
        field = fields.get(name)
        if field is None:
            if len(notes.unknown) < MAX_UNKNOWN:
                notes.unknown.append(path_of((place, name)))
        elif inner is not None:
            held = field.type
            try:
                if isinstance(held, Scalar):
                    fitted = notes.scalars[held.letter](inner, held.go)
                else:
                    fitted = _normalized(held, inner, (place, name), notes)
            except _WrongType as wrong:
                wrong.path.append(f"{field.embedded}.{name}" if field.embedded else name)
                wrong.owner = wrong.owner or shape.go
                raise
            if not _is_omitted(field, fitted):
                kept[name] = fitted
            if not fitted and isinstance(held, ListOf | MapOf):
                notes.emptied.append(((place, name), fitted))
    return kept


#: What Go writes for the time that is not set.
_ZERO_TIME: Final = "0001-01-01T00:00:00Z"


def _is_omitted(field: Field, value: Any) -> bool:
    is_raw = isinstance(field.type, Scalar) and field.type.letter == "R"
    is_empty = field.omits_empty and not value and not (field.keeps_empty or is_raw or isinstance(field.type, Struct))
    return value is None or (not field.is_pointer and (is_empty or value == _ZERO_TIME))


def _normalized(shape: Type, value: Any, place: Place, notes: _Notes) -> Any:
    if isinstance(shape, Scalar):
        return notes.scalars[shape.letter](value, shape.go)
    if isinstance(shape, Struct):
        return _struct(shape, value, place, notes)
    if isinstance(shape, ListOf):
        if not isinstance(value, list):
            raise _WrongType(go_word(value), shape.go)
        item = shape.item
        if isinstance(item, Scalar):
            read = notes.scalars[item.letter]
            return [read("" if one is None else one, item.go) for one in value]
        return [_normalized(item, {} if one is None else one, (place, i), notes) for i, one in enumerate(value)]
    return _map(shape, value, place, notes)


def _map(shape: MapOf, value: Any, place: Place, notes: _Notes) -> Document:
    if not isinstance(value, dict):
        raise _WrongType(go_word(value), shape.go)
    item = shape.item
    if isinstance(item, Scalar):
        read, zero = notes.scalars[item.letter], "0" if item.letter == "Q" else ""
        return {key: read(zero if one is None else one, item.go) for key, one in value.items()}
    return {key: _normalized(item, {} if one is None else one, (place, key), notes) for key, one in value.items()}


# -- scalars -----------------------------------------------------------------------------------------------------------


def _of_type(*types: type) -> Callable[[Any, str], Any]:
    """Return the reader of a scalar of one of the types. A boolean is no number."""

    letter = types[0].__name__[0]

    def read(value: Any, go: str) -> Any:
        if type(value) not in types:
            raise _WrongType(go_word(value), go, letter)
        return value

    return read


_string: Final = _of_type(str)
_INTEGERS: Final[Mapping[str, int]] = {"int32": 2**31, "int64": 2**63, "int": 2**63}


def _integer(value: Any, go: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _WrongType(go_word(value), go)
    limit = _INTEGERS.get(go, 2**63)
    if isinstance(value, float) or not -limit <= value < limit:
        raise _WrongType(f"number {_literal(value)}", go)
    return value


def _literal(value: int | float) -> str:
    if isinstance(value, WrittenFloat):
        return value.text if len(value.text) < 64 else f"{value.text[:60]}…"
    text = "beyond all bounds" if isinstance(value, int) and value.bit_length() > 4096 else json.dumps(value)
    return text if len(text) < 64 else f"{text[:60]}…"


def _float(value: Any, go: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _WrongType(go_word(value), go, "f")
    if isinstance(value, WrittenFloat):
        if math.isinf(value):
            raise _WrongType(f"number {_literal(value)}", go, "f")
        return float(value)
    return value


def _raw(value: Any, _: str) -> Any:
    """Return JSON that the kind does not describe."""
    try:
        return plain_floats(value)
    except OverflowError as beyond:
        what = f"json: cannot unmarshal number {beyond} into Go value of type float64"
        raise FieldTypeError(what, f"error decoding number from json: {what}") from None


def _bytes(value: Any, go: str) -> str:
    text: str = _string(value, go)
    try:
        found = base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        at = next((i for i, letter in enumerate(text) if not (letter.isascii() and (letter.isalnum() or letter in "+/=\r\n"))),
                  len(text) // 4 * 4)  # fmt: skip
        why = f"illegal base64 data at input byte {at}"
        raise FieldTypeError(why, f"error decoding from json: {why}") from None
    return base64.b64encode(found).decode()


def _quantity(value: Any, _: str) -> str:
    if isinstance(value, (dict, list, bool)):
        raise FieldTypeError(_WRONG_QUANTITY)
    if isinstance(value, WrittenFloat):
        value = value.text
    try:
        return canonical(value.strip() if isinstance(value, str) else value)
    except QuantityError as error:
        raise FieldTypeError(_WRONG_SUFFIX if str(error).endswith(_WRONG_SUFFIX) else _WRONG_QUANTITY) from None


_WRONG_SUFFIX: Final = "unable to parse quantity's suffix"
_WRONG_QUANTITY: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _int_or_string(value: Any, go: str) -> int | str:
    return value if isinstance(value, str) else _integer(value, "int32" if go == "intstr.IntOrString" else go)


_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
#: The same with exactly six fractional digits, and the length of the part before them.
_MICRO: Final = "2006-01-02T15:04:05.000000Z07:00"
_SECONDS: Final = len("2006-01-02T15:04:05")


def _moment(value: Any, go: str, layout: str = _LAYOUT) -> tuple[datetime.datetime, int]:
    value = _string(value, "string")
    found = _TIME.fullmatch(value)
    try:
        if found is None:
            raise ValueError
        zone = "+00:00" if found[3] == "Z" else found[3]
        moment = datetime.datetime.fromisoformat(found[1] + zone).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        quoted = json.dumps(value[:64], ensure_ascii=False)
        raise FieldTypeError(f'parsing time {quoted} as "{layout}": cannot parse {quoted} as "2006"') from None
    return moment, int((found[2] or "0").ljust(9, "0")) // 1000


def _time(value: Any, go: str) -> str:
    return _moment(value, go)[0].isoformat().replace("+00:00", "Z")


def _micro_time(value: Any, go: str) -> str:
    moment, micros = _moment(value, go, _MICRO)
    fraction = value[_SECONDS:].partition("Z")[0].partition("+")[0].partition("-")[0]
    if len(fraction) != len(".000000"):
        rest, wanted = (value[_SECONDS + 7 :], "Z07:00") if len(fraction) > 7 else (value[_SECONDS:], ".000000")
        raise FieldTypeError(f'parsing time "{value}" as "{_MICRO}": cannot parse "{rest}" as "{wanted}"')
    return moment.isoformat().replace("+00:00", f".{micros:06d}Z")


def _strings(value: Any, go: str) -> list[str]:
    if not isinstance(value, list):
        raise _WrongType(go_word(value), go)
    return [_string(one, "string") for one in value]


def _schema_or_more(value: Any, _: str) -> Any:
    """Return a schema, or a list or bool in its place. Unknown fields are dropped and not reported, as by Go's decoder."""
    if isinstance(value, list):
        return [_schema_or_more(one, _) for one in value]
    return (
        value
        if isinstance(value, (bool, str))
        else _struct(schema("apiextensions.JSONSchemaProps"), value, None, _Notes([], [], _SCALARS))
    )


_SCALARS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "s": _string, "i": _integer, "b": _of_type(bool), "f": _float, "y": _bytes, "T": _time, "U": _micro_time,
    "Q": _quantity, "O": _int_or_string, "D": _string, "R": _raw, "F": _raw,
    "P": _schema_or_more, "X": _strings,
}  # fmt: skip


def _wrapped_integer(value: Any, go: str) -> int:
    """Return a number as Go converts it to an integer type: what is beyond 64 bits is a float, and upper bits are cut off.

    Source  apimachinery, pkg/runtime/converter.go, fromUnstructured; reflect, cvtFloatInt on amd64
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _WrongType(go_word(value), go)
    whole = _whole(value)
    if whole is None:
        raise _WrongType(f"number {float(value)}", go)
    half: int = _INTEGERS.get(go, 2**63)
    return (whole + half) % (2 * half) - half


def _whole(value: int | float) -> int | None:
    """Return a number as an integer of 64 bits, the lowest one if it is beyond; None if it has a fraction."""
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if -(2**63) <= value < 2**63 else -(2**63)


def _wrapped_int_or_string(value: Any, go: str) -> int | str:
    """Return what Go reads from the JSON that it writes of a number: a float without a fraction is written as an integer."""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _WRITTEN_WHOLE
    return _int_or_string(int(value) if is_whole else value, go)


#: From here on, Go writes floats with an exponent.
_WRITTEN_WHOLE: Final = 1e21
#: The readers for documents that were decoded before.
_CONVERTED: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    **_SCALARS, "i": _wrapped_integer, "O": _wrapped_int_or_string,
}  # fmt: skip


def scalar_fault(shape: Scalar, value: Any) -> str:
    """Return why a scalar cannot hold a value, in the words of Go's decoder; "" if it can."""
    try:
        _SCALARS[shape.letter](value, shape.go)
    except FieldTypeError as error:
        return str(error)
    except _WrongType as wrong:
        return f"{wrong.what} is no {wrong.go}"
    return ""


# -- type defaults -----------------------------------------------------------------------------------------------------
# Defaults of nested types, wherever they occur in an object: a walk guided by the schema.
#
# A probe gets a period and a mounted secret a file mode, in any container or template. The walk also adds empty values that
# Go always encodes: zero numbers, null times, empty structs. The plan for each type is computed once, so types without
# defaults are skipped.
#
# Source  kubernetes, pkg/apis/*/v1: defaults.go and zz_generated.defaults.go

SetDefaults = Callable[[Document], None]


class _Inner(NamedTuple):
    """A field with a struct, or with a list or a map of structs. ``is_written``: it is written even when empty."""

    name: str
    holds: type[Scalar | ListOf | MapOf | Struct]
    plan: _Plan
    is_written: bool


class _Plan(NamedTuple):
    """The defaults of a type; false if there are none."""

    defaults: SetDefaults | None
    inner: tuple[_Inner, ...]
    zeros: tuple[tuple[str, Any, bool], ...]

    def __bool__(self) -> bool:
        return self.defaults is not None or bool(self.inner or self.zeros)


def complete_types(kind: ServedKind, document: Document, *, sent: bool = False) -> None:
    """Set the defaults of all nested types of an object, in place.

    Empty lists in fields that are always written become null, as in storage, unless the object is as it was ``sent``.
    """
    _complete(_plan_of(kind), document, sent)


@lru_cache(maxsize=512)  # a definition that changes makes another kind
def _plan_of(kind: ServedKind) -> _Plan:
    return _plan(kind_schema(kind), {})


def _plan(shape: Struct, known: dict[str, _Plan]) -> _Plan:
    if shape.name not in known:
        known[shape.name] = _Plan(None, (), ())
        inner, zeros = [], []
        for field in shape.fields.values():
            found = _inner(field, known)
            if found is not None:
                inner.append(found)
            if (found is None or not found.is_written) and _is_written(field) and (shape.name, field.name) not in _NEVER_ZERO:
                letter = field.type.letter if isinstance(field.type, Scalar) and not field.is_pointer else ""
                is_list = isinstance(field.type, ListOf) or (isinstance(field.type, MapOf) and field.type is not UNTYPED)
                zeros.append((field.name, _ZEROS.get(letter), is_list))
        known[shape.name] = _Plan(_defaults_of(shape.name), tuple(inner), tuple(zeros))
    return known[shape.name]


def _inner(field: Field, known: dict[str, _Plan]) -> _Inner | None:
    shape = field.type
    item = shape.item if isinstance(shape, (ListOf, MapOf)) else shape
    if not isinstance(item, Struct):
        return None
    is_written = isinstance(shape, Struct) and not field.is_pointer
    plan = _plan(item, known)
    return _Inner(field.name, type(shape), plan, is_written) if plan or is_written else None


#: Time fields are written when empty, except this one.
_NEVER_ZERO: Final = frozenset([("meta.ObjectMeta", "creationTimestamp")])


def _is_written(field: Field) -> bool:
    """Return True for a field that Go encodes when empty."""
    if field.name in {"apiVersion", "kind"} and field.omits_empty:
        return False
    is_struct_in_go = isinstance(field.type, Scalar) and field.type.letter in "QTU"
    return not field.omits_empty or (is_struct_in_go and not field.is_pointer)


_ZEROS: Final[Mapping[str, Any]] = {"s": "", "i": 0, "b": False, "f": 0, "O": 0, "Q": "0"}


def _complete(plan: _Plan, document: Document, sent: bool) -> None:
    if plan.defaults is not None:
        plan.defaults(document)
    for name, holds, inner, is_written in plan.inner:
        held = document.get(name)
        if held is None:
            if is_written:
                document[name] = held = {}
            else:
                continue
        if holds is Struct:
            if isinstance(held, dict):
                _complete(inner, held, sent)
            continue
        for one in held.values() if isinstance(held, dict) else held if isinstance(held, list) else ():
            if isinstance(one, dict):
                _complete(inner, one, sent)
    for name, zero, is_list in plan.zeros:
        if name not in document or (is_list and not sent and document[name] in ([], {})):
            document[name] = zero


# -- defaults by type --------------------------------------------------------------------------------------------------
# ``field_defaults.json`` has by type and field ``default``, the value of an absent field, or of an empty one with ``empty``.
# Functions set what depends on other fields.


@cache
def _declared() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    rows: Mapping[str, Mapping[str, Mapping[str, Any]]]
    rows = json.loads(text_of("moorage.api.schema", "field_defaults.json"))
    return rows


def _defaults_of(name: str) -> SetDefaults | None:
    """Return the function that sets the defaults of a type; None for a type without defaults."""
    function = _RULES.get(name)
    rows = [(field, rule["default"], rule.get("empty", False)) for field, rule in _declared().get(name, {}).items()]

    def fill(document: Document) -> None:
        for field, default, if_empty in rows:
            held = document.get(field)
            if held is None or (if_empty and not held):
                document[field] = copy.deepcopy(default)
        if function is not None:
            function(document)

    return fill if rows else function


def pulls_always(image: str) -> bool:
    """Return True for an image with the tag "latest" or without a tag or digest, which may change.

    What is no reference to an image has no tag.

    Source  distribution/reference: regexp.go, normalize.go; kubernetes, pkg/util/parsers
    """
    found = _IMAGE.fullmatch(image) if len(image) < _LONGEST_IMAGE else None
    if found is None or _IDENTIFIER.fullmatch(image) or len(found["name"]) > _LONGEST_NAME:
        return False
    return found["tag"] == "latest" or not (found["tag"] or found["digest"])


_WORDS: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST: Final = (
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
)
#: A reference to an image: a host (which has a dot, a port or a capital, or is localhost), a path, a tag and a digest.
_IMAGE: Final = re.compile(
    rf"(?P<name>(?:(?=[^/]*[.:A-Z]|localhost/){_HOST}/)?{_WORDS}(?:/{_WORDS})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_IDENTIFIER: Final = re.compile("[a-f0-9]{64}")
_LONGEST_NAME: Final = 255
_LONGEST_IMAGE: Final = 1024


def _policy(image: Any) -> str:
    return "Always" if pulls_always(str(image or "")) else "IfNotPresent"


def _container(container: Document) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _policy(container.get("image"))


def _volume(volume: Document) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}


def _image(source: Document) -> None:
    if not source.get("pullPolicy"):
        source["pullPolicy"] = _policy(source.get("reference"))


def _pod_spec(spec: Document) -> None:
    # One field under its deprecated and its current name.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _device_request(request: Document) -> None:
    if request.setdefault("allocationMode", "ExactCount") == "ExactCount" and not request.get("count"):
        request["count"] = 1


def _mapped_amounts(device: Document) -> None:
    for held in (device.get("nodeAllocatableResourceMappings") or {}).values():
        if isinstance(held, dict):
            held.setdefault("allocationMultiplier", "1")


def _rounded(*names: str) -> SetDefaults:
    """Return a function that rounds amounts up to thousandths, the finest stored precision."""

    def fill(document: Document) -> None:
        for name in names:
            for resource, amount in (document.get(name) or {}).items():
                if parse(amount) % NANO_PER_MILLI:
                    document[name][resource] = canonical(f"{milli_value(amount)}m")

    return fill


def _both(one: SetDefaults, other: SetDefaults) -> SetDefaults:
    def fill(document: Document) -> None:
        one(document)
        other(document)

    return fill


_RULES: Final[Mapping[str, SetDefaults]] = {
    "core.Container": _container,
    "core.ContainerStatus": _rounded("allocatedResources"),
    "core.EphemeralContainer": _container,
    "core.ImageVolumeSource": _image,
    "core.LimitRangeItem": _rounded("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"),
    "core.NodeStatus": _rounded("capacity", "allocatable"),
    "core.PersistentVolumeClaimStatus": _rounded("capacity", "allocatedResources"),
    "core.PersistentVolumeSpec": _rounded("capacity"),
    "core.PodSpec": _both(_pod_spec, _rounded("overhead")),
    "core.ResourceQuotaSpec": _rounded("hard"),
    "core.ResourceQuotaStatus": _rounded("hard", "used"),
    "core.ResourceRequirements": _rounded("limits", "requests"),
    "core.Volume": _volume,
    "core.VolumeResourceRequirements": _rounded("limits", "requests"),
    "resource.Device": _mapped_amounts,
    "resource.DeviceSubRequest": _device_request,
    "resource.ExactDeviceRequest": _device_request,
}
