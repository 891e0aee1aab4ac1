"""Bad input: one clear message, status 1, nothing on standard output, no traceback, bounded time and memory."""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


def alias_bomb(levels):
    first = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    return first + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, levels))


def nested_lists(depth):
    inside = {"apiVersion": "v1", "kind": "List", "items": []}
    for _ in range(depth):
        inside = {"apiVersion": "v1", "kind": "List", "items": [inside]}
    return json.dumps(inside)


def a_pod(requests=None, ports=None, metadata=None, **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": requests or {}}, "ports": ports or []}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata or {"name": "p"},
        "spec": {"containers": [container], **spec},
    }
    return yaml.dump(pod, Dumper=yaml.CSafeDumper)


def required(expression):
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
GZIPPED = gzip.compress(NODE.encode())

REPLICA_SET = """\
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: r}
spec:
  replicas: 2000000000
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}
"""
BUDGET = """\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: b}
spec: {selector: {matchExpressions: [{key: a, operator: Foo}]}}
"""
POD = "apiVersion: v1\nkind: Pod\n"

HOSTILE = {  # text → what the message must hold
    "brackets without end": ("[" * 30_000 + "]" * 30_000, "nested deeper than 100 levels"),
    "deep JSON": ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested deeper than 100 levels"),
    "deep flow YAML": ("a: " + "{b: " * 100_000, "nested deeper than 100 levels"),
    "deep block YAML": ("".join(" " * i + "a:\n" for i in range(2000)), "nested deeper than 100 levels"),
    "an alias bomb": (alias_bomb(12), "excessive aliasing"),
    "an anchor in itself": ("apiVersion: v1\nkind: Pod\nmetadata: &a\n  labels: *a\n", "contains itself"),
    "lists in lists": (nested_lists(40), "lists within lists, more than 10 deep"),
    "a tag that runs code": ("!!python/object/apply:os.system ['true']\n", "expected a Kubernetes object"),
    "5000 digits in JSON": ('{"apiVersion":"v1","kind":"Pod","spec":{"priority":' + "9" * 5000 + "}}", "out of range"),
    "5000 digits in YAML": ("apiVersion: v1\nkind: Pod\nspec: {priority: " + "9" * 5000 + "}\n", "spec.priority"),
    "more pods than anyone has": (REPLICA_SET, "more than 500000"),
}  # fmt: skip

SYNTAX = {
    "plain words": ("hello\n", "expected a Kubernetes object with apiVersion and kind, found a scalar"),
    "a list": ("- a\n", "expected a Kubernetes object with apiVersion and kind, found a list"),
    "no kind": ("a: 1\n", "apiVersion and kind not set"),
    "a kind that is a list": ("apiVersion: v1\nkind: [a]\n", 'kind: expected str, found ["a"]'),
    "items that are a number": ("apiVersion: v1\nkind: List\nitems: 3\n", "items: expected a list of objects"),
    "an item that is a number": ("apiVersion: v1\nkind: List\nitems: [3]\n", "items[0]: expected a Kubernetes object"),
    "tabs": ("apiVersion: v1\nkind: Pod\n\tmetadata: {}\n", "tab"),
    "NaN in JSON": ('{"apiVersion":"v1","kind":"Node","x":NaN}', "NaN is not a JSON number"),
    "NaN in YAML": (NODE + "status: {allocatable: {cpu: .nan}}\n", "NaN"),
    "a lone surrogate": ('{"apiVersion":"v1","kind":"Pod","metadata":{"name":"\\ud800"}}', "lone surrogate"),
    "JSON that breaks off": ('{"apiVersion": "v1", "ki', "unterminated string"),
    "not UTF-8": (b"apiVersion: v1\nkind: Pod\nmetadata: {name: \xe9}\n", "UTF-8"),
    "zeroes": (bytes(1000), "binary"),
    "gzip that breaks off": (GZIPPED[:-10], "cannot be decompressed"),
    "gzip that is damaged": (GZIPPED[:20] + b"xxxx" + GZIPPED[24:], "cannot be decompressed"),
    "gzip in gzip": (gzip.compress(GZIPPED), "gzip-compressed; decompress it first"),
}

QUANTITIES = [
    "-1", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-", " 1", "1 ", "", "1\n", "\u0661",
    "0x10", "1_000", "NaN", "Infinity", ".", "+", True, [1], {"a": 1},
]  # fmt: skip

OBJECTS = {
    "no containers": (POD + "metadata: {name: p}\nspec: {containers: []}\n", "spec.containers: Required value"),
    "no name": (a_pod(metadata={"labels": {}}), "metadata.name: Required value"),
    "a bad name": (a_pod(metadata={"name": "A_b"}), 'metadata.name: Invalid value: "A_b"'),
    "a long name": (a_pod(metadata={"name": "a" * 254}), "metadata.name"),
    "a bad label": (a_pod(metadata={"name": "p", "labels": {"a": "x" * 64}}), "metadata.labels"),
    "too many notes": (a_pod(metadata={"name": "p", "annotations": {"a": "x" * 263_000}}), "metadata.annotations: Too long"),
    "a spec that is text": (POD + "metadata: {name: p}\nspec: hello\n", 'spec: expected object, found str "hello"'),
    "metadata that are a list": ("apiVersion: v1\nkind: Pod\nmetadata: [1]\n", "metadata: expected object"),
    "a port too high": (a_pod(ports=[{"containerPort": 80, "hostPort": 65536}]), "ports[0].hostPort: Invalid value: 65536"),
    "a port below zero": (a_pod(ports=[{"containerPort": -1}]), "ports[0].containerPort: Invalid value: -1"),
    "a port in words": (a_pod(ports=[{"containerPort": "80"}]), 'ports[0].containerPort: expected int, found str "80"'),
    "a protocol": (a_pod(ports=[{"containerPort": 80, "protocol": "ICMP"}]), 'Unsupported value: "ICMP"'),
    "a bad node selector": (a_pod(nodeSelector={"a b": "c"}), "spec.nodeSelector"),
    "an operator": (a_pod(affinity=required({"key": "a", "operator": "Foo"})), "not a valid selector operator"),
    "In nothing": (a_pod(affinity=required({"key": "a", "operator": "In", "values": []})), "matchExpressions[0].values"),
    "Exists with a value": (a_pod(affinity=required({"key": "a", "operator": "Exists", "values": ["x"]})), "values"),
    "no skew": (
        a_pod(topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]),
        "maxSkew: Invalid value: 0",
    ),
    "a toleration": (a_pod(tolerations=[{"operator": "Equal", "value": "x"}]), "spec.tolerations[0]"),
    "a taint's effect": (NODE + "spec: {taints: [{key: a, effect: Nope}]}\n", 'Unsupported value: "Nope"'),
    "a node below zero": (NODE + "status: {allocatable: {cpu: '-4'}}\n", "status.allocatable.cpu"),
    "a budget's selector": (BUDGET, "spec.selector.matchExpressions[0].operator"),
    "one name, two pods": (a_pod({"cpu": "1"}) + "---\n" + a_pod({"cpu": "2"}), "and differs; keep one of them"),
}  # fmt: skip


def check_refused(ran, message):
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("error: ")
    _, *excerpt = ran.err.splitlines()
    assert len(excerpt) <= 4, ran.err
    assert all(re.match(r"  +\d* \| ", line) for line in excerpt), ran.err
    assert message in ran.err
    assert len(ran.err) < 1000


@pytest.mark.parametrize(("text", "message"), (SYNTAX | OBJECTS).values(), ids=[*SYNTAX, *OBJECTS])
def test_is_refused(moorage, text, message):
    check_refused(moorage("simulate", "-f", "-", stdin=text if isinstance(text, bytes) else text.encode()), message)


@pytest.mark.parametrize("quantity", QUANTITIES, ids=repr)
def test_a_malformed_quantity_is_refused(moorage, quantity):
    check_refused(moorage("simulate", "-f", "-", stdin=a_pod({"cpu": quantity}).encode()), "resources.requests[cpu]")


@pytest.mark.parametrize("quantity", ["1e999999", "1e99999999999999", "9" * 40])
def test_a_huge_quantity_fits_nowhere(moorage, quantity):
    node = NODE + "status: {allocatable: {cpu: '4', memory: 1Gi, pods: '9'}}\n"
    ran = moorage("simulate", "-f", "-", stdin=f"{node}---\n{a_pod({'cpu': quantity})}".encode())
    assert (ran.status, ran.err) == (2, "")
    assert "    0/1 nodes are available: 1 Insufficient cpu." in ran.out


def test_one_invalid_pod_does_not_block_others(moorage):
    node = NODE + "status: {allocatable: {cpu: '4', memory: 1Gi, pods: '9'}}\n"
    poisoned = a_pod({"cpu": "9223372036854775807"}, metadata={"name": "poison"}, priority=2**31 - 1)
    claims = a_pod(metadata={"name": "claims"}, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}])
    ran = moorage(
        "simulate", "-f", "-", "-o", "json", stdin="---\n".join([node, poisoned, claims, a_pod({"cpu": "1"})]).encode()
    )
    assert {pod["name"]: pod["state"] for pod in json.loads(ran.out)["pods"]} == {
        "poison": "Pending", "claims": "Pending", "p": "Placed",
    }  # fmt: skip


def bounded():
    """Allow 3 GiB of memory and 60 s of processor time: what hostile input must do with, and much more than it needs."""
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


def python(*args, stdin=subprocess.DEVNULL):
    """Run Python within the bounds."""
    return subprocess.run(
        [sys.executable, *args], stdin=stdin, preexec_fn=bounded,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": os.defpath, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip


def run_bounded(*args, stdin=subprocess.DEVNULL):
    return python("-m", "moorage", "simulate", *args, stdin=stdin)


#: Runs the command for each file of a folder in one process, and prints [status, output, errors] of each run as JSON.
EACH = """
import contextlib, io, json, pathlib, sys
from moorage.interfaces.cli.main import main
found = {}
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main(["simulate", "-f", str(path)])
        except SystemExit as ended:
            found[path.name] = [ended.code, out.getvalue(), err.getvalue()]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def hostile_runs(tmp_path_factory):
    """Return status, output and errors of a run for each text of HOSTILE, all of them in one process within the bounds."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, (text, _) in HOSTILE.items():
        (folder / name).write_text(text)
    ran = python("-c", EACH, str(folder))
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "message"), [(name, message) for name, (_, message) in HOSTILE.items()], ids=HOSTILE)
def test_hostile_text_is_refused_within_bounds(hostile_runs, name, message):
    status, out, err = hostile_runs[name]
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") <= 5
    assert message in err


@pytest.mark.slow
def test_a_compression_bomb_is_refused_within_bounds(tmp_path):
    path = tmp_path / "bomb.yaml.gz"
    path.write_bytes(gzip.compress(b" " * (1 << 23)) * 64)
    ran = run_bounded("-f", str(path))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "grows more than 200-fold" in ran.stderr


@pytest.mark.slow
def test_a_device_without_end_is_refused_by_name_and_as_standard_input():
    ran = run_bounded("-f", "/dev/zero")
    assert (ran.returncode, ran.stderr) == (1, "error: /dev/zero: this is a device, not a regular file\n")
    with open("/dev/zero", "rb") as zeroes:
        ran = run_bounded("-f", "-", stdin=zeroes)
    assert (ran.returncode, ran.stderr) == (1, "error: -: this is binary, not YAML or JSON\n")


def test_what_cannot_be_opened(moorage, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    said = {
        "fifo": "this is a named pipe, not a regular file; pipe it in and read it with -f -",
        "empty": "no .yaml, .yml or .json file in this directory",
        "loop": "Too many levels of symbolic links",
        "missing": "No such file or directory",
    }
    for name, message in said.items():
        check_refused(moorage("simulate", "-f", tmp_path / name), f"{tmp_path / name}: {message}")
    if os.geteuid():
        (tmp_path / "secret").touch(mode=0)
        check_refused(moorage("simulate", "-f", tmp_path / "secret"), "Permission denied")


def test_faults_of_up_to_twenty_objects_are_reported_together(moorage):
    many = "---\n".join(a_pod({"cpu": "x"}, metadata={"name": f"p{i}"}) for i in range(30))
    ran = moorage("simulate", "-f", "-", stdin=many.encode())
    assert (ran.status, ran.out) == (1, "")
    lines = ran.err.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and maybe more; these are the first"
