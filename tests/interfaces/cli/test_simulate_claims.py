"""Pods with claims from the command's side: manifests in, bindings of volumes and allocations of devices out."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

DATA = Path(__file__).resolve().parents[2] / "data" / "claims"
#: Two pods of a stateful set with a claim each, to be made in one zone, and a claim of both for a disk that is there.
STORAGE = DATA / "volumes.yaml"
#: Three pods that want a device each, of which there are two.
DEVICES = DATA / "devices.yaml"


def rows_under(title, out):
    """The rows of a table, without its header; None if there is no such table."""
    if title not in out:
        return None
    lines = out.partition(title + "\n")[2].partition("\n\n")[0].splitlines()
    return [line.split() for line in lines[1:]]


def test_the_claims_of_a_stateful_set_get_volumes_where_its_pods_go(moorage):
    ran = moorage("simulate", "-f", str(STORAGE))
    assert ran.status == 0, ran.out + ran.err
    rows = rows_under("Volumes bound:", ran.out)
    assert [row[:2] for row in rows] == [["shop", "data-db-0"], ["shop", "data-db-1"], ["shop", "logs"]]
    for number, row in enumerate(rows[:2]):
        assert row[2].startswith("pvc-")
        assert row[3:] == ["(new)", "zonal", "n1", f"db-{number}"]
    assert rows[2][2:] == ["disk-0", "shelf", "n1", *rows[2][5:6], "and", "1", "more"]
    assert "Devices allocated:" not in ran.out

    report = json.loads(moorage("simulate", "-f", str(STORAGE), "-o", "json").out)
    names = {row[1]: row[2] for row in rows}
    assert [(one["claim"], one["volume"], one["new"], one["node"]) for one in report["volumes"]] == [
        ("data-db-0", names["data-db-0"], True, "n1"), ("data-db-1", names["data-db-1"], True, "n1"),
        ("logs", "disk-0", False, "n1"),
    ]  # fmt: skip
    assert sorted(report["volumes"][2]["pods"]) == ["shop/db-0", "shop/db-1"]
    assert "devices" not in report


def test_a_claim_without_its_class_keeps_its_pod_pending(moorage):
    documents = STORAGE.read_text().split("---\n")
    without = "---\n".join(document for document in documents if "StorageClass\n" not in document)
    ran = moorage("simulate", "-f", "-", stdin=without.encode())
    assert ran.status == 2
    assert "pod has unbound immediate PersistentVolumeClaims" in ran.out
    assert [row[1] for row in rows_under("Volumes bound:", ran.out)] == ["logs"]


def test_claims_from_a_template_get_devices(moorage):
    ran = moorage("simulate", "-f", str(DEVICES))
    assert ran.status == 2
    assert "cannot allocate all claims" in ran.out
    rows = rows_under("Devices allocated:", ran.out)
    assert sorted(row[2:7] for row in rows) == [["gpu", "gpu.example.com", node, "gpu-0", node] for node in ("n0", "n2")]
    assert "Volumes bound:" not in ran.out

    report = yaml.safe_load(moorage("simulate", "-f", str(DEVICES), "-o", "yaml").out)
    nodes = {f"{pod['namespace']}/{pod['name']}": pod.get("node") for pod in report["pods"]}
    assert [(one["claim"], one["node"]) for one in report["devices"]] == [(row[1], row[6]) for row in rows]
    for one in report["devices"]:
        assert [nodes[pod] for pod in one["pods"]] == [one["node"]] == [one["pool"]]
        assert one["claim"].startswith(one["pods"][0].partition("/")[2] + "-gpu-")
    assert "volumes" not in report
