"""What a request carries: JSON, YAML or protobuf, one object, within limits, and fitting its kind.

How a field that the kind does not have, or that stands twice, is met is up to the client: it is dropped in silence, with a
warning, or the request is refused.

Source  apiserver, pkg/server/config.go (limits), pkg/endpoints/handlers/create.go, update.go and rest.go
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from moorage.api.documents import read_json, read_yaml
from moorage.apiserver.conforming import Misfit, conform
from moorage.apiserver.kinds import KINDS, Kind
from moorage.apiserver.protobuf import PROTOBUF, read_protobuf
from moorage.apiserver.records import Document
from moorage.apiserver.schemas import kind_schema
from moorage.apiserver.statuses import bad_request, unsupported_media
from moorage.errors import InputError

__all__ = ["APPLY", "MAX_BODY", "OBJECT_TYPES", "PATCH_TYPES", "Body", "fitted", "object_of", "read_body"]

#: Largest body of a request, in bytes.
MAX_BODY: Final = 3 << 20

JSON: Final = "application/json"
YAML: Final = "application/yaml"
APPLY: Final = "application/apply-patch+yaml"
OBJECT_TYPES: Final = (JSON, YAML, PROTOBUF)
PATCH_TYPES: Final = (
    "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", APPLY,
)  # fmt: skip


class Body(NamedTuple):
    """The document in a body, None for an empty one, and what stands in it twice, in words."""

    document: Any
    repeats: tuple[str, ...] = ()


def read_body(body: bytes, media_type: str, accepted: tuple[str, ...], *, strict: bool = False) -> Body:
    """Return the one document of a body. ``strict`` looks for fields that stand twice.

    Raises  ApiError 415 for a format that is not read here, 400 for what is not in its format
    """
    if media_type not in accepted:
        raise unsupported_media(accepted)
    if not body.strip():
        return Body(None)
    if media_type == PROTOBUF:
        return Body(read_protobuf(body))
    try:
        return Body(_one_document(body, media_type, strict))
    except InputError as error:
        repeats = tuple(_without_place(line) for line in str(error).splitlines())
        if not strict or not all(_tells_of_repeat(line) for line in repeats):
            raise bad_request(f"error decoding the body: {'; '.join(repeats)}") from None
    return Body(_one_document(body, media_type, strict=False), repeats)


def _one_document(body: bytes, media_type: str, strict: bool) -> Any:
    reader = read_yaml if media_type.endswith("yaml") else read_json
    documents = [document.data for document in reader(body, "", strict=strict)]
    if len(documents) != 1:
        raise bad_request(f"the body holds {len(documents)} documents; it must hold one")
    return documents[0]


def _without_place(line: str) -> str:
    return line.lstrip(":0123456789 ")


def _tells_of_repeat(line: str) -> bool:
    return line.startswith("duplicate field ") or line.endswith("already set in map")


def fitted(kind: Kind, document: Any, repeats: tuple[str, ...], validation: str) -> tuple[Any, tuple[str, ...]]:
    """Return a document as its kind has it, and warnings. ``validation`` is Ignore, Warn or Strict.

    Raises  ApiError 400 for values of the wrong type and, where it is strict, for fields that are unknown or stand twice
    """
    if not isinstance(document, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): it is no object")
    _check_type(kind, document)
    subject = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
    try:
        fit, unknown = conform(kind_schema(kind), document)
    except Misfit as misfit:
        raise bad_request(f"{subject}: {misfit}") from None
    found = (*repeats, *(f'unknown field "{path}"' for path in unknown)) if validation != "Ignore" else ()
    if found and validation == "Strict":
        raise bad_request(f"{subject}: strict decoding error: {', '.join(found)}")
    return fit, found


def object_of(kind: Kind, document: Any, namespace: str | None, name: str) -> Document:
    """Return a body as an object of the kind, in the namespace and under the name that the path gives.

    Raises  ApiError 400 where body and path contradict each other
    """
    if not isinstance(document, dict) or not isinstance(document.setdefault("metadata", {}), dict):
        raise bad_request(f"the body is no object of kind {kind.kind}")
    document["apiVersion"], document["kind"] = kind.api_version, kind.kind
    metadata = document["metadata"]
    held = metadata.get("namespace") or ""
    if namespace and held and held != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    if name:
        if not metadata.get("name"):
            raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
        if metadata["name"] != name:
            shown = metadata["name"]
            raise bad_request(f"the name of the object ({shown}) does not match the name on the URL ({name})")
    return document


def _check_type(kind: Kind, document: Document) -> None:
    version, found = document.get("apiVersion") or kind.api_version, document.get("kind") or kind.kind
    if found == kind.kind and version != kind.api_version:
        why = f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        raise bad_request(why)
    if found != kind.kind:
        short = str(version).rpartition("/")[2]
        raise bad_request(
            f'{found} in version "{short}" cannot be handled as a {kind.kind}: {_other_kind(kind, found, version)}'
        )


def _other_kind(kind: Kind, found: str, version: str) -> str:
    if any((one.kind, one.api_version) == (found, version) for one in KINDS):
        return f"converting (v1.{found}) to ({kind.group.partition('.')[0] or 'core'}.{kind.kind}): unknown conversion"
    scheme = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"
    return f'no kind "{found}" is registered for version "{version}" in scheme "{scheme}"'
