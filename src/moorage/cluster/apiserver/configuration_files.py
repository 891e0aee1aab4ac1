"""Files that a flag of kube-apiserver names: YAML with the head of an object."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from moorage.api.reading.manifests import read_first_yaml
from moorage.api.validation.faults import unsupported
from moorage.errors import Fault, InputError


def read_object(flag: str, path: Path) -> dict[str, Any]:
    """Return the first document of a file that a flag names.

    Raises  InputError that names the flag, if the file cannot be read or holds no object
    """
    try:
        found = read_first_yaml(path.read_bytes(), str(path), strict=True)
    except OSError as error:
        raise InputError(f"{flag}: {path}: {error.strerror}") from None
    if not isinstance(found, dict):
        raise InputError(f"{flag}: {path}: expected an object")
    return found


def head_faults(document: Mapping[str, Any], versions: Collection[str], kind: str, where: str = "") -> Iterator[Fault]:
    """Yield the faults of ``apiVersion`` and ``kind``; ``where`` is the path of the document, with a dot at its end."""
    for name, supported in (("apiVersion", versions), ("kind", [kind])):
        if document.get(name) not in supported:
            yield unsupported(f"{where}{name}", document.get(name), supported)
