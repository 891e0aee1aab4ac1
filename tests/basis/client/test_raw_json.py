"""Changes of JSON texts: what a change does not name stays byte for byte, whatever it is."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.fields.patches import merge_patch
from moorage.basis.client.raw_json import at, change_between, fields_of, merged
from moorage.errors import ClusterError

#: Values in forms that decoding and encoding again would change.
TEXTS = st.sampled_from([
    "1.0", "1e400", "-0", "1000000000000000000000000000000", "0.10", '"\\u003c\\u00f8"', '"ø<&>"', "[ 1 ,  2.0 ]",
    '{ "b" : 1.0, "a" : { "x" : null } }', "null", "{}", '{"a":1,"a":2}', "true",
])  # fmt: skip
NAMES = st.sampled_from(["a", "b", "c", "d"])
PLAIN = st.recursive(st.integers() | st.text(max_size=3), lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=6)


@given(fields=st.dictionaries(NAMES, TEXTS), change=st.dictionaries(NAMES, st.none() | st.integers(0, 9) | st.just("new")))
def test_fields_that_are_not_named_keep_their_bytes_and_their_order(fields, change):
    text = ("{" + ", ".join(f'"{name}" : {value}' for name, value in fields.items()) + "}").encode()
    made = fields_of(merged(text, change))
    kept = [name for name in fields if change.get(name, "") is not None]
    assert [name for name in made if name in fields] == kept
    for name in kept:
        assert bytes(made[name]) == (msgspec.json.encode(change[name]) if name in change else fields[name].encode())
    assert {name for name in made if name not in fields} == {name for name, value in change.items() if value is not None} - {
        *fields
    }


@given(old=st.dictionaries(NAMES, PLAIN), new=st.dictionaries(NAMES, PLAIN))
def test_a_change_makes_the_new_object_of_the_old_one(old, new):
    change = change_between(old, new)
    assert json.loads(merged(json.dumps(old).encode(), change)) == new == merge_patch(old, change)


def test_items_of_a_list_that_stay_keep_fields_that_are_not_known():
    text = b'{"users":[{"uid":"a","new":1.0},{"uid":"b","new":2.0}]}'
    old, new = [{"uid": "a"}, {"uid": "b"}], [{"uid": "b"}, {"uid": "c"}]
    change = change_between({"users": old}, {"users": new})
    assert merged(text, change) == b'{"users":[{"uid":"b","new":2.0},{"uid":"c"}]}'


def test_places():
    text = b'{"a":{"b":[1.0]},"c":1}'
    assert bytes(at(text, "a", "b")) == b"[1.0]"
    assert at(text, "c", "b") is None
    assert at(text, "a", "x", "y") is None
    with pytest.raises(ClusterError, match="not a JSON object"):
        merged(b"[]", {})
