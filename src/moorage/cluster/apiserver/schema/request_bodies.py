"""Decode request bodies: one object in JSON, YAML or protobuf, within limits, normalized to its kind.

The client selects what happens with unknown and duplicate fields: they are dropped silently, dropped with a warning, or
rejected.

Source  apiserver, pkg/server/config.go (limits), pkg/endpoints/handlers/create.go, update.go and rest.go
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from moorage.api.documents.served_kinds import KINDS, CustomVersion, Document, ServedKind
from moorage.api.documents.statuses import ApiError, bad_request, go_word, syntax_fault, unsupported_media
from moorage.api.reading.json_tree import plain_floats, read_written, reads_back
from moorage.api.reading.manifests import read_first_yaml, read_json
from moorage.api.schema.custom_kinds import fit_custom
from moorage.api.schema.field_types import ListOf, MapOf, Scalar, Struct, Type
from moorage.api.schema.go_structs import SENT_EMPTY
from moorage.api.schema.normalization import (
    MAX_UNKNOWN,
    FieldTypeError,
    Place,
    conform,
    path_of,
    steps_of,
)
from moorage.api.schema.protobuf import PROTOBUF, read_protobuf
from moorage.api.schema.schemas import kind_schema
from moorage.api.schema.value_limits import check_text, check_values
from moorage.errors import InputError

# Unknown and duplicate fields of a JSON object, as strict decoding reports them.
#
# They are reported in document order, as Go's decoder does: each once, and at most 100.
#
# Source  sigs.k8s.io/json, internal/golang/encoding/json/kubernetes_patch.go

#: Maximum number of errors that are formatted to find distinct ones.
_MAX_FORMATTED: Final = 10 * MAX_UNKNOWN


class _Fields(list[Any]):
    """The fields of an object as written: pairs of a name and a value."""


def as_written(body: bytes) -> Any:
    """Return a JSON document with duplicate fields preserved, or None if it has none."""
    has_duplicates = False

    def build(pairs: list[tuple[str, Any]]) -> _Fields:
        nonlocal has_duplicates
        has_duplicates = has_duplicates or len(dict(pairs)) != len(pairs)
        return _Fields(pairs)

    found = json.loads(body, object_pairs_hook=build, parse_int=str, parse_float=str)
    return found if has_duplicates else None


def strange_fields(shape: Struct, written: Any) -> tuple[str, ...]:
    """Return the errors for unknown and duplicate fields. The content of unknown fields is not checked."""
    return _first(_strange(shape, written, None))


def repeated_fields(written: Any) -> tuple[str, ...]:
    """Return the errors for duplicate fields of an object of any kind."""
    return _first(_repeated(written, None))


def _first(errors: Iterable[str]) -> tuple[str, ...]:
    distinct: dict[str, None] = {}
    for count, text in enumerate(errors, 1):
        distinct[text] = None
        if len(distinct) == MAX_UNKNOWN or count == _MAX_FORMATTED:
            break
    return tuple(distinct)


def _strange(shape: Type, value: Any, place: Place) -> Iterator[str]:
    if isinstance(value, _Fields):
        if isinstance(shape, (Struct, MapOf)):
            yield from _in_object(shape, value, place)
    elif isinstance(value, list) and isinstance(shape, ListOf) and not isinstance(shape.item, Scalar):
        for i, one in enumerate(value):
            yield from _strange(shape.item, one, (place, i))


def _in_object(shape: Struct | MapOf, fields: _Fields, place: Place) -> Iterator[str]:
    seen: dict[str, bool] = {}
    for name, inner in fields:
        if isinstance(shape, Struct):
            field = shape.fields.get(name)
            held = None if field is None else field.type
        else:
            held = shape.item
        # One error for each name, however often it occurs here.
        if held is None and name not in seen:
            yield f'unknown field "{path_of((place, name))}"'
        elif held is not None and seen.get(name) is False:
            yield f'duplicate field "{path_of((place, name))}"'
        seen[name] = name in seen
        if held is not None:
            yield from _strange(held, inner, (place, name))


def _repeated(value: Any, place: Place) -> Iterator[str]:
    if isinstance(value, _Fields):
        seen: dict[str, bool] = {}
        for name, inner in value:
            if seen.get(name) is False:
                yield f'duplicate field "{path_of((place, name))}"'
            seen[name] = name in seen
            yield from _repeated(inner, (place, name))
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from _repeated(one, (place, i))


#: Maximum size of a request body in bytes.
MAX_BODY: Final = 3 << 20
#: Number of bytes of an undecodable body that the error shows.
_SHOWN_BYTES: Final = 30
#: Maximum number of bytes of an object without a kind that the error shows.
_MOST_SHOWN: Final = 4096

JSON: Final = "application/json"
YAML: Final = "application/yaml"
APPLY: Final = "application/apply-patch+yaml"
OBJECT_TYPES: Final = (JSON, YAML, PROTOBUF)
PATCH_TYPES: Final = (
    "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", APPLY,
)  # fmt: skip


class Body(NamedTuple):
    """A decoded body; its ``document`` is None if empty. Duplicate fields are in ``repeats`` as messages, or in ``written``."""

    document: Any
    repeats: tuple[str, ...] = ()
    written: Any = None


def read_body(body: bytes, media_type: str, accepted: tuple[str, ...], *, kind: str = "", strict: bool = False) -> Body:
    """Return the document of a body. ``kind`` is the expected kind, for error messages.

    ``strict`` looks for duplicate fields.

    Raises  ApiError 415 for an unsupported format, 413 for too many values, 400 for a body that cannot be decoded
    """
    if media_type not in accepted:
        raise unsupported_media(accepted)
    if media_type == JSON:
        check_text(body)
    try:
        if media_type == PROTOBUF and not body:
            raise _Unreadable("empty data")
        read = Body(read_protobuf(body)) if media_type == PROTOBUF else _read_text(body, media_type, strict)
    except (_Unreadable, ApiError) as fault:
        where = f"the object provided is unrecognized (must be of type {kind})"
        raise bad_request(f"{where}: {fault} ({_summary(body)})" if kind else str(fault)) from None
    if media_type != JSON:
        check_values(read.document, len(body))
    return read


class _Unreadable(Exception):  # noqa: N818 - never leaves this module
    """Why a body cannot be decoded, in the words of Go's decoder."""


def check_custom_head(form: BodyForm, document: Document, body: bytes) -> None:
    """Check that an object of a custom kind states its kind and API version, which have no defaults.

    Raises  ApiError 400
    """
    if form.custom is None:
        return
    if not document.get("kind"):
        shown = body[:_MOST_SHOWN].decode("utf-8", "replace")
        why = f"Object 'Kind' is missing in '{shown}' ({_summary(body)})"
        raise bad_request(f"the object provided is unrecognized (must be of type {form.kind}): {why}")
    if not document.get("apiVersion"):
        raise bad_request(f"the API version in the data () does not match the expected API version ({form.api_version})")


def _summary(body: bytes) -> str:
    """Return the beginning of a body."""
    if not body:
        return "<empty>"
    shown = body[:_SHOWN_BYTES].decode("utf-8", "replace") if body.startswith(b"{") else body[:_SHOWN_BYTES].hex()
    return f"{shown} ..." if len(body) > _SHOWN_BYTES else shown


def _read_text(body: bytes, media_type: str, strict: bool) -> Body:
    if not media_type.endswith("yaml"):
        document = _json_document(body)
        return Body(_check_head(document), written=as_written(body) if strict and not reads_back(document, body) else None)
    repeats: tuple[str, ...] = ()
    try:
        document = _yaml_document(body, strict)
    except InputError as error:
        repeats = tuple(map(_with_line, str(error).splitlines()))
        if not strict or not all(line.endswith("already set in map") for line in repeats):
            raise _Unreadable(f"yaml: {'; '.join(line.partition(', while ')[0] for line in repeats)}") from None
        document = _yaml_document(body, strict=False)
    return Body(_check_head(document), repeats)


def _yaml_document(body: bytes, strict: bool) -> Any:
    """Return the first document; an empty one, or null, becomes {}."""
    found = read_first_yaml(body, "", strict=strict)
    return {} if found is None else found


def _json_document(body: bytes) -> Any:
    """Return the single document; null becomes {}."""
    if body.startswith(BOM_UTF8):
        raise _Unreadable(f"{_NO_HEAD}{syntax_fault(body)}")
    try:
        documents = [document for document, _ in read_written(body, "")] if body.strip() else []
    except InputError as error:
        lines = map(_without_place, str(error).splitlines())
        raise _Unreadable(f"{_NO_HEAD}{syntax_fault(body) or '; '.join(lines)}") from None
    if len(documents) > 1 or not body.strip():
        raise _Unreadable(f"{_NO_HEAD}{syntax_fault(body)}")
    return documents[0] if documents and documents[0] is not None else {}


_NO_HEAD: Final = "couldn't get version/kind; json parse error: "
_HEAD: Final = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'


def _check_head(document: Any) -> Any:
    """Check that a document is an object whose kind and API version are strings, if present."""
    if not isinstance(document, dict):
        raise _Unreadable(f"{_NO_HEAD}json: cannot unmarshal {go_word(document)} into Go value of type {_HEAD}")
    for name in ("apiVersion", "kind"):
        value = document.get(name)
        if value is not None and not isinstance(value, str):
            raise _Unreadable(f"{_NO_HEAD}json: cannot unmarshal {go_word(value)} into Go struct field .{name} of type string")
    version = document.get("apiVersion") or ""
    if version.count("/") > 1:
        raise _Unreadable(f"unexpected GroupVersion string: {version}")
    return document


def read_patch(body: bytes, *, strict: bool = False) -> Body:
    """Return the decoded body of a patch, which is JSON.

    Raises  ApiError 413 for too many values, 400 if it cannot be decoded
    """
    check_text(body)
    if fault := syntax_fault(body):
        raise bad_request(fault)
    try:
        documents = [document.data for document in read_json(body, "")]
    except InputError as error:
        raise bad_request("; ".join(map(_without_place, str(error).splitlines()))) from None
    document = documents[0] if documents else None
    written = as_written(body) if strict and not reads_back(document, body) else None
    return Body(document, () if written is None else repeated_fields(written))


def _without_place(line: str) -> str:
    return line.lstrip(":0123456789 ")


def _with_line(line: str) -> str:
    """Return a YAML error with its position in the format of Go's decoder."""
    found = _PLACE.match(line)
    if not found:
        return line
    text = line[found.end() :]
    is_placed = found[1] != "1" or text.startswith(_PLACED)
    return f"line {found[1]}: {text}" if is_placed and "excessive aliasing" not in text else text


_PLACE: Final = re.compile(r":(\d+):(?:\d+:)? ?")
#: Errors that Go's decoder also places in the first line.
_PLACED: Final = ("did not find expected", "key ", "mapping key")


def _as_reported(repeats: tuple[str, ...]) -> tuple[str, ...]:
    """Return messages about duplicate fields as strict decoding reports them. Those of YAML become one with a heading."""
    if repeats and repeats[0].startswith("line "):
        return ("\n".join(["yaml: unmarshal errors:", *(f"  {line}" for line in repeats)]),)
    return repeats


class BodyForm(NamedTuple):
    """The expected form of a body: group, version, kind and schema; ``custom`` is set for a custom kind.

    ``others``: API versions, such as ``policy/v1beta1``, in which the body may also be; they have the same fields.
    """

    group: str
    version: str
    kind: str
    shape: Struct
    custom: CustomVersion | None = None
    others: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def form_of_kind(kind: ServedKind) -> BodyForm:
    """Return the form of a kind's objects."""
    return BodyForm(kind.group, kind.version, kind.kind, kind_schema(kind), kind.custom)


def fit(form: BodyForm, document: Any, *, wraps: bool = False) -> tuple[Document, list[str]]:
    """Return a document normalized to its form, and the paths of unknown fields. ``wraps`` is that of ``conform``.

    Raises  FieldTypeError for a value of the wrong type
    """
    if form.custom is not None:
        return fit_custom(form.custom.schema, _without_texts(document))
    emptied: list[tuple[Place, Any]] = []
    made = conform(form.shape, document, emptied, wraps=wraps)
    if emptied or SENT_EMPTY.get():
        SENT_EMPTY.set(tuple((steps_of(place), empty) for place, empty in emptied[:_MOST_EMPTY]))
    return made


def _without_texts(document: Any) -> Any:
    try:
        return plain_floats(document)
    except OverflowError as beyond:
        raise FieldTypeError(f"json: cannot unmarshal number {beyond} into Go value of type float64") from None


#: So many empty lists and maps of a body are shown in messages.
_MOST_EMPTY: Final = 1000


def normalized_body(form: BodyForm, body: Body, validation: str) -> tuple[Document, tuple[str, ...]]:
    """Return the document normalized to its form, and warnings. ``validation`` is Ignore, Warn or Strict.

    Raises  ApiError 400 for values of the wrong type and, with Strict, for unknown or duplicate fields
    """
    check_kind(form, body.document)
    subject = f'{form.kind} in version "{form.version}" cannot be handled as a {form.kind}'
    try:
        fitted, unknown = fit(form, body.document)
    except FieldTypeError as misfit:
        raise bad_request(f"{subject}: {misfit}") from None
    unknown_fields = tuple(f'unknown field "{path}"' for path in unknown)
    if body.written is not None and form.custom is None:
        warnings = found = strange_fields(form.shape, body.written)
    elif body.written is not None:
        warnings = found = (*repeated_fields(body.written), *unknown_fields)
    else:
        warnings, found = (*body.repeats, *unknown_fields), (*_as_reported(body.repeats), *unknown_fields)
    if validation == "Strict" and found:
        raise bad_request(f"{subject}: strict decoding error: {', '.join(found)}")
    return fitted, warnings if validation != "Ignore" else ()


def object_of(kind: ServedKind, document: Document, namespace: str | None, name: str) -> Document:
    """Return a body as an object of the kind, with the namespace and name of the path.

    Raises  ApiError 400 if body and path contradict each other
    """
    if not isinstance(document, dict) or not isinstance(document.setdefault("metadata", {}), dict):
        raise bad_request(f"the body is no object of kind {kind.kind}")
    document = {"kind": "", "apiVersion": "", **document}  # kind and version come first, where lists can cut them off
    document |= {"kind": kind.kind, "apiVersion": kind.api_version}
    metadata = document["metadata"]
    check_namespace(metadata, namespace)
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    if name:
        check_name(metadata, name)
    return document


def check_namespace(metadata: Document, namespace: str | None) -> None:
    """Check that the body's namespace does not differ from the path's.

    Raises  ApiError 400
    """
    held = metadata.get("namespace") or ""
    if namespace and held and held != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def check_name(metadata: Document, name: str) -> None:
    """Check that the body has the name in the path.

    Raises  ApiError 400
    """
    held = metadata.get("name")
    if not held:
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if held != name:
        raise bad_request(f"the name of the object ({held}) does not match the name on the URL ({name})")


def check_kind(form: BodyForm, document: Document) -> None:
    """Check that a document's kind and version are the expected ones, if present.

    Raises  ApiError 400
    """
    if why := kind_mismatch(form, document):
        found, version = document.get("kind") or form.kind, document.get("apiVersion") or form.api_version
        if why.startswith("the API version"):
            raise bad_request(why)
        raise bad_request(f'{found} in version "{str(version).rpartition("/")[2]}" cannot be handled as a {form.kind}: {why}')


#: Kinds of bodies that are not stored.
_REGISTERED: Final = frozenset([
    ("authentication.k8s.io/v1", "TokenRequest"), ("autoscaling/v1", "Scale"), ("policy/v1", "Eviction"), ("v1", "Binding"),
    ("v1", "List"), ("v1", "Status"),
])  # fmt: skip


def kind_mismatch(form: BodyForm, document: Document) -> str:
    """Return why a document's kind or version is not the expected one, or ""."""
    for name in ("apiVersion", "kind"):
        if not isinstance(document.get(name) or "", str):
            return f"json: cannot unmarshal {go_word(document[name])} into Go struct field .{name} of type string"
    version, found = document.get("apiVersion") or form.api_version, document.get("kind") or form.kind
    if found == form.kind and version in {form.api_version, *form.others}:
        return ""
    if found == form.kind and "/" in version and version.partition("/")[0] == form.group:
        return f"the API version in the data ({version}) does not match the expected API version ({form.api_version})"
    if (version, found) in _REGISTERED or any((one.kind, one.api_version) == (found, version) for one in KINDS):
        return f"converting (v1.{found}) to ({form.group.partition('.')[0] or 'core'}.{form.kind}): unknown conversion"
    scheme = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"
    return f'no kind "{found}" is registered for version "{version}" in scheme "{scheme}"'
