"""The quick reader of block-style YAML gives what libyaml's events give: the same trees, lines, limits and faults."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.yaml_reading import pods_as_yaml
from moorage.api.reading import yaml_blocks as yaml_lines
from moorage.api.reading import yaml_tree
from moorage.api.reading.yaml_blocks import BlockReader
from moorage.api.reading.yaml_tree import default_parser, read_tree
from moorage.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


def outcome(text, parser, *, strict=True):
    """Return the documents with their lines, and the fault if there is one. ``repr`` tells 1 from True and 1.0."""
    documents = []
    try:
        documents += (repr(found) for found in read_tree(text.encode(), "f", strict=strict, parser=parser))
    except InputError as error:
        return documents, str(error)
    return documents, None


def assert_agrees(text):
    for strict in (True, False):
        assert outcome(text, None, strict=strict) == outcome(text, default_parser(), strict=strict)


def is_quick(text):
    """Say whether all documents are read without handing a whole one to libyaml."""
    found = yaml_tree._lines_of_text(text.encode())
    reader = BlockReader(partial(yaml_tree._read_part, default_parser()))
    tree = yaml_tree._Tree("f", strict=True)
    return found is not None and yaml_tree._block_document(found.split("\n"), reader, tree) is not None


QUICK = {
    "nested mappings": "a:\n  b:\n    c: 1\n  d: x y\ne: true\n",
    "lists at the column of their key": "a:\n- b: 1\n  c: 2\n-   d: 3\n    e: 4\n- f\n-\n- - g\n  - h\ni: 5\n",
    "lists further in": "a:\n  - 1\n  -\n    b: c\n  - d:\n      e: f\nz:\n",
    "a list": "- 1\n- a: b\n",
    "empty collections": "a: {}\nb: []\nc:\n- {}\n- []\n",
    "quotes": "'a': 'it''s'\n\"b\": \"c: d\"\ne: \"\\u00e9\"\n",
    "text over several lines": "a: |\n  b: c\n\n  # d\ne: >-\n  f\n\n  g\nh: i\n  j\nk:\n- |+\n  l\n\n- m\n",
    "words of YAML 1.1": "yes: no\n1: 0777\n~x: 1_000\nb: 2026-01-01\nc: 1e3\nd: 0x1f\ne: null\n",
    "comments": "# a\na: 1 # b\n  # c\nb: # d\n  c: 1\n\n# e\n",
    "flow style": "a: {b: c, d: [1, 2]}\ne:\n- {f: g}\n- [h,\n   i]\n",
    "keys with blanks": "a b: c\nd: e\nf:\n  g: h\n  i j: k\n",
    "Windows names and addresses": "a: C:\\x\nb: http://x:80/y#z\nc: 10.0.0.0/8\nd: -5\ne: --flag=x\n",
    "other alphabets": "é: ü\nz: 日本\n",
}
UNUSUAL = {
    "an anchor": "a: &x 1\nb: *x\n",
    "a merge key": "a: &x {b: 1}\nc:\n  <<: *x\n",
    "merging in flow style": "a: 1\n<<: {b: 1}\n",
    "a duplicate key": "a: 1\na: 2\n",
    "a flow mapping after an entry": "a: 1\n{b: c}\n",
    "a tagged mapping after an entry": "a: 1\n!!map {b: c}\n",
    "a flow list after an item": "- a\n[b]\n",
    "a complex key": "? a\n: b\n",
    "a null key": "~: 1\n",
    "a long key": f"{'k' * 2000}: 1\n",
    "a scalar": "a\n",
    "an empty document": "",
    "wrong indentation": "a:\n    b: 1\n  c: 2\n",
    "a tab": "a:\n\tb: 1\n",
    "a mapping after text": "a: b\n  c: d\n",
    "a list that starts late": "a: b\n- c\n",
    "a list in the line of its key": "a: - b\n",
    "text after a comment": "a: b\n# c\n  d\n",
    "an open quote": "a: 'b\nc: d\n",
    "carriage returns": "a: 1\r\nb: 2\r\n",
    "a line separator": "a: b\u2028c\n",
    "an escape character": "a: \x1b\n",
    "a directive": "%YAML 1.1\n---\na: 1\n",
    "an end": "a: 1\n...\nb: 2\n",
    "not a number": "a: .nan\n",
    "deep nesting": "".join(f"{' ' * n}a:\n" for n in range(110)),
    "many parts": "\n".join(f"k{n}: [1]" for n in range(99)),
}


@pytest.mark.parametrize("text", QUICK.values(), ids=QUICK)
def test_usual_documents_are_read_line_by_line(text):
    assert is_quick(text)
    assert_agrees(text)
    assert_agrees(f"# first\n{text}---\n{text}--- \n{text}---\n")


@pytest.mark.parametrize("text", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_documents_are_left_to_libyaml(text):
    assert not is_quick(text)
    assert_agrees(text)
    assert_agrees(f"a: 1\n---\n{text}---\nb: 2\n")


def test_long_lines_are_not_kept_in_memory():
    yaml_lines._start_of_entry.cache_clear()
    assert_agrees("".join(f"a{n}: {'x' * 2000}\n" for n in range(9)) + "".join(f"{n}{'y' * 2000}: 1\n" for n in range(9)))
    assert yaml_lines._start_of_entry.cache_info().currsize == 9


def test_many_unusual_documents_are_left_to_libyaml_together():
    text = "a: 1\n---\nb: &x 1\n---\n" * 40
    assert_agrees(text)
    assert_agrees(text + "c: 'd\n")


@pytest.mark.parametrize("as_list", [True, False])
def test_what_kubectl_prints(as_list):
    text = pods_as_yaml(20_000, as_list=as_list).decode()
    assert all(is_quick(part) for part in text.split("---\n") if part)
    assert_agrees(text)


@pytest.mark.slow
def test_every_file_of_the_project():
    names = [*ROOT.glob("examples/**/*.yaml"), *ROOT.glob("deploy/**/*.y*ml"), *ROOT.glob("tests/data/**/*.yaml")]
    assert len(names) > 20
    for name in names:
        if name.stat().st_size < 20_000:
            assert_agrees(name.read_text("utf-8"))


# -- random documents ------------------------------------------------------------------------------------------------------

PIECES = [
    "a:", "b:", "a: 1", "c: x", "- ", "- a: 1", "- b", "-", "  ", "#x", " # c", "'", "''", '"', '"x"', "'y'", "|", "|-", "|+",
    ">", "{", "}", "[", "]", "{}", "[]", "&x ", "*x", "!!str ", "---", "...", "%YAML 1.1", ": ", ":", "? ", "<<: ", "\t", "é",
    "- - x", "key: |\n    t\n   u", "y: yes", "1: 2", "~: 3", "1.5: 2", ".nan", "@", "`", "x y", "x: y: z", "\\", '"a\\n"',
    "k: 'it''s'", "- |\n  s", "z: >\n   f\n\n   g", "m: p\n   q", "d: {e: f}", "- - - q", "- {r: s}", "'q': 1", "v : 4",
    "t:  ", "h: - 1", "--- ", "--- x", "- ? z", "n: &y 1", "o: *y", "\r\n", "\x85",
]  # fmt: skip
INDENTS = st.sampled_from(["", "", "", "  ", "  ", "    ", " ", "   "])
LINES = st.lists(st.tuples(INDENTS, st.lists(st.sampled_from(PIECES), min_size=1, max_size=2)), min_size=1, max_size=7).map(
    lambda lines: "\n".join(indent + "".join(pieces) for indent, pieces in lines)
)
TEXTS = st.sampled_from(
    [
        "",
        "a b",
        "long " * 30,
        "it's",
        "#no",
        "a: b",
        "two\nlines\n",
        "\n x\ny",
        "yes",
        "1",
        "- a",
        "tab\tx",
        "0x1f",
        " lead",
        "é",
        "'\"",
        "|",
    ]
)
TREES = st.recursive(
    st.one_of(TEXTS, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS | st.sampled_from("abcde"), inner, max_size=4)),
    max_leaves=12,
)
MISTAKES = st.sampled_from(["", "  # c", "---", "a: 1", "  a: 1", "- x", "   y", "\t", "'"])


@pytest.mark.slow
@given(text=LINES, limit=st.sampled_from([8_000_000, 8_000_000, 3, 8, 20]))
def test_any_lines_are_read_alike(text, limit):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_tree, "MAX_NODES", limit)
        assert_agrees(text)


@pytest.mark.slow
@given(
    trees=st.lists(TREES, min_size=1, max_size=3), width=st.sampled_from([20, 80, 999]), indent=st.sampled_from([2, 4]),
    flow=st.sampled_from([False, False, None]), mistake=MISTAKES, where=st.floats(0, 1), limit=st.sampled_from([8_000_000, 30]),
)  # fmt: skip
def test_any_dumps_are_read_alike(trees, width, indent, flow, mistake, where, limit):
    text = yaml.dump_all(trees, Dumper=yaml.CSafeDumper, default_flow_style=flow, width=width, indent=indent)
    lines = text.split("\n")
    lines.insert(int(where * len(lines)), mistake)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_tree, "MAX_NODES", limit)
        assert_agrees(text)
        assert_agrees("\n".join(lines))
