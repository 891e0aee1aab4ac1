"""Pods of a group that share a claim: by its name, or because their group requests it."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.devices import ClaimConsumer, ResourceClaim, ResourceClaimTemplate
from moorage.api.pod_groups import PodGroup
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.job_groups import create_for
from moorage.simulator.simulate import Options, prepare
from moorage.testing.builders import a_pod
from tests.simulator.test_devices_in_simulation import a_class, claim, nodes, slices

RELEASES = {
    "1.36": ("1.36", "GenericWorkload=true,GangScheduling=true"),
    "1.37": ("1.37", "GenericWorkload=true"),
}
BY_GROUP = ",DRAWorkloadResourceClaims=true"
BY_NAME = {"name": "c", "resourceClaimName": "shared"}
BY_TEMPLATE = {"name": "c", "resourceClaimTemplateName": "t"}
ELSEWHERE = 'running PreBind plugin "DynamicResources": claim default/shared got allocated elsewhere in the meantime'


def a_group(least, *claims):
    policy = {"gang": {"minCount": least}}
    metadata = {"name": "g", "namespace": "default", "uid": "uid-g"}
    spec = {"schedulingPolicy": policy, "resourceClaims": claims}
    return msgspec.convert({"metadata": metadata, "spec": spec}, PodGroup)


def a_template():
    request = {"name": "r0", "exactly": {"deviceClassName": "gpu", "count": 1}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    return msgspec.convert({"metadata": {"name": "t", "namespace": "default"}, "spec": spec}, ResourceClaimTemplate)


def members(number, use, cpu="1"):
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    spec = {"schedulingGroup": {"podGroupName": "g"}, "resourceClaims": [use], "schedulerName": "default-scheduler"}
    return [a_pod(f"p{at}", containers=containers, **spec).pod for at in range(number)]


def run(release, group, pods, *, hosts=2, devices=1, gates="", templates=(), claims=(), told=None):
    emulate, opened = RELEASES[release]
    options = Options(emulate=emulate, feature_gates=opened + gates)
    given = ClusterInput(
        pods=tuple(pods), pod_groups=(group,), resource_claims=tuple(claims), resource_claim_templates=templates
    )
    made = create_for(given, options).cluster
    simulation, _ = prepare(options)
    objects = [*nodes(hosts), a_class(), *slices(hosts, devices), *templates, *made.pod_groups, *made.resource_claims]
    simulation.on_result = None if told is None else lambda decision: told.add(decision.message)
    simulation.load([*objects, *made.pods])
    simulation.run()
    return simulation


def where(simulation):
    return {record.pod.name: record.node for record in simulation.records.values()}


@pytest.mark.parametrize("release", RELEASES)
def test_pods_that_go_together_share_a_claim(release):
    simulation = run(release, a_group(3), members(3, BY_NAME), claims=[claim("shared")])
    assert all(where(simulation).values())
    (held,) = simulation.scheduler.snapshot.objects(ResourceClaim).values()
    assert sorted(user.name for user in held.status.reserved_for) == ["p0", "p1", "p2"]


def test_they_run_where_the_devices_are_since_1_37():
    simulation = run("1.37", a_group(3), members(3, BY_NAME), hosts=4, claims=[claim("shared")])
    assert len(set(where(simulation).values())) == 1
    assert {record.attempts for record in simulation.records.values()} == {1}


def test_in_1_36_all_but_the_first_to_write_the_claim_fail_once_and_then_go_there():
    told = set()
    simulation = run("1.36", a_group(3), members(3, BY_NAME), hosts=4, claims=[claim("shared")], told=told)
    assert ELSEWHERE in told
    records = simulation.records.values()
    assert sorted(record.attempts for record in records) == [1, 2, 2]
    (held,) = simulation.scheduler.snapshot.objects(ResourceClaim).values()
    (device,) = held.status.allocation.devices.results
    assert {record.node for record in records if record.attempts == 2} == {device.pool}


def test_one_that_does_not_fit_beside_the_devices_keeps_all_waiting():
    simulation = run("1.37", a_group(3), members(3, BY_NAME, cpu="30"), claims=[claim("shared")])
    assert not any(where(simulation).values())
    (held,) = simulation.scheduler.snapshot.objects(ResourceClaim).values()
    assert held.status.allocation is None


@pytest.mark.parametrize("release", RELEASES)
def test_a_claim_that_the_group_requests_is_made_once_and_reserved_for_the_group(release):
    pods = members(2, BY_TEMPLATE)
    simulation = run(release, a_group(2, BY_TEMPLATE), pods, gates=BY_GROUP, templates=(a_template(),))
    assert all(where(simulation).values())
    (held,) = simulation.scheduler.snapshot.objects(ResourceClaim).values()
    assert held.metadata.owner_references[0].kind == "PodGroup"
    group = ClaimConsumer(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="uid-g")
    assert held.status.reserved_for == (group,)


def test_with_the_gate_closed_each_pod_has_its_own():
    pods = members(2, BY_TEMPLATE)
    simulation = run("1.37", a_group(2, BY_TEMPLATE), pods, devices=2, templates=(a_template(),))
    held = simulation.scheduler.snapshot.objects(ResourceClaim).values()
    assert all(where(simulation).values())
    assert {one.metadata.owner_references[0].kind for one in held} == {"Pod"}
    assert len(held) == 2


def test_an_entry_that_differs_from_the_groups_is_the_pods_own():
    pods = members(2, {**BY_TEMPLATE, "name": "d"})
    simulation = run("1.37", a_group(2, BY_TEMPLATE), pods, devices=2, gates=BY_GROUP, templates=(a_template(),))
    owners = [one.metadata.owner_references[0].kind for one in simulation.scheduler.snapshot.objects(ResourceClaim).values()]
    assert sorted(owners) == ["Pod", "Pod", "PodGroup"]
