"""``moorage plan``: what it prints, its documents and its exit statuses."""

import json
from pathlib import Path

import pytest

from tests.interfaces.cli.test_simulate_output import violations

ROOT = Path(__file__).resolve().parents[3]
DEMO = str(ROOT / "examples/demo")
SCHEMA = json.loads((ROOT / "docs/reference/plan.schema.json").read_text())
TYPES = """\
- {name: general, like: general, price: 1}
- {name: huge, price: 5, zones: [zone-a, zone-b],
   node: {metadata: {labels: {disk: ssd}}, status: {allocatable: {cpu: "32", memory: 256Gi, pods: "110"}}}}
"""
SMALL = "- {name: small, node: {status: {allocatable: {cpu: '2', memory: 4Gi, pods: '10'}}}}"


@pytest.fixture
def types(tmp_path):
    def write(text):
        path = tmp_path / "types.yaml"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.slow
@pytest.mark.parametrize(("text", "status"), {TYPES: 0, SMALL: 2, "a: 1": 1}.items(), ids=["optimal", "partial", "wrong"])
def test_exit_statuses_and_documents(moorage, types, text, status):
    args = ["plan", "-f", DEMO, "--types", types(text), "--time-limit", "20"]
    ran = moorage(*args, "-o", "json")
    assert ran.status == status
    if status != 1:
        document = json.loads(ran.out)
        assert list(violations(document, SCHEMA, root=SCHEMA)) == []
        assert document["answer"]["status"] == {0: "optimal", 2: "partial"}[status]


@pytest.mark.slow
def test_the_text(moorage, types):
    ran = moorage("plan", "-f", DEMO, "--types", types(TYPES), "-o", "wide")
    assert ran.out.startswith("Buy 1 huge: 5 per hour, which is the lower bound.\n")
    assert max(map(len, ran.out.splitlines())) <= 100
    partial = moorage("plan", "-f", DEMO, "--types", types(SMALL)).out
    assert partial.startswith("Buy nothing: the existing nodes take 19 of 21 pods; 2 pods stay pending.\n")
    assert "NodeResourcesFit: Insufficient cpu on small" in partial
    assert "✗ default/search-2\n      no type offers what they need\n" in partial


def test_pods_of_a_file(moorage, types, tmp_path):
    job = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j"},
           "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "20"}}}]}}  # fmt: skip
    (tmp_path / "pods.json").write_text(json.dumps(job))
    ran = moorage("plan", "-f", DEMO, "--types", types(TYPES), "--pods", tmp_path / "pods.json", "-o", "json")
    assert json.loads(ran.out)["answer"]["nodes"] == {"huge": 1}
    assert json.loads(ran.out)["answer"]["pods"] == 1


def test_types_are_needed(moorage):
    assert moorage("plan", "-f", DEMO).status == 1


def test_consolidation(moorage, types):
    ran = moorage("plan", "--consolidate", "-f", DEMO)
    assert ran.status == 0
    assert ran.out.startswith("Remove 2 nodes: general-a2, general-c2; 3 pods move.\n")
    assert max(map(len, ran.out.splitlines())) <= 100
    document = json.loads(moorage("plan", "--consolidate", "-f", DEMO, "-o", "json", "--types", types(TYPES), "--buy").out)
    assert list(violations(document, SCHEMA, root=SCHEMA)) == []
    assert document["answer"]["remove"] == ["general-a2", "general-c2"]
    assert document["answer"]["blocked"]["gpu-a1"][-1]["rule"] == "price"


CLASHES = {
    "to buy without prices": ["--consolidate", "--buy"],
    "flags of a drain without one": ["--types", "types.yaml", "--force"],
    "pods to place": ["--consolidate", "--pods", "pods.yaml"],
}


@pytest.mark.parametrize("args", CLASHES.values(), ids=CLASHES)
def test_options_that_clash(moorage, args):
    assert moorage("plan", "-f", DEMO, *args).status == 1
