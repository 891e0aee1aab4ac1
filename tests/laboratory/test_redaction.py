"""Redaction: no name is left, equal names stay equal, and everything is scheduled as before."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest
import yaml

import moorage
from moorage.errors import InputError
from moorage.interfaces.cli.main import main
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.redact.redaction import redact, redact_cluster
from moorage.laboratory.redact.redaction_check import check_redacted
from moorage.laboratory.redact.redaction_tokens import Tokens
from moorage.simulator.simulate import Options
from tests.laboratory.random_world import OTHERS, World

ROOT = Path(__file__).parents[2]
KEY = b"0123456789abcdef"

TRAPS = (ROOT / "tests/data/redaction.yaml").read_text()


def checked(objects):
    cluster = read_given(copy.deepcopy(objects))
    redacted = redact_cluster(cluster, KEY)
    return redacted, check_redacted(cluster, read_given(redacted.objects), Options(skip_extenders=True))


def test_everything_is_scheduled_as_before():
    redacted, found = checked([TRAPS])
    assert found.differences == ()
    assert found.attempts >= 7
    names = {one["metadata"]["name"] for one in redacted.objects if one["kind"] == "Pod"}
    assert any(name.endswith("-0") for name in names)


SECRETS = """
payments purple worker alpha beta frankfurt paris acme accelerator urgent ledger journal platinum storefront 7b9 x2kfp pinned
scratch bigcards mammoth onecard painter mycard hushhush PASSWORD registry shop web v42 203.0.113.7
"""


def test_no_name_is_left():
    redacted, _ = checked([TRAPS])
    text = json.dumps(redacted.objects)
    assert [word for word in SECRETS.split() if re.search(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", text)] == []
    assert "worker-alpha" in redacted.mapping.values()


def test_what_all_clusters_share_stays():
    text = json.dumps(redact([TRAPS], KEY).objects)
    for kept in (
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "amd64",
        '"Gt"',
        '"6"',
        "500m",
        "WaitForFirstConsumer",
    ):
        assert kept in text, kept


def test_the_demo_is_scheduled_as_before():
    _, found = checked([ROOT / "examples" / "demo"])
    assert (found.attempts, found.differences) == (24, ())


@pytest.mark.parametrize("seed", range(6))
def test_random_clusters_are_scheduled_as_before(seed):
    world = World(seed)
    nodes = [world.node(f"node-{number}") for number in range(6)]
    pods = [world.pod(f"node-{number % 6}") for number in range(6)] + [world.pod() for _ in range(14)]
    _, found = checked([*nodes, *yaml.safe_load_all(OTHERS), *pods])
    assert found.differences == ()
    assert found.attempts


def test_the_check_sees_a_difference():
    cluster = read_given([TRAPS])
    objects = redact_cluster(cluster, KEY).objects
    for one in objects:
        if one["kind"] == "Node":
            one["status"]["allocatable"]["cpu"] = "1"
    assert check_redacted(cluster, read_given(objects), Options(skip_extenders=True)).differences


def test_ties_are_counted_and_followed():
    status = {"allocatable": {"cpu": "4", "pods": "9"}}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    head = {"apiVersion": "v1"}
    nodes = [{**head, "kind": "Node", "metadata": {"name": name}, "status": status} for name in "abcdef"]
    pods = [{**head, "kind": "Pod", "metadata": {"name": f"p{n}"}, "spec": {"containers": [container]}} for n in range(9)]
    _, found = checked([*nodes, *pods])
    assert found.differences == ()
    assert found.ties >= 6


def test_equal_keys_give_equal_tokens():
    first, second = redact([TRAPS], KEY), redact([TRAPS], KEY)
    assert first.objects == second.objects
    other = redact([TRAPS], KEY[::-1])
    assert not set(first.mapping) & set(other.mapping)
    assert set(first.mapping.values()) == set(other.mapping.values())
    assert moorage.redact is redact


def test_times_are_shifted_by_one_offset():
    tokens = Tokens(KEY)
    first, second = (tokens.time(f"2026-01-0{day}T00:00:00Z") for day in (1, 2))
    assert first[:10] < second[:10] < "2026-01-02"
    assert first.endswith("Z")
    assert tokens.time("yesterday") == ""


REFUSED = {
    "a short key": (lambda: redact([TRAPS], b"short"), "the key has 5 bytes; use at least 16"),
    "an expression that looks into a text": (
        lambda: redact([TRAPS.replace('.model == "mammoth"', '.model.startsWith("mam")')], KEY),
        r"startsWith\(\) looks into a text",
    ),
    "an expression that cannot be parsed": (
        lambda: redact([TRAPS.replace('.model == "mammoth"', " § ")], KEY), "cannot be redacted",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_redacted_is_refused(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_the_command(tmp_path, capsys):
    key, out, mapping = (str(tmp_path / name) for name in ("key", "out.json.gz", "map.json"))
    (tmp_path / "in.yaml").write_text(TRAPS)
    args = ["redact", "-f", str(tmp_path / "in.yaml"), "--key", key, "-o", out, "--map", mapping, "--verify"]
    with pytest.raises(SystemExit) as ended:
        main(args)
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (0, "")
    assert "a new key; keep it to yourself" in said.err
    assert "verified: " in said.err
    assert Path(key).stat().st_mode & 0o077 == Path(mapping).stat().st_mode & 0o077 == 0
    assert "worker-alpha" in json.loads(Path(mapping).read_text()).values()
    first = Path(out).read_bytes()
    with pytest.raises(SystemExit):
        main(args)
    assert Path(out).read_bytes() == first
    assert len(moorage.read([out]).nodes) == 2
