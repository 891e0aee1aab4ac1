"""``moorage up`` with a scheduler as 1.19 to 1.21 were started."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage.basis.client.kubeconfig import ClientEnvironment, read_kubeconfig
from moorage.basis.client.rest import Rest
from moorage.errors import ConfigError, InputError
from moorage.interfaces.cli.live.up import WantedScheduler

LABELS = {
    "apiVersion": "v1", "kind": "Policy",
    "predicates": [{"name": "ssd", "argument": {"labelsPresence": {"labels": ["disk"], "presence": True}}}],
    "priorities": [{"name": "LeastRequestedPriority", "weight": 1}],
}  # fmt: skip
V1BETA1 = "apiVersion: kubescheduler.config.k8s.io/v1beta1\nkind: KubeSchedulerConfiguration\n"
NOTHING = {
    "config": None, "emulate": None, "algorithm_provider": "", "policy_config_file": "", "policy_configmap": "",
    "policy_configmap_namespace": "", "use_legacy_policy_config": False, "scheduler_name": "", "hard_pod_affinity": None,
    "feature_gates": "", "plugins": (), "seed": 0, "max_disks": None, "plugin_timeout": 0.0,
}  # fmt: skip


def node(name, **labels):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def pod(name, scheduler_name="default-scheduler"):
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": scheduler_name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def write(folder, *objects):
    for i, found in enumerate(objects):
        (folder / f"{i}.json").write_text(json.dumps(found))
    return folder


def placed(start, home, *flags):
    """Start a cluster, and return where the pod ``p`` goes, and what was said."""
    process = start("up", "--home", home, *flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("Ctrl-C"):
            break
    else:
        raise AssertionError(process.stderr.read())

    async def look():
        endpoint = read_kubeconfig([Path(home) / "kubeconfig"], must_exist=True).endpoint(
            ClientEnvironment({}, time.monotonic, lambda: datetime.now(UTC))
        )
        async with Rest(endpoint, qps=0) as rest, asyncio.timeout(60):
            while True:
                found = json.loads(await rest.get("/api/v1/namespaces/default/pods/p"))
                if name := found["spec"].get("nodeName"):
                    return name
                await asyncio.sleep(0.05)

    found = asyncio.run(look())
    process.terminate()
    return found, process.communicate(timeout=60)[1]


@pytest.mark.slow
def test_a_policy_of_a_file_places_the_pods_of_its_name(start, tmp_path):
    (tmp_path / "policy.json").write_text(json.dumps(LABELS))
    (tmp_path / "objects").mkdir()
    write(tmp_path / "objects", node("plain"), node("ssd", disk="ssd"), pod("p", "theirs"))
    where, said = placed(
        start, tmp_path / "home", "-f", tmp_path / "objects", "--emulate=1.21", "--scheduler-name=theirs",
        "--policy-config-file", tmp_path / "policy.json",
    )  # fmt: skip
    assert where == "ssd"
    assert "Flag --policy-config-file has been deprecated" in said


@pytest.mark.slow
def test_a_policy_may_come_with_the_objects(start, tmp_path):
    found = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policy", "namespace": "theirs"},
        "data": {"policy.cfg": json.dumps(LABELS)},
    }  # fmt: skip
    write(tmp_path, node("plain"), node("ssd", disk="ssd"), pod("p"), found)
    where, _ = placed(
        start, tmp_path / "home", "-f", tmp_path, "--policy-configmap=policy", "--policy-configmap-namespace=theirs"
    )
    assert where == "ssd"


def test_a_policy_that_is_not_among_the_objects_is_missed(moorage, tmp_path):
    ran = moorage("up", "--home", tmp_path, "--nodes=1", "--policy-configmap=policy")
    assert ran.status == 1
    assert 'couldn\'t get policy config map kube-system/policy: configmaps "policy" not found' in ran.err


def wanted(*said, **given):
    lines = []
    found = WantedScheduler.read({**NOTHING, **given}, lines.append)
    assert [part for part in said if not any(part in line for line in lines)] == [], lines
    return found


PACKS = "ClusterAutoscalerProvider"
CHOSEN = {  # options → the release, what its only profile is called, a plugin that scores
    "nothing": ({}, "1.37", "default-scheduler", "NodeResourcesFit"),
    "a release": ({"emulate": "1.19"}, "1.19", "default-scheduler", "SelectorSpread"),
    "a provider": ({"algorithm_provider": PACKS}, "1.21", "default-scheduler", "NodeResourcesMostAllocated"),
    "a Policy": ({"policy_config_file": "policy.json"}, "1.21", "default-scheduler", "NodeResourcesLeastAllocated"),
    "a Policy of 1.22": (
        {"policy_config_file": "policy.json", "emulate": "1.22.6", "config": "config.yaml"},
        "1.22.6", "default-scheduler", "NodeResourcesLeastAllocated",
    ),
    "a Policy for a configuration": ({"config": "policy.json"}, "1.21", "default-scheduler", "NodeResourcesLeastAllocated"),
    "a name": ({"emulate": "1.20", "scheduler_name": "mine"}, "1.20", "mine", "NodePreferAvoidPods"),
    "a file": ({"config": "config.yaml"}, "1.21", "theirs", "NodePreferAvoidPods"),
    "a file and a provider": (
        {"config": "config.yaml", "algorithm_provider": PACKS, "scheduler_name": "not this"},
        "1.21", "theirs", "NodeResourcesMostAllocated",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "release", "name", "scores"), CHOSEN.values(), ids=CHOSEN)
def test_options_choose_the_scheduler(tmp_path, monkeypatch, given, release, name, scores):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.json").write_text(json.dumps(LABELS))
    (tmp_path / "config.yaml").write_text(f"{V1BETA1}profiles: [{{schedulerName: theirs}}]\n")
    found = wanted(**given)
    scheduler, _ = found.build()
    assert (scheduler.gates.release, [*scheduler.profiles]) == (release, [name])
    assert scores in [step.name for step in scheduler.profiles[name].at("score")]
    assert found.cluster_gates.release == "1.37"


def test_gates_of_an_earlier_release_are_the_scheduler_s_alone():
    found = wanted(emulate="1.33.3", feature_gates="DynamicResourceAllocation=true,VolumeAttributesClass=true")
    scheduler, _ = found.build()
    assert scheduler.gates.release == "1.33.3"
    assert scheduler.gates["VolumeAttributesClass"]
    assert "DynamicResources" in [step.name for step in scheduler.profiles["default-scheduler"].at("filter")]
    assert found.cluster_gates.release == "1.37", "VolumeAttributesClass is locked there"


REFUSED = {
    "a flag of that time, today": ({"scheduler_name": "x"}, "--scheduler-name: not a flag of 1.37; choose 1.19, 1.20 or 1.21"),
    "and with today's release": ({"emulate": "1.37", "policy_config_file": "p"}, "--policy-config-file: not a flag of 1.37"),
    "a flag of 1.21, in 1.22": (
        {"emulate": "1.22.6", "scheduler_name": "x"},
        "--scheduler-name: not a flag of 1.22.6; choose 1.19, 1.20 or 1.21 with --emulate",
    ),
    "a flag of 1.22, in 1.23": (
        {"emulate": "1.23.5", "policy_config_file": "p"},
        "not a flag of 1.23.5; choose 1.19, 1.20, 1.21 or 1.22.6 with",
    ),
    "no file to use": ({"use_legacy_policy_config": True}, "required when --use-legacy-policy-config is true"),
    "a weight": ({"emulate": "1.21", "hard_pod_affinity": 101}, "not in valid range [0, 100]"),
    "no such file": ({"policy_config_file": "/nowhere"}, "missing policy config file /nowhere"),
    "a Policy and plugins": ({"policy_config_file": "policy.json", "config": "config.yaml"}, "cannot set a Plugin config"),
    "a gate of today": ({"emulate": "1.21", "feature_gates": "GangScheduling=true"}, "unrecognized feature gate"),
}


@pytest.mark.parametrize(("given", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(tmp_path, monkeypatch, given, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.json").write_text(json.dumps(LABELS))
    (tmp_path / "config.yaml").write_text(f"{V1BETA1}profiles: [{{pluginConfig: [{{name: NodeLabel, args: {{}}}}]}}]\n")
    with pytest.raises((InputError, ConfigError)) as refusal:
        wanted(**given).build()
    assert words in str(refusal.value)


def test_what_does_not_count_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(V1BETA1)
    wanted(
        "Ignored, because --config is given: --scheduler-name; set it in config.yaml", config="config.yaml", scheduler_name="x"
    )
    wanted("Flag --algorithm-provider has been deprecated", algorithm_provider="DefaultProvider")


def test_help_has_the_flags_of_before_in_a_section_of_their_own(moorage):
    said = moorage("up", "--help").out
    _, _, old = said.partition("Flags of kube-scheduler 1.19 to 1.21:")
    assert "--policy-config-file" in old
    assert "--emulate" not in old
