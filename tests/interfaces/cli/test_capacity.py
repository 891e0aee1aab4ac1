"""``moorage capacity``: what it prints, its documents and its exit statuses."""

import json
from pathlib import Path

import pytest

from tests.interfaces.cli.test_simulate_output import violations

ROOT = Path(__file__).resolve().parents[3]
DEMO = str(ROOT / "examples/demo")
JOB = str(ROOT / "examples/capacity/job.yaml")
SCHEMA = json.loads((ROOT / "docs/reference/capacity.schema.json").read_text())

STATUSES = {
    "some fit": ([JOB, "--no-gains"], 0),
    "none fits": (["statefulset/search", "--no-gains"], 2),
    "all of them fit": (["--replicas", f"{JOB}=19"], 0),
    "one is left over": (["--replicas", f"{JOB}=20"], 2),
    "no such template": (["deployment/none"], 1),
    "no number": (["--replicas", JOB], 1),
    "not a number": (["web=x"], 1),
}


@pytest.mark.parametrize(("args", "status"), STATUSES.values(), ids=STATUSES)
def test_exit_statuses(moorage, args, status):
    ran = moorage("capacity", *args, "-f", DEMO)
    assert ran.status == status
    assert bool(ran.err) == (status == 1)


QUESTIONS = {
    "one": [JOB], "a mix": ["web=3,nightly-report=2"], "replicas": ["--replicas", f"{JOB}=3"], "a limit": [JOB, "--limit", "1"],
    "none": ["search"], "seeds": [JOB, "--seeds", "2", "--pending", "ignore"], "preemption": [JOB, "--preempt"],
    "changes": [JOB, "--cordon", "general-a1"],
}  # fmt: skip


@pytest.mark.parametrize("args", QUESTIONS.values(), ids=QUESTIONS)
def test_documents_keep_to_their_schema(moorage, args):
    document = json.loads(moorage("capacity", *args, "-f", DEMO, "-o", "json").out)
    assert list(violations(document, SCHEMA, root=SCHEMA)) == []


@pytest.mark.slow
def test_the_text_is_at_most_100_columns_wide(moorage):
    for args in QUESTIONS.values():
        assert max(map(len, moorage("capacity", *args, "-f", DEMO, "-o", "wide").out.splitlines())) <= 100
    assert moorage("capacity", JOB, "-f", DEMO, "-o", "wide", "--ascii").out.isascii()


NODE = '{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "4", pods: "9"}}}'
POD = '{containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}'
SPEC = "{replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " + POD + "}}"
WORKLOAD = "\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: %s}, spec: " + SPEC + "}"
WORKLOADS = "\n---".join([NODE, *(WORKLOAD % one for one in (("web", "shop"), ("api", "shop"), ("api", "bank")))])
NAMES = {  # template, what is printed
    "kind and name": ("deployment/web", "4 more instances of web fit"),
    "a short name of the kind": ("deploy/web", "4 more instances of web fit"),
    "name": ("web", "4 more instances of web fit"),
    "namespace and name": ("bank/api", "4 more instances of api fit"),
    "in two namespaces": ("deployment/api", "deployment/api may be deployment/shop/api, deployment/bank/api"),
    "a typing error": ("deployment/wbe", "there is no deployment/wbe; close: deployment/shop/web"),
    "another namespace": ("shp/web", "there is no shp/web; close: shop/web"),
}


@pytest.mark.parametrize(("name", "says"), NAMES.values(), ids=NAMES)
def test_a_workload_is_found_by_its_name(moorage, tmp_path, name, says):
    (tmp_path / "shop.yaml").write_text(WORKLOADS)
    ran = moorage("capacity", name, "-f", str(tmp_path / "shop.yaml"), "--no-gains")
    assert says in ran.out + ran.err


def test_a_table_of_dumps(moorage):
    ran = moorage("capacity", JOB, "-f", DEMO, "--each", "-f", str(ROOT / "examples/team-nodes"), "--no-gains")
    assert ran.status == 0
    assert [line.split()[-4:-1] for line in ran.out.splitlines()[1:2]] == [["job", "19", "19"]]
    assert len(ran.out.splitlines()) == 3


def test_before_and_after(moorage):
    out = moorage("capacity", JOB, "-f", DEMO, "--no-gains", "--add-nodes", "like=general-a1").out
    assert out.startswith("24 more instances of job fit")
    assert "before: 19 more instances of job fit" in out
