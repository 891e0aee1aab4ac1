"""Patches: the examples of the RFCs, the directives of strategic merge, and kubectl as an oracle where it is installed."""

import json
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.documents.served_kinds import find_kind
from moorage.api.documents.statuses import ApiError
from moorage.api.fields.patches import json_patch, merge_patch
from moorage.api.fields.strategic_merge import strategic_merge
from moorage.api.schema.schemas import kind_schema

POD = kind_schema(find_kind("pods"))
MERGES = {  # RFC 7386, appendix A
    "replace": ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    "add": ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    "delete": ({"a": "b"}, {"a": None}, {}),
    "list for value": ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    "nested": ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    "lists are replaced": ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    "nulls in new trees": ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
}


@pytest.mark.parametrize(("held", "patch", "wanted"), MERGES.values(), ids=MERGES)
def test_merge_patch(held, patch, wanted):
    assert merge_patch(held, patch) == wanted


OPERATIONS = {
    "add a field": ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    "add into a list": ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    "add to its end": ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
    "remove": ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
    "replace": ({"a": {"b": 1}}, [{"op": "replace", "path": "/a/b", "value": 2}], {"a": {"b": 2}}),
    "replace everything": ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    "move": ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
    "copy": ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
    "test": ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    "escapes": ({"a/b": 1, "m~n": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/m~0n"}], {}),
}


@pytest.mark.parametrize(("held", "patch", "wanted"), OPERATIONS.values(), ids=OPERATIONS)
def test_json_patch(held, patch, wanted):
    assert json_patch(held, patch) == wanted


WRONG = {
    "too many": ([{"op": "test", "path": "", "value": {}}] * 10_001, 413),
    "unknown": ([{"op": "swap", "path": "/a"}], 422),
    "the whole": ([{"op": "remove", "path": ""}], 422),
    "a test of nothing": ([{"op": "test", "path": "/b", "value": None}], 422),
    "a relative path": ([{"op": "remove", "path": "a"}], 422),
    "a missing field": ([{"op": "remove", "path": "/b"}], 422),
    "beyond a list": ([{"op": "add", "path": "/l/9", "value": 1}], 422),
    "a negative index": ([{"op": "replace", "path": "/l/-1", "value": 1}], 422),
    "a failed test": ([{"op": "test", "path": "/a", "value": 2}], 422),
    "true is not one": ([{"op": "test", "path": "/a", "value": True}], 422),
    "into itself": ([{"op": "move", "from": "/l", "path": "/l/0"}], 422),
    "into a value": ([{"op": "add", "path": "/a/b", "value": 1}], 422),
    "a copy that doubles and doubles": pytest.param(
        [{"op": "copy", "from": "/l", "path": "/l/-"}] * 60, 422, marks=pytest.mark.slow
    ),
}


@pytest.mark.parametrize(("patch", "code"), WRONG.values(), ids=WRONG)
def test_json_patch_errors(patch, code):
    held = {"a": 1, "l": [1]}
    with pytest.raises(ApiError) as caught:
        json_patch(held, patch)
    assert caught.value.code == code
    assert held == {"a": 1, "l": [1]}


def pod(*containers, **more):
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w", "finalizers": ["a/a", "b/b"]},
        "spec": {"containers": [{"name": name, "image": f"{name}:1"} for name in containers], **more},
    }  # fmt: skip


STRATEGIC = {
    "an item changes": {"spec": {"containers": [{"name": "b", "image": "b:2"}]}},
    "an item is new": {"spec": {"containers": [{"name": "z", "image": "z:1"}]}},
    "an item goes": {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
    "all items are replaced": {"spec": {"containers": [{"$patch": "replace"}, {"name": "q", "image": "q:1"}]}},
    "a set grows": {"metadata": {"finalizers": ["c/c"]}},
    "a set shrinks": {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"]}},
    "items are reordered": {
        "spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "c", "image": "c:9"}]}
    },
    "tolerations are replaced": {"spec": {"tolerations": [{"key": "y", "operator": "Exists"}]}},
    "a field goes": {"spec": {"hostname": None}},
    "a map is replaced": {"spec": {"nodeSelector": {"$patch": "replace", "n": "2"}}},
}  # fmt: skip
RESULTS = {
    "an item changes": ("containers", [("a", "a:1"), ("b", "b:2"), ("c", "c:1")]),
    "an item is new": ("containers", [("z", "z:1"), ("a", "a:1"), ("b", "b:1"), ("c", "c:1")]),
    "an item goes": ("containers", [("b", "b:1"), ("c", "c:1")]),
    "all items are replaced": ("containers", [("q", "q:1")]),
    "items are reordered": ("containers", [("b", "b:1"), ("c", "c:9"), ("a", "a:1")]),
}


def held_pod():
    return pod("a", "b", "c", hostname="h", nodeSelector={"m": "1"}, tolerations=[{"key": "x", "operator": "Exists"}])


@pytest.mark.parametrize("name", RESULTS)
def test_strategic_merge_of_containers(name):
    part, wanted = RESULTS[name]
    merged = strategic_merge(POD, held_pod(), STRATEGIC[name])
    assert [(one["name"], one["image"]) for one in merged["spec"][part]] == wanted


def test_strategic_merge_of_other_fields():
    def merged(name):
        return strategic_merge(POD, held_pod(), STRATEGIC[name])

    assert merged("a set grows")["metadata"]["finalizers"] == ["c/c", "a/a", "b/b"]
    assert merged("a set shrinks")["metadata"]["finalizers"] == ["b/b"]
    assert merged("tolerations are replaced")["spec"]["tolerations"] == [{"key": "y", "operator": "Exists"}]
    assert "hostname" not in merged("a field goes")["spec"]
    assert merged("a map is replaced")["spec"]["nodeSelector"] == {"n": "2"}


def test_the_merge_key_of_ports_depends_on_the_kind():
    service = {"spec": {"ports": [{"port": 80, "name": "a"}]}}
    patch = {"spec": {"ports": [{"port": 80, "name": "b"}]}}
    assert strategic_merge(kind_schema(find_kind("services")), service, patch) == {
        "spec": {"ports": [{"port": 80, "name": "b"}]}
    }


CONTRADICTIONS = {  # patch: code and message of a kube-apiserver v1.36.2
    "no object": ([], 400, "the patch must be an object"),
    "an unknown directive": ({"$patch": "explode"}, 500, "unknown patch type: explode in map: map[$patch:explode]"),
    "a thing without a name": (
        {"spec": {"containers": [{"image": "x"}]}}, 500, "map: map[image:x] does not contain declared merge key: name",
    ),
    "an order that leaves something out": (
        {"spec": {"$setElementOrder/containers": [{"name": "y"}], "containers": [{"name": "q", "image": "i:9"}]}}, 500,
        "The order in patch list:\n[map[image:i:9 name:q]]\n doesn't match $setElementOrder list:\n[map[name:y]]\n",
    ),
    "what is not retained": (
        {"spec": {"$retainKeys": ["bogus"], "nodeName": "n"}}, 400, "invalid patch format of retainKeys",
    ),
    "what to retain is no list": ({"spec": {"$retainKeys": True}}, 400, "invalid patch format of retainKeys"),
    "the order of an unknown list": (
        {"spec": {"$setElementOrder/x": []}}, 500, 'unable to find api field in struct PodSpec for the json field "x"',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("patch", "code", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_strategic_merge_errors(patch, code, message):
    with pytest.raises(ApiError) as caught:
        strategic_merge(POD, held_pod(), patch)
    assert (caught.value.code, caught.value.message) == (code, message)


def plainly_merged(held, patch):
    """Return a list of containers with a patch merged in, item by item, with a linear search for each."""
    merged = list(held)
    for item in patch:
        at = next((i for i, one in enumerate(merged) if one["name"] == item["name"]), None)
        if "$patch" in item:
            merged = [one for one in merged if one["name"] != item["name"]]
        elif at is None:
            merged.append(item)
        else:
            merged[at] = {**merged[at], **item}
    wanted, stood = [one["name"] for one in patch], [one["name"] for one in held]
    named = sorted((one for one in merged if one["name"] in wanted), key=lambda one: wanted.index(one["name"]))
    others = [one for one in merged if one["name"] not in wanted]
    out = []
    while named and others:
        left, right = others[0]["name"], named[0]["name"]
        is_first = left in stood and right in stood and stood.index(left) < stood.index(right)
        out.append((others if is_first else named).pop(0))
    return out + named + others


NAMED = st.builds(lambda name, image: {"name": name, "image": image}, st.sampled_from("abcde"), st.sampled_from(["1", "2"]))
GOING = st.builds(lambda name: {"name": name, "$patch": "delete"}, st.sampled_from("abcde"))


@given(st.lists(NAMED, min_size=1, max_size=5), st.lists(NAMED | GOING, max_size=5))
def test_strategic_merge_of_lists_equals_the_simple_algorithm(held, patch):
    found = strategic_merge(POD, {"spec": {"containers": held}}, {"spec": {"containers": patch}})
    assert found["spec"]["containers"] == plainly_merged(held, patch)


def test_json_patch_is_as_lenient_as_kubernetes():
    document = {"data": {"a": "1"}}
    assert json_patch(document, [{"op": "replace", "path": "/data/b", "value": "2"}]) == {"data": {"a": "1", "b": "2"}}
    assert json_patch(document, [{"op": "add", "path": "/data/b"}]) == {"data": {"a": "1", "b": None}}
    assert json_patch(document, [{"op": "add", "path": "data/b", "value": 1}]) == {**document, "b": 1}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("name", STRATEGIC)
def test_kubectl_agrees(name, tmp_path):
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(held_pod()))
    command = [
        "kubectl",
        "patch",
        "--local",
        "-f",
        str(path),
        "--type",
        "strategic",
        "-p",
        json.dumps(STRATEGIC[name]),
        "-o",
        "json",
    ]
    run = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(tmp_path)},
    )
    if run.returncode:
        pytest.skip(f"kubectl does not run here: {run.stderr}")
    theirs = json.loads(run.stdout)
    ours = strategic_merge(POD, held_pod(), STRATEGIC[name])
    for part in ("containers", "tolerations", "nodeSelector", "hostname"):
        shown = theirs["spec"].get(part)
        if part == "containers":
            shown = [{key: one[key] for key in ("name", "image")} for one in shown]
        assert shown == ours["spec"].get(part)
    assert theirs["metadata"]["finalizers"] == ours["metadata"]["finalizers"]
