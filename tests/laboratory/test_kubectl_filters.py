"""Which pods ``kubectl drain`` evicts, leaves or refuses, by its own filters."""

import itertools

import pytest

from moorage.api.core import Pod, PodSpec, PodStatus, Volume
from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.laboratory.drain.kubectl_filters import DrainFlags, judge_pod, judge_pods, refusals_as_kubectl

DAEMONS = {"default/agent"}
NOTHING, ALL = DrainFlags(), DrainFlags(ignore_daemonsets=True, delete_emptydir_data=True, force=True)
DAEMONSETS = DrainFlags(ignore_daemonsets=True)


def pod(name="p", owner="ReplicaSet/web", phase="Running", empty_dir=False, mirror=False, leaves=False):
    kind, _, controller = owner.partition("/")
    owners = (OwnerReference(kind=kind, name=controller, uid="u", controller=True),) if owner else ()
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace="default", uid=name, owner_references=owners,
            annotations={"kubernetes.io/config.mirror": "x"} if mirror else {},
            deletion_timestamp="2026-01-01T00:00:00Z" if leaves else None,
        ),
        spec=PodSpec(node_name="n", volumes=(Volume(name="v", empty_dir={}),) if empty_dir else ()),
        status=PodStatus(phase=phase),
    )  # fmt: skip


CASES = {  # the pod, the flags, what happens, the rule that decides
    "a pod of a ReplicaSet": (pod(), NOTHING, "evict", ""),
    "a pod of a kind that kubectl does not know": (pod(owner="Rollout/r"), NOTHING, "evict", ""),
    "a daemon pod": (pod(owner="DaemonSet/agent"), NOTHING, "refuse", "DaemonSet"),
    "a daemon pod, ignored": (pod(owner="DaemonSet/agent"), DAEMONSETS, "stay", "DaemonSet"),
    "a daemon pod that finished": (pod(owner="DaemonSet/agent", phase="Succeeded"), NOTHING, "evict", ""),
    "a daemon pod with local storage": (pod(owner="DaemonSet/agent", empty_dir=True), DAEMONSETS, "stay", "DaemonSet"),
    "an orphan": (pod(owner="DaemonSet/gone"), DAEMONSETS, "refuse", "orphan"),
    "an orphan, by force": (pod(owner="DaemonSet/gone"), DrainFlags(force=True), "evict", "orphan"),
    "an orphan with local storage, by force": (
        pod(owner="DaemonSet/gone", empty_dir=True), DrainFlags(force=True), "refuse", "emptyDir"
    ),
    "a mirror pod": (pod(owner="Node/n", mirror=True, empty_dir=True), NOTHING, "stay", "mirror"),
    "a mirror pod without an owner": (pod(owner="", mirror=True), NOTHING, "stay", "mirror"),
    "local storage": (pod(empty_dir=True), NOTHING, "refuse", "emptyDir"),
    "local storage that may go": (pod(empty_dir=True), DrainFlags(delete_emptydir_data=True), "evict", "emptyDir"),
    "local storage that finished": (pod(empty_dir=True, phase="Failed"), NOTHING, "evict", ""),
    "no controller": (pod(owner=""), NOTHING, "refuse", "noController"),
    "no controller, by force": (pod(owner=""), DrainFlags(force=True), "evict", "noController"),
    "no controller, finished": (pod(owner="", phase="Succeeded"), NOTHING, "evict", ""),
    "no controller, local storage": (pod(owner="", empty_dir=True), DrainFlags(force=True), "refuse", "emptyDir"),
    "everything allowed": (pod(owner="", empty_dir=True), ALL, "evict", "noController"),
    "terminating": (pod(leaves=True), NOTHING, "evict", ""),
}  # fmt: skip


@pytest.mark.parametrize(("one", "flags", "action", "rule"), CASES.values(), ids=CASES)
def test_the_first_filter_that_objects_decides(one, flags, action, rule):
    verdict = judge_pod(one, flags, DAEMONS)
    assert (verdict.action, verdict.rule) == (action, rule)


@pytest.mark.parametrize(("age_s", "limit_s", "action"), [(31.9, 31, "evict"), (32.0, 31, "stay"), (99.0, 0, "evict")])
def test_a_pod_that_terminates_too_long_is_passed_over(age_s, limit_s, action):
    flags = DrainFlags(skip_wait_for_delete_timeout_s=limit_s)
    assert judge_pod(pod(owner="", phase="Failed", leaves=True), flags, DAEMONS, age_s).action == action


def test_refusals_and_warnings_are_kubectls():
    pods = [
        pod("a", owner="DaemonSet/agent"), pod("b", owner="DaemonSet/gone"), pod("c", empty_dir=True), pod("d", owner=""),
        pod("e", owner=""),
    ]  # fmt: skip
    assert refusals_as_kubectl(judge_pods(pods, NOTHING, DAEMONS)) == [
        "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): default/a",
        'cannot delete daemonsets.apps "gone" not found: default/b',
        "cannot delete Pods with local storage (use --delete-emptydir-data to override): default/c",
        "cannot delete Pods that declare no controller (use --force to override): default/d, default/e",
    ]


def test_no_flag_ever_adds_a_refusal():
    shapes = itertools.product(
        ["", "ReplicaSet/web", "DaemonSet/agent", "DaemonSet/gone"], ["Running", "Failed"], [True, False], [True, False]
    )
    for owner, phase, empty_dir, mirror in shapes:
        one = pod("p", owner, phase, empty_dir, mirror)
        for first in itertools.product([True, False], repeat=3):
            before = judge_pod(one, DrainFlags(*first), DAEMONS).action
            for at in range(3):
                more = DrainFlags(*(flag or i == at for i, flag in enumerate(first)))
                assert before == "refuse" or judge_pod(one, more, DAEMONS).action == before
