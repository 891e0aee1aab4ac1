"""``Warning`` headers, limited in length and number so that clients accept the response.

Source  apiserver, pkg/endpoints/filters/warning.go (AddWarning); apimachinery, pkg/util/net/http.go (NewWarningHeader)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["MAX_TOTAL", "MAX_WARNING", "MAX_WARNINGS", "warning_headers"]

#: Total number of characters up to which warnings are sent in full; beyond it, each is truncated to MAX_WARNING.
MAX_TOTAL: Final = 4096
MAX_WARNING: Final = 256
#: Maximum number of warnings. Python's http.client accepts 100 headers in a response, of which about a dozen are
#: others. kube-apiserver has no such limit.
MAX_WARNINGS: Final = 80
#: Characters that a header cannot contain: control characters and lone surrogates.
_UNSENDABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def warning_headers(texts: Iterable[str]) -> list[str]:
    """Return the values of a response's ``Warning`` headers: one per distinct text that a header can contain."""
    unique = list(dict.fromkeys(text for text in texts if text and not _UNSENDABLE.search(text)))
    if sum(map(len, unique)) > MAX_TOTAL:
        unique = _truncated(unique)
    return [f"299 - {_quoted(text)}" for text in unique[:MAX_WARNINGS]]


def _truncated(texts: list[str]) -> list[str]:
    """Truncate each warning, and drop those after the one that reaches the total.

    Warnings collected before the full texts first exceeded the total are always sent, as in kube-apiserver.
    """
    kept: list[str] = []
    full_length = length = 0
    for text in texts:
        if full_length > MAX_TOTAL and length >= MAX_TOTAL:
            break
        full_length += len(text)
        kept.append(text[:MAX_WARNING])
        length += len(kept[-1])
    return kept


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
