"""A configuration in a ConfigMap: read where there is one, and otherwise how to take it out."""

from __future__ import annotations

import base64
import json

import pytest

from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.errors import ConfigError, InputError

CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: inner}]\n"
POLICY = '{"kind": "Policy", "apiVersion": "v1"}'


def config_map(**more):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sched", "namespace": "kube-system"}, **more}


def load(*documents):
    text = "\n---\n".join(map(json.dumps, documents))
    return load_source(ConfigSource(text.encode(), "file.yaml"))


READ = {
    "data": [config_map(data={"config.yaml": CONFIG})],
    "beside other entries": [config_map(data={"a.txt": "kind: Policy of ours", "config.yaml": CONFIG, "b": "x: ["})],
    "binaryData": [config_map(binaryData={"config.yaml": base64.b64encode(CONFIG.encode()).decode(), "b": "!"})],
    "a list": [{"apiVersion": "v1", "kind": "List", "items": [config_map(data={"x": "y"}), config_map(data={"c": CONFIG})]}],
    "beside its Deployment": [{"apiVersion": "apps/v1", "kind": "Deployment"}, config_map(data={"c": CONFIG})],
}


@pytest.mark.parametrize("documents", READ.values(), ids=READ)
def test_the_only_configuration_in_config_maps_is_read(documents):
    assert [profile.scheduler_name for profile in load(*documents).profiles] == ["inner"]


def test_a_policy_in_a_config_map_is_read():
    assert load(config_map(data={"policy.cfg": POLICY})).source == "Policy v1"


def test_faults_name_the_entry():
    with pytest.raises(ConfigError, match=r"^file[.]yaml: entry c: cannot be used"):
        load(config_map(data={"c": CONFIG + "parallelism: 0\n"}))
    with pytest.raises(InputError, match=r"^file[.]yaml: entry c:4: "):
        load(config_map(data={"c": CONFIG + "]\n"}))


def test_without_a_configuration_the_entries_are_named():
    with pytest.raises(InputError, match=r"no entry of the ConfigMap is a .*; its entries: a, b"):
        load(config_map(data={"a": "1", "b": "kind: Pod"}))


def test_of_several_one_is_to_be_taken_out():
    with pytest.raises(InputError) as refused:
        load(config_map(data={"a.yaml": CONFIG, "b.yaml": CONFIG}))
    assert str(refused.value) == (
        "file.yaml: the entries a.yaml and b.yaml are configurations; take one out: "
        r"kubectl get configmap sched -n kube-system -o 'jsonpath={.data.a\.yaml}'"
    )


@pytest.mark.parametrize("documents", [[{"kind": "ConfigMap", "apiVersion": "v2"}], [{"kind": "Pod", "apiVersion": "v1"}]])
def test_other_objects_are_no_configuration(documents):
    with pytest.raises(ConfigError, match="no kind"):
        load(*documents)
