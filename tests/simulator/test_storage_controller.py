"""Test the simulated volume controller: which claims get which volume, when, and which pods wait for them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.core.engine.facts import Gone, Seen
from moorage.framework.effects import Until, Write
from moorage.rules.volumes.bindings import BIND_COMPLETED
from moorage.simulator.outcome_collector import collect
from moorage.simulator.simulate import Options, prepare
from moorage.testing.builders import a_node, a_pod
from moorage.testing.storage import a_claim, a_class, a_csi_node, a_volume, on_hosts, on_nodes_labelled, standing_on

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
HEAD = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
NODES = [
    a_node(name, {HOST: name, ZONE: zone}, allocatable={"cpu": "4", "memory": "8Gi", "pods": 10})
    for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "b"))
]
BY_HAND = "kubernetes.io/no-provisioner"
NOW = a_class("now", volumeBindingMode="Immediate")
NOW_BY_HAND = a_class("now", volumeBindingMode="Immediate", provisioner=BY_HAND)
LATER_BY_HAND = a_class("later", provisioner=BY_HAND)


def zones(*names):
    return [{"matchLabelExpressions": [{"key": ZONE, "values": list(names)}]}]


def pod(name, *claims, node_selector=None):
    spec = {"nodeSelector": node_selector} if node_selector else {}
    return a_pod(name, containers=[{"name": "c"}], schedulerName="default-scheduler", volumes=standing_on(*claims), **spec).pod


def prepared(objects, *plugins, config=b""):
    simulation, _ = prepare(Options(config=HEAD + config, plugins=plugins))
    simulation.load([*NODES, *objects])
    return simulation


def run(*objects):
    simulation = prepared(objects)
    simulation.run()
    return simulation


def volume_of(simulation, claim="data"):
    held = simulation.scheduler.snapshot.objects(PersistentVolumeClaim)[f"default/{claim}"]
    return held.spec.volume_name


def placed(simulation):
    return {record.pod.name: record.node for record in simulation.records.values()}


def message(simulation, name):
    return next(record.message for record in simulation.records.values() if record.pod.name == name)


def check_both_sides(simulation):
    """Check that bound claims and volumes agree, and that no volume has two claims."""
    volumes = simulation.scheduler.snapshot.objects(PersistentVolume)
    claims = simulation.scheduler.snapshot.objects(PersistentVolumeClaim)
    bound = {key: claim for key, claim in claims.items() if BIND_COMPLETED in claim.metadata.annotations}
    for claim in bound.values():
        volume = volumes[claim.spec.volume_name]
        assert (volume.spec.claim_ref.name, volume.spec.claim_ref.uid) == (claim.metadata.name, claim.metadata.uid)
        assert (volume.status.phase, claim.status.phase) == ("Bound", "Bound")
        assert claim.status.capacity == volume.spec.capacity
    assert len({claim.spec.volume_name for claim in bound.values()}) == len(bound)
    assert set(simulation.storage.bound) <= set(bound)


def volumes(*names, **spec):
    return [a_volume(name, **{"storageClassName": "now", **spec}) for name in names]


#: Objects other than the claim ``data`` of 1Gi and class ``now``, which binds at once; and the volume it gets.
IMMEDIATE = {
    "no volume, no provisioner": ([NOW_BY_HAND], ""),
    "the only volume": ([NOW_BY_HAND, *volumes("pv")], "pv"),
    "the smallest that fits": (
        [NOW_BY_HAND, *volumes("big", size="9Gi"), *volumes("fit", size="2Gi"), *volumes("small", size="1Mi")], "fit"
    ),
    "the first name among equals": ([NOW_BY_HAND, *volumes("b", "a")], "a"),
    "a volume without a phase": ([NOW_BY_HAND, *volumes("pv", phase="Pending")], "pv"),
    "a released volume": ([NOW_BY_HAND, *volumes("pv", phase="Released")], ""),
    "another class": ([NOW_BY_HAND, *volumes("pv", storageClassName="other")], ""),
    "other access modes": ([NOW_BY_HAND, *volumes("pv", accessModes=["ReadOnlyMany"])], ""),
    "another volume mode": ([NOW_BY_HAND, *volumes("pv", volumeMode="Block")], ""),
    "reserved for another claim": ([NOW_BY_HAND, *volumes("pv", claimRef={"namespace": "default", "name": "other"})], ""),
    "reserved for this claim": (
        [NOW_BY_HAND, *volumes("a"), *volumes("pv", size="5Gi", claimRef={"namespace": "default", "name": "data"})], "pv"
    ),
    "reserved for an earlier claim of that name": (
        [NOW_BY_HAND, *volumes("pv", claimRef={"namespace": "default", "name": "data", "uid": "old"})], ""
    ),
    "provisioned": ([NOW], "pvc-default/data"),
    "an existing volume before provisioning": ([NOW, *volumes("pv")], "pv"),
    "an existing volume without its class": (volumes("pv"), "pv"),
    "no class": ([], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", IMMEDIATE)
def test_claims_with_immediate_binding(case):
    objects, expected = IMMEDIATE[case]
    simulation = run(*objects, a_claim("data", storageClassName="now"), pod("p", "data"))
    assert volume_of(simulation) == expected
    check_both_sides(simulation)
    assert bool(placed(simulation)["p"]) == bool(expected)
    if not expected:
        why = "0/3 nodes are available: " + UNBOUND
        assert message(simulation, "p").startswith(why)


#: Objects other than the claim ``data`` of class ``later``; the pod's node selector, and the resulting node and volume.
DELAYED = {
    "no volume": ([LATER_BY_HAND], {}, {("", "")}),
    "a volume on one node": (
        [LATER_BY_HAND, a_volume("pv", storageClassName="later", nodeAffinity=on_hosts("n1"))], {}, {("n1", "pv")}
    ),
    "a volume on another node": (
        [LATER_BY_HAND, a_volume("pv", storageClassName="later", nodeAffinity=on_hosts("n1"))], {HOST: "n0"}, {("", "")}
    ),
    "a volume without a phase": (
        [LATER_BY_HAND, a_volume("pv", storageClassName="later", phase="Pending", nodeAffinity=on_hosts("n2"))], {},
        {("n2", "pv")},
    ),
    "a volume on each node": (
        [LATER_BY_HAND, *(a_volume(f"pv-{n}", storageClassName="later", nodeAffinity=on_hosts(n)) for n in ("n0", "n2"))],
        {ZONE: "b"}, {("n2", "pv-n2")},
    ),
    "provisioned anywhere": ([a_class("later")], {HOST: "n1"}, {("n1", "pvc-default/data")}),
    "provisioned in the allowed topology": ([a_class("later", allowedTopologies=zones("b"))], {}, {("n2", "pvc-default/data")}),
    "the allowed topology excludes the pod's node": ([a_class("later", allowedTopologies=zones("b"))], {ZONE: "a"}, {("", "")}),
    "missing class": ([], {}, {("", "")}),
}  # fmt: skip


@pytest.mark.parametrize("case", DELAYED)
def test_claims_that_wait_for_the_first_consumer(case):
    objects, selector, expected = DELAYED[case]
    simulation = run(*objects, a_claim("data", storageClassName="later"), pod("p", "data", node_selector=selector))
    assert (placed(simulation)["p"], volume_of(simulation)) in expected
    check_both_sides(simulation)


def test_a_waiting_claim_without_a_pod_stays_unbound():
    volume = a_volume("pv", storageClassName="later")
    simulation = run(LATER_BY_HAND, volume, a_claim("data", storageClassName="later"))
    assert volume_of(simulation) == ""
    assert simulation.storage.bound == {}


TOPOLOGIES = {  # the class's zones, the driver's topology keys, the pod's node: nodes that reach the volume
    "none": ([], (), {HOST: "n0"}, {"n0", "n1", "n2"}),
    "the class's": (zones("a", "b"), (), {HOST: "n0"}, {"n0", "n1"}),
    "the driver's": ([], (HOST,), {HOST: "n0"}, {"n0"}),
    "the driver's precede the class's": (zones("a"), (HOST,), {HOST: "n1"}, {"n1"}),
    "a label that nodes lack": ([], ("rack",), {HOST: "n1"}, {"n0", "n1", "n2"}),
}


@pytest.mark.parametrize("case", TOPOLOGIES)
def test_a_provisioned_volume_is_reachable_in_its_topology(case):
    allowed, keys, selector, expected = TOPOLOGIES[case]
    drivers = []
    for node in NODES:
        csi = a_csi_node(node.name, {"csi.example.com": None})
        drivers.append(
            replace(csi, spec=replace(csi.spec, drivers=tuple(replace(d, topology_keys=keys) for d in csi.spec.drivers)))
        )
    one = a_class("later", allowedTopologies=allowed)
    simulation = prepared(
        [one, *drivers, a_claim("data", storageClassName="later"), pod("first", "data", node_selector=selector)]
    )
    for name in ("n0", "n1", "n2"):
        simulation.at(1.0, Seen(pod(f"on-{name}", "data", node_selector={HOST: name})))
    simulation.run()
    assert {name[3:] for name, node in placed(simulation).items() if name.startswith("on-") and node} == expected


def test_an_immediately_provisioned_volume_is_reachable_in_all_allowed_topologies():
    immediate = a_class("now", volumeBindingMode="Immediate", allowedTopologies=zones("b", "c"))
    simulation = run(immediate, a_claim("data", storageClassName="now"), pod("p", "data"))
    assert placed(simulation) == {"p": "n2"}
    volume = simulation.scheduler.snapshot.objects(PersistentVolume)["pvc-default/data"]
    assert volume.spec.node_affinity == a_volume(nodeAffinity=on_nodes_labelled(ZONE, "b", "c")).spec.node_affinity


NAMED = {  # the volume that the claim ``data`` names: is it bound?
    "is free": (volumes("pv"), "pv"),
    "is of another class": (volumes("pv", storageClassName="other"), ""),
    "is too small": (volumes("pv", size="1Mi"), ""),
    "is another's": (volumes("pv", claimRef={"namespace": "default", "name": "other"}), ""),
    "is reserved for it": (volumes("pv", claimRef={"namespace": "default", "name": "data"}), "pv"),
    "does not exist": ([], ""),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_claim_may_name_its_volume(case):
    objects, expected = NAMED[case]
    simulation = run(NOW, *objects, *volumes("aaa"), a_claim("data", storageClassName="now", volumeName="pv"), pod("p", "data"))
    check_both_sides(simulation)
    assert [one.volume.name for one in simulation.storage.bound.values()] == ([expected] if expected else [])
    assert bool(placed(simulation)["p"]) == bool(expected)


def test_objects_added_later_help_pending_claims():
    claim = a_claim("data", storageClassName="now")
    for late in (NOW, *volumes("pv"), *volumes("pv", phase="Pending")):
        simulation = prepared([claim, pod("p", "data")])
        simulation.at(5.0, Seen(late))
        simulation.run()
        assert volume_of(simulation)
        record = next(iter(simulation.records.values()))
        assert record.node
        assert record.placed_s == 5.0
        assert not simulation.overslept


def test_two_pods_of_one_claim_share_its_volume():
    volume = a_volume("pv", storageClassName="later", nodeAffinity=on_hosts("n1"))
    simulation = run(LATER_BY_HAND, volume, a_claim("data", storageClassName="later"), pod("p", "data"), pod("q", "data"))
    assert placed(simulation) == {"p": "n1", "q": "n1"}
    outcome = collect(simulation, "1.36")
    assert [(one.claim, one.volume, one.node, one.pods) for one in outcome.volumes] == [
        ("data", "pv", "n1", ("default/p", "default/q"))
    ]


def test_a_read_write_once_pod_claim_blocks_the_second_pod_until_the_first_is_deleted():
    claim = a_claim("data", storageClassName="later", accessModes=["ReadWriteOncePod"])
    first, second = pod("p", "data"), pod("q", "data")
    simulation = prepared([a_class("later"), claim, first, second])
    for _ in simulation.steps():
        pass
    holder, other = sorted(placed(simulation), key=lambda name: not placed(simulation)[name])
    assert placed(simulation)[holder]
    assert not placed(simulation)[other]
    assert "ReadWriteOncePod" in message(simulation, other)
    simulation.at(simulation.now + 9, Gone(simulation.records[{"p": first, "q": second}[holder].metadata.uid].pod))
    simulation.run()
    assert placed(simulation)[other]
    check_both_sides(simulation)


def test_a_pod_with_several_claims_gets_all_or_none():
    claims = [a_claim(name, storageClassName="later") for name in ("a", "b")]
    local = [a_volume(f"pv{at}", storageClassName="later", nodeAffinity=on_hosts("n2")) for at in range(2)]
    assert set(placed(run(LATER_BY_HAND, *local, *claims, pod("p", "a", "b"))).values()) == {"n2"}
    simulation = run(LATER_BY_HAND, local[0], *claims, pod("p", "a", "b"))
    assert placed(simulation) == {"p": ""}
    assert simulation.storage.bound == {}


# -- waits in virtual time ------------------------------------------------------------------------------------------------


class Patient:
    """Let a pod's binding wait for a volume called ``sign``."""

    name = "Patient"

    def attach(self, handle):
        self._handle = handle

    def pre_bind(self, state, pod, node):
        volumes = self._handle.snapshot.objects(PersistentVolume)
        return (Write(a_volume("told")), Until(lambda: "sign" in volumes, 30.0, "waiting for a sign"))


PATIENT = b"profiles:\n- plugins:\n    multiPoint:\n      enabled: [{name: Patient}]\n"


def test_binding_continues_when_the_awaited_object_is_added():
    simulation = prepared([pod("p")], Patient, config=PATIENT)
    simulation.at(12.0, Seen(a_volume("sign")))
    simulation.run()
    record = next(iter(simulation.records.values()))
    assert (record.state, record.placed_s, record.attempts) == ("Placed", 12.0, 1)


def test_binding_fails_at_its_timeout_and_the_run_ends():
    seen = []
    simulation = prepared([pod("p")], Patient, config=PATIENT)
    simulation.on_attempt = lambda attempt: seen.append((attempt.time_s, attempt.decision.node))
    simulation.run()
    record = next(iter(simulation.records.values()))
    assert record.state == "Pending"
    assert "waiting for a sign: context deadline exceeded" in record.message
    assert seen[0][0] == 0.0
    assert seen[0][1]
    assert seen[1] == (30.0, None)
    assert not simulation.scheduler.cluster.assumed


def test_a_pod_deleted_while_its_binding_waits_is_released():
    waiting = pod("p")
    simulation = prepared([waiting], Patient, config=PATIENT)
    simulation.at(3.0, Gone(waiting))
    simulation.run()
    assert next(iter(simulation.records.values())).state == "Deleted"
    assert simulation.now == 3.0
    assert not simulation.scheduler.cluster.assumed


# -- random clusters ------------------------------------------------------------------------------------------------------

SITES = [None, on_hosts("n0"), on_hosts("n1", "n2"), on_nodes_labelled(ZONE, "a"), on_nodes_labelled(ZONE, "b")]
CLASSES = [
    a_class("now", volumeBindingMode="Immediate", allowedTopologies=zones("a")),
    a_class("shelf", volumeBindingMode="Immediate", provisioner=BY_HAND),
    a_class("later", allowedTopologies=zones("a", "b")),
    LATER_BY_HAND,
]


@st.composite
def worlds(draw):
    classes = {one.name: one for one in draw(st.lists(st.sampled_from(CLASSES), max_size=4))}
    names = st.sampled_from(["now", "shelf", "later"])
    spec = st.tuples(names, st.sampled_from(["1Gi", "2Gi"]), st.sampled_from(SITES), st.sampled_from(["Available", "Pending"]))
    there = [
        a_volume(f"pv{at}", storageClassName=name, size=size, phase=phase, **({"nodeAffinity": site} if site else {}))
        for at, (name, size, site, phase) in enumerate(draw(st.lists(spec, max_size=5)))
    ]
    count = draw(st.integers(1, 4))
    claims = [
        a_claim(f"c{at}", storageClassName=draw(names), size=draw(st.sampled_from(["1Gi", "2Gi"]))) for at in range(count)
    ]
    used = st.lists(st.integers(0, count - 1), min_size=1, max_size=2, unique=True)
    pods = [pod(f"p{at}", *(f"c{index}" for index in draw(used))) for at in range(draw(st.integers(1, 4)))]
    late = draw(st.integers(0, len(there)))
    return [*classes.values(), *there[late:], *claims, *pods], there[:late]


@given(worlds())
@settings(max_examples=30, deadline=None)
def test_placed_pods_reach_their_volumes(world):
    objects, late = world
    simulation = prepared(objects)
    for at, volume in enumerate(late):
        simulation.at(1.0 + at, Seen(volume))
    simulation.run()
    check_both_sides(simulation)
    claims = simulation.scheduler.snapshot.objects(PersistentVolumeClaim)
    volumes = simulation.scheduler.snapshot.objects(PersistentVolume)
    labels = {node.name: node.metadata.labels for node in NODES}
    for record in simulation.records.values():
        for claim in [claims[f"default/{v.persistent_volume_claim.claim_name}"] for v in record.pod.spec.volumes]:
            if record.node:
                assert BIND_COMPLETED in claim.metadata.annotations
                volume = volumes[claim.spec.volume_name]
                assert reaches(volume, labels[record.node])
                assert volume.spec.storage_class_name == claim.spec.storage_class_name
                assert GIB[volume.spec.capacity["storage"]] >= GIB[claim.spec.resources.requests["storage"]]
    assert not simulation.overslept
    assert not simulation.scheduler.cluster.assumed


GIB = {"1Gi": 1, "2Gi": 2}


def reaches(volume, labels):
    affinity = volume.spec.node_affinity
    return affinity is None or any(
        all(labels.get(one.key) in one.values for one in term.match_expressions)
        for term in affinity.required.node_selector_terms
    )
