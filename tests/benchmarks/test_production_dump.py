"""Test the dump of a production cluster: it is read without a fault, and its pending pods stay pending for their reasons."""

from __future__ import annotations

import gzip
import json

import msgspec
import pytest
import yaml

from benchmarks.production_dump import write_production_dump
from moorage.interfaces.cli.main import main
from moorage.laboratory.compare.input_digest import input_digest
from moorage.simulator.cluster_reader import read


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    path = tmp_path_factory.mktemp("dump") / "dump.json"
    write_production_dump(path, nodes=60, pods=700)
    return path


def test_it_has_as_many_nodes_and_pods_as_asked_for(dump):
    kinds = [item["kind"] for item in msgspec.json.decode(dump.read_bytes())["items"]]
    assert kinds.count("Node") == 60
    assert kinds.count("Pod") == 700


def test_equal_arguments_make_equal_bytes(dump, tmp_path):
    again = tmp_path / "again.json"
    write_production_dump(again, nodes=60, pods=700)
    assert again.read_bytes() == dump.read_bytes()


@pytest.mark.slow
def test_pods_are_pending_for_their_reasons(dump, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "-f", str(dump), "-o", "json"])
    assert ended.value.code == 2
    pending = {pod["name"]: pod for pod in json.loads(capsys.readouterr().out)["pods"] if pod["state"] == "Pending"}
    assert {
        "checkout-api-typo",
        "search-reindex-too-large",
        "payments-ledger-no-claim",
        "edge-proxy-in-one-zone",
    } <= pending.keys()
    assert "not found" in pending["payments-ledger-no-claim"]["message"]


def in_yaml(text: bytes) -> bytes:
    return yaml.dump(msgspec.json.decode(text), Dumper=yaml.CSafeDumper).encode()


def with_managed_fields(text: bytes) -> bytes:
    """As with ``--show-managed-fields``."""
    found = msgspec.json.decode(text)
    entry = {
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {'k:{"name":"main"}': {".": {}}}},
        "manager": "m",
    }
    for item in found["items"]:
        item["metadata"]["managedFields"] = [entry, entry]
    return msgspec.json.encode(found)


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "change"), [("json.gz", gzip.compress), ("yaml", in_yaml), ("json", with_managed_fields)])
def test_every_form_of_it_is_the_same_input(suffix, change, dump, tmp_path):
    path = tmp_path / f"dump.{suffix}"
    path.write_bytes(change(dump.read_bytes()))
    expected, found = read([dump]), read([path])
    assert input_digest(found) == input_digest(expected)
    assert found.report.lines() == expected.report.lines()
    unread = {"ConfigMap", "Event", "Lease", "Secret"}
    assert unread <= {one.kind for one in found.report.unused}
