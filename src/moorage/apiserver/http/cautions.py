"""Warnings as headers, cut to a length and a number that clients take.

Source  apiserver, pkg/endpoints/filters/warning.go (AddWarning); apimachinery, pkg/util/net/http.go (NewWarningHeader)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["MAX_TOTAL", "MAX_WARNING", "MAX_WARNINGS", "warning_headers"]

#: How many characters of warnings are sent whole, in all; where there are more, each warning is cut to MAX_WARNING.
MAX_TOTAL: Final = 4096
MAX_WARNING: Final = 256
#: How many warnings are sent. Python's http.client takes 100 headers of an answer, and a dozen are others. kube-apiserver has
#: no such limit of its own.
MAX_WARNINGS: Final = 80
#: What no header can hold: control characters, and half of a pair of surrogates.
_UNSENDABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def warning_headers(texts: Iterable[str]) -> list[str]:
    """Return the values of the ``Warning`` headers of an answer: of each text once, if a header can hold it."""
    told = list(dict.fromkeys(text for text in texts if text and not _UNSENDABLE.search(text)))
    if sum(map(len, told)) > MAX_TOTAL:
        told = _cut(told)
    return [f"299 - {_quoted(text)}" for text in told[:MAX_WARNINGS]]


def _cut(texts: list[str]) -> list[str]:
    """Cut each warning, and leave out those after which the total is reached.

    What was there when the total was first passed is sent in any case, as it is by kube-apiserver.
    """
    kept: list[str] = []
    whole = length = 0
    for text in texts:
        if whole > MAX_TOTAL and length >= MAX_TOTAL:
            break
        whole += len(text)
        kept.append(text[:MAX_WARNING])
        length += len(kept[-1])
    return kept


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
