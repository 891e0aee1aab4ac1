"""The files of the page, built from ``ui/`` and shipped with the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

__all__ = ["LIVE_POLICY", "BundleFile", "bundle_file", "bundle_text"]

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
    return (files("moorage.web") / "bundle" / name).read_text("utf-8")


@cache
def bundle_file(path: str) -> BundleFile | None:
    """Return the file at a path below /ui/; None if there is none."""
    name = _SERVED.get(path)
    if name is None:
        return None
    return BundleFile(_TYPES[name.rpartition(".")[2]], bundle_text(name).encode())
