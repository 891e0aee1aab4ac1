"""The atlas of pending pods for the pages: the situations whose events are most like a text."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from moorage.interfaces.web.site import Site, Visitor, json_response
from moorage.report.atlas import entries, find_entries

#: The longest text of an event that is looked up, in characters.
_MOST_TEXT: Final = 8192


def atlas_document(event: str) -> dict[str, Any]:
    """Return the situations that an event may stand for, the closest first; without an event, the titles of all."""
    found = find_entries(event[:_MOST_TEXT]) if event else entries()
    shown = [{"name": one.name, "title": one.title, "event": one.event} for one in found]
    if event:
        shown = [msgspec.to_builtins(one) for one in found]
    return {"apiVersion": "moorage.dev/v1", "kind": "Atlas", "event": event[:_MOST_TEXT], "entries": shown}


class AtlasRoute:
    """Adds the route to a site."""

    def __init__(self, site: Site) -> None:
        site.route("GET", "/lab/v1/atlas", self._atlas)

    async def _atlas(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        await visitor.check("list", "nodes")
        return json_response(atlas_document(request.query.get("event", "").strip()))
