"""Test that device claims are created, deallocated and deleted in a run as the cluster's controllers would do it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from moorage.api.devices import ResourceClaim, ResourceClaimTemplate
from moorage.core.engine.facts import Gone, Seen
from moorage.testing.builders import a_pod
from tests.simulator.test_devices_in_simulation import GPU, a_class, claim, in_use, nodes, placed, slices, start, using

REQUEST = {"name": "r0", "exactly": {"deviceClassName": "gpu"}}
TEMPLATE = msgspec.convert(
    {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": {"devices": {"requests": [REQUEST]}}}},
    ResourceClaimTemplate,
)


def claims(simulation):
    return simulation.scheduler.snapshot.objects(ResourceClaim)


def by_template(name, uid="", **more):
    uses = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    containers = [{"name": "c"}]
    return a_pod(
        name, uid=uid, containers=containers, schedulerName="default-scheduler", resourceClaims=uses, **more
    ).pod  # fmt: skip


def known(simulation, name):
    return next(pod for pod in simulation._pods.values() if pod.name == name)


def test_devices_of_a_deleted_pod_are_free_for_the_next():
    objects = [*nodes(1), a_class(), *slices(1, 1), claim("c0"), claim("c1"), using("p0", "c0"), using("p1", "c1")]
    simulation = start(objects)
    simulation.run()
    assert placed(simulation) == {"p0": "n0", "p1": ""}
    simulation.at(1000.0, Gone(known(simulation, "p0")))
    simulation.run()
    assert placed(simulation)["p1"] == "n0"
    assert claims(simulation)["default/c0"] == claim("c0")
    assert in_use(simulation) == {("n0", "d0"): 1}
    assert simulation.overslept == []


def test_a_pod_that_ends_releases_its_claim():
    simulation = start([*nodes(1), a_class(), *slices(1, 1), claim("c0"), claim("c1"), using("p0", "c0"), using("p1", "c1")])
    simulation.run()
    ended = known(simulation, "p0")
    simulation.at(1000.0, Seen(replace(ended, status=replace(ended.status, phase="Succeeded"))))
    simulation.run()
    assert placed(simulation)["p1"] == "n0"


def test_a_shared_claim_keeps_its_device_for_the_remaining_pods():
    simulation = start([*nodes(2), a_class(), *slices(2, 1), claim("c"), using("p0", "c"), using("p1", "c")])
    simulation.run()
    simulation.at(1000.0, Gone(known(simulation, "p0")))
    simulation.run()
    (shared,) = claims(simulation).values()
    assert [user.name for user in shared.status.reserved_for] == ["p1"]
    assert shared.status.allocation is not None


def test_template_claims_of_later_pods_are_created_and_deleted_with_them():
    simulation = start([*nodes(1), a_class(), *slices(1, 1), TEMPLATE])
    for turn in range(3):
        simulation.at(100.0 * turn, Seen(by_template(f"p{turn}")))
    simulation.run()
    assert sorted(placed(simulation).items()) == [("p0", "n0"), ("p1", ""), ("p2", "")]
    assert len(claims(simulation)) == 3
    simulation.at(1000.0, Gone(known(simulation, "p0")))
    simulation.at(2000.0, Gone(known(simulation, "p1")))
    simulation.run()
    assert placed(simulation)["p2"] == "n0"
    (left,) = claims(simulation).values()
    assert left.metadata.owner_references[0].name == "p2"


def test_a_recreated_pod_gets_its_own_claim():
    simulation = start([*nodes(1), a_class(), *slices(1, 1), TEMPLATE, by_template("p", "first")])
    simulation.run()
    simulation.at(1000.0, Seen(by_template("p", "second")))
    simulation.run()
    assert simulation.records["second"].node == "n0"
    (own,) = claims(simulation).values()
    assert own.metadata.owner_references[0].uid == "second"
    assert [user.uid for user in own.status.reserved_for] == ["second"]


def test_the_special_claim_is_deleted_with_its_pod():
    asks = {"resources": {"requests": {GPU: 1}, "limits": {GPU: 1}}}
    simulation = start([*nodes(1), a_class(extendedResourceName=GPU), *slices(1, 1), using("p0", **asks), using("p1", **asks)])
    simulation.run()
    first = next(name for name, node in placed(simulation).items() if node)
    simulation.at(1000.0, Gone(known(simulation, first)))
    simulation.run()
    assert set(placed(simulation).values()) == {"n0"}
    (left,) = claims(simulation).values()
    assert left.metadata.owner_references[0].name != first
    assert simulation.overslept == []


def test_unknown_consumers_stay():
    used = claim("c")
    status = msgspec.convert(
        {"allocation": {"devices": {"results": []}}, "reservedFor": [{"resource": "pods", "name": "x", "uid": "u"}]},
        type(used.status),
    )
    simulation = start([*nodes(1), a_class(), replace(used, status=status), using("p", "c")])
    simulation.run()
    simulation.at(1000.0, Gone(known(simulation, "p")))
    simulation.run()
    (left,) = claims(simulation).values()
    assert [user.name for user in left.status.reserved_for] == ["x"]
