"""The same attacks on two servers: equal servers show no difference, and another server's differences are found and grouped."""

import asyncio
import os
import random
import re
from pathlib import Path

import msgspec
import pytest

from moorage.api.schema.protobuf import PROTOBUF, write_protobuf
from moorage.errors import ConfigError
from tools.attacks.comparing import AttackComparison, compare, compare_servers, groups_of
from tools.attacks.differences import AnswerDifference, differences_of_answers
from tools.attacks.known_differences import KNOWN
from tools.attacks.making import make
from tools.attacks.routes import combinations
from tools.attacks.sides import ServerAddress, embedded_side
from tools.attacks.wire import AttackResponse

KUBE_APISERVER = os.environ.get("MOORAGE_TEST_APISERVER", "")


async def against_embedded(seed, attacks, **settings):
    async with embedded_side(1, **settings) as other:
        return await compare_servers(AttackComparison(seed), other.address, attacks)


@pytest.mark.slow
def test_equal_servers_do_not_differ():
    result = asyncio.run(against_embedded(5, 150))
    assert result.attacks > 130
    assert [str(group) for group in groups_of(result.found)] == []


@pytest.mark.slow
def test_a_server_with_other_kinds_differs():
    result = asyncio.run(against_embedded(2, 400, has_groups=False))
    groups = groups_of(result.found)
    assert {one.difference.aspect for one in result.found} >= {"accepted here only"}
    assert {getattr(one.attack.what.route.about, "resource", "podgroups") for one in result.found} <= {"podgroups", "workloads"}
    assert "--seed 2 --only" in str(groups[0])


@pytest.mark.skipif(not KUBE_APISERVER, reason="MOORAGE_TEST_APISERVER has no address of a kube-apiserver")
@pytest.mark.slow
def test_a_kube_apiserver_answers_attacks_in_the_same_way():
    authority = os.environ.get("MOORAGE_TEST_APISERVER_CA")
    token = os.environ.get("MOORAGE_TEST_APISERVER_TOKEN", "token-of-admin")
    address = ServerAddress.of(KUBE_APISERVER, token, Path(authority) if authority else None)
    result = compare(0, address, attacks=int(os.environ.get("MOORAGE_TEST_ATTACKS", "500")))
    assert [str(group) for group in groups_of(result.found)] == []


def test_known_differences_are_documented():
    page = (Path(__file__).parents[3] / "docs/run/robustness.md").read_text(encoding="utf-8")
    table = page.partition("| known difference |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (\S[^|]*) \|", table, re.MULTILINE) == [*KNOWN]


def answer(code, document=None, warnings=(), form="application/json"):
    body = msgspec.json.encode(document or {})
    return AttackResponse("1.1", code, {"content-type": form}, body, warnings=[*warnings])


def failure(reason="Invalid", message="m", **details):
    return {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "details": details}


UID, OTHER_UID = "5c4ddf6a-1f7b-4c51-9f0f-0e5fbe4a8a07", "c0ffee00-1f7b-4c51-9f0f-0e5fbe4a8a07"


@pytest.mark.parametrize(
    ("ours", "theirs", "aspects"),
    [
        (answer(201), answer(422, failure()), ["accepted here only"]),
        (answer(422, failure()), answer(201), ["rejected here only"]),
        (answer(404, failure()), answer(403, failure()), ["code"]),
        (None, answer(400), ["no response"]),
        (answer(422, failure()), answer(422, failure(reason="Forbidden")), ["reason"]),
        (answer(422, failure(causes=[{"field": "a"}])), answer(422, failure(causes=[{"field": "b"}])), ["causes"]),
        (answer(422, failure(message=f"x {UID}")), answer(422, failure(message=f"x {OTHER_UID}")), []),
        (answer(422, failure(message="x")), answer(422, failure(message="y")), ["message"]),
        (answer(200, {"metadata": {"uid": UID}}), answer(200, {"metadata": {"uid": OTHER_UID}}), []),
        (answer(200, {"metadata": {"uid": UID}}), answer(200, {"metadata": {}}), ["body"]),
        (answer(200, {"spec": {"a": [1, 2]}}), answer(200, {"spec": {"a": [1, 3]}}), ["body"]),
        (answer(200, warnings=["299 - x"]), answer(200), ["warnings"]),
        (answer(200), answer(200, form="application/yaml"), ["content type"]),
    ],
)
def test_what_counts_as_a_difference(ours, theirs, aspects):
    found = differences_of_answers(ours, theirs, has_body=True)
    assert [one.aspect for one in found][: len(aspects)] == aspects
    assert bool(found) == bool(aspects)


def test_protobuf_is_compared_with_json():
    encoded = write_protobuf({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    theirs = AttackResponse("1.1", 200, {"content-type": PROTOBUF}, encoded)
    ours = answer(200, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "y"}, "spec": {}})
    found = differences_of_answers(ours, theirs, has_body=True)
    assert [(one.aspect, one.at) for one in found] == [("content type", ""), ("body", ".metadata.name")]


def test_objects_that_a_server_made_by_itself_are_not_compared():
    ours, theirs = (answer(200, {"items": [{"metadata": {"name": name}} for name in names]}) for names in (["own", "a"], ["a"]))
    assert differences_of_answers(ours, theirs, has_body=True, is_own=lambda one: one["name"] == "own") == []
    assert differences_of_answers(ours, theirs, has_body=True) != []


def test_objects_differ_for_the_reason_that_only_one_server_accepts_an_attack():
    result = AttackComparison(1)
    put = next(one for one in combinations() if one.method == "PUT" and one.route.about is not None)
    attack = next(one for seed in range(9) if (one := make(random.Random(seed), 1, put)).is_plain)
    changed = AnswerDifference("state", ".a", "1", "2")
    result.add(attack, [AnswerDifference("rejected here only", "", "414 too long", "200"), changed])
    assert (result.found, result.known.total()) == ([], 2)
    result.add(attack, [changed])
    assert [one.difference for one in result.found] == [changed]


def test_the_worst_differences_come_first():
    found = differences_of_answers(answer(200, {"spec": {"a": 1}}, ["299 - x"]), answer(200, {"spec": {}}), has_body=True)
    assert AnswerDifference("body", ".spec.a", "1", "nothing") in found


@pytest.mark.parametrize("url", ["127.0.0.1:6443", "https://127.0.0.1", "ftp://127.0.0.1:1", "https://kube.example.org:6443"])
def test_only_servers_on_this_machine_are_attacked(url):
    with pytest.raises(ConfigError, match="--against"):
        ServerAddress.of(url, "t")
