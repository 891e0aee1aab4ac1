"""The same attacks on two servers: equal servers show no difference, and another server's differences are found and grouped."""

import asyncio
import os
import re
from pathlib import Path

import msgspec
import pytest

from moorage.errors import ConfigError
from moorage.testing.attacks.comparing import AttackComparison, compare, compare_servers, groups_of
from moorage.testing.attacks.differences import AnswerDifference, differences_of_answers
from moorage.testing.attacks.known_differences import KNOWN
from moorage.testing.attacks.sides import ServerAddress, embedded_side
from moorage.testing.attacks.wire import AttackResponse

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
    result = asyncio.run(against_embedded(5, 300, has_groups=False))
    groups = groups_of(result.found)
    assert {one.difference.aspect for one in result.found} >= {"accepted here only"}
    assert {getattr(one.attack.what.route.about, "resource", "podgroups") for one in result.found} <= {"podgroups", "workloads"}
    assert "--seed 5 --only" in str(groups[0])


@pytest.mark.skipif(not KUBE_APISERVER, reason="MOORAGE_TEST_APISERVER has no address of a kube-apiserver")
@pytest.mark.slow
def test_a_kube_apiserver_accepts_the_same_attacks():
    authority = os.environ.get("MOORAGE_TEST_APISERVER_CA")
    token = os.environ.get("MOORAGE_TEST_APISERVER_TOKEN", "token-of-admin")
    address = ServerAddress.of(KUBE_APISERVER, token, Path(authority) if authority else None)
    result = compare(0, address, attacks=int(os.environ.get("MOORAGE_TEST_ATTACKS", "500")))
    one_sided = [one for one in result.found if "here only" in one.difference.aspect]
    assert len(one_sided) <= result.attacks / 50, [str(group) for group in groups_of(one_sided)]


def test_known_differences_are_documented():
    page = (Path(__file__).parents[3] / "docs/explanation/robustness.md").read_text(encoding="utf-8")
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


def test_the_worst_differences_come_first():
    found = differences_of_answers(answer(200, {"spec": {"a": 1}}, ["299 - x"]), answer(200, {"spec": {}}), has_body=True)
    assert AnswerDifference("body", ".spec.a", "1", "nothing") in found


@pytest.mark.parametrize("url", ["127.0.0.1:6443", "https://127.0.0.1", "ftp://127.0.0.1:1", "https://kube.example.org:6443"])
def test_only_servers_on_this_machine_are_attacked(url):
    with pytest.raises(ConfigError, match="--against"):
        ServerAddress.of(url, "t")
