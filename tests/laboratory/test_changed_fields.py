"""The fields that a change sets, and the one that keeps pods pending."""

import pytest

from moorage.api.decode import decode
from moorage.api.workloads import Deployment
from moorage.basis.inputs.files import open_sources
from moorage.basis.inputs.object_lines import ObjectKey, line_of_field
from moorage.laboratory.compare.changed_fields import changed_fields, field_at_fault

SPEC = ("spec", "template", "spec")


def deployment(replicas=3, labels=None, **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [container], **spec}}
    metadata = {"name": "w", "namespace": "n", "labels": labels or {}}
    whole = {"replicas": replicas, "selector": {"matchLabels": {"app": "w"}}, "template": template}
    return decode({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": whole}, Deployment, "test")


SELECTED = {"nodeSelector": {"disk": "none"}}
DEARER = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "9"}}}]}
TOLERANT = {"tolerations": [{"key": "k", "operator": "Exists"}]}
CPU = (*SPEC, "containers", 0, "resources", "requests", "cpu")
CASES = {
    "a selector": (deployment(), deployment(**SELECTED), ["NodeAffinity"], (*SPEC, "nodeSelector")),
    "one that another plugin reads": (
        deployment(),
        deployment(**SELECTED),
        ["NodeResourcesFit"],
        (*SPEC, "nodeSelector", "disk"),
    ),
    "the one of two that refuses": (deployment(), deployment(5, **SELECTED), ["NodeResourcesFit"], ("spec", "replicas")),
    "replicas": (deployment(3), deployment(5), ["NodeResourcesFit"], ("spec", "replicas")),
    "a request": (deployment(), deployment(**DEARER), ["NodeResourcesFit"], CPU),
    "a field that is gone": (deployment(**TOLERANT), deployment(), ["TaintToleration"], (*SPEC, "tolerations")),
    "a new object": (None, deployment(**SELECTED), ["NodeAffinity"], (*SPEC, "nodeSelector")),
    "a label of the object alone": (deployment(), deployment(labels={"a": "b"}), ["NodeAffinity"], ()),
    "nothing": (deployment(), deployment(), ["NodeAffinity"], ()),
}


@pytest.mark.parametrize(("before", "after", "plugins", "path"), CASES.values(), ids=CASES)
def test_the_field_is_the_one_that_the_plugin_reads_and_the_change_sets(before, after, plugins, path):
    assert field_at_fault(changed_fields(before, after), plugins) == path


MANIFESTS = {
    "a.yaml": """\
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: shop}
---
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: shop
spec:
  nodeSelector:
    disk: ssd
""",
    "a.json": """\
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": "shop"}},
  {"apiVersion": "v1", "kind": "Pod",
   "metadata": {"name": "p", "namespace": "shop"},
   "spec": {
     "nodeSelector": {"disk": "ssd"}}}]}
""",
}


@pytest.mark.parametrize(("file", "spec", "selector"), [("a.yaml", 10, 11), ("a.json", 5, 6)])
def test_a_field_has_its_line_and_one_that_is_not_there_that_of_what_would_hold_it(tmp_path, file, spec, selector):
    (tmp_path / file).write_text(MANIFESTS[file])
    (source,) = open_sources([str(tmp_path / file)], recursive=False)
    key = ObjectKey("Pod", "shop", "p")
    assert line_of_field(source, key, ("spec", "nodeSelector")) == selector
    assert line_of_field(source, key, ("spec", "tolerations", 0, "key")) == spec
    assert line_of_field(source, key, ("status",)) is None
    assert line_of_field(source, ObjectKey("Pod", "shop", "none"), ("spec",)) is None
