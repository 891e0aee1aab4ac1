"""The forms that objects go out in: as they are, as rows of a table, or nothing but their metadata.

A client says which by parameters of the types it accepts, the form it likes best first.

Source  apimachinery, pkg/apis/meta/v1/types.go; apiserver, pkg/endpoints/handlers/response.go
"""

from __future__ import annotations

from typing import Final

import msgspec

from moorage.apiserver.records import Record

__all__ = ["META", "form_of", "metadata_of"]

#: The version of the group that forms belong to.
META: Final = "meta.k8s.io/v1"
_FORMS: Final = frozenset(["PartialObjectMetadata", "PartialObjectMetadataList", "Table"])


def form_of(accept: str) -> str:
    """Return the form a client likes best: ``Table``, ``PartialObjectMetadata`` (or ``…List``), or nothing for objects."""
    _, *parameters = (part.strip() for part in accept.partition(",")[0].split(";"))
    asked = dict(parameter.partition("=")[::2] for parameter in parameters)
    is_known = asked.get("g") == "meta.k8s.io" and asked.get("v") == "v1" and asked.get("as") in _FORMS
    return asked["as"] if is_known else ""


def metadata_of(record: Record) -> bytes:
    """Return an object's metadata as an object of its own."""
    shown = {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": record.document()["metadata"]}
    return msgspec.json.encode(shown)
