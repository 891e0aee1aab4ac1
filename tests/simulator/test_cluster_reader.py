"""Test how manifests and dumps become a cluster: decoding, defaults, errors and the report."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.errors import InputError
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read, read_sources

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "c"}]}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}}


def named(template: dict, name: str, **more: object) -> dict:
    return {**template, "metadata": {"name": name, **more}}


def take(*contents: bytes | str | dict | list) -> ClusterInput:
    """Read contents as files a.yaml, b.yaml, and so on."""

    def encoded(content: bytes | str | dict | list) -> bytes:
        if isinstance(content, bytes):
            return content
        return content.encode() if isinstance(content, str) else json.dumps(content).encode()

    return read_sources(InputFile(f"{chr(97 + i)}.yaml", encoded(content)) for i, content in enumerate(contents))


def refused(*contents: bytes | str | dict | list) -> str:
    with pytest.raises(InputError) as caught:
        take(*contents)
    return str(caught.value)


def a_list(*items: dict, kind: str = "List") -> dict:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": ""}, "items": list(items)}


def bare(template: dict) -> dict:
    return {key: value for key, value in template.items() if key not in {"apiVersion", "kind"}}


SHAPES = {  # input → names of pods and nodes
    "one object": (POD, ["web"], []),
    "a list of several kinds": (a_list(POD, NODE), ["web"], ["n1"]),
    "an empty list": (a_list(), [], []),
    "a list without items": ({"apiVersion": "v1", "kind": "List", "items": None}, [], []),
    "a typed list without items": ({"apiVersion": "v1", "kind": "PodList"}, [], []),
    "a typed list": (a_list(bare(POD), kind="PodList"), ["web"], []),
    "a typed list whose items carry their kind": (a_list(POD, kind="PodList"), ["web"], []),
    "nested lists": (a_list(a_list(POD), a_list(a_list(NODE))), ["web"], ["n1"]),
}


@pytest.mark.parametrize("form", ["json", "indented", "yaml", "yaml stream"])
@pytest.mark.parametrize(("given", "pods", "nodes"), SHAPES.values(), ids=SHAPES)
def test_shapes(given, pods, nodes, form):
    text = {
        "json": lambda: json.dumps(given),
        "indented": lambda: json.dumps(given, indent=4),
        "yaml": lambda: yaml.safe_dump(given),
        "yaml stream": lambda: "# comment\n---\n" + yaml.safe_dump(given) + "---\n---\n# nothing\n",
    }[form]()
    cluster = take(text)
    assert cluster.report.unused == ()
    assert [pod.name for pod in cluster.pods] == pods
    assert [node.name for node in cluster.nodes] == nodes


def test_several_documents_in_one_file():
    assert [pod.name for pod in take(json.dumps(POD) + "\n" + json.dumps(named(POD, "b"))).pods] == ["web", "b"]


def test_every_supported_kind_is_stored():
    for kind in KINDS:
        one = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "x"}}
        cluster = read_sources([InputFile("in", json.dumps(one).encode())], validated=False)
        (found,) = [one for one in getattr(cluster, kind.slot) if one.metadata.name == "x"]
        assert isinstance(found, kind.type)
        assert found.metadata.namespace == ("default" if kind.namespaced else "")
        assert (kind.name, 1) in cluster.report.read


def test_objects_get_namespace_uid_and_defaults():
    first = take(a_list(POD, NODE))
    (pod,), (node,) = first.pods, first.nodes
    assert pod.namespace == "default"
    assert pod.uid
    assert node.status.allocatable == {"cpu": "4"}
    assert take(a_list(NODE, POD)).pods[0].uid == pod.uid
    assert take(named(POD, "web", namespace="other")).pods[0].uid != pod.uid
    assert take(named(POD, "web", uid="its-own")).pods[0].uid == "its-own"


def test_cluster_scoped_objects_have_no_namespace():
    assert take(named(NODE, "n1", namespace="default")).nodes[0].metadata.namespace == ""


def test_generated_names():
    twins = [{**POD, "metadata": {"generateName": "job-"}}] * 2
    names = [pod.name for pod in take(a_list(*twins)).pods]
    assert len(set(names)) == 2
    assert all(name.startswith("job-") and len(name) == 9 for name in names)
    assert [pod.name for pod in take(a_list(*twins)).pods] == names


def test_undeclared_namespaces_exist_with_their_name_label():
    cluster = take(named(POD, "web", namespace="prod"))
    labels = {space.metadata.name: space.metadata.labels for space in cluster.namespaces}
    assert labels == {
        "default": {"kubernetes.io/metadata.name": "default"},
        "prod": {"kubernetes.io/metadata.name": "prod"},
    }
    assert cluster.report.notes == ("1 namespace not in the input, assumed without labels: prod",)


def test_nulls_of_dumps():
    text = json.dumps({**POD, "metadata": {"name": "web", "creationTimestamp": None, "labels": None}, "status": None})
    assert take(text).pods[0].labels == {}


UNUSED = {  # apiVersion, kind → the report's line
    "a kind that scheduling does not use": ("v1", "ConfigMap", "2 ConfigMap: scheduling does not read it"),
    "an unknown kind": ("example.com/v1", "Widget", "2 Widget example.com/v1: unknown kind"),
    "an unsupported version": (
        "policy/v1beta1",
        "PodDisruptionBudget",
        "2 PodDisruptionBudget policy/v1beta1: this version of the API is not read; convert it to policy/v1",
    ),
    "a kind that moved to another group": (
        "extensions/v1beta1",
        "Deployment",
        (
            "2 Deployment extensions/v1beta1: no release since 1.16 serves this version; give it apiVersion: apps/v1 and a "
            "spec.selector with the labels of its template"
        ),
    ),
    "a configuration": (
        "kubescheduler.config.k8s.io/v1",
        "KubeSchedulerConfiguration",
        "2 KubeSchedulerConfiguration kubescheduler.config.k8s.io/v1: give it with --config",
    ),
    "a kind whose name ends in List": ("example.com/v1", "AllowList", "2 AllowList example.com/v1: unknown kind"),
}


@pytest.mark.parametrize(("version", "kind", "line"), UNUSED.values(), ids=UNUSED)
def test_unused_objects_are_counted_in_the_report(version, kind, line):
    one = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}}
    cluster = take(a_list(one, POD), yaml.safe_dump(one))
    assert cluster.report.lines() == [line]
    assert len(cluster.pods) == 1


def test_identical_duplicates_are_reported_and_different_ones_rejected():
    assert take(POD, POD).report.notes == ("1 object given more than once, identically: Pod default/web (a.yaml and b.yaml)",)
    other = {**POD, "spec": {"containers": [{"name": "d"}]}}
    assert refused(POD, yaml.safe_dump(other)) == "b.yaml:1: Pod default/web is also at a.yaml, and differs; keep one of them"
    assert len(take(POD, named(POD, "web", namespace="other")).pods) == 2


REFUSED = {  # content → the error message
    "not an object": ("- a\n- b\n", "a.yaml:1: expected a Kubernetes object with apiVersion and kind, found a list"),
    "a scalar": ("hello\n", "a.yaml:1: expected a Kubernetes object with apiVersion and kind, found a scalar"),
    "no fields of an object": ("a: 1\n", "a.yaml:1: apiVersion and kind not set"),
    "no kind": ("apiVersion: v1\n", "a.yaml:1: kind not set"),
    "no apiVersion": ('{"kind": "Pod"}', "a.yaml: apiVersion not set"),
    "a number as kind": ("apiVersion: v1\nkind: 1\n", "a.yaml:1: kind: expected str, found 1"),
    "an item without a kind": (a_list(bare(POD)), "a.yaml: items[0]: apiVersion and kind not set"),
    "an item that is null": (
        '{"apiVersion": "v1", "kind": "List", "items": [null]}',
        "a.yaml: items[0]: expected a Kubernetes",
    ),
    "items of another kind": (
        '{"apiVersion": "v1", "kind": "List", "items": {"a": 1}}',
        "a.yaml:1: List: items: expected a list",
    ),
    "items of a typed list": ("apiVersion: v1\nkind: PodList\nitems: abc\n", "a.yaml:1: PodList: items: expected a list"),
    "no name": ({**POD, "metadata": {}}, "a.yaml: Pod: metadata.name: Required value: name or generateName is required"),
    "a wrong type": (
        {**NODE, "spec": {"unschedulable": "no"}},
        'a.yaml:1: Node n1: spec.unschedulable: expected bool, found str "no"',
    ),
    "a port as a string": (
        {**POD, "spec": {"containers": [{"name": "c", "ports": [{"hostPort": "80"}]}]}},
        'a.yaml:1: Pod web: spec.containers[0].ports[0].hostPort: expected int, found str "80"',
    ),
    "a number as label": (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  labels:\n    version: 1.5\n",
        'a.yaml:6: Pod web: metadata.labels[version]: expected str, found float 1.5; quote it: "1.5"',
    ),
    "broken JSON": ('{"apiVersion": "v1", "kind": ', "a.yaml:1"),
    "a tab in YAML": ("a:\n\t- b\n", "a.yaml:2"),
    "gzip inside gzip": (gzip.compress(b"x"), "a.yaml:1: this is gzip-compressed"),
    "deep nesting": ("[" * 100_000, "a.yaml:1"),
    "deep nesting in JSON": ('{"a":' * 100_000 + "1" + "}" * 100_000, "a.yaml:1"),
    "an alias bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)),
        "a.yaml:",
    ),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_errors_name_the_position(content, message):
    assert refused(content).startswith(message)


def test_all_validation_errors_are_reported_at_once():
    broken = {
        **POD,
        "spec": {"containers": [{"name": "c"}, {"name": "c"}], "tolerations": [{"effect": "Foo", "operator": "Exists"}]},
    }
    assert refused(NODE, broken).splitlines() == [
        'b.yaml: Pod default/web: spec.containers[1].name: Duplicate value: "c"',
        (
            'b.yaml: Pod default/web: spec.tolerations[0].effect: Unsupported value: "Foo": '
            'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
        ),
    ]


def test_without_validation_only_unreadable_objects_are_rejected():
    broken = json.dumps({**POD, "spec": {}}).encode()
    assert len(read_sources([InputFile("in", broken)], validated=False).pods) == 1


def test_nested_lists_have_a_depth_limit():
    nested = POD
    for _ in range(30):
        nested = a_list(nested)
    assert refused(nested).endswith("lists within lists, more than 10 deep")
    assert "lists within lists" in refused(yaml.safe_dump(nested))


def test_errors_are_reported_together_up_to_a_limit():
    broken = [named({**POD, "spec": {"nodeName": 1}}, f"p{i}") for i in range(50)]
    for message in (refused, lambda *objects: refused(a_list(*objects))):
        assert len(message(*broken[:3]).splitlines()) == 3
        lines = message(*broken).splitlines()
        assert len(lines) == 21
        assert lines[-1] == "and maybe more; these are the first"


def test_errors_quote_values_shortened():
    (line,) = refused(named(POD, "x" * 1_000_000)).splitlines()[:1]
    assert len(line) == 400


def test_files_end_to_end(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(POD))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(a_list(NODE)).encode()))
    (tmp_path / "README.md").write_text("x")
    cluster = read([str(tmp_path)])
    assert (len(cluster.pods), len(cluster.nodes)) == (1, 1)
    assert cluster.report.notes == (f"1 file not read because of the name: {tmp_path / 'README.md'}",)
    assert read(str(tmp_path)) == read(tmp_path) == read([tmp_path]) == cluster


DAMAGE = json.dumps(a_list(POD, NODE), indent=1).encode()


@pytest.mark.slow
@settings(max_examples=75)
@given(cut=st.integers(0, len(DAMAGE)), noise=st.binary(max_size=4))
def test_damaged_bytes_are_read_or_rejected(cut, noise):
    for data in (DAMAGE[:cut], DAMAGE[:cut] + noise + DAMAGE[cut:], yaml.safe_dump(POD).encode()[:cut] + noise):
        try:
            take(data)
        except InputError as error:
            assert str(error).startswith("a.yaml")  # noqa: PT017


@pytest.mark.slow
def test_the_same_input_gives_the_same_cluster_in_every_process(tmp_path: Path):
    (tmp_path / "a.json").write_text(
        json.dumps(a_list(named(POD, "p", namespace="x"), {**POD, "metadata": {"generateName": "g-"}}))
    )
    code = (
        "import sys, msgspec; from moorage.simulator.cluster_reader import read\n"
        "c = read([sys.argv[1]]); print(msgspec.json.encode([c.pods, c.namespaces]).decode(), c.report)"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env={"PYTHONPATH": "src", "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


TWICE = {
    "in YAML": ("apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  name: b\n", 'in:5: key "name" already set in map'),
    "in JSON": (
        '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "name": "b"}}',
        'in:1: duplicate field "metadata.name"',
    ),
}


@pytest.mark.parametrize(("text", "message"), TWICE.values(), ids=TWICE)
def test_of_duplicate_fields_the_last_counts_and_a_note_says_so(text, message):
    read = read_sources([InputFile("in", text.encode())])
    assert [node.metadata.name for node in read.nodes] == ["b"]
    (note,) = read.report.notes
    assert note == f"1 key given more than once in a map; the last value counts, as with kubectl: {message}"


def test_a_key_beside_a_merge_is_no_duplicate():
    text = "apiVersion: v1\nkind: Node\nmetadata: {<<: {name: a, labels: {x: z}}, name: b}\n"
    read = read_sources([InputFile("in", text.encode())])
    assert [(node.metadata.name, node.metadata.labels) for node in read.nodes] == [("b", {"x": "z"})]
    assert read.report.notes == ()


def test_implied_namespaces_do_not_count_as_read():
    assert read_sources([InputFile("in", b"")]).report.read == ()
