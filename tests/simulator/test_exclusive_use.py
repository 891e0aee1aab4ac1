"""Test over random runs with failed bindings, deleted pods and changed nodes that exclusive resources are used once.

No device has two claims, no ReadWriteOncePod volume two pods, and no node more volumes than its driver allows.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Pod
from moorage.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from moorage.core.engine.facts import Gone, Seen
from moorage.framework.verdicts import Hold
from moorage.plugins.devices.claim_shapes import DeviceState
from moorage.simulator.simulate import Options, prepare
from moorage.testing.builders import a_node, a_pod
from moorage.testing.storage import a_bound_claim, a_csi_node, a_volume

DRIVER, DISKS = "gpu.example.com", "disk.example.com"
NODES, LIMIT = 3, 2
CONFIG = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Moody}]}}}]
"""
REQUEST = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}


class FailingBindings:
    """Fail some bindings, before or after claims are written."""

    name = "Moody"
    failures: list[str]

    def permit(self, state, pod, node):
        return self._hold("permit")

    def pre_bind(self, state, pod, node):
        return self._hold("preBind") or ()

    def bind(self, state, pod, node):
        return self._hold("bind") or ()

    def _hold(self, point):
        if self.failures and self.failures[0] == point:
            self.failures.pop(0)
            return Hold.because("in no mood")
        return None


def a_claim(name):
    metadata = {"name": name, "namespace": "default", "uid": name}
    return msgspec.convert({"metadata": metadata, "spec": {"devices": {"requests": [REQUEST]}}}, ResourceClaim)


def initial_objects():
    yield msgspec.convert({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}, DeviceClass)
    yield msgspec.convert(
        {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": {"devices": {"requests": [REQUEST]}}}},
        ResourceClaimTemplate,
    )
    for at in range(NODES):
        pool = {"name": f"n{at}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": f"n{at}", "devices": [{"name": "d0"}, {"name": "d1"}]}
        yield msgspec.convert({"metadata": {"name": f"s{at}"}, "spec": spec}, ResourceSlice)
        yield a_csi_node(f"n{at}", {DISKS: LIMIT})
        yield a_node(f"n{at}", allocatable={"cpu": "64", "memory": "64Gi", "pods": 100})
    for at in range(6):
        csi = {"driver": DISKS, "volumeHandle": f"h{at}"}
        ref = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": f"v{at}", "uid": f"default/v{at}"}
        modes = ["ReadWriteOncePod"] if at < 3 else ["ReadWriteMany"]
        yield a_volume(f"pv{at}", phase="Bound", claimRef=ref, csi=csi, accessModes=modes)
        yield a_bound_claim(f"v{at}", f"pv{at}", accessModes=modes)
    yield from (a_claim(f"c{at}") for at in range(3))


@st.composite
def pods(draw, name) -> Pod:
    uses = [{"name": c, "resourceClaimName": c} for c in draw(st.lists(st.sampled_from(["c0", "c1", "c2"]), max_size=1))]
    if draw(st.booleans()):
        uses.append({"name": "made", "resourceClaimTemplateName": "t"})
    claims = draw(st.lists(st.sampled_from([f"v{at}" for at in range(6)]), unique=True, max_size=2))
    volumes = [{"name": v, "persistentVolumeClaim": {"claimName": v}} for v in claims]
    gpu = {"example.com/gpu": "1"} if draw(st.integers(0, 3)) == 0 else {}
    containers = [{"name": "c", "resources": {"requests": gpu, "limits": gpu}}]
    more = {"resourceClaims": uses, "volumes": volumes, "containers": containers, "schedulerName": "default-scheduler"}
    return a_pod(name, priority=draw(st.integers(0, 2)), **more).pod


def check(simulation):
    snapshot = simulation.scheduler.snapshot
    claims = snapshot.objects(ResourceClaim).values()
    allocations = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    held = Counter((one.pool, one.device) for allocation in allocations for one in allocation.devices.results)
    assert all(count == 1 for count in held.values()), held
    of_node: dict[str, set[str]] = {}
    users: Counter[str] = Counter()
    for pod in simulation._pods.values():
        if pod.spec.node_name in snapshot.table.row_of:  # kube-scheduler does not count pods on deleted nodes
            used = {one.persistent_volume_claim.claim_name for one in pod.spec.volumes}
            of_node.setdefault(pod.spec.node_name, set()).update(used)
            users.update(used)
            names = {one.resource_claim_name for one in pod.status.resource_claim_statuses}
            names |= {one.resource_claim_name for one in pod.spec.resource_claims} - {None}
            for name in names:
                status = snapshot.objects(ResourceClaim)[f"default/{name}"].status
                assert pod.uid in {user.uid for user in status.reserved_for}
                assert {one.pool for one in status.allocation.devices.results} == {pod.spec.node_name}
    assert all(len(volumes) <= LIMIT for volumes in of_node.values()), of_node
    assert all(users[f"v{at}"] <= 1 for at in range(3)), users


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_exclusive_resources_are_used_once(data):
    failures = data.draw(st.lists(st.sampled_from(["", "permit", "preBind", "bind"]), max_size=6), label="moods")
    plugin = type("Moody", (FailingBindings,), {"failures": [one for one in failures if one]})
    simulation, _ = prepare(Options(config=CONFIG, plugins=(plugin,)))
    simulation.load(initial_objects())
    count = data.draw(st.integers(1, 10), label="pods")
    for at in range(count):
        pod = data.draw(pods(f"p{at}"))
        come = data.draw(st.integers(0, 3), label="come") * 100.0
        simulation.at(come, Seen(pod))
        if data.draw(st.booleans(), label="goes"):
            simulation.at(come + data.draw(st.integers(0, 3), label="stays") * 70.0, Gone(pod))
    if data.draw(st.booleans(), label="a node goes"):
        simulation.at(150.0, Gone(a_node("n0", allocatable={"cpu": "64", "memory": "64Gi", "pods": 100})))
    for _ in simulation.steps():
        check(simulation)
    check(simulation)
    check_device_state(simulation)


def check_device_state(simulation):
    """Check that only allocations of claims keep devices in use."""
    device_state = simulation.scheduler.snapshot.index(DeviceState)
    device_state.follow()
    claims = simulation.scheduler.snapshot.objects(ResourceClaim).values()
    allocations = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    held = {(one.driver, one.pool, one.device) for allocation in allocations for one in allocation.devices.results}
    every = {(DRIVER, f"n{at}", name) for at in range(NODES) for name in ("d0", "d1")}
    assert {device for device in every if device_state.ledger.is_used(device)} == held
    for claim in claims:
        assert claim.status.allocation is not None or device_state.ledger.pending(claim.metadata.uid) is None
