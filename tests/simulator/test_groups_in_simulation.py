"""Test pod groups in a simulation, and the report on groups that are placed, pending or missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import moorage
from moorage.api.pod_groups import PodGroup
from moorage.errors import InputError
from moorage.report.run_document import as_data
from moorage.report.tables import render
from moorage.simulator.cluster_reader import read
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.simulate import Options, simulate
from tests.core.engine.driving import node, pod, release_of
from tests.core.engine.test_pod_groups import gang, member

GANGS = "GenericWorkload=true,GangScheduling=true"
WORKLOAD = {"workloadName": "w", "podGroupTemplateName": "t"}
EXAMPLE = Path(__file__).parents[2] / "examples" / "gang"


def run(*objects, gates=GANGS, **kwargs):
    return simulate(objects, Options(feature_gates=gates, **{"emulate": release_of(gates), **kwargs}))


def outcomes(found):
    return {group.name: (group.state, group.placed, group.pods, group.message) for group in found.groups}


def where(found):
    return {one.name: one.node or None for one in found.pods}


def test_a_gang_that_fits_is_scheduled():
    found = run(node(cpu="2"), gang(least=2), member("a"), member("b"))
    assert where(found) == {"a": "n", "b": "n"}
    assert outcomes(found) == {"g": ("Scheduled", 2, 2, "")}


def test_a_gang_that_does_not_fit_leaves_its_resources_to_others():
    found = run(node(cpu="2"), gang(least=3), *map(member, "abc"), pod("single", "2", priority=-1))
    assert where(found) == {"a": None, "b": None, "c": None, "single": "n"}
    assert outcomes(found)["g"][:3] == ("Unschedulable", 0, 3)
    assert outcomes(found)["g"][3].startswith("pod group is unschedulable: ")


def test_the_report_counts_the_pods_that_found_a_node():
    found = run(node(cpu="2"), gang(least=3), *map(member, "abc"))
    assert outcomes(found)["g"][3] == "pod group is unschedulable: 2 of the 3 pods that go together found a node"


@pytest.mark.parametrize(
    ("version", "spec", "as_one"),
    [
        ("v1alpha2", {"disruptionMode": "PodGroup", "podGroupTemplateRef": {"workload": WORKLOAD}}, True),
        ("v1alpha3", {"disruptionMode": {"all": {}}, "workloadRef": {"workloadName": "w", "templateName": "t"}}, True),
        ("v1beta1", {"disruptionMode": {"single": {}}, "preemptionPolicy": "Never"}, False),
        ("v1beta1", {}, False),
    ],
)
def test_groups_are_read_in_the_versions_of_each_release(tmp_path, version, spec, as_one):
    group = {
        "apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, **spec},
    }  # fmt: skip
    (tmp_path / "group.json").write_text(json.dumps(group))
    (read_group,) = read([tmp_path / "group.json"]).pod_groups
    assert (read_group.min_count, read_group.disrupted_as_one) == (2, as_one)
    assert read_group.spec.preemption_policy == spec.get("preemptionPolicy")


def test_incomplete_groups_and_missing_groups():
    found = run(node(cpu="9"), gang(least=3), gang("basic", None), member("a"), member("x", group="other"))
    assert outcomes(found) == {
        "basic": ("Waiting", 0, 0, "no pod of it was tried"),
        "g": ("Waiting", 0, 1, "1 of the 3 pods that go together are there"),
        "other": ("Missing", 0, 1, "there is no PodGroup of this name, and its pods wait for it"),
    }
    assert {one.name: one.message for one in found.pods} == {
        "a": "waiting for minCount pods from a gang to appear in scheduling queue",
        "x": 'waiting for pods\'s pod group "other" to appear in scheduling queue',
    }


def test_a_running_group_is_not_reported():
    found = run(node(cpu="9"), gang(least=1), member("a", on="n"))
    assert outcomes(found) == {"g": ("Scheduled", 1, 1, "")}


def test_the_gang_is_placed_after_its_victims_are_deleted():
    low = [pod(f"low-{name}", on=name) for name in ("n", "m")]
    found = run(node("n", "1"), node("m", "1"), *low, gang(least=2), member("a", priority=5), member("b", priority=5))
    assert set(where(found).values()) == {"n", "m"}
    assert outcomes(found) == {"g": ("Scheduled", 2, 2, "")}
    assert {one.name for one in found.pods if one.state == "Preempted"} == {"low-n", "low-m"}


def test_without_the_gates_pods_are_scheduled_singly_with_a_note():
    found = run(node(cpu="1"), gang(least=2), member("a"), member("b"), gates="")
    assert where(found) == {"a": "n", "b": None}
    assert found.groups == ()
    assert [note.kind for note in found.notes] == ["PodGroups"]
    assert "Pod groups" not in render(found)


def test_the_example_in_json():
    jsonschema = json.loads((EXAMPLE.parents[1] / "docs/reference/simulation-report.schema.json").read_text(encoding="utf-8"))
    gates = f"{GANGS},TopologyAwareWorkloadScheduling=true"
    _, found = simulate_cluster(read([str(EXAMPLE)]), Options(feature_gates=gates, emulate="1.36"))
    groups = as_data(found)["podGroups"]
    assert [(group["name"], group["state"], group["placed"]) for group in groups] == [
        ("serve", "Waiting", 0), ("train", "Scheduled", 4), ("tune", "Unschedulable", 0),
    ]  # fmt: skip
    known = jsonschema["$defs"]["podGroup"]
    for group in groups:
        assert set(known["required"]) <= set(group) <= set(known["properties"])
        assert group["state"] in known["properties"]["state"]["enum"]
    racks = {one.node[0] for one in found.pods if one.name.startswith("train")}
    assert len(racks) == 1


def test_a_run_with_a_group_that_never_fits_ends():
    found = run(node(cpu="2"), gang(least=2), pod("large", "3"), pod("small"), member("a", "2"), member("b"))
    assert where(found) == {"large": None, "small": "n", "a": None, "b": None}
    assert found.attempts < 30


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_input_gives_the_same_result(seed):
    objects = [node(f"n{at}", "2") for at in range(3)] + [gang(least=2), gang("h", 4)]
    objects += [member(f"a{at}") for at in range(3)] + [member(f"b{at}", group="h") for at in range(5)]
    assert run(*objects, seed=seed) == run(*objects, seed=seed)


# -- versions ---------------------------------------------------------------------------------------------------------------

SERVED = {  # release → the version that it serves, and one that it does not serve, with what to write
    "1.36": (["v1alpha2"], "v1beta1", "write scheduling.k8s.io/v1alpha2"),
    "1.37": (["v1beta1", "v1alpha3"], "v1alpha2", "write scheduling.k8s.io/v1beta1 or scheduling.k8s.io/v1alpha3"),
}


def a_versioned_group(version):
    mode = "PodGroup" if version == "v1alpha2" else {"all": {}}
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": mode}
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}


@pytest.mark.parametrize("release", SERVED)
def test_groups_are_read_in_the_versions_that_the_release_serves(release):
    served, gone, instead = SERVED[release]
    for version in served:
        cluster = moorage.Cluster.from_objects(
            a_versioned_group(version), release=release, feature_gates="GenericWorkload=true"
        )
        assert cluster.snapshot.objects(PodGroup)["default/g"].disrupted_as_one
    with pytest.raises(InputError, match=f"Kubernetes {release} does not serve this version; {instead}"):
        moorage.Cluster.from_objects(a_versioned_group(gone), release=release)


def test_an_option_that_does_not_exist_is_an_error():
    with pytest.raises(InputError, match="no option of a cluster: emulate; use config, release"):
        moorage.Cluster.from_objects(emulate="1.37")
