"""The forms that objects go out in: as they are, as rows of a table, or nothing but their metadata; as JSON, YAML or protobuf.

A client lists the types it accepts, with the form as a parameter of each. The first that is served says the form. What is
sent is JSON wherever the client takes that in any form, as objects are kept so; every client of Kubernetes reads what an
answer says it is. Others get YAML or protobuf, and metadata alone goes out as the client likes it best: Go's clients
compare what they got one by one with what they got in lists, and in protobuf neither says what it is.

Source  apimachinery, pkg/apis/meta/v1/types.go; apiserver, pkg/endpoints/handlers: response.go, negotiation/negotiate.go
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from moorage.apiserver.schema.protobuf import PROTOBUF
from moorage.apiserver.schema.protobuf_encoding import write_list, write_protobuf
from moorage.apiserver.vocabulary.records import Record
from moorage.apiserver.vocabulary.statuses import not_acceptable, not_acceptable_at_all

__all__ = [
    "JSON", "META", "YAML", "Accepted", "accepted", "as_yaml", "check_types", "encoded_as", "form_of", "listed_as_protobuf",
    "metadata_of",
]  # fmt: skip

#: The version of the group that forms belong to.
META: Final = "meta.k8s.io/v1"
JSON: Final = "application/json"
YAML: Final = "application/yaml"
#: What is served, the one that stands for ``*/*`` first.
_SERVED: Final = (JSON, YAML, PROTOBUF)
#: What a watch is served as.
_STREAMED: Final = tuple(f"{one};stream=watch" for one in (JSON, PROTOBUF))
_METADATA: Final = frozenset(["PartialObjectMetadata", "PartialObjectMetadataList"])


class Accepted(NamedTuple):
    """What a client is sent: ``form`` is ``Table``, ``PartialObjectMetadata`` (or ``…List``), or nothing for objects."""

    form: str = ""
    encoding: str = JSON


class _Clause(NamedTuple):
    types: tuple[str, ...]
    parameters: Mapping[str, str]


@lru_cache(maxsize=256)
def accepted(accept: str, *, streams: bool = False) -> Accepted:
    """Return what a client is sent that accepts such types. ``streams`` for a watch.

    Raises  ApiError 406 for one that accepts nothing that is served
    """
    if not accept:
        return Accepted()
    served = tuple(one for one in _SERVED if not (streams and one == YAML))
    found = [Accepted(form, one) for clause in _clauses(accept, served) for one, form in _shown(clause)]
    if not found:
        raise not_acceptable(_STREAMED if streams and _takes(accept, YAML) else _SERVED)
    takes_json = any(one.encoding == JSON for one in found)
    as_liked = found[0].form in _METADATA or not takes_json
    return Accepted(found[0].form, found[0].encoding if as_liked else JSON)


def check_types(accept: str, *, many: bool, tables: bool = True) -> None:
    """Check that a client reads a type that a path offers, in whatever form. ``many`` for paths of collections.

    ``tables`` says whether the path has tables to offer.

    Raises  ApiError 406
    """
    if accept and not tables and {form for clause in _clauses(accept, _SERVED) for _, form in _shown(clause)} == {"Table"}:
        raise not_acceptable(_SERVED)
    if accept and not any(_takes(accept, one) for one in _SERVED):
        raise not_acceptable_at_all((*_SERVED, *_STREAMED) if many else _SERVED)


def _takes(accept: str, one: str) -> bool:
    names = {part.partition(";")[0].strip() for part in accept.split(",")}
    return not names.isdisjoint({"*/*", "application/*", one})


def _clauses(accept: str, served: tuple[str, ...]) -> Iterator[_Clause]:
    """Yield the types that are accepted and served, those the client likes best first."""
    read = []
    for part in accept.split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        given = dict(piece.partition("=")[::2] for piece in parameters)
        match name:
            case "*/*" | "application/*":
                types = served
            case _:
                types = (name,) if name in served else ()
        if types:
            read.append((_liking(given.pop("q", "1")), _Clause(types, given)))
    yield from (clause for _, clause in sorted(read, key=lambda one: -one[0]))


def _liking(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 1.0


def _shown(clause: _Clause) -> Iterator[tuple[str, str]]:
    """Yield the encodings that a clause allows, each with its form. Rows of a table have no protobuf."""
    given = clause.parameters
    if given.get("stream", "watch") not in {"", "watch"} or given.get("sv", "v1") not in {"", "v1"}:
        return
    form = given.get("as", "") if given.keys() & {"as", "g", "v"} else ""
    is_form = form in _METADATA or form == "Table"
    if given.keys() & {"as", "g", "v"} and not (is_form and (given.get("g"), given.get("v")) == ("meta.k8s.io", "v1")):
        return
    for one in clause.types:
        if not (form == "Table" and one == PROTOBUF):
            yield one, form


def form_of(accept: str) -> str:
    """Return the form a client likes best: ``Table``, ``PartialObjectMetadata`` (or ``…List``), or nothing for objects."""
    return accepted(accept).form


def encoded_as(encoding: str, body: bytes) -> bytes:
    """Return an answer, which is JSON, in another encoding.

    Raises  ApiError 406 for what has no such form
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
    """Yield a list as protobuf, given its items as JSON. It begins with its length, so empty parts come while it is encoded.

    Raises  ApiError 406, at the first part, for what has no such form
    """
    try:
        yield from write_list(head, map(msgspec.json.decode, items))
    except LookupError:
        raise not_acceptable(_SERVED[:2]) from None


def as_yaml(document: Any) -> bytes:
    """Return data as YAML, as kube-apiserver writes it: sorted by name, and each text on its line."""
    text: str = yaml.dump(
        document, Dumper=_DUMPER, sort_keys=True, allow_unicode=True, default_flow_style=False, width=_UNFOLDED
    )
    return text.encode()


#: Texts stay on their lines, however long.
_UNFOLDED: Final = 1 << 30
#: Texts that PyYAML writes bare, and that readers in Go take for numbers or truths.
_TAKEN_WRONGLY: Final = re.compile(r"[yYnN]|[-+]?([\d_]*(\.[\d_]*)?([eE][-+]?[\d_]+)?|0_*[bBoOxX][\da-fA-F_]+)", re.ASCII)
_DUMPER: Final[Any] = type("_Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if _TAKEN_WRONGLY.fullmatch(text) else None)


_DUMPER.add_representer(str, _text)


def metadata_of(record: Record) -> bytes:
    """Return an object's metadata as an object of its own."""
    shown = {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": record.document()["metadata"]}
    return msgspec.json.encode(shown)
