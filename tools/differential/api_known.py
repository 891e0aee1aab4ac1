"""Differences from kube-apiserver that are on purpose, each with its reason. `docs/reference/api-server.md` lists them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tools.differential.api_answers import Difference, Request, masked

__all__ = ["known"]


class _Known(NamedTuple):
    """A difference on purpose: what its place, our value and the reference's look like, and why it is there."""

    reason: str
    at: str = ""
    here: str = ""
    there: str = ""
    aspect: str = ""
    kind: str = ""


_KNOWN: Final = (
    _Known("columns of tables have descriptions of our own", at=r"columnDefinitions\[\]\.description$"),
    _Known("kube-apiserver itself writes the status of flow schemas", at=r"managedFields|status", kind="flowschemas"),
    _Known("the text of a refused patch has its fields in another order", at=r"^\.message$", there=r"patch: Invalid value: "),
    _Known("kube-apiserver closes the connection where it fails", there=r"^0 ", aspect="code"),
)
_INVALID: Final = re.compile(r" is invalid: \[?(.*?)\]?$", re.DOTALL)
_KEY: Final = re.compile(r"\[(?!\d+\])[^\]]*\]")
_FAULTS: Final = re.compile(r", (?=[a-z<][^ ]*: [A-Z])")


def known(request: Request, found: Difference) -> str:
    """Return the reason of a difference on purpose, "" for another one."""
    for one in _KNOWN:
        if one.aspect in {"", found.aspect} and all(
            re.search(pattern, text)
            for pattern, text in (
                (one.at, found.at), (one.here, found.here), (one.there, found.there), (one.kind, request.kind),
            )
        ):  # fmt: skip
            return one.reason
    here, there = (_faults_of(text) for text in (found.here, found.there))
    if found.at == ".message" and here and sorted(here) == sorted(there) and _places_of(here) == _places_of(there):
        return "the faults of the keys of a map have another order"
    return ""


def _faults_of(message: str) -> list[str]:
    """Return the faults that a message names."""
    found = _INVALID.search(masked(message))
    return _FAULTS.split(found[1]) if found else []


def _places_of(faults: list[str]) -> list[str]:
    """Return the fields of faults without the keys of maps."""
    return [_KEY.sub("[]", fault.partition(": ")[0]) for fault in faults]
