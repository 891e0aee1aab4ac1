"""Test the pod groups that the Job controller of 1.37 makes for Jobs (gate WorkloadWithJob)."""

from __future__ import annotations

import pytest

from moorage.api.releases import find_release
from moorage.errors import InputError
from moorage.laboratory.cluster_objects import read_given
from moorage.simulator.cluster_reader import ReadRules
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.simulate import Options

GATES = "GenericWorkload=true,WorkloadWithJob=true,TopologyAwareWorkloadScheduling=true"
GANG = {"schedulingPolicy": {"gang": {}}}


def node(name, cpu="2", rack="a"):
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"rack": rack}},
        "status": {"allocatable": {"cpu": cpu, "pods": "10"}},
    }  # fmt: skip


def pod_spec(**more):
    return {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}], **more,
    }  # fmt: skip


def job(name="train", size=3, scheduling=None, owner=None, status=None, **pods):
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": owner, "name": "above", "uid": "u", "controller": True}
        ]
    spec = {"parallelism": size, "completions": size, "template": {"spec": pod_spec(**pods)}}
    if scheduling is not None:
        spec["scheduling"] = scheduling
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": status or {}}


def run(*objects, gates=GATES, emulate="1.37"):
    given = read_given(objects, rules=ReadRules(release=find_release("1.37")))
    return simulate_cluster(given, Options(emulate=emulate, feature_gates=gates))


def placed(*objects, **options):
    return sum(bool(one.node) for one in run(*objects, **options)[1].pods)


def groups(*objects, **options):
    return run(*objects, **options)[0].pod_groups


def test_a_job_that_asks_for_a_gang_starts_as_a_whole_or_not_at_all():
    assert placed(node("n"), job(scheduling=GANG)) == 0
    assert placed(node("n", cpu="3"), job(scheduling=GANG)) == 3
    assert placed(node("n"), job(scheduling={"schedulingPolicy": {"gang": {"minCount": 2}}})) == 2
    assert placed(node("n"), job()) == 2
    assert placed(node("n"), job(scheduling={"schedulingPolicy": {"basic": {}}})) == 2


@pytest.mark.parametrize("options", [{"gates": "GenericWorkload=true"}, {"gates": GATES, "emulate": "1.36"}])
def test_without_the_gate_or_before_1_37_the_field_is_ignored(options):
    if "emulate" in options:
        options["gates"] = f"{GATES},GangScheduling=true"
    assert groups(node("n"), job(scheduling=GANG), **options) == ()
    notes = [note.text for note in run(node("n"), job(scheduling=GANG), **options)[1].notes]
    assert any("spec.scheduling of 1 job ignored" in note for note in notes) is ("WorkloadWithJob" not in options["gates"])
    assert placed(node("n"), job(scheduling=GANG), **options) == 2


def test_the_group_of_a_job():
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}
    (group,) = groups(
        high,
        node("n"),
        job(
            "ga",
            scheduling={
                "schedulingPolicy": {"gang": {}}, "disruptionMode": {"all": {}},
                "schedulingConstraints": {"topology": [{"key": "rack"}]},
            },
            priorityClassName="high",
        ),
    )  # fmt: skip
    assert group.metadata.name.startswith("ga-")
    assert group.metadata.owner_references[0].name == "ga"
    assert (group.min_count, group.disrupted_as_one, group.topology_keys, group.priority) == (3, True, ("rack",), 7)
    assert group.spec.workload_ref.template_name == "ga-pgt-0"


def test_pods_of_a_job_go_into_one_rack():
    whole, found = run(
        node("a", "2", "a"), node("b", "2", "b"), node("c", "1", "b"),
        job(scheduling={**GANG, "schedulingConstraints": {"topology": [{"key": "rack"}]}}),
    )  # fmt: skip
    assert sorted(one.node for one in found.pods) == ["b", "b", "c"]
    assert len(whole.pod_groups) == 1


@pytest.mark.parametrize(
    "one",
    [
        job(owner="CronJob", scheduling=GANG),
        job(scheduling=GANG, status={"failed": 1}),
        job(scheduling=GANG, status={"conditions": [{"type": "Suspended", "status": "False"}]}),
        job(scheduling=GANG, schedulingGroup={"podGroupName": "own"}),
    ],
)
def test_jobs_that_get_no_group(one):
    assert groups(node("n"), one) == ()


def test_a_job_that_has_started_finds_its_group():
    whole, _ = run(node("n"), job(scheduling=GANG))
    (group,) = whole.pod_groups
    again = {
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": {
            "name": group.metadata.name, "namespace": "default",
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
            ],
        },
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }  # fmt: skip
    assert len(groups(node("n"), again, job(scheduling=GANG, status={"active": 1}))) == 1
    assert placed(node("n"), again, job(scheduling=GANG, status={"active": 1})) == 0


def test_a_field_of_a_wrong_type_names_the_job():
    with pytest.raises(InputError, match=r"train: spec\.scheduling.*expected"):
        run(node("n"), job(scheduling={"schedulingPolicy": {"gang": {"minCount": "many"}}}))
