from __future__ import annotations

import contextlib
import gc
import json
import re
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moorage.api.reading import json_tree, yaml_tree
from moorage.api.reading.manifests import Document, loads_strict_json, read_documents, read_json, read_yaml
from moorage.errors import InputError

PARSERS = {"libyaml": yaml_tree.default_parser(), "pure": yaml_tree.PureParser}


def yaml(text, **options):
    return [document.data for document in read_yaml(text, "f", **options)]


YAML = {
    "mapping": ("a: 1\nb: [x, {c: d}]\n", [{"a": 1, "b": ["x", {"c": "d"}]}]),
    "sequence": ("- a\n- - b\n  - c\n", [["a", ["b", "c"]]]),
    "scalar": ("text", ["text"]),
    "block scalars": ("a: |\n  x\n   y\nb: >-\n  x\n  y\n", [{"a": "x\n y\n", "b": "x y"}]),
    "quoted scalars are strings": ("a: \"1\"\nb: '0x1'\nc: \"yes\"\nd: ''\n", [{"a": "1", "b": "0x1", "c": "yes", "d": ""}]),
    "an empty value is null": ("a:\nb: ~\n", [{"a": None, "b": None}]),
    "escapes": (r'a: "\u00e9\t\x41\U0001F600"', [{"a": "é\tA😀"}]),
    "documents": ("a: 1\n---\nb: 2\n--- # c\nc: 3\n", [{"a": 1}, {"b": 2}, {"c": 3}]),
    "empty documents are skipped": ("---\n---\n# only a comment\n---\na: 1\n---\n", [{"a": 1}]),
    "nothing": ("", []),
    "a comment": ("# nothing\n", []),
    "carriage returns": ("a: 1\r\nb:\r\n- x\r\n---\r\nc: |\r\n  t\r\n", [{"a": 1, "b": ["x"]}, {"c": "t\n"}]),
    "byte order mark": ("\ufeffa: 1\n", [{"a": 1}]),
    "directive": ("%YAML 1.1\n---\na: 1\n", [{"a": 1}]),
    "end of document": ("a: 1\n...\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
    "keys become strings": ("1: a\nyes: b\n1.5: c\n0x10: d\n", [{"1": "a", "true": "b", "1.5": "c", "16": "d"}]),
    "the last duplicate wins": ("a: 1\na: 2\n", [{"a": 2}]),
    "explicit keys": ("? a\n: 1\n? b\n", [{"a": 1, "b": None}]),
    "tags": (
        "a: !!str 5\nb: !!int '5'\nc: !foo 5\nd: ! 5\ne: !!set {x: z}\n",
        [{"a": "5", "b": 5, "c": "5", "d": "5", "e": {"x": "z"}}],
    ),
    "aliases": ("a: &x {k: [1]}\nb: *x\nc: *x\n", [{"a": {"k": [1]}, "b": {"k": [1]}, "c": {"k": [1]}}]),
    "alias of a scalar": ("- &x 1\n- *x\n- &x 2\n- *x\n", [[1, 1, 2, 2]]),
    "alias as key": ("&x a: 1\nb: {*x : 2}\n", [{"a": 1, "b": {"a": 2}}]),
    "merge, then a key": ("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}\n", [{"a": {"k": 1, "l": 2}, "b": {"k": 3, "l": 2}}]),
    "a key, then merge": ("a: &x {k: 1, l: 2}\nb: {k: 3, <<: *x}\n", [{"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 2}}]),
    "merge of several": ("<<: [{a: 1, b: 1}, {a: 2, c: 2}]\nd: 3\n", [{"a": 1, "b": 1, "c": 2, "d": 3}]),
    "quoted merge is a key": ('"<<": 1\n', [{"<<": 1}]),
    "merge sign as a value": ("a: <<\n", [{"a": "<<"}]),
    "numbers as in JSON": ("[1.0, 1e3, .5, 0777]", [[1, 1000, 0.5, 511]]),
}


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
@pytest.mark.parametrize(("text", "expected"), YAML.values(), ids=YAML)
def test_parses_yaml(text, expected, parser):
    trees = [data for data, _ in yaml_tree.read_tree(text.encode(), "f", parser=parser) if data is not None]
    assert trees == expected
    assert json.dumps(trees, sort_keys=True) == json.dumps(expected, sort_keys=True)  # tells 1, 1.0 and True apart
    assert yaml(text) == expected


REFUSED_YAML = {
    "unclosed sequence": ("a: [1,\n", "f:1: did not find expected node content"),
    "tab": ("a:\n\t- b\n", "f:2: found character that cannot start any token"),
    "two values": ("a: b: c\n", "f:1: mapping values are not allowed in this context"),
    "no colon": ("a: 1\nb\nc: 2\n", "f:3: could not find expected ':'"),
    "open quote": ('a: 1\nb: "x\n', "f:2: found unexpected end of stream"),
    "control character": ("a: 1\nb: \x07\n", "f:2: "),
    "NUL": ("a: 1\nb: \x00\n", "f:2: "),
    "unknown anchor": ("a: 1\nb: *x\n", "f:2: unknown anchor 'x' referenced"),
    "an anchor of another document": ("a: &x 1\n---\nb: *x\n", "f:3: unknown anchor 'x' referenced"),
    "an anchor inside itself": ("a: &x [*x]\n", "f:1: anchor 'x' value contains itself"),
    "a list as key": ("? [a]\n: 1\n", "f:1: invalid map key: a list or a mapping cannot be a key"),
    "a mapping as key": ("? {a: b}\n: 1\n", "f:1: invalid map key: a list or a mapping cannot be a key"),
    "a list as key, through an alias": (
        "a: &x [1]\nb: {*x : 1}\n",
        "f:2: invalid map key: a list or a mapping cannot be a key",
    ),
    "null as key": ("a: 1\n~: 2\n", "f:2: unsupported map key: null"),
    "NaN": ("a: 1\nb: .nan\n", "f:2: unsupported value: NaN"),
    "infinity": ("a: -.inf\n", "f:1: unsupported value: -Inf"),
    "infinity, through an alias": ("&x .inf : 1\nb: *x\n", "f:2: unsupported value: +Inf"),
    "a value that contradicts its tag": ("a:\n  b: !!int x\n", "f:2: cannot decode !!str `x` as a !!int"),
    "merge of a scalar": ("a: 1\n<<: 1\n", "f:2: map merge requires map or sequence of maps as the value"),
    "merge of scalars": ("<<: [{a: 1}, 2]\n", "f:1: map merge requires map or sequence of maps as the value"),
    "merge of a list, through an alias": (
        "a: &x [{b: 1}]\nc:\n  <<: *x\n",
        "f:3: map merge requires map or sequence of maps as the value",
    ),
    "a lone surrogate": ('a: "\\ud800"\n', "f:1: "),
    "an invalid code point": ('a: "\\U00110000"\n', "f:1: "),
    "a tag handle defined twice": ("%TAG ! x\n%TAG ! x\n---\na\n", "f:2: found duplicate %TAG directive"),
    "another YAML version": ("%YAML 2.0\n---\na: 1\n", "f:1: "),
    "an error in the second document": ("a: 1\n---\nb: [\n", "f:3: "),
}


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
@pytest.mark.parametrize(("text", "message"), REFUSED_YAML.values(), ids=REFUSED_YAML)
def test_rejects_yaml(text, message, parser):
    with pytest.raises(InputError) as caught:
        list(yaml_tree.read_tree(text.encode(), "f", parser=parser))
    place = message.split(" ")[0]
    if parser is yaml_tree.PureParser:  # reports the same errors in other words, sometimes one line off
        assert str(caught.value).startswith("f:")
    else:
        assert str(caught.value).startswith(message)
        assert str(caught.value) != place


def test_language_specific_tags_are_plain_strings():
    assert yaml("a: !!python/object/apply:os.system ['x']\nb: !!python/name:os.system x\n") == [{"a": ["x"], "b": "x"}]


def test_reports_the_line_of_each_document():
    documents = list(read_yaml("# first\na: 1\n---\n\n# second\nb: 2\n---\n---\n- c\n", "f"))
    assert documents == [Document({"a": 1}, 2), Document({"b": 2}, 6), Document(["c"], 9)]


def test_yields_the_documents_before_a_broken_one():
    documents = read_yaml("a: 1\n---\nb: [\n", "f")
    assert next(documents).data == {"a": 1}
    with pytest.raises(InputError):
        next(documents)


REPEATS = {  # text, its value, the lines with a message
    "none": ("a: 1\nb: 2\n", {"a": 1, "b": 2}, []),
    "twice": ("a: 1\nb: 2\na: 3\n", {"a": 3, "b": 2}, [3]),
    "deep": ("x:\n- a:\n    b: 1\n    b: 2\n", {"x": [{"a": {"b": 2}}]}, [4]),
    "set after a merge": ("<<: {a: 1, b: 2}\na: 3\n", {"a": 3, "b": 2}, []),
    "set after a merge of several": ("<<: [{a: 1}, {a: 2, b: 4}]\nb: 3\n", {"a": 1, "b": 3}, []),
    "set before a merge": ("a: 3\n<<: {a: 1}\n", {"a": 1}, []),
    "set twice after a merge": ("<<: {a: 1}\na: 2\na: 3\n", {"a": 3}, [3]),
    "in JSON": ('{"a": 1,\n"a": 2}', {"a": 2}, [2]),
    "in flow style": ("{a: 1, a: 2}", {"a": 2}, [1]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "value", "lines"), REPEATS.values(), ids=REPEATS)
def test_the_last_of_several_values_counts_and_messages_name_the_others(text, value, lines):
    found = []
    documents = [one.data for one in read_documents(text, "f", on_repeat=found.append)]
    assert documents == [value]
    assert [int(one.split(":")[1]) for one in found] == lines
    assert [one.data for one in read_documents(text, "f")] == [value]


STRICT_YAML = {
    "once": ("a: 1\nb: 2\n", None),
    "twice": ("a: 1\nb: 2\na: 3\n", 'f:3: key "a" already set in map'),
    "thrice": ("a: 1\na: 2\na: 3\n", 'f:2: key "a" already set in map\nf:3: key "a" already set in map'),
    "deep": ("x:\n- a:\n    b: 1\n    b: 2\n", 'f:4: key "b" already set in map'),
    "at the value's line": ("a: 1\na:\n  b: 1\n", 'f:3: key "a" already set in map'),
    "keys equal after conversion to strings": ('yes: 1\n"true": 2\n', 'f:2: key "true" already set in map'),
    "with a quote": ("'a\"b': 1\n'a\"b': 2\n", 'f:2: key "a\\"b" already set in map'),
    "merged": ("<<: {a: 1}\na: 2\n", 'f:2: key "a" already set in map'),
    "in another document": ("a: 1\n---\na: 2\n", None),
}


@pytest.mark.parametrize(("text", "message"), STRICT_YAML.values(), ids=STRICT_YAML)
def test_strict_parsing_rejects_duplicate_keys(text, message):
    assert yaml(text) is not None
    if message is None:
        assert yaml(text, strict=True) == yaml(text)
    else:
        with pytest.raises(InputError) as caught:
            yaml(text, strict=True)
        assert str(caught.value) == message


# -- limits -------------------------------------------------------------------------------------------------------------

DEEP = {
    "flow sequences": "[" * 200_000,
    "closed flow sequences": "[" * 30_000 + "]" * 30_000,
    "flow mappings": "{a: " * 50_000,
    "block sequences": "- " * 50_000,
    "block mappings": "".join(" " * i + "a:\n" for i in range(200)),
    "complex keys": "? " * 50_000,
    "JSON": '{"a":' * 100_000,
}


@pytest.mark.parametrize("read", [read_yaml, read_documents])
@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_rejects_deep_nesting(text, read):
    with pytest.raises(InputError, match=r"^f:\d+: (nested deeper than 100 levels|invalid map key)"):
        list(read(text, "f"))


@pytest.mark.parametrize("read", [read_yaml, read_json, read_documents])
def test_accepts_nesting_up_to_the_limit(read):
    (document,) = read("[" * 100 + "]" * 100, "f")
    assert str(document.data) == "[" * 100 + "]" * 100
    with pytest.raises(InputError, match="nested deeper than 100 levels"):
        list(read("[" * 101 + "]" * 101, "f"))


def bomb(levels, width=10):
    lines = [f"a0: &a0 [{', '.join('x' * width)}]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(lines)


def test_rejects_alias_bombs():
    for levels in (6, 10, 60):
        with pytest.raises(InputError, match=r"^f:\d+: document contains excessive aliasing$"):
            yaml(bomb(levels))
    assert len(yaml(bomb(4))[0]) == 4


def test_the_alias_budget_counts_the_expanded_length_of_strings():
    text = "x" * 1_000_000
    assert len(yaml(f"a: &a {text}\nb: [{', '.join(['*a'] * 20)}]")[0]["b"]) == 20
    for many in (f"a: &a {text}\nb: [{', '.join(['*a'] * 60)}]", f"a: &a {{? {text} : 1}}\nb: [{', '.join(['*a'] * 60)}]"):
        with pytest.raises(InputError, match="excessive aliasing"):
            yaml(many)


def test_at_most_a_hundred_duplicates_are_reported():
    for text in (json_of_repeats(300), "\n".join(f"a{i}: 1\na{i}: 2" for i in range(300))):
        with pytest.raises(InputError) as caught:
            list(read_documents(text, "f", strict=True))
        assert len(str(caught.value).splitlines()) == 100


def json_of_repeats(count):
    return "{" + ",".join(f'"a{i}":1,"a{i}":2' for i in range(count)) + "}"


def test_the_alias_budget_is_for_the_whole_stream():
    with pytest.raises(InputError, match="excessive aliasing"):
        yaml("\n---\n".join([bomb(4)] * 40))


def test_aliases_cannot_exceed_the_nesting_limit():
    lines = ["a0: &a0 [" + "[" * 60 + "]" * 60 + "]", "a1: " + "[" * 60 + "*a0" + "]" * 60]
    with pytest.raises(InputError, match="f:2: nested deeper than 100 levels"):
        yaml("\n".join(lines))


def test_values_of_an_alias_are_separate_copies():
    (data,) = yaml("a: &x {k: [1]}\nb: *x\n")
    data["a"]["k"].append(2)
    assert data["b"] == {"k": [1]}


def test_rejects_too_many_values(monkeypatch):
    monkeypatch.setattr(yaml_tree, "MAX_NODES", 100)
    with pytest.raises(InputError, match=r"^f:1: more than 100 values; split the file$"):
        yaml("[" + "1," * 100 + "]")
    with pytest.raises(InputError, match="more than 100 values"):
        yaml("a: 1\n---\n" * 60)


def test_rejects_too_many_directives():
    with pytest.raises(InputError, match="more than 1000 directives"):
        yaml("".join(f"%TAG !a{i}! x\n" for i in range(2000)))


@pytest.mark.parametrize("text", ["a: 1\n", "a: [\n", "a: *x\n"])
def test_restores_the_garbage_collector(text):
    for wanted in (True, False):
        if not wanted:
            gc.disable()
        try:
            documents = read_yaml(text, "f")
            with contextlib.suppress(InputError):
                next(documents)
            assert gc.isenabled() is wanted
            documents.close()
            assert gc.isenabled() is wanted
        finally:
            gc.enable()


# -- JSON ---------------------------------------------------------------------------------------------------------------

JSON = {
    "object": ('{"a": [1, 2.5, null, true, "x"]}', [({"a": [1, 2.5, None, True, "x"]}, 1)]),
    "several": ('{"a":1}{"b":2} \n{"c":3}\n', [({"a": 1}, 1), ({"b": 2}, 1), ({"c": 3}, 2)]),
    "one per line": ('{"a":1}\n{"b":2}\n', [({"a": 1}, 1), ({"b": 2}, 2)]),
    "separated as in YAML": ('{"a":1}\n---\n{"b":2}\n--- # c\n\n{"c":3}', [({"a": 1}, 1), ({"b": 2}, 3), ({"c": 3}, 6)]),
    "after blank lines": ('\n\n {"a": 1}', [({"a": 1}, 3)]),
    "byte order mark": ('\ufeff{"a": 1}', [({"a": 1}, 1)]),
    "the last duplicate wins": ('{"a":1,"a":2}', [({"a": 2}, 1)]),
    "a surrogate pair": ('{"a":"\\ud83d\\ude00"}', [({"a": "😀"}, 1)]),
    "large integers": ('{"a":18446744073709551616}', [({"a": 2**64}, 1)]),
    "control characters, escaped": ('{"a":"\\u0000\\n"}', [({"a": "\0\n"}, 1)]),
    "null": ("null", []),
    "nothing": ("", []),
    "blanks": (" \n\t", []),
}


@pytest.mark.parametrize(("text", "expected"), JSON.values(), ids=JSON)
def test_parses_json(text, expected):
    assert [(document.data, document.line) for document in read_json(text, "f")] == expected
    if "last field" not in text and '"a":1,"a"' not in text:
        assert [(document.data, document.line) for document in read_json(text, "f", strict=True)] == expected


REFUSED_JSON = {
    "truncated": ('{"a":\n', "f:1: unexpected end of JSON input"),
    "truncated in a string": ('{"a":"x', 'f:1: unterminated string starting at "\\"x"'),
    # Python 3.13 reports the position of the comma, earlier versions that of the token after it.
    "a trailing comma": ("[\n1,\n]", "f:2: illegal trailing comma" if sys.version_info >= (3, 13) else "f:3: "),
    "bare words": ("{a: 1}", 'f:1: expecting property name enclosed in double quotes at "a: 1}"'),
    "trailing data": ('{"a":1}\nx', 'f:2: expecting value at "x"'),
    "NaN": ('{"a":\nNaN}', "f:1: NaN is not a JSON number"),
    "infinity": ('{"a":-Infinity}', "f:1: -Infinity is not a JSON number"),
    "a float out of range": ('{"a":1e400}', "f:1: number 1e400 is out of range"),
    "an integer with too many digits": ('{"a":' + "9" * 5000 + "}", "f:1: number 999999999999999999999999… is out of range"),
    "a lone high surrogate": ('{"a":"\\ud800"}', "f:1: a string holds a lone surrogate, which is not a character"),
    "a lone low surrogate": ('{"a":"\\udc00x"}', "f:1: a string holds a lone surrogate, which is not a character"),
    "a lone surrogate in a key": ('{"\\ud800":1}', "f:1: a string holds a lone surrogate, which is not a character"),
    "a raw newline in a string": ('{"a":"x\ny"}', "f:1: invalid control character"),
    "not UTF-8": (b'{"a":\n"\xff"}', "f:2: this is not UTF-8 (invalid start byte); save it as UTF-8"),
    "a leading zero": ("[01]", "f:1: "),
    "deep": ('{"a":' * 100_000, "f:1: nested deeper than 100 levels"),
    "too deep, in the second document": ('{}\n{"a":' + "[" * 100_000, "f:2: nested deeper than 100 levels"),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("text", "message"), REFUSED_JSON.values(), ids=REFUSED_JSON)
def test_rejects_json(text, message, strict):
    with pytest.raises(InputError) as caught:
        list(read_json(text, "f", strict=strict))
    assert str(caught.value).startswith(message)


DUPLICATES = {
    "flat": ('{"a":1,\n"b":2,\n"a":3}', 'f:3: duplicate field "a"'),
    "deep": ('{"x":[0,{"a":{"b":1,"b":2}}]}', 'f:1: duplicate field "x[1].a.b"'),
    "several": ('{"a":1,"a":2,\n"b":[{"c":1,"c":2}]}', 'f:1: duplicate field "a"\nf:2: duplicate field "b[0].c"'),
    "thrice": ('{"a":1,"a":2,"a":3}', 'f:1: duplicate field "a"\nf:1: duplicate field "a"'),
    "written with escapes": ('{"a":1,"\\u0061":2}', 'f:1: duplicate field "a"'),
    "with brackets in strings": ('{"a":"{\\"b\\":1,","a":"}"}', 'f:1: duplicate field "a"'),
    "in the second document": ('{"a":1}\n{"b":1,"b":2}', 'f:2: duplicate field "b"'),
}


@pytest.mark.parametrize(("text", "message"), DUPLICATES.values(), ids=DUPLICATES)
def test_strict_parsing_rejects_duplicate_fields(text, message):
    assert list(read_json(text, "f"))
    with pytest.raises(InputError) as caught:
        list(read_json(text, "f", strict=True))
    assert str(caught.value) == message


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), plain, min_size=1), st.sampled_from([None, (",", ":")]), st.booleans())
def test_duplicate_fields_are_found_in_any_notation(fields, separators, twice):
    """Compact documents take the fast path, all others the full path."""
    members = [f"{json.dumps(name)}:{json.dumps(value, separators=separators)}" for name, value in fields.items()]
    text = "{" + ",".join(members + members[:twice]) + "}"
    with contextlib.suppress(InputError):
        [document] = read_json(text.encode(), "f", strict=True)
        assert not twice
        assert document.data == fields
        return
    assert twice


def test_loads_one_document_strictly():
    assert loads_strict_json(b'{"a": [{"b": 1}, {"b": 2}]}', "f") == {"a": [{"b": 1}, {"b": 2}]}
    for text, message in {
        '{"a":1,"a":1}': 'f:1: duplicate field "a"',
        "{}\n{}": "f:2: more than one document",
        " ": "f:1: unexpected end of JSON input",
        "{": "f:1: unexpected end of JSON input",
    }.items():
        with pytest.raises(InputError) as caught:
            loads_strict_json(text, "f")
        assert str(caught.value) == message


# -- JSON or YAML ---------------------------------------------------------------------------------------------------------

EITHER = {
    "YAML": ("a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
    "JSON": ('{"a": 1}', [{"a": 1}]),
    "JSON list": ("[1, 2]", [[1, 2]]),
    "JSON documents": ('{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
    "JSON, then YAML": ('{"a": 1}\n---\nb: 2\n', [{"a": 1}, {"b": 2}]),
    "JSON in YAML documents": ('---\n{"a": 1}\n---\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
    "YAML in flow style": ("{a: 1, b: [x, 'y']}", [{"a": 1, "b": ["x", "y"]}]),
    "JSON with a trailing comma is YAML": ('{"a": [1, 2,],}', [{"a": [1, 2]}]),
    "JSON with a comment is YAML": ('{"a": 1} # c\n', [{"a": 1}]),
    "UTF-16": ("\ufeff{a: ä}".encode("utf-16-le"), [{"a": "ä"}]),
    "nothing": (b"", []),
    "blanks": (b"\n \n", []),
}


@pytest.mark.parametrize(("text", "expected"), EITHER.values(), ids=EITHER)
def test_detects_the_format(text, expected):
    assert [document.data for document in read_documents(text, "f")] == expected


REFUSED_EITHER = {
    "broken JSON reports JSON's error": ('{"a": "b" "c"}', "f:1: expecting ',' delimiter at"),
    "broken flow YAML reports YAML's error": ("{a: 1, b: [}", "f:1: did not find expected node content"),
    "a large broken dump is not parsed as YAML": ('{"a": "' + "x" * 2_000_000 + '"', "f:1: unexpected end of JSON input"),
    "gzip": (b"\x1f\x8b\x08", "f:1: this is gzip-compressed"),
    "three JSON documents, then invalid data": ("{}{}{}\nx: 1", 'f:2: expecting value at "x: 1"'),
    "duplicates in flow YAML": ("{a: 1, a: 2}", 'f:1: key "a" already set in map'),
    "duplicates in JSON": ('{"a": 1, "a": 2}', 'f:1: duplicate field "a"'),
}


@pytest.mark.parametrize(("text", "message"), REFUSED_EITHER.values(), ids=REFUSED_EITHER)
def test_rejects_either_format(text, message):
    with pytest.raises(InputError) as caught:
        list(read_documents(text, "f", strict=True))
    assert str(caught.value).startswith(message)


# -- arbitrary input ------------------------------------------------------------------------------------------------------

SMALL = """\
apiVersion: v1
kind: Pod
metadata: &m {name: "w\\u00e9b", labels: {a: 'b', <<: {c: d}}}
spec:
  containers:
  - image: |
      x
    resources: {requests: {cpu: 100m, memory: 1e3}}
  more: *m
--- # next
? !!str 1
: [~, .5, 0x1F]
"""
SMALL_JSON = (
    '{"kind": "Pod", "metadata": {"name": "w\\u00e9b", "labels": {"a": "\\ud83d\\ude00"}}, "n": [1.5e3, -1, null]} {"b": true}'
)


def survives(data, *readers):
    """Parse in every way; the only error may be an InputError with a position."""
    for read in readers or (read_yaml, read_json, read_documents):
        for strict in (False, True):
            try:
                found = [document.data for document in read(data, "where", strict=strict)]
            except InputError as error:
                found = str(error)
            if isinstance(found, str):
                assert re.match(r"where:\d+: .", found)
            else:
                json.dumps(found, allow_nan=False, ensure_ascii=False).encode()


def read_purely(data, where, strict):
    trees = yaml_tree.read_tree(data, where, strict=strict, parser=yaml_tree.PureParser)
    return [Document(tree, line) for tree, line in trees]


@pytest.mark.parametrize("text", [SMALL, SMALL_JSON], ids=["YAML", "JSON"])
def test_survives_truncation_anywhere(text):
    data = text.encode()
    for end in range(len(data) + 1):
        survives(data[:end])


def test_the_pure_parser_survives_truncation_anywhere():
    data = SMALL.encode()
    for end in range(len(data)):
        survives(data[:end], read_purely)


mutations = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.binary(max_size=3) | st.sampled_from([b"\n", b"  ", b"[", b"&m", b"*m", b"<<:", b'"', b"\\ud800"]),
    ),
    max_size=4,
)


@given(st.sampled_from([SMALL.encode(), SMALL_JSON.encode()]), mutations)
def test_survives_damaged_bytes(data, changes):
    for at, inserted in changes:
        data = data[:at] + inserted + data[at + len(inserted) :]
    survives(data)


@given(st.binary(max_size=60) | st.text(max_size=40))
@example(b"\xff\xfe")
@example("\ufeff")
@example(b"\x1f\x8b")
def test_survives_arbitrary_input(data):
    survives(data)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(plain.filter(lambda value: value is not None), st.booleans())
def test_parses_json_that_python_wrote(value, escaped):
    text = json.dumps(value, ensure_ascii=escaped)
    for strict in (False, True):
        (document,) = read_json(text, "f", strict=strict)
        assert document.data == value


printable = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cn"], exclude_characters="\ufeff")
)
writable = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | printable,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(printable, inner, max_size=3),
    max_leaves=8,
)


@given(writable)
def test_yaml_and_json_parse_alike(value):
    text = json.dumps(value, ensure_ascii=False)
    (by_yaml,) = read_yaml(text, "f")
    (by_json,) = read_json(text, "f")
    assert by_yaml.data == by_json.data == value


def test_the_full_path_agrees_with_the_fast_path():
    text = json.dumps({"a": [1, 2.5, -3e-7, 2**64, "é", None, True], "b": {"": {}}})
    fast, careful = (list(json_tree.read_tree(text.encode(), "f", strict=strict)) for strict in (False, True))
    assert fast == careful
