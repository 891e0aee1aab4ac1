"""The files of the page, built from ``ui/`` and shipped with the package."""

from __future__ import annotations

from functools import cache
from typing import Final

from moorage.basis import folder_of

#: The Content-Security-Policy of the live page: no script, style or request from or to another place.
LIVE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'none'"
)
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
}
#: Paths below /ui/ → files of the bundle.
_SERVED: Final = {"": "app.html"} | {name: name for name in ("app.js", "app.css", "report.html", "licenses.txt")}


def bundle_text(name: str) -> str:
    """Return the text of a file of the bundle."""
    return (folder_of("moorage.interfaces.web") / "bundle" / name).read_text("utf-8")


@cache
def bundle_file(path: str) -> tuple[str, bytes] | None:
    """Return the media type and the content of the file at a path below /ui/; None if there is none."""
    name = _SERVED.get(path)
    return None if name is None else (_TYPES[name.rpartition(".")[2]], bundle_text(name).encode())
