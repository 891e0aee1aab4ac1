"""What a notebook shows: answers and clusters as pages in frames, frames as tables, and the notebook of the examples."""

from __future__ import annotations

import asyncio
import html
import json
import re
from pathlib import Path

import pytest

import moorage
from moorage.laboratory.frames import frame_of

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples/notebook/questions.ipynb"


def page_of(shown):
    """The page in the frame of a cell's output."""
    found = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts" style="[^"]*"></iframe>', shown)
    return html.unescape(found[1])


def test_an_answer_is_its_page_and_its_text():
    cluster = moorage.Cluster.read(ROOT / "examples/demo")
    cluster.run()
    answer = cluster.explain("search-2")
    shown = answer._repr_mimebundle_(include=None, exclude=None)
    assert shown["text/plain"] == answer.text()
    page = page_of(shown["text/html"])
    document = re.search(r'<script type="application/json" id="moorage-document">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(document) == json.loads(answer.to_json())


def test_a_cluster_is_its_overview_with_the_map():
    cluster = moorage.Cluster.read(ROOT / "examples/demo")
    before = cluster.digest()
    shown = cluster._repr_mimebundle_()
    assert shown["text/plain"].startswith("2 pods are pending; 7 of 8 nodes take pods")
    context = re.search(r'id="moorage-context">(.*?)</script>', page_of(shown["text/html"]), re.DOTALL)[1]
    assert "general-a1" in json.dumps(json.loads(context)["snapshot"])
    assert cluster.digest() == before


def test_a_frame_is_a_table_of_its_first_rows():
    names = ["<b>", *(f"p{at}" for at in range(1500))]
    shown = frame_of(["name", "cpu"], [(name, 1) for name in names])._repr_html_()
    assert shown.startswith("<table><tr><th>name</th><th>cpu</th></tr><tr><td>&lt;b&gt;</td><td>1</td></tr>")
    assert shown.count("<tr>") == 21
    assert shown.endswith("</table><p>1,501 rows</p>")


def test_a_frame_for_polars_or_pandas():
    frame = frame_of(["name", "cpu"], [("a", 1), ("b", 2)])
    for library, convert in (("polars", frame.to_polars), ("pandas", frame.to_pandas)):
        pytest.importorskip(library)
        assert convert().shape == (2, 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_notebook_of_the_examples_says_what_it_says():
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    stored = nbformat.read(NOTEBOOK, 4)
    notebook = nbformat.read(NOTEBOOK, 4)
    client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}})
    asyncio.run(client.async_execute())
    for before, after in zip(stored.cells, notebook.cells, strict=True):
        texts = [[one.data["text/plain"] for one in cell.get("outputs", [])] for cell in (before, after)]
        assert texts[0] == texts[1], before.source
    pages = [
        one.data for cell in notebook.cells for one in cell.get("outputs", []) if "iframe" in one.data.get("text/html", "")
    ]
    assert len(pages) == 4
