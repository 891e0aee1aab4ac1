"""Random clusters of groups are whole, are played on our side, and a wrong answer is noticed, without the real program."""

import copy

import pytest

from tools.differential import groups

SEEDS = range(12)


def of(document, kind):
    return [one for one in document["objects"] if one["kind"] == kind]


@pytest.mark.parametrize(("release", "version"), [("1.36", "v1alpha2"), ("1.37", "v1beta1")])
def test_groups_have_the_version_that_the_release_reads(release, version):
    made = [groups.clusters_of_groups(seed, release) for seed in SEEDS]
    read = {one["apiVersion"] for document in made for one in of(document, "PodGroup")}
    assert read == {f"scheduling.k8s.io/{version}"}
    assert any(of(document, "CompositePodGroup") for document in made) is (release == "1.37")


def test_a_pod_of_a_group_gets_one_answer_or_waits_for_others():
    for seed in SEEDS:
        document = groups.clusters_of_groups(seed, "1.37")
        came = groups.played(document)
        waiting = {f"default/{one['metadata']['name']}" for one in of(document, "Pod") if not one["spec"].get("nodeName")}
        assert {*came["bound"], *came["failed"]} <= waiting
        assert not {*came["bound"]} & {*came["failed"]}


def test_a_node_that_is_as_good_is_taken_as_there():
    document = groups.clusters_of_groups(96, "1.37")
    there = groups.played(document)
    assert groups.differences(there, groups.played(document, there, seed=5)) == []


@pytest.mark.parametrize("part", ["bound", "failed", "groups", "victims"])
def test_another_answer_is_noticed(part):
    documents = (groups.clusters_of_groups(seed, "1.37") for seed in range(100))
    document = next(one for one in documents if groups.played(one)[part])
    there = groups.played(document)
    other = copy.deepcopy(there)
    if part == "victims":
        other[part] = []
    else:
        other[part].popitem()
    assert groups.differences(other, there)


def test_groups_are_compared_unasked_where_they_are_no_alpha_version():
    assert groups.are_in("1.37")
    assert not any(map(groups.are_in, ("1.36", "1.34.7")))


#: Seeds of 1.36 → a group that is tried again, and what it then has.
TRIED_AGAIN = {
    "the condition of a group of which one pod is left over stays": (24000015, "default/g0", "True"),
    "a group that preempts is not tried again before its backoff": (24000011, "default/g0", "True"),
}


@pytest.mark.parametrize(("seed", "group", "scheduled"), TRIED_AGAIN.values(), ids=TRIED_AGAIN)
def test_what_the_program_writes_and_does_at_once_happens_here(seed, group, scheduled):
    """Conditions of groups come back to the program, and its evictions are not asynchronous."""
    came = groups.played(groups.clusters_of_groups(seed, "1.36"))
    assert came["groups"][f"podgroups {group} PodGroupScheduled"]["status"] == scheduled
