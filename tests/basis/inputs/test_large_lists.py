"""Files that are read in pieces give the same objects, places and faults as files that are read whole."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from moorage.basis.inputs import files, objects
from moorage.basis.inputs import objects as large_lists
from moorage.basis.inputs.files import InputFile, LargeFile, open_sources
from moorage.basis.inputs.objects import find_objects
from moorage.errors import InputError


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(files, "LARGE", 1)
    monkeypatch.setattr(objects, "_HAND_WRITTEN", 0)  # small files are checked for more
    monkeypatch.setattr(large_lists, "_PIECE", 2000)
    monkeypatch.setattr(large_lists, "_TAIL", 3000)


def pods(count, draw=None):
    """Pods with lists of objects, and texts that look like the end of an item."""
    draw = draw or random.Random(0)
    for at in range(count):
        note = draw.choice(["", "}, {", '"}, {"apiVersion": "v1", "kind": "Pod"', "]", "\\", '\\"}]', "ö" * 90])
        containers = [{"name": f"c{i}", "image": note} for i in range(draw.randint(1, 4))]
        meta = {"name": f"p{at}", "annotations": {"note": note}, "managedFields": [{"apiVersion": "v1"}, {"apiVersion": "v1"}]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}}


def found_in(source):
    """Return the objects with their places."""
    return [one._replace(payload=plain(one.payload)) for one in find_objects(source)]


def plain(payload):
    if isinstance(payload, dict):
        return payload
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):  # decoding the object will report it
        return bytes(payload)


def both(path, text):
    """Return what is found in pieces and as a whole, or the errors."""
    path.write_bytes(text)
    [source] = open_sources([str(path)])
    assert isinstance(source, LargeFile)
    assert source.size == len(text)
    results = []
    for one in (source, InputFile(str(path), text)):
        try:
            results.append(found_in(one))
        except InputError as error:
            results.append(str(error))
    return results


LISTS = {
    "kubectl": lambda items: {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}},
    "API server": lambda items: {
        "kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "12", "continue": "x"},
        "items": [{"metadata": one["metadata"], "spec": one["spec"]} for one in items],
    },
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("make", LISTS.values(), ids=LISTS)
def test_lists_are_read_in_pieces(make, indent, tmp_path, monkeypatch):
    monkeypatch.setattr(InputFile, "size", property(lambda self: pytest.fail("read as a whole")))
    text = json.dumps(make([*pods(60)]), indent=indent, ensure_ascii=False).encode()
    (path := tmp_path / "dump.json").write_bytes(text)
    [source] = open_sources([str(path)])
    monkeypatch.setattr(LargeFile, "data", property(lambda self: pytest.fail("read as a whole")))
    assert found_in(source) == found_in(InputFile(str(path), text))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_any_content_and_any_damage_is_read_as_from_the_whole(seed, tmp_path):
    draw = random.Random(seed)
    make = draw.choice([*LISTS.values()])
    text = json.dumps(make([*pods(draw.randint(0, 30), draw)]), indent=draw.choice([None, 2]), ensure_ascii=False).encode()
    for case in range(12):
        at = draw.randrange(len(text))
        damaged = [text, text[:at], text[:at] + b"}" + text[at:], text[:at] + text[at + 1 :], text + b"\n{}"][case % 5]
        in_pieces, whole = both(tmp_path / f"{case}.json", damaged)
        # The place of an object names its line where the file turns out to be no valid JSON only after some objects.
        assert in_pieces == whole or [one[:3] for one in in_pieces] == [one[:3] for one in whole]


OTHERS = {
    "one object": b'{"apiVersion": "v1", "kind": "Pod"}',
    "YAML": b"apiVersion: v1\nkind: Pod\n",
    "several documents": b'{"apiVersion":"v1","kind":"A"}\n{"apiVersion":"v1","kind":"B"}',
    "no kind": b'{"apiVersion":"v1","items":[{"apiVersion":"v1","kind":"Pod"}]}',
    "no list": b'{"apiVersion":"x/v1","items":[{"apiVersion":"v1","kind":"Pod"}],"kind":"Basket"}',
    "items that are null": b'{"apiVersion":"v1","items":[null],"kind":"List"}',
    "an empty list": b'{"apiVersion":"v1","items":[],"kind":"List"}',
    "items twice": b'{"apiVersion":"v1","items":[{"apiVersion":"v1","kind":"A"}],"items":[],"kind":"List"}',
    "a list in a list": b'{"apiVersion":"v1","items":[{"apiVersion":"v1","items":[{"kind":"A"}],"kind":"List"}],"kind":"List"}',
    "UTF-16": '{"apiVersion":"v1","items":[],"kind":"List"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"apiVersion":"v1","items":[{"apiVersion":"v1","kind":"A"}],"kind":"List"}',
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_other_files_are_read_whole(text, tmp_path):
    in_pieces, whole = both(tmp_path / "in.json", text)
    assert in_pieces == whole


def test_a_file_that_changes_its_length_is_refused(tmp_path):
    path = tmp_path / "in.json"
    path.write_bytes(b'{"apiVersion": "v1", "kind": "Pod"}')
    [source] = open_sources([str(path)])
    path.write_bytes(b"{}")
    with pytest.raises(InputError, match="changed while it was read"):
        list(find_objects(source))


def test_large_files_count_towards_the_limit(tmp_path):
    path = tmp_path / "in.json"
    path.write_bytes(b"{" + b" " * 3000)
    with pytest.raises(InputError, match="larger than"):
        list(open_sources([str(path)], max_bytes=2999))
