"""Content negotiation: objects, tables or metadata only, as JSON, YAML or protobuf.

A client lists the media types it accepts, with the form as a parameter. The first served type determines the form. The
encoding is JSON whenever the client accepts JSON for any form, as objects are stored as JSON and Kubernetes clients decode
by the response's content type. Otherwise it is YAML or protobuf. Metadata-only responses use the client's preferred
encoding, because Go clients compare single objects with list items, and in protobuf neither carries its kind.

Source  apimachinery, pkg/apis/meta/v1/types.go; apiserver, pkg/endpoints/handlers: response.go, negotiation/negotiate.go
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from moorage.api.documents.records import Record
from moorage.api.documents.statuses import ApiError, not_acceptable
from moorage.api.schema.protobuf import PROTOBUF, write_list, write_protobuf

#: API version of Table and PartialObjectMetadata, and the versions in which they are served.
META: Final = "meta.k8s.io/v1"
META_VERSIONS: Final = ("v1", "v1beta1")
JSON: Final = "application/json"
YAML: Final = "application/yaml"
#: Served media types; the first one answers ``*/*``.
_SERVED: Final = (JSON, YAML, PROTOBUF)
#: Media types of watches.
_STREAMED: Final = tuple(f"{one};stream=watch" for one in (JSON, PROTOBUF))
_METADATA: Final = frozenset(["PartialObjectMetadata", "PartialObjectMetadataList"])


class Accepted(NamedTuple):
    """A negotiated representation. ``form`` is ``Table``, ``PartialObjectMetadata`` (or ``…List``), or "" for full objects;
    ``version`` is that of the form in ``meta.k8s.io``.
    """

    form: str = ""
    encoding: str = JSON
    version: str = META_VERSIONS[0]


class _Clause(NamedTuple):
    types: tuple[str, ...]
    parameters: Mapping[str, str]


@lru_cache(maxsize=256)
def accepted(accept: str, *, streams: bool = False) -> Accepted:
    """Return the representation for an Accept header. ``streams`` selects the types of watches.

    Raises  ApiError 406 if none of the accepted types is served
    """
    if not accept:
        return Accepted()
    served = tuple(one for one in _SERVED if not (streams and one == YAML))
    found = [
        Accepted(form, one, clause.parameters.get("v", META_VERSIONS[0]) if form else META_VERSIONS[0])
        for clause in _clauses(accept, served) for one, form in _forms(clause)
    ]  # fmt: skip
    if not found:
        raise not_acceptable(_STREAMED if streams and _accepts(accept, YAML) else _SERVED)
    takes_json = any(one.encoding == JSON for one in found)
    uses_preference = found[0].form in _METADATA or not takes_json
    return found[0] if uses_preference else found[0]._replace(encoding=JSON)


def check_types(accept: str, *, streams: bool, tables: bool = True, is_routed: bool = False) -> None:
    """Check that a client accepts a type that a path serves, in any form.

    ``streams``: the path also serves watches; ``tables``: it supports tables; ``is_routed``: its handler reports the error, as
    that of custom kinds does.

    Raises  ApiError 406
    """
    if accept and not tables and {form for clause in _clauses(accept, _SERVED) for _, form in _forms(clause)} == {"Table"}:
        raise not_acceptable(_SERVED)
    if accept and not any(_accepts(accept, one) for one in _SERVED):
        if is_routed:
            raise not_acceptable(_SERVED)
        offered = ", ".join((*_SERVED, *_STREAMED) if streams else _SERVED)
        message = f"406: Not Acceptable\n\nAvailable representations: {offered}"
        raise ApiError(406, "NotAcceptable", message, routed=False)


def encoding_of_errors(accept: str) -> str:
    """Return the encoding of an error: the first one that the client accepts for full objects, JSON if there is none."""
    found = [one for clause in _clauses(accept, _SERVED) for one, form in _forms(clause) if not form]
    return found[0] if found else JSON


def _accepts(accept: str, one: str) -> bool:
    names = {part.partition(";")[0].strip() for part in accept.split(",")}
    return not names.isdisjoint({"*/*", "application/*", one})


def _clauses(accept: str, served: tuple[str, ...]) -> Iterator[_Clause]:
    """Yield the accepted and served types in order of preference."""
    read = []
    for part in accept.split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        given = dict(piece.partition("=")[::2] for piece in parameters)
        if types := served if name in {"*/*", "application/*"} else (name,) if name in served else ():
            read.append((_quality(given.pop("q", "1")), _Clause(types, given)))
    yield from (clause for _, clause in sorted(read, key=lambda one: -one[0]))


def _quality(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 1.0


def _forms(clause: _Clause) -> Iterator[tuple[str, str]]:
    """Yield the encodings that a clause allows, with their forms. Tables have no protobuf encoding."""
    given = clause.parameters
    if given.get("stream", "watch") not in {"", "watch"} or given.get("sv", "v1") not in {"", "v1"}:
        return
    form = given.get("as", "") if given.keys() & {"as", "g", "v"} else ""
    is_form = form in _METADATA or form == "Table"
    is_meta = given.get("g") == "meta.k8s.io" and given.get("v") in META_VERSIONS
    if given.keys() & {"as", "g", "v"} and not (is_form and is_meta):
        return
    for one in clause.types:
        if not (form == "Table" and one == PROTOBUF):
            yield one, form


def in_version(version: str, body: bytes) -> bytes:
    """Return the JSON of a table or of metadata with those in it in another version of ``meta.k8s.io``.

    No string contains what is replaced, as quotes in strings are escaped.
    """
    return body if version == META_VERSIONS[0] else body.replace(_IN_META, f'"apiVersion":"meta.k8s.io/{version}",'.encode())


_IN_META: Final = f'"apiVersion":"{META}",'.encode()


def form_of(accept: str) -> str:
    """Return the preferred form: ``Table``, ``PartialObjectMetadata`` (or ``…List``), or "" for full objects."""
    return accepted(accept).form


def encoded_as(encoding: str, body: bytes) -> bytes:
    """Return a JSON body in another encoding.

    Raises  ApiError 406 if the encoding cannot represent it
    """
    if encoding == JSON:
        return body
    document = msgspec.json.decode(body)
    if encoding == YAML:
        return as_yaml(document)
    try:
        return write_protobuf(document)
    except LookupError:
        raise not_acceptable(_SERVED[:2]) from None


def listed_as_protobuf(head: Mapping[str, Any], items: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a list as protobuf from JSON items. Parts are empty while items are being encoded, as the length comes first.

    Raises  ApiError 406, at the first part, if there is no protobuf message for it
    """
    try:
        yield from write_list(head, map(msgspec.json.decode, items))
    except LookupError:
        raise not_acceptable(_SERVED[:2]) from None


def as_yaml(document: Any) -> bytes:
    """Return data as YAML in kube-apiserver's style: sorted keys, and no folded strings."""
    text: str = yaml.dump(
        document, Dumper=_DUMPER, sort_keys=True, allow_unicode=True, default_flow_style=False, width=_UNFOLDED
    )
    return text.encode()


#: Line width that keeps strings unfolded.
_UNFOLDED: Final = 1 << 30
#: Strings that PyYAML writes unquoted, but Go reads as numbers or booleans.
_AMBIGUOUS: Final = re.compile(r"[yYnN]|[-+]?([\d_]*(\.[\d_]*)?([eE][-+]?[\d_]+)?|0_*[bBoOxX][\da-fA-F_]+)", re.ASCII)
_DUMPER: Final[Any] = type("_Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if _AMBIGUOUS.fullmatch(text) else None)


_DUMPER.add_representer(str, _text)


def metadata_of(record: Record) -> bytes:
    """Return an object's metadata as a PartialObjectMetadata."""
    shown = {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": record.document()["metadata"]}
    return msgspec.json.encode(shown)
