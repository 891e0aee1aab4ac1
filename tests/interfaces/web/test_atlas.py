"""The atlas on the page: an event leads to what it may stand for, and a text finds it."""

import re

from moorage.interfaces.web.atlas_route import atlas_document
from moorage.report.atlas import entries, find_entries
from tests.interfaces.web.test_site import a_store, browse

EVENT = "0/7 nodes are available: 3 Insufficient cpu, 4 node(s) had untolerated taint {dedicated: db}."


def test_an_event_has_the_situations_of_the_command_line():
    found = atlas_document(EVENT)
    assert [one["name"] for one in found["entries"]] == [one.name for one in find_entries(EVENT)]
    assert found["entries"][0].keys() >= {"title", "cause", "do", "avoid"}
    assert [one["name"] for one in atlas_document("")["entries"]] == [one.name for one in entries()]
    assert atlas_document("nothing of the sort")["entries"] == []
    assert len(atlas_document("x" * 100_000)["event"]) < 10_000


def test_the_route_needs_a_session():
    async def test(browser, store):
        assert (await browser.get("/lab/v1/atlas"))[0] == 401
        await browser.enter()
        status, found = await browser.get("/lab/v1/atlas?event=3+Insufficient+cpu")
        assert status == 200
        assert found["kind"] == "Atlas"
        assert found["entries"][0]["name"] == "insufficient-cpu"

    browse(test, a_store())


def test_the_page_has_a_route_for_what_it_asks():
    """The page asks for ``atlas``; its source and the server agree on the name."""
    from pathlib import Path

    page = (Path(__file__).parents[3] / "ui" / "src" / "pages" / "atlas.tsx").read_text("utf-8")
    assert re.search(r"get<Atlas>\(`atlas\?", page)
