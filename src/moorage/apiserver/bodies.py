"""What a request carries: JSON, YAML or protobuf, one object, within limits.

Source  apiserver, pkg/server/config.go (limits), pkg/endpoints/handlers/create.go
"""

from __future__ import annotations

from typing import Any, Final

from moorage.api.documents import read_json, read_yaml
from moorage.apiserver.kinds import Kind
from moorage.apiserver.protobuf import PROTOBUF, read_protobuf
from moorage.apiserver.records import Document
from moorage.apiserver.statuses import bad_request, unsupported_media
from moorage.errors import InputError

__all__ = ["MAX_BODY", "OBJECT_TYPES", "PATCH_TYPES", "object_of", "read_body"]

#: Largest body of a request, in bytes.
MAX_BODY: Final = 3 << 20

JSON: Final = "application/json"
YAML: Final = "application/yaml"
APPLY: Final = "application/apply-patch+yaml"
OBJECT_TYPES: Final = (JSON, YAML, PROTOBUF)
PATCH_TYPES: Final = (
    "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
)  # fmt: skip


def read_body(body: bytes, media_type: str, accepted: tuple[str, ...], *, strict: bool = False) -> Any:
    """Return the one document of a body, or None for an empty one.

    ``strict`` refuses fields that stand twice.

    Raises  ApiError 415 for a format that is not read here, 400 for what is not in its format
    """
    if media_type not in accepted:
        raise unsupported_media(accepted)
    if not body.strip():
        return None
    if media_type == PROTOBUF:
        return read_protobuf(body)
    reader = read_yaml if media_type.endswith("yaml") else read_json
    try:
        documents = [document.data for document in reader(body, "", strict=strict)]
    except InputError as error:
        why = "; ".join(line.lstrip(":0123456789 ") for line in str(error).splitlines())
        raise bad_request(f"error decoding the body: {why}") from None
    if len(documents) != 1:
        raise bad_request(f"the body holds {len(documents)} documents; it must hold one")
    return documents[0]


def object_of(kind: Kind, document: Any, namespace: str | None, name: str) -> Document:
    """Return a body as an object of the kind, in the namespace and under the name that the path gives.

    Raises  ApiError 400 where body and path contradict each other
    """
    if not isinstance(document, dict) or not isinstance(document.setdefault("metadata", {}), dict):
        raise bad_request(f"the body is no object of kind {kind.kind}")
    given = (document.get("apiVersion") or kind.api_version, document.get("kind") or kind.kind)
    if given != (kind.api_version, kind.kind):
        shown = ", Kind=".join(str(one) for one in given)
        raise bad_request(
            f"{kind.kind} in version {kind.version} cannot be handled as {shown}: the API version or the kind in the data does "
            f"not match what is served here ({kind.api_version}, Kind={kind.kind})"
        )
    document["apiVersion"], document["kind"] = kind.api_version, kind.kind
    metadata = document["metadata"]
    held = metadata.get("namespace") or ""
    if held and held != (namespace or ""):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if name:
        if metadata.setdefault("name", name) != name:
            shown = metadata["name"]
            raise bad_request(f"the name of the object ({shown}) does not match the name on the URL ({name})")
        if namespace:
            metadata["namespace"] = namespace
    return document
