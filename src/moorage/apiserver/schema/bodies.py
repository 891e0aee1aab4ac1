"""What a request carries: JSON, YAML or protobuf, one object, within limits, and fitting its kind.

How a field that the kind does not have, or that stands twice, is met is up to the client: it is dropped in silence, with a
warning, or the request is refused.

Source  apiserver, pkg/server/config.go (limits), pkg/endpoints/handlers/create.go, update.go and rest.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from moorage.api.documents import read_json, read_yaml
from moorage.apiserver.schema.conforming import Misfit, conform
from moorage.apiserver.schema.protobuf import PROTOBUF, read_protobuf
from moorage.apiserver.schema.schemas import Struct, kind_schema
from moorage.apiserver.vocabulary.go_texts import go_word, syntax_fault
from moorage.apiserver.vocabulary.kinds import KINDS, Kind
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.statuses import ApiError, bad_request, unsupported_media
from moorage.errors import InputError

__all__ = [
    "APPLY", "MAX_BODY", "OBJECT_TYPES", "PATCH_TYPES", "Body", "Form", "check_head", "check_name", "check_namespace", "fitted",
    "form_of_kind", "object_of", "other_kind", "read_body", "read_patch",
]  # fmt: skip

#: Largest body of a request, in bytes.
MAX_BODY: Final = 3 << 20
#: How much of a body that cannot be read is shown, in bytes.
_SHOWN: Final = 30

JSON: Final = "application/json"
YAML: Final = "application/yaml"
APPLY: Final = "application/apply-patch+yaml"
OBJECT_TYPES: Final = (JSON, YAML, PROTOBUF)
PATCH_TYPES: Final = (
    "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", APPLY,
)  # fmt: skip


class Body(NamedTuple):
    """The document in a body, None for an empty one, and what stands in it twice, in words.

    ``places`` is where what may be said of each field of such a document belongs, by those words.
    """

    document: Any
    repeats: tuple[str, ...] = ()
    places: Mapping[str, int] = {}


def read_body(body: bytes, media_type: str, accepted: tuple[str, ...], *, kind: str = "", strict: bool = False) -> Body:
    """Return the one document of a body. ``kind`` is what it must be, for refusals.

    ``strict`` looks for fields that stand twice.

    Raises  ApiError 415 for a format that is not read here, 400 for what is not in its format
    """
    if media_type not in accepted:
        raise unsupported_media(accepted)
    try:
        if media_type == PROTOBUF:
            return Body(read_protobuf(body)) if body.strip() else Body({})
        return _read_text(body, media_type, strict)
    except _Unreadable as fault:
        why = str(fault)
    except ApiError as error:
        why = error.message
    raise bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {why} ({_summary(body)})" if kind else why
    )


class _Unreadable(Exception):  # noqa: N818 - never leaves this module
    """What is wrong with a body, in the words of who reads it in Go."""


def _summary(body: bytes) -> str:
    """Return how a body begins."""
    if not body:
        return "<empty>"
    shown = body[:_SHOWN].decode("utf-8", "replace") if body.startswith(b"{") else body[:_SHOWN].hex()
    return f"{shown} ..." if len(body) > _SHOWN else shown


def _read_text(body: bytes, media_type: str, strict: bool) -> Body:
    repeats: tuple[str, ...] = ()
    is_yaml = media_type.endswith("yaml")
    try:
        document = _one_document(body, is_yaml, strict)
    except InputError as error:
        lines = str(error).splitlines()
        repeats = tuple(_placed(line) if is_yaml else _without_place(line) for line in lines)
        if not strict or not all(_tells_of_repeat(line) for line in repeats):
            raise _Unreadable(_fault_of(body, is_yaml, repeats)) from None
        document = _one_document(body, is_yaml, strict=False)
    return Body(_checked_head(document), repeats, _places(body) if repeats and not is_yaml else {})


def _places(body: bytes) -> dict[str, int]:
    """Return the place of every field of a JSON document: as one that is unknown, and as one that stands there again."""
    places: dict[str, int] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _Fields):
            for name, inner in value:
                below = f"{path}.{name}" if path else name
                word = "duplicate" if f'unknown field "{below}"' in places else "unknown"
                places.setdefault(f'{word} field "{below}"', len(places))
                walk(inner, below)
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                walk(inner, f"{path}[{i}]")

    walk(json.loads(body, object_pairs_hook=_Fields), "")
    return places


class _Fields(list[Any]):
    """The fields of an object, those that stand there twice too."""


def _one_document(body: bytes, is_yaml: bool, strict: bool) -> Any:
    """Return what a body holds; nothing at all, and null, are an object without fields. Of YAML the first document counts."""
    if is_yaml:
        found = next((document.data for document in read_yaml(body, "", strict=strict)), None)
        return {} if found is None else found
    documents = [document.data for document in read_json(body, "", strict=strict)] if body.strip() else []
    if len(documents) > 1 or not body.strip():
        raise _Unreadable(_fault_of(body, is_yaml=False, found=()))
    return documents[0] if documents else {}


def _fault_of(body: bytes, is_yaml: bool, found: tuple[str, ...]) -> str:
    if is_yaml:
        return f"yaml: {'; '.join(line.partition(', while ')[0] for line in found)}"
    return f"{_NO_HEAD}{syntax_fault(body) or '; '.join(found)}"


_NO_HEAD: Final = "couldn't get version/kind; json parse error: "
_HEAD: Final = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'


def _checked_head(document: Any) -> Any:
    """Check that a document is an object, and says in words what it is, if it says so at all."""
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
    """Return what is in a patch, which is JSON.

    Raises  ApiError 400 with what is wrong with it
    """
    if fault := syntax_fault(body):
        raise bad_request(fault)
    repeats: tuple[str, ...] = ()
    try:
        documents = [document.data for document in read_json(body, "", strict=strict)]
    except InputError as error:
        repeats = tuple(_without_place(line) for line in str(error).splitlines())
        if not strict or not all(_tells_of_repeat(line) for line in repeats):
            raise bad_request("; ".join(repeats)) from None
        documents = [document.data for document in read_json(body, "")]
    return Body(documents[0] if documents else None, repeats)


def _without_place(line: str) -> str:
    return line.lstrip(":0123456789 ")


def _placed(line: str) -> str:
    """Return a line about YAML with its place as Go's reader spells that."""
    found = _PLACE.match(line)
    return f"line {found[1]}: {line[found.end() :]}" if found else line


_PLACE: Final = re.compile(r":(\d+):(?:\d+:)? ?")


def _tells_of_repeat(line: str) -> bool:
    return line.startswith("duplicate field ") or line.endswith("already set in map")


def _listed(repeats: tuple[str, ...]) -> tuple[str, ...]:
    """Return what stands twice as a strict reader tells of it: YAML's lines under a heading."""
    if repeats and repeats[0].startswith("line "):
        return ("\n".join(["yaml: unmarshal errors:", *(f"  {line}" for line in repeats)]),)
    return repeats


class Form(NamedTuple):
    """What a body must be: its kind, under which version of which group, and its shape."""

    group: str
    version: str
    kind: str
    shape: Struct

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def form_of_kind(kind: Kind) -> Form:
    """Return the form that objects of a kind have."""
    return Form(kind.group, kind.version, kind.kind, kind_schema(kind))


def fitted(form: Form, body: Body, validation: str) -> tuple[Document, tuple[str, ...]]:
    """Return a document as its form has it, and warnings. ``validation`` is Ignore, Warn or Strict.

    Raises  ApiError 400 for values of the wrong type and, where it is strict, for fields that are unknown or stand twice
    """
    check_head(form, body.document)
    subject = f'{form.kind} in version "{form.version}" cannot be handled as a {form.kind}'
    try:
        fit, unknown = conform(form.shape, body.document)
    except Misfit as misfit:
        raise bad_request(f"{subject}: {misfit}") from None
    strange = tuple(f'unknown field "{path}"' for path in unknown)
    repeats = body.repeats
    if body.places:
        repeats = tuple(text for text in repeats if not _is_within(text.split('"')[1], unknown))
    found = sorted((*_listed(repeats), *strange), key=lambda text: body.places.get(text, -1))
    if validation == "Strict" and found:
        raise bad_request(f"{subject}: strict decoding error: {', '.join(found)}")
    return fit, (*repeats, *strange) if validation != "Ignore" else ()


def _is_within(path: str, unknown: Sequence[str]) -> bool:
    """Return whether a field that stands twice is unknown, or inside what is, where nothing is told of it."""
    return any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in unknown)


def object_of(kind: Kind, document: Document, namespace: str | None, name: str) -> Document:
    """Return a body as an object of the kind, in the namespace and under the name that the path gives.

    Raises  ApiError 400 where body and path contradict each other
    """
    if not isinstance(document, dict) or not isinstance(document.setdefault("metadata", {}), dict):
        raise bad_request(f"the body is no object of kind {kind.kind}")
    document = {"kind": "", "apiVersion": "", **document}  # they come first, where lists can leave them out
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
    """Check that a body names no other namespace than its path does.

    Raises  ApiError 400
    """
    held = metadata.get("namespace") or ""
    if namespace and held and held != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def check_name(metadata: Document, name: str) -> None:
    """Check that a body has the name that its path gives.

    Raises  ApiError 400
    """
    held = metadata.get("name")
    if not held:
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if held != name:
        raise bad_request(f"the name of the object ({held}) does not match the name on the URL ({name})")


def check_head(form: Form, document: Document) -> None:
    """Check that a document does not say that it is something else.

    Raises  ApiError 400
    """
    if why := other_kind(form, document):
        found, version = document.get("kind") or form.kind, document.get("apiVersion") or form.api_version
        if why.startswith("the API version"):
            raise bad_request(why)
        raise bad_request(f'{found} in version "{str(version).rpartition("/")[2]}" cannot be handled as a {form.kind}: {why}')


def other_kind(form: Form, document: Document) -> str:
    """Return why a document cannot be what it should be, by what it says it is; nothing where it can."""
    for name in ("apiVersion", "kind"):
        if not isinstance(document.get(name) or "", str):
            return f"json: cannot unmarshal {go_word(document[name])} into Go struct field .{name} of type string"
    version, found = document.get("apiVersion") or form.api_version, document.get("kind") or form.kind
    if (version, found) == (form.api_version, form.kind):
        return ""
    if found == form.kind and "/" in version and version.partition("/")[0] == form.group:
        return f"the API version in the data ({version}) does not match the expected API version ({form.api_version})"
    if any((one.kind, one.api_version) == (found, version) for one in KINDS):
        return f"converting (v1.{found}) to ({form.group.partition('.')[0] or 'core'}.{form.kind}): unknown conversion"
    scheme = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"
    return f'no kind "{found}" is registered for version "{version}" in scheme "{scheme}"'
