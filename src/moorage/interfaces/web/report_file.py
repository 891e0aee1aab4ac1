"""Write answers as one HTML file that needs no network: the built page with the documents in it.

The documents are data in the page, never markup: the characters that could end their element are escaped, and the page's policy
allows no script but its own.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from moorage.basis.printable import one_line

__all__ = ["LIVE_POLICY", "bundle_file", "bundle_text", "framed_page", "report_page", "write_page"]


# -- bundle files ------------------------------------------------------------------------------------------------------
# The files of the page, built from ``ui/`` and shipped with the package.

#: The Content-Security-Policy of the live page: no script, style or request from or to another place.
LIVE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'none'"
)
_TYPES: Final = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
#: Paths below /ui/ → files of the bundle.
_SERVED: Final = {"": "app.html", "app.js": "app.js", "app.css": "app.css", "report.html": "report.html"}


class BundleFile(NamedTuple):
    media: str
    body: bytes


def bundle_text(name: str) -> str:
    """Return the text of a file of the bundle."""
    return (files("moorage.interfaces.web") / "bundle" / name).read_text("utf-8")


@cache
def bundle_file(path: str) -> BundleFile | None:
    """Return the file at a path below /ui/; None if there is none."""
    name = _SERVED.get(path)
    if name is None:
        return None
    return BundleFile(_TYPES[name.rpartition(".")[2]], bundle_text(name).encode())


# -- report file -------------------------------------------------------------------------------------------------------

#: Maximum size of a snapshot in a file, in bytes.
MOST_SNAPSHOT: Final = 5 << 20
_TITLE: Final = "<!--moorage-title-->"
_DOCUMENT: Final = "<!--moorage-document-->"
_MARKUP: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def report_page(
    documents: Sequence[Mapping[str, Any]], command: str = "", snapshot: Mapping[str, Any] | None = None
) -> str:  # fmt: skip
    """Return the page of some documents. ``command`` is shown as the way to repeat it; ``snapshot`` is the cluster of maps."""
    whole = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
    title = str(documents[0].get("summary", "Moorage")) if len(documents) == 1 else f"{len(documents)} answers"
    context: dict[str, Any] = {"command": command} if command else {}
    if snapshot is not None and len(json.dumps(snapshot)) <= MOST_SNAPSHOT:
        context["snapshot"] = snapshot
    before, _, rest = bundle_text("report.html").partition(_TITLE)
    middle, _, after = rest.partition(_DOCUMENT)
    data = _data("moorage-document", whole) + (_data("moorage-context", context) if context else "")
    return f"{before}{html.escape(one_line(title))}{middle}{data}{after}"


def framed_page(documents: Sequence[Mapping[str, Any]], snapshot: Mapping[str, Any] | None = None) -> str:
    """Return the page of some documents as a frame, for the output of a notebook's cell. It can reach nothing outside."""
    page = html.escape(report_page(documents, snapshot=snapshot))
    return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width:100%;height:36em;border:0"></iframe>'


def write_page(path: str | PathLike[str], documents: Sequence[Mapping[str, Any]]) -> None:
    """Write the page of some documents to a file."""
    Path(path).write_text(report_page(documents), encoding="utf-8")


def _data(name: str, document: Mapping[str, Any]) -> str:
    """Return an element with a document as JSON in ASCII."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).translate(_MARKUP)
    return f'<script type="application/json" id="{name}">{text}</script>\n'
