"""Requests to extenders and their replies: every kind of invalid reply is an error with its reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.extenders.wire import (
    MOST_TEXT,
    MOST_VALUES,
    ExtenderError,
    FilterReply,
    MetaVictims,
    bind_args,
    check_bind_reply,
    node_args,
    preempt_args,
    read_filter_reply,
    read_preempt_reply,
    read_priorities,
    shown,
)
from moorage.testing.builders import a_node, a_pod

NOTHING = FilterReply(None, None, {}, {})
FILTER = {
    "names": (b'{"NodeNames": ["a", "b"]}', FilterReply(("a", "b"), None, {}, {})),
    "as older examples spell them": (
        b'{"nodenames": ["a"], "failedNodes": {"b": "no"}}',
        FilterReply(("a",), None, {"b": "no"}, {}),
    ),
    "nodes": (b'{"Nodes": {"items": [{"metadata": {"name": "a"}, "kind": "Node"}]}}', FilterReply(None, ("a",), {}, {})),
    "both": (b'{"Nodes": {"items": []}, "NodeNames": []}', FilterReply((), (), {}, {})),
    "duplicates": (b'{"NodeNames": ["a", "a"]}', FilterReply(("a", "a"), None, {}, {})),
    "nothing": (b"{}", NOTHING),
    "null": (b"null", NOTHING),
    "nulls": (b'{"NodeNames": null, "Nodes": null, "FailedNodes": null, "Error": null}', NOTHING),
    "a null for a name": (b'{"NodeNames": [null]}', FilterReply(("",), None, {}, {})),
    "unknown fields": (
        b'{"Foo": 1, "FailedAndUnresolvableNodes": {"c": "never"}}',
        FilterReply(None, None, {}, {"c": "never"}),
    ),
    "more after the reply": (b' {"NodeNames": []} and more', FilterReply((), None, {}, {})),
}


@pytest.mark.parametrize(("body", "reply"), FILTER.values(), ids=FILTER)
def test_a_filter_reply_is_decoded_as_in_go(body, reply):
    assert read_filter_reply(body) == reply


WRONG = {
    "HTML": (b"<html>It works!</html>", "invalid character '<' looking for beginning of value"),
    "nothing": (b"", "EOF"),
    "blanks": (b" \n", "EOF"),
    "half a reply": (b'{"NodeNames": ["a", ', "unexpected EOF"),
    "half a text": (b'{"NodeNames": ["a', "unexpected EOF"),
    "a list": (b"[]", "json: cannot unmarshal array into Go value of type v1.ExtenderFilterResult"),
    "a text": (b'"fine"', "json: cannot unmarshal string into Go value of type v1.ExtenderFilterResult"),
    "names that are none": (
        b'{"NodeNames": "a"}',
        "json: cannot unmarshal string into Go struct field ExtenderFilterResult.NodeNames of type list",
    ),
    "numbers for names": (
        b'{"NodeNames": [1]}',
        "json: cannot unmarshal number 1 into Go struct field ExtenderFilterResult.NodeNames of type string",
    ),
    "a list of failures": (
        b'{"FailedNodes": ["a"]}',
        "json: cannot unmarshal array into Go struct field ExtenderFilterResult.FailedNodes of type map",
    ),
    "nodes without a list": (b'{"Nodes": []}', "json: cannot unmarshal array into Go struct field ExtenderFilterResult.Nodes"),
    "an error of its own": (b'{"Error": "out of order", "NodeNames": ["a"]}', "out of order"),
    "not a number": (b'{"NodeNames": NaN}', "invalid character 'N' looking for beginning of value"),
    "a number too long to read": (b'{"Foo": ' + b"9" * 5000 + b"} ", "the reply cannot be read"),
    "a deep pit": (b"[" * 200_000, "the reply cannot be read"),
    "no text at all": (b"\xff\xfe\x00", "invalid character"),
}


@pytest.mark.parametrize(("body", "text"), WRONG.values(), ids=WRONG)
def test_an_invalid_reply_is_an_error_with_its_reason(body, text):
    with pytest.raises(ExtenderError) as caught:
        read_filter_reply(body)
    assert str(caught.value).startswith(text)


SCORES = {
    "plain": (b'[{"Host": "a", "Score": 3}, {"Host": "b", "Score": 10}]', [("a", 3), ("b", 10)]),
    "in lower case": (b'[{"host": "a", "score": 3}]', [("a", 3)]),
    "out of range": (b'[{"Host": "a", "Score": 11}, {"Host": "b", "Score": -1}]', [("a", 11), ("b", -1)]),
    "a node twice": (b'[{"Host": "a", "Score": 1}, {"Host": "a", "Score": 2}]', [("a", 1), ("a", 2)]),
    "null": (b"null", []),
    "nulls": (b'[null, {"Host": "a"}]', [("", 0), ("a", 0)]),
    "no UTF-8": (b'[{"Host": "\x80", "Score": 3}]', [("\N{REPLACEMENT CHARACTER}", 3)]),
    "not a list": (b"{}", "json: cannot unmarshal object into Go value of type v1.HostPriorityList"),
    "a fraction": (
        b'[{"Score": 1.5}]',
        "json: cannot unmarshal number 1.5 into Go struct field HostPriority.Score of type int64",
    ),
    "a large float": (b'[{"Score": 1e18}]', "json: cannot unmarshal number 1e+18"),
    "too large": (b'[{"Score": 9223372036854775808}]', "json: cannot unmarshal number 9223372036854775808"),
    "a text": (b'[{"Score": "9"}]', "json: cannot unmarshal string"),
    "true": (b'[{"Score": true}]', "json: cannot unmarshal bool"),
    "not a number": (b'[{"Score": NaN}]', "invalid character 'N' looking for beginning of value"),
    "infinite": (b'[{"Score": -Infinity}]', "invalid character '-' looking for beginning of value"),
}


@pytest.mark.parametrize(("body", "outcome"), SCORES.values(), ids=SCORES)
def test_scores_are_whole_numbers_of_64_bits(body, outcome):
    if isinstance(outcome, list):
        assert read_priorities(body) == outcome
        return
    with pytest.raises(ExtenderError) as caught:
        read_priorities(body)
    assert str(caught.value).startswith(outcome)


VICTIMS = {
    "plain": (
        b'{"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}}',
        {"n": MetaVictims(("u",), 1)},
    ),
    "no victims": (
        b'{"nodeNameToMetaVictims": {"n": {"Pods": []}, "m": null}}',
        {"n": MetaVictims((), 0), "m": MetaVictims((), 0)},
    ),
    "nothing": (b"{}", {}),
}


@pytest.mark.parametrize(("body", "victims"), VICTIMS.values(), ids=VICTIMS)
def test_victims_are_named_by_uid(body, victims):
    assert read_preempt_reply(body) == victims


def test_a_bind_succeeds_unless_the_reply_has_an_error():
    check_bind_reply(b"{}")
    check_bind_reply(b'{"Error": ""}')
    with pytest.raises(ExtenderError, match="busy"):
        check_bind_reply(b'{"error": "busy"}')
    with pytest.raises(ExtenderError, match="EOF"):
        check_bind_reply(b"")


READERS = [read_filter_reply, read_priorities, read_preempt_reply, check_bind_reply]
KEYS = ["NodeNames", "nodes", "items", "metadata", "name", "FailedNodes", "Error", "Host", "Score", "Pods", "UID"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=40) | ANYTHING.map(lambda value: json.dumps(value).encode()), st.sampled_from(READERS))
def test_every_reply_is_decoded_or_rejected(body, read):
    try:
        read(body)
    except ExtenderError:
        return


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://e:80/x", "http://e:80/x"),
        ("http://me:secret@e/x", "http://me:***@e/x"),
        ("https://me:se:c@ret@e/x", "https://me:***@e/x"),
        ("http://me@e/a:b@c", "http://me@e/a:b@c"),
        ("http://e/x?to=http://a:b@c", "http://e/x?to=http://a:b@c"),
    ],
)
def test_passwords_in_addresses_are_redacted(url, told):
    assert shown(url) == told


def test_a_request_has_names_or_nodes():
    pod = a_pod("p", labels={"a": "b"}, containers=[{"name": "c", "resources": {"requests": {"cpu": "1"}}}]).pod
    node = a_node("n", allocatable={"cpu": "2"})
    by_name = json.loads(node_args(pod, [node], ["n"], by_name=True))
    assert (by_name["Nodes"], by_name["NodeNames"]) == (None, ["n"])
    assert by_name["Pod"]["metadata"] == {"name": "p", "namespace": "default", "uid": "default/p", "labels": {"a": "b"}}
    assert by_name["Pod"]["spec"]["containers"] == [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    assert by_name["Pod"]["spec"]["schedulerName"] == "default-scheduler"
    whole = json.loads(node_args(pod, [node], ["n"], by_name=False))
    assert whole["NodeNames"] is None
    (sent,) = whole["Nodes"]["items"]
    assert (sent["metadata"]["name"], sent["spec"], sent["status"]["allocatable"]) == ("n", {}, {"cpu": "2"})


def test_complete_objects_are_sent_in_full():
    pod, node = a_pod("p").pod, a_node("n", allocatable={"cpu": "2"})
    known = {"p": b'{"metadata": {"name": "p"}, "spec": {"hostname": "h"}}', "n": b'{"status": {"addresses": []}}'}
    told = json.loads(node_args(pod, [node], ["n"], by_name=False, whole=lambda obj: known.get(obj.name)))
    assert told["Pod"]["spec"] == {"hostname": "h"}
    assert told["Nodes"]["items"] == [{"status": {"addresses": []}}]
    victims = {"n": ([pod, a_pod("unknown").pod], 0)}
    told = json.loads(preempt_args(pod, victims, by_uid=False, whole=lambda obj: known.get(obj.name)))
    pods = told["NodeNameToVictims"]["n"]["Pods"]
    assert [pods[0]["spec"], pods[1]["metadata"]["name"]] == [{"hostname": "h"}, "unknown"]


def test_a_preempt_request_has_uids_or_pods_of_victims():
    pod, victim = a_pod("p").pod, a_pod("v").pod
    by_uid = json.loads(preempt_args(pod, {"n": ([victim], 1)}, by_uid=True))
    assert by_uid["NodeNameToMetaVictims"] == {"n": {"Pods": [{"UID": "default/v"}], "NumPDBViolations": 1}}
    assert by_uid["NodeNameToVictims"] is None
    whole = json.loads(preempt_args(pod, {"n": ([victim], 0)}, by_uid=False))
    assert whole["NodeNameToVictims"]["n"]["Pods"][0]["metadata"]["name"] == "v"
    assert whole["NodeNameToMetaVictims"] is None


def test_a_bind_request_names_pod_and_node():
    told = json.loads(bind_args(a_pod("p").pod, "n"))
    assert told == {"PodName": "p", "PodNamespace": "default", "PodUID": "default/p", "Node": "n"}


# -- what means harm ------------------------------------------------------------------------------------------------------


def test_a_lone_surrogate_is_decoded_as_in_go():
    body = b'{"NodeNames": ["a\\ud800"], "FailedNodes": {"\\udfff": "\\ud83d\\ude00"}}'
    assert read_filter_reply(body) == FilterReply(("a\ufffd",), None, {"\ufffd": "\U0001f600"}, {})
    with pytest.raises(ExtenderError) as caught:
        check_bind_reply(b'{"Error": "\\ud800"}')
    assert str(caught.value) == "\ufffd"


@pytest.mark.parametrize("value", ["{}", "[]", "1"])
def test_a_reply_of_too_many_values_is_not_decoded(value):
    body = b'{"x": [' + b",".join([value.encode()] * (MOST_VALUES + 1)) + b"]}"
    with pytest.raises(ExtenderError, match=f"the reply holds more than {MOST_VALUES} values"):
        read_filter_reply(body)


def test_node_messages_are_truncated():
    alike = {f"n{at}": "too hot" for at in range(5000)}
    assert read_filter_reply(json.dumps({"FailedNodes": alike}).encode()).failed == alike
    unlike = {f"n{at}": f"{at} " + "x" * 5000 for at in range(5000)}
    texts = read_filter_reply(json.dumps({"FailedNodes": unlike}).encode()).failed
    assert list(texts) == list(unlike)
    assert len(texts["n0"].encode()) <= 1024
    assert sum(map(len, set(texts.values()))) < MOST_TEXT + 100
    assert texts["n4999"] == "(more was said than is kept)"


def test_an_error_is_one_line_of_a_kibibyte():
    with pytest.raises(ExtenderError) as caught:
        check_bind_reply(json.dumps({"Error": "\x1b[2J\n" + "e" * 1_000_000}).encode())
    assert str(caught.value).startswith("\\x1b[2J\\neee")
    assert str(caught.value).endswith("e … (1000005 characters)")
    assert len(str(caught.value).encode()) <= 1024
