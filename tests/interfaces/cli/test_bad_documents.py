"""Documents that no kube-scheduler would take: one line for each fault, with the file, the path and what is wrong."""

from __future__ import annotations

import json

import pytest

GROUP = "kubescheduler.config.k8s.io"


def policy(**body):
    return json.dumps({"apiVersion": "v1", "kind": "Policy", **body})


def configuration(version, plugins=None, config=()):
    profile = {"plugins": plugins or {}, "pluginConfig": list(config)}
    body = {"apiVersion": f"{GROUP}/{version}", "kind": "KubeSchedulerConfiguration", "profiles": [profile]}
    return json.dumps(body)


def scored(version, *plugins):
    """Return a configuration whose scores are these: names, or pairs of a name and a weight."""
    refs = [{"name": one} if isinstance(one, str) else {"name": one[0], "weight": one[1]} for one in plugins]
    return configuration(version, {"score": {"enabled": refs, "disabled": [{"name": "*"}]}})


def weighing(weight, name="ImageLocalityPriority"):
    return policy(priorities=[{"name": name, "weight": weight}])


PLACE = "profiles[0].plugins.score.enabled"
POSITIVE = "priority ImageLocalityPriority should have a positive weight applied to it or it has overflown"
GO = "json: cannot unmarshal"
OVERFLOW = "total score of Score plugins could overflow; weights are positive"
OF_AFFINITY = "Go struct field InterPodAffinityArgs.hardPodAffinityWeight of type int32"
PRESENCE = {"labelsPresence": {"labels": "gpu"}}
SINCE = {
    "NodeLabel": "; give NodeAffinity the labels as addedAffinity",
    "EBSLimits": "; such disks are CSI volumes now, which NodeVolumeLimits counts",
}
GONE = f'was removed in version "{GROUP}/v1beta2" (KubeSchedulerConfiguration is version "{GROUP}/v1beta2")'
NEVER = f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{GROUP}/v1")'
WHERE_NOT = '"NodeName": plugin "NodeName" does not extend ScorePlugin plugin; it runs at filter, preFilter'
BAD = {  # the document, its fault
    "unknown predicate": (
        policy(predicates=[{"name": "PodFitsPort"}]),
        'predicates[0].name: Not found: "PodFitsPort": predicate type not found for "PodFitsPort"',
    ),
    "unknown priority": (
        weighing(1, "LeastRequested"),
        'priorities[0].name: Not found: "LeastRequested": priority type not found for "LeastRequested"',
    ),
    "weight 0": (weighing(0), f"priorities[0].weight: Invalid value: 0: {POSITIVE}"),
    "negative weight": (weighing(-3), f"priorities[0].weight: Invalid value: -3: {POSITIVE}"),
    "overflowing weight": (
        weighing(922337203685477580), f"priorities[0].weight: Invalid value: 922337203685477580: {POSITIVE}",
    ),
    "weight beyond 64 bits": (
        weighing(2**64), (f"priorities[0].weight: Invalid value: {2**64}: "
        f"{GO} number {2**64} into Go struct field Priority.priorities.weight of type int64"),
    ),
    "weight as text": (
        weighing("1"),
        f'priorities[0].weight: Invalid value: "1": {GO} string into Go struct field Priority.priorities.weight of type int64',
    ),
    "argument of the wrong type": (
        policy(predicates=[{"name": "One", "argument": PRESENCE}]),
        (f'predicates[0].argument.labelsPresence.labels: Invalid value: "gpu": {GO} string into '
        "Go struct field LabelsPresence.predicates.argument.labelsPresence.labels of type []string"),
    ),
    "weight of affinity": (
        policy(hardPodAffinitySymmetricWeight=101),
        "hardPodAffinitySymmetricWeight: Invalid value: 101: not in valid range [0-100]",
    ),
    **{
        f"a plugin twice, {version}": (
            scored(version, "ImageLocality", "ImageLocality"),
            f'{PLACE}[1]: Duplicate value: "ImageLocality": plugin "ImageLocality" already registered as "ScorePlugin"',
        )
        for version in ("v1beta1", "v1beta2", "v1beta3", "v1")
    },
    "a default again, v1beta1": (
        configuration("v1beta1", {"filter": {"enabled": [{"name": "NodeName"}]}}),
        ('profiles[0].plugins.filter.enabled[0]: Duplicate value: "NodeName": '
        'plugin "NodeName" already registered as "FilterPlugin"; disable it to enable it again'),
    ),
    "negative weight, v1beta1": (
        scored("v1beta1", ("ImageLocality", -1)), f"{PLACE}[0].weight: Invalid value: -1: {OVERFLOW}",
    ),
    **{
        f"negative weight, {version}": (
            scored(version, ("ImageLocality", -1), "NodeAffinity"),
            f'profiles[0].plugins.score: Invalid value: {{"ImageLocality":-1}}: score plugins: {OVERFLOW}',
        )
        for version in ("v1beta2", "v1beta3", "v1")
    },
    **{
        f"weight beyond 32 bits, {version}": (
            scored(version, ("ImageLocality", 2**31)),
            (f"{PLACE}[0].weight: Invalid value: {2**31}: {GO} number {2**31} into "
            "Go struct field Plugin.profiles.plugins.score.enabled.weight of type int32"),
        )
        for version in ("v1beta1", "v1beta2", "v1beta3", "v1")
    },
    **{
        f"argument of the wrong type, {version}": (
            configuration(version, config=[{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": "lots"}}]),
            f'profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: "lots": {GO} string into {OF_AFFINITY}',
        )
        for version in ("v1beta1", "v1beta2", "v1beta3", "v1")
    },
    "argument of a removed plugin of the wrong type": (
        configuration("v1beta1", config=[{"name": "NodeLabel", "args": {"presentLabels": "gpu"}}]),
        (f'profiles[0].pluginConfig[0].args.presentLabels: Invalid value: "gpu": {GO} string into '
        "Go struct field NodeLabelArgs.presentLabels of type []string"),
    ),
    "a removed plugin, v1beta2": (
        scored("v1beta2", "NodeLabel"),
        f'{PLACE}[0]: Invalid value: "NodeLabel": {GONE}{SINCE["NodeLabel"]}',
    ),
    "a removed plugin, v1": (
        configuration("v1", {"filter": {"enabled": [{"name": "EBSLimits"}]}}),
        f'profiles[0].plugins.filter.enabled[0]: Invalid value: "EBSLimits": {NEVER}{SINCE["EBSLimits"]}',
    ),
    "an unknown plugin": (
        scored("v1beta1", "NodeNme"),
        f'{PLACE}[0]: Not found: "NodeNme": ScorePlugin "NodeNme" does not exist; did you mean "NodeName"?',
    ),
    "a plugin where it does not run": (
        scored("v1", "NodeName"),
        f"{PLACE}[0]: Invalid value: {WHERE_NOT}",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("document", "fault"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("command", ["validate", "show", "convert"])
def test_an_invalid_document_is_rejected_with_file_and_path(moorage, tmp_path, monkeypatch, command, document, fault):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text(document)
    assert moorage("config", command, "bad.json") == (1, "", f"bad.json: {fault}\n")


@pytest.mark.parametrize("document", [BAD["weight 0"], BAD["a plugin twice, v1beta1"]], ids=["policy", "configuration"])
def test_a_simulation_rejects_invalid_documents(moorage, tmp_path, monkeypatch, document):
    monkeypatch.chdir(tmp_path)
    text, fault = document
    (tmp_path / "bad.json").write_text(text)
    (tmp_path / "cluster.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    ran = moorage("simulate", "-f", "cluster.yaml", "--config", "bad.json")
    assert (ran.status, ran.out) == (1, "")
    assert fault in ran.err
