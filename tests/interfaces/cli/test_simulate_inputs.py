"""``moorage simulate`` reads what people have: the shapes of its input, its options, its exit statuses."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path

import pytest
import yaml

from moorage.simulator.trace import simulate_trace

ROOT = Path(__file__).resolve().parents[3]
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def placements(ran):
    """Return pod → node (None while pending) of a run with ``-o json``."""
    return {pod["name"]: pod.get("node") for pod in json.loads(ran.out)["pods"]}


def as_list(*texts):
    return {"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(text) for text in texts]}


def test_every_shape_of_input_gives_the_same(moorage, tmp_path, node, pod, cluster):
    (tmp_path / "docs.yaml").write_text(cluster)
    (tmp_path / "list.json").write_text(json.dumps(as_list(node, pod)))
    (tmp_path / "list.yaml").write_text(yaml.dump(as_list(node, pod)))
    (tmp_path / "typed.json").write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [yaml.safe_load(pod)]}))
    (tmp_path / "node.yaml").write_text(node)
    (tmp_path / "docs.yaml.gz").write_bytes(gzip.compress(cluster.encode()))
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbf" + cluster.replace("\n", "\r\n").encode())
    nested = tmp_path / "folder" / "below"
    nested.mkdir(parents=True)
    (tmp_path / "folder" / "node.yml").write_text(node)
    (nested / "pod.json").write_text(json.dumps(yaml.safe_load(pod)))
    ways = [
        ["-f", "docs.yaml"], ["-f", "list.json"], ["-f", "list.yaml"], ["-f", "node.yaml", "-f", "typed.json"],
        ["-f", "docs.yaml.gz"], ["-f", "bom.yaml"], ["-R", "-f", "folder"], ["-f", "folder", "-f", "folder/below"],
    ]  # fmt: skip
    for way in ways:
        ran = moorage("simulate", "-o", "json", *(word if word[0] == "-" else tmp_path / word for word in way))
        assert (ran.status, ran.err) == (0, ""), way
        assert placements(ran) == {"p1": "n1"}, way


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input(moorage, cluster, packed):
    given = gzip.compress(cluster.encode()) if packed else cluster.encode()
    assert placements(moorage("simulate", "-f", "-", "-o", "json", stdin=given)) == {"p1": "n1"}


def test_the_statuses(moorage, node, pod):
    assert moorage("simulate", "-f", "-", stdin=f"{node}---\n{pod}".encode()).status == 0
    assert moorage("simulate", "-f", "-", stdin=b"nonsense").status == 1
    assert moorage("simulate", "-f", "-", stdin=pod.encode()).status == 2
    assert moorage("simulate", "-f", "-", stdin=node.encode()).status == 0, "no pods: none of them is pending"


def test_pods_that_need_no_placement_are_reported(moorage, node, pod):
    over = pod.replace("p1", "done") + "status: {phase: Succeeded}\n"
    others = pod.replace("p1", "theirs").replace("spec:", "spec:\n  schedulerName: volcano")
    ran = moorage("simulate", "-f", "-", stdin=f"{node}---\n{over}---\n{others}".encode())
    assert ran.status == 0
    assert ran.out.startswith("no pods to place on 1 node ")
    assert "  1 pod not scheduled (ended, or being deleted): default/done\n" in ran.out
    noted = '  1 pod not scheduled (no profile has the scheduler name "volcano"): default/theirs; --as-default volcano places'
    assert noted in ran.out


def test_a_name_of_a_scheduler_cannot_steer_the_terminal(moorage, node, pod):
    odd = pod.replace("spec:", 'spec:\n  schedulerName: "a\\x1b[2J\\nb"')
    ran = moorage("simulate", "-f", "-", stdin=f"{node}---\n{odd}".encode())
    assert "\x1b" not in ran.out
    assert r'"a\u001b[2J\nb"' in ran.out


def test_ignored_objects_are_reported(moorage, cluster):
    more = "---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n---\napiVersion: v1\nkind: Secret\n"
    ran = moorage("simulate", "-f", "-", stdin=(cluster + more).encode())
    assert ran.status == 0
    assert "  1 Widget example.com/v1: unknown kind\n" in ran.out
    assert "  1 Secret: scheduling does not read it\n" in ran.out


def test_unknown_kinds_alone_are_an_error_unless_allowed(moorage):
    widget = b"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n"
    ran = moorage("simulate", "-f", "-", stdin=widget)
    said = "error: nothing to place; not read: 1 Widget example.com/v1: unknown kind. --allow-unknown accepts such input\n"
    assert (ran.status, ran.out, ran.err) == (1, "", said)
    ran = moorage("simulate", "-f", "-", "--allow-unknown", stdin=widget)
    assert (ran.status, ran.err) == (0, "")
    assert "unknown kind" in ran.out


def test_a_rollout_is_placed_as_a_deployment(moorage, node):
    rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "shop"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "strategy": {"canary": {}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}}}  # fmt: skip
    text = f"{node}\n---\n{json.dumps(rollout)}\n".encode()
    ran = moorage("simulate", "-f", "-", "--treat-as", "rollouts.argoproj.io=Deployment", stdin=text)
    assert ran.status == 0
    assert ran.out.startswith("2 placed on 1 node")


@pytest.mark.parametrize(("validate", "status"), [((), 1), (("--validate=warn",), 0), (("--validate=ignore",), 0)])
def test_a_misspelt_field_is_an_error_by_default(moorage, cluster, validate, status):
    misspelt = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c}], nodeSelectr: {a: b}}\n"
    ran = moorage("simulate", "-f", "-", *validate, stdin=(cluster + misspelt).encode())
    assert ran.status == status
    assert ('unknown field "spec.nodeSelectr"' in ran.err) is (status == 1)
    assert ("unknown field Pod.spec.nodeSelectr in 1 object" in ran.out) is (validate == ("--validate=warn",))


EMPTY = {"nothing": b"", "a comment": b"# later\n", "separators": b"---\n---\n", "null": b"null", "a list of nothing":
         b'{"apiVersion": "v1", "kind": "List", "items": []}'}  # fmt: skip


@pytest.mark.parametrize("text", EMPTY.values(), ids=EMPTY)
def test_empty_input_is_an_error(moorage, text):
    ran = moorage("simulate", "-f", "-", stdin=text)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        "error: standard input: no Kubernetes object found; "
        "expected the output of kubectl get -o yaml, or manifests\n"
    )  # fmt: skip


def test_a_configuration_decides(moorage, tmp_path, cluster):
    two = cluster.replace("n1", "n2") + "---\n" + cluster.split("---")[0]
    full = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: old}\nspec: {nodeName: n1, containers: [{name: c, image: i, "
    full += 'resources: {requests: {cpu: "2", memory: 4Gi}}}]}\n'
    config = tmp_path / "config.yaml"
    config.write_text(
        CONFIG + "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated}}\n"
        "  plugins: {multiPoint: {disabled: [{name: NodeResourcesBalancedAllocation}]}}\n"
    )
    given = ["simulate", "-f", "-", "-o", "json"]
    assert placements(moorage(*given, stdin=(two + full).encode()))["p1"] == "n2"
    assert placements(moorage(*given, "--config", config, stdin=(two + full).encode()))["p1"] == "n1"


def test_all_faults_of_a_configuration_are_reported(moorage, tmp_path, cluster):
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG + "parallelism: -1\nbogus: 1\nprofiles: [{schedulerName: a}, {schedulerName: a}]\n")
    ran = moorage("simulate", "-f", "-", "--config", config, stdin=cluster.encode())
    assert (ran.status, ran.out) == (1, "")
    first, *faults = ran.err.splitlines()
    assert first == f"error: {config}: cannot be used as KubeSchedulerConfiguration:"
    assert [line.split(":")[0].strip() for line in faults] == ["bogus", "parallelism", "profiles[1].schedulerName"]


@pytest.mark.slow
def test_a_plugin_in_the_current_folder(process, tmp_path, cluster):
    (tmp_path / "nowhere.py").write_text(
        "from moorage.framework.verdicts import Hold\n\n\n"
        "class Nowhere:\n"
        "    name = 'Nowhere'\n\n"
        "    def filter_node(self, pod, node):\n"
        "        return Hold.because('node(s) are nowhere')\n"
    )
    (tmp_path / "config.yaml").write_text(CONFIG + "profiles: [{plugins: {multiPoint: {enabled: [{name: Nowhere}]}}}]\n")
    ran = process(
        "simulate", "-f", "-", "--config", "config.yaml", "--plugins", "nowhere:Nowhere", stdin=cluster.encode(), cwd=tmp_path
    )
    assert (ran.status, ran.err) == (2, "")
    assert "    0/1 nodes are available: 1 node(s) are nowhere." in ran.out


PLUGINS = {
    "no colon": ("nope", "error: --plugins nope: write it as module:Class"),
    "no such module": ("nope:X", "error: --plugins nope:X: cannot import nope: ModuleNotFoundError"),
    "no such class": ("json:X", "error: --plugins json:X: module json has no X"),
    "no plugin": ("json:JSONDecoder", "error: plugin json.decoder:JSONDecoder: has no usable name"),
}


@pytest.mark.parametrize(("reference", "message"), PLUGINS.values(), ids=PLUGINS)
def test_an_invalid_plugin_is_rejected(moorage, cluster, reference, message):
    ran = moorage("simulate", "-f", "-", "--plugins", reference, stdin=cluster.encode())
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(message)
    assert ran.err.count("\n") == 1


def test_an_unknown_feature_gate_is_refused(moorage, cluster):
    ran = moorage("simulate", "-f", "-", "--feature-gates", "Nope=true", stdin=cluster.encode())
    assert (ran.status, ran.out) == (1, "")
    assert "Nope" in ran.err


def test_another_seed_draws_ties_otherwise_and_the_same_seed_does_not(moorage, node, pod):
    nodes = "---\n".join(node.replace("n1", f"n{i}") for i in range(20))
    given = f"{nodes}---\n{pod}".encode()
    drawn = [placements(moorage("simulate", "-f", "-", "-o", "json", "--seed", seed, stdin=given))["p1"] for seed in range(8)]
    again = [placements(moorage("simulate", "-f", "-", "-o", "json", "--seed", seed, stdin=given))["p1"] for seed in range(8)]
    assert drawn == again
    assert len(set(drawn)) > 1


TRACE = ["--trace", "openb", "--nodes", "examples/trace-openb/nodes.csv", "--pods", "examples/trace-openb/pods.csv"]


def test_the_bundled_trace(moorage, monkeypatch):
    monkeypatch.chdir(ROOT)
    ran = moorage("simulate", *TRACE)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("7 finished on 4 nodes ")
    stay = moorage("simulate", *TRACE, "--stay")
    assert stay.status == 2
    assert stay.out.startswith("5 placed, 2 pending on 4 nodes ")


def test_an_invalid_trace(moorage, tmp_path):
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,many,1,0,\n")
    ran = moorage("simulate", "--trace", "openb", "--nodes", tmp_path / "nodes.csv", "--pods", tmp_path / "nodes.csv")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {tmp_path}/nodes.csv:2: ")


SHARED = Path(os.environ.get("MOORAGE_SHARED") or ROOT.parent / "shared") / "traces"


OPENB = ["--nodes", SHARED / "openb_node_list_all_node.csv", "--pods", SHARED / "openb_pod_list_default.csv"]
needs_openb = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the openb trace is not beside the project; MOORAGE_SHARED says where it is"
)


@pytest.fixture
def one_run(monkeypatch):
    """Simulate a trace once for all commands of a test; each prints its own output."""
    runs = []

    def once(trace, options, *, stay, on_attempt):
        assert stay
        if not runs:
            runs.append(simulate_trace(trace, options, stay=stay, on_attempt=on_attempt))
        return runs[0]

    monkeypatch.setattr("moorage.simulator.trace.simulate_trace", once)


@needs_openb
@pytest.mark.slow
def test_openb_pods_arrive_in_order_and_finish(moorage, tmp_path):
    first = "".join((SHARED / "openb_pod_list_default.csv").read_text().splitlines(keepends=True)[:501])
    (tmp_path / "pods.csv").write_text(first)
    ran = moorage("simulate", "--trace", "openb", *OPENB[:2], "--pods", tmp_path / "pods.csv", "-o", "json")
    assert (ran.status, ran.err) == (0, "")
    pods = json.loads(ran.out)["pods"]
    assert [pod["state"] for pod in pods] == ["Finished"] * 500
    assert [pod["arrivedSeconds"] for pod in pods] == sorted(pod["arrivedSeconds"] for pod in pods)


@needs_openb
@pytest.mark.slow
def test_the_whole_openb_trace_stays_within_its_nodes_and_runs_as_in_the_reference(moorage, one_run):
    full = json.loads(moorage("simulate", "--trace", "openb", *OPENB, "--stay", "-o", "json").out)
    assert full["summary"]["pods"] == {"placed": 8109, "pending": 43, "preempted": 0, "finished": 0, "deleted": 0}
    for node in full["nodes"]:
        assert all(amount <= node["allocatable"][name] for name, amount in node["requested"].items()), node["name"]
    for pod in full["pods"]:
        assert ("node" in pod) is (pod["state"] == "Placed")
        assert pod["state"] == "Placed" or pod["message"].startswith("0/1523 nodes are available: ")
    # The reference shows the same run.
    promised = (ROOT / "docs/reference/inputs.md").read_text().partition("```text\n$ moorage ")[2].partition("\n```")[0]
    command, *lines = promised.splitlines()
    ran = moorage(*(SHARED / word if word.endswith(".csv") else word for word in command.split()))
    pattern = "\n".join(".*?" if line == "…" else re.escape(line) for line in lines)
    assert re.fullmatch(pattern + "\n", ran.out, re.DOTALL), ran.out


def test_an_input_without_nodes_is_reported(moorage, tmp_path, pod, node):
    told = "no nodes in the input, so that no pod can be scheduled: kubectl get nodes -o yaml prints them"
    pods, nodes = tmp_path / "pod.yaml", tmp_path / "node.yaml"
    pods.write_text(pod)
    nodes.write_text(node)
    ran = moorage("simulate", "-f", pods)
    assert (ran.status, told in ran.out) == (2, True)
    assert told not in moorage("simulate", "-f", pods, "-f", nodes).out
    assert told not in moorage("simulate", "-f", nodes).out
