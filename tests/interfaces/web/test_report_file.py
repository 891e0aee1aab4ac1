"""Answers as HTML files: the documents are in them as data, and nothing in a name can become markup."""

import json
import re
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner

from moorage.interfaces.cli.main import cli
from moorage.interfaces.web.site import report_page

HOSTILE = '</script><script>alert(1)</script><!-- \u2028\u2029\u202e " & <img src=x onerror=alert(1)>'


class Scripts(HTMLParser):
    """Collects the scripts and the other tags of a page."""

    def __init__(self):
        super().__init__()
        self.scripts, self.tags, self.title = {}, [], ""
        self._in = None

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "script":
            self._in = dict(attrs).get("id", "code")
            self.scripts[self._in] = ""
        elif tag == "title":
            self._in = "title"

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in == "title":
            self.title += data
        elif self._in is not None:
            self.scripts[self._in] += data


def parsed(page):
    found = Scripts()
    found.feed(page)
    return found


def test_hostile_names_stay_data():
    document = {"kind": "Explanation", "summary": HOSTILE, "answer": {HOSTILE: [HOSTILE]}}
    page = report_page([document], f"moorage explain '{HOSTILE}'", {"nodes": {"name": [HOSTILE]}})
    plain = parsed(report_page([{"summary": "x"}], "x", {}))
    found = parsed(page)
    assert json.loads(found.scripts["moorage-document"]) == document
    assert json.loads(found.scripts["moorage-context"])["snapshot"]["nodes"]["name"] == [HOSTILE]
    assert found.tags == plain.tags
    assert found.scripts["code"] == plain.scripts["code"]
    assert "<" in found.title  # escaped in the page
    data = re.search(r'id="moorage-document">(.*?)</script>', page).group(1)
    assert data.isascii()
    assert not set("<>&") & set(data)


def test_several_answers_are_a_list_and_a_large_snapshot_is_left_out():
    found = parsed(report_page([{"summary": "a"}, {"summary": "b"}], "", {"big": "x" * (6 << 20)}))
    assert [one["summary"] for one in json.loads(found.scripts["moorage-document"])["items"]] == ["a", "b"]
    assert "moorage-context" not in found.scripts


COMMANDS = {
    "explain": ["explain", "search-2", "--probes", "0"],
    "report": ["report", "--by-engine", "0"],
    "drain": ["drain", "general-a1", "--ignore-daemonsets"],
    "fail": ["fail", "general-a1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_command_prints_the_document_in_a_page(words, monkeypatch):
    run = CliRunner()
    monkeypatch.setattr("sys.argv", ["moorage", *words])
    page = run.invoke(cli, [*words, "-f", "examples/demo", "-o", "html"])
    document = json.loads(run.invoke(cli, [*words, "-f", "examples/demo", "-o", "json"]).stdout)
    found = parsed(page.stdout)
    assert json.loads(found.scripts["moorage-document"]) == document
    context = json.loads(found.scripts["moorage-context"])
    assert context["command"].startswith("moorage ")
    if words[0] != "explain":
        assert len(context["snapshot"]["nodes"]["name"]) == 8
