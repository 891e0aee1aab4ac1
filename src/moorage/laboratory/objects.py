"""Convert the forms in which programs give objects (API structs, dicts, YAML text, paths) into one.

A string that holds a line break or begins with ``{`` is YAML or JSON text; any other string is a path.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any, TypeAlias

from moorage.api.core import Namespace
from moorage.api.meta import Object
from moorage.basis.inputs.files import InputFile, open_sources
from moorage.basis.inputs.kinds import KINDS
from moorage.basis.inputs.objects import FoundObject, find_objects
from moorage.errors import InputError
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read_objects

__all__ = ["ObjectLike", "documents", "flat_objects", "is_implied", "key_of", "kind_name", "read_given", "text_of"]

#: What functions of the laboratory take for objects.
ObjectLike: TypeAlias = Object | Mapping[str, Any] | str | PathLike[str]

_NAMES = {kind.type: kind.name for kind in KINDS}


def kind_name(obj: Object) -> str:
    """Return the Kubernetes kind of an object."""
    return _NAMES.get(type(obj), type(obj).__name__)


def key_of(obj: Object) -> str:
    """Return ``kind/namespace/name``, or ``kind/name`` for an object without a namespace, with the kind in lower case."""
    return f"{kind_name(obj).lower()}/{obj.key}"


def documents(given: Mapping[str, Any] | str | PathLike[str], where: str) -> Iterator[FoundObject]:
    """Yield the objects of a dict, of YAML or JSON text, or of a file or directory."""
    if isinstance(given, Mapping):
        plain = dict(given)
        yield FoundObject(str(plain.get("apiVersion") or ""), str(plain.get("kind") or ""), plain, where)
        return
    text = text_of(given)
    sources: Iterable[InputFile] = (
        open_sources([os.fspath(given)], recursive=False, stdin=None, skipped=[])
        if text is None
        else [InputFile(where, text.encode())]
    )
    for source in sources:
        yield from find_objects(source)


def text_of(given: str | PathLike[str]) -> str | None:
    """Return YAML or JSON text unchanged; None for a path."""
    return given if isinstance(given, str) and ("\n" in given or given.lstrip().startswith("{")) else None


def is_implied(obj: Object) -> bool:
    """Return True for a bare namespace, which the reader adds for objects in it."""
    return isinstance(obj, Namespace) and obj.metadata.labels == {"kubernetes.io/metadata.name": obj.metadata.name}


def read_given(given: Iterable[ObjectLike], *, validated: bool = True, custom: Iterable[str] = ()) -> ClusterInput:
    """Return the cluster that these describe together, with defaults filled in.

    Raises  InputError for what cannot be read
    """
    return read_objects(_flattened(given), validated=validated, custom=custom)


def _flattened(given: Iterable[ObjectLike]) -> Iterator[Object | FoundObject]:
    for number, one in enumerate(given, 1):
        if isinstance(one, Object):
            yield one
        elif isinstance(one, Mapping | str | PathLike):
            yield from documents(one, f"object {number}")
        else:
            raise InputError(
                f"object {number}: expected an API object, a dict, YAML text or a path, found {type(one).__name__}"
            )


def flat_objects(objects: Iterable[ObjectLike | Iterable[ObjectLike]]) -> Iterator[ObjectLike]:
    """Yield objects, also those in nested iterables.

    Raises  InputError for anything else
    """
    for one in objects:
        if isinstance(one, Object | Mapping | str | PathLike):
            yield one
        elif isinstance(one, Iterable):
            yield from one
        else:
            raise InputError(f"expected objects, found {type(one).__name__}")
