"""A configuration is redacted with the tokens of its cluster: no name is left, and every decision is the same."""

from __future__ import annotations

import json

import pytest
import yaml

import moorage
from moorage.errors import ConfigError
from moorage.interfaces.cli.main import main
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.redact.redaction import redact
from moorage.laboratory.redact.redaction_check import check_redacted
from moorage.simulator.simulate import Options

KEY = b"0123456789abcdef"


def node(name, rack, size, **allocatable):
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110", **allocatable}
    return {
        "apiVersion": "v1", "kind": "Node", "status": {"allocatable": amounts},
        "metadata": {"name": name, "labels": {"acme.example/rack": rack, "acme.example/size": size, "retired": "no"}},
    }  # fmt: skip


def pod(name, scheduler="acme-packer", cpu="1", **requests):
    asked = {"cpu": cpu, **requests}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "ledger"}},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i", "resources": {
            "requests": asked, "limits": requests}}]},
    }  # fmt: skip


NODES = [
    node("frankfurt-1", "blue", "8", **{"acme.example/card": "4", "secret.example/tape": "1"}),
    node("frankfurt-2", "blue", "2"),
    node("paris-1", "green", "16", **{"acme.example/card": "2"}),
    node("paris-2", "green", "32"),
]
CLUSTER = [*NODES, *(pod(f"ledger-{n}") for n in range(5)), pod("carded", **{"acme.example/card": "1"}),
           pod("taped", **{"secret.example/tape": "3"}), pod("plain", "default-scheduler")]  # fmt: skip
CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /home/hushhush/config}
leaderElection: {leaderElect: true, resourceName: acme-packer}
profiles:
- schedulerName: acme-packer
  plugins: {score: {disabled: [{name: ImageLocality}]}}
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: acme.example/size, operator: Gt, values: ["4"]}]}]
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 1, topologyKey: acme.example/rack, whenUnsatisfiable: ScheduleAnyway}]
  - name: NodeResourcesFit
    args:
      ignoredResourceGroups: [secret.example]
      scoringStrategy: {type: MostAllocated, resources: [{name: acme.example/card, weight: 5}, {name: cpu, weight: 1}]}
  - name: DynamicResources
    args: {filterTimeout: 3s}
- schedulerName: default-scheduler
extenders:
- {urlPrefix: "https://packer.hushhush.internal/x", filterVerb: hushfilter, weight: 2, httpTimeout: 2s, managedResources: [{name: acme.example/card}]}
"""  # noqa: E501
POLICY = json.dumps({
    "apiVersion": "v1", "kind": "Policy",
    "predicates": [
        {"name": "GeneralPredicates"},
        {"name": "HushRacks", "argument": {"labelsPresence": {"labels": ["acme.example/rack", "retired"], "presence": True}}},
    ],
    "priorities": [
        {"name": "HushSpread", "weight": 3, "argument": {"serviceAntiAffinity": {"label": "acme.example/rack"}}},
        {"name": "HushCards", "weight": 1, "argument": {"requestedToCapacityRatioArguments": {
            "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
            "resources": [{"name": "acme.example/card", "weight": 2}]}}},
    ],
})  # fmt: skip
BOTH = {"a configuration": CONFIGURATION, "a policy": POLICY}
SECRETS = ("acme", "hush", "frankfurt", "paris", "packer", "rack", "ledger", "secret", "tape", "retired")


def objects_for(text):
    return CLUSTER if "acme-packer" in text else [{**one, "spec": {**one["spec"], "schedulerName": "default-scheduler"}}
                                                  if one["kind"] == "Pod" else one for one in CLUSTER]  # fmt: skip


def checked(text, redacted_text=None):
    objects = objects_for(text)
    redacted = redact(objects, KEY, [text])
    then = yaml.safe_dump(redacted.configurations[0]) if redacted_text is None else redacted_text
    options = [Options(config=one.encode(), skip_extenders=True) for one in (text, then)]
    return redacted, check_redacted(read_given(objects), read_given(redacted.objects), *options)


@pytest.mark.parametrize("text", BOTH.values(), ids=BOTH)
def test_every_decision_is_the_same(text):
    _, found = checked(text)
    assert found.differences == ()
    assert found.attempts >= 8


@pytest.mark.parametrize("text", BOTH.values(), ids=BOTH)
def test_no_name_is_left(text):
    (made,) = redact(objects_for(text), KEY, [text]).configurations
    said = json.dumps(made)
    assert [word for word in SECRETS if word in said.lower().replace("score", "")] == []


def test_the_configuration_matters():
    """The check would see a configuration that still has the names of before."""
    assert checked(CONFIGURATION, CONFIGURATION)[1].differences
    assert checked(POLICY, POLICY)[1].differences


def test_what_stays():
    (made,) = redact(CLUSTER, KEY, [CONFIGURATION]).configurations
    assert made.keys() == {"apiVersion", "kind", "profiles", "extenders"}
    fit = next(one["args"] for one in made["profiles"][0]["pluginConfig"] if one["name"] == "NodeResourcesFit")
    assert fit["scoringStrategy"]["type"] == "MostAllocated"
    assert made["profiles"][1] == {"schedulerName": "default-scheduler"}
    assert made["profiles"][0]["plugins"] == {"score": {"disabled": [{"name": "ImageLocality"}]}}
    affinity = made["profiles"][0]["pluginConfig"][0]["args"]["addedAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["4"]


def test_the_command_writes_both_files(tmp_path, capsys):
    (tmp_path / "in.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": CLUSTER}))
    (tmp_path / "config.yaml").write_text(CONFIGURATION)

    def run(*args):
        with pytest.raises(SystemExit) as ended:
            main(["redact", "-f", str(tmp_path / "in.json"), "--key", str(tmp_path / "key"), *args])
        return ended.value.code, capsys.readouterr()

    both = ["--config", str(tmp_path / "config.yaml"), "--config-output", str(tmp_path / "out.yaml")]
    status, said = run("-o", str(tmp_path / "out.json"), *both, "--verify")
    assert status == 0
    assert "attempts with equal outcomes" in said.err
    options = moorage.Options(config=(tmp_path / "out.yaml").read_bytes(), skip_extenders=True)
    _, run_of = moorage.simulate_cluster(moorage.read([str(tmp_path / "out.json")]), options)
    assert [one.state for one in run_of.pods] == ["Placed"] * 8
    assert run("--config", "x")[0] == 1


def test_a_configuration_that_cannot_be_read_is_refused():
    with pytest.raises(ConfigError):
        redact(CLUSTER, KEY, ["kind: Nothing"])
