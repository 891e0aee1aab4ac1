"""Fields that a kind does not have, and kinds that are not known."""

import json

import msgspec
import pytest

from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.objects import FoundObject
from moorage.basis.inputs.simulated_kinds import find_kind
from moorage.errors import InputError
from moorage.simulator.cluster_reader import ReadRules, parse_treat_as, read_sources
from moorage.simulator.unknown_fields import FieldCheck, Validation

PRINTED = {"uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
PAIRS = [
    ("nodeSelectr", "nodeSelectr: {a: b}", 'unknown field "spec.nodeSelectr"; did you mean "nodeSelector"?'),
    ("toleration", "toleration: []", 'unknown field "spec.toleration"; did you mean "tolerations"?'),
    ("case", "NodeName: n", 'unknown field "spec.NodeName"; did you mean "nodeName"?'),
    ("inside a list", "volumes: [{name: v, emtyDir: {}}]", 'unknown field "spec.volumes[0].emtyDir"; did you mean "emptyDir"?'),
    ("no such name", "zzz: 1", 'unknown field "spec.zzz"'),
    ("elsewhere", "matchExpressions: []", 'unknown field "spec.matchExpressions"'),
]


def pod_text(line, **metadata):
    head = f"apiVersion: v1\nkind: Pod\nmetadata: {json.dumps({'name': 'p', **metadata})}\nspec:\n  containers: [{{name: c}}]\n"
    return f"{head}  {line}\n"


def read(*texts, **rules):
    return read_sources([InputFile(f"in{i}.yaml", text.encode()) for i, text in enumerate(texts)], rules=ReadRules(**rules))


@pytest.mark.parametrize(("line", "said"), [row[1:] for row in PAIRS], ids=[row[0] for row in PAIRS])
def test_a_misspelt_field_of_a_manifest_is_an_error_with_its_line(line, said):
    with pytest.raises(InputError) as caught:
        read(pod_text(line))
    assert str(caught.value).startswith(f"in0.yaml:6: Pod p: {said}")


def test_every_misspelt_field_is_named_at_once():
    text = pod_text("nodeSelectr: {}\n  toleration: []\n  containers: [{name: c, resources: {request: {cpu: 1}}}]")
    with pytest.raises(InputError) as caught:
        read(text.replace("  containers: [{name: c}]\n", ""))
    assert [line.partition(":")[2].partition(":")[0] for line in str(caught.value).splitlines()] == ["5", "6", "7"]


def test_a_field_in_the_wrong_place_is_shown_its_place():
    workload = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  containers: []\n"
    with pytest.raises(InputError, match=r'"containers" belongs in "spec\.template\.spec"'):
        read(workload)


def test_the_line_is_found_in_json_lists():
    items = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c"}], **more}}
        for name, more in (("a", {}), ("b", {"nodeNam": "x"}))
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "nodeNam" in line)
    with pytest.raises(InputError, match=f"in0.yaml:{line}: Pod b: "):
        read(text)


def test_what_a_server_printed_may_be_newer():
    texts = [pod_text("newerField: 1", **PRINTED | {"name": f"p{i}"}) for i in range(3)]
    cluster = read(*texts)
    assert len(cluster.pods) == 3
    [note] = cluster.report.notes
    assert note == "unknown field Pod.spec.newerField in 3 objects, ignored: Pod p0, Pod p1, Pod p2"


TEMPLATE = {"metadata": {"creationTimestamp": None}, "spec": {"containers": [{"name": "c"}]}}
OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "1"}]}


@pytest.mark.parametrize(
    ("metadata", "printed"), [(PRINTED, True), (OWNED | {"creationTimestamp": "2026-01-01T00:00:00Z"}, False), (7, False)],
    ids=["its template has no time of creation", "only its owner has a UID", "no metadata"],
)  # fmt: skip
def test_only_the_objects_own_metadata_says_that_a_server_printed_it(metadata, printed):
    document = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE, "newerField": 1},
    }  # fmt: skip
    found = FoundObject("apps/v1", "Deployment", msgspec.Raw(msgspec.json.encode(document)), "in.json")
    faults = FieldCheck(Validation.STRICT).faults(found, find_kind("apps/v1", "Deployment"), None)
    assert [fault for fault in faults if "newerField" in fault] == ([] if printed else faults[:1])
    assert bool(faults) is not printed


@pytest.mark.parametrize(("validation", "notes"), [(Validation.WARN, 1), (Validation.IGNORE, 0)])
def test_unknown_fields_may_be_let_through(validation, notes):
    cluster = read(pod_text("nodeSelectr: {}"), validation=validation)
    assert (len(cluster.pods), len(cluster.report.notes)) == (1, notes)


ROLLOUT = """
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: shop}
spec:
  replicas: 3
  strategy: {canary: {}}
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}
"""


def test_a_pod_template_of_an_unknown_kind_is_recognised():
    [unused] = read(ROLLOUT).report.unused
    assert unused.unknown
    assert "it has a pod template: --treat-as rollouts.argoproj.io=Deployment places its pods" in str(unused)


def test_an_unknown_kind_can_be_read_as_a_workload():
    cluster = read(ROLLOUT, treat_as=parse_treat_as(["rollouts.argoproj.io=Deployment"]))
    [deployment] = cluster.deployments
    assert (deployment.name, deployment.spec.replicas, cluster.report.unused) == ("shop", 3, ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rollouts=Deployment", "write PLURAL.GROUP=KIND"),
        ("rollouts.argoproj.io", "write PLURAL.GROUP=KIND"),
        ("rollouts.argoproj.io=Pod", "Pod is not a workload; use one of CronJob, DaemonSet"),
    ],
)
def test_a_wrong_rule_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        parse_treat_as([text])
