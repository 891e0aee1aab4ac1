"""Test pods with volume claims in a simulation: each volume is bound once, claims are shared, plans are undone."""

from __future__ import annotations

from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.framework.verdicts import Hold
from moorage.rules.volumes.bindings import SELECTED_NODE
from moorage.simulator.simulate import Options, prepare
from moorage.testing.builders import a_node, a_pod
from moorage.testing.storage import a_claim, a_class, a_volume, on_hosts, standing_on

HOST = "kubernetes.io/hostname"
LOCAL = a_class("local", provisioner="kubernetes.io/no-provisioner")

#: Volumes of a class with these topologies are local to one of the hosts.
ON_ANY_HOST = {"matchLabelExpressions": [{"key": HOST, "values": [f"n{at}" for at in range(5)]}]}


def hosts(count):
    return [a_node(f"n{at}", {HOST: f"n{at}"}, allocatable={"cpu": "4", "memory": "8Gi", "pods": 10}) for at in range(count)]


def using(name, *claims):
    return a_pod(name, containers=[{"name": "c"}], schedulerName="default-scheduler", volumes=standing_on(*claims)).pod


def local_claims(*names):
    return [a_claim(name, storageClassName="local") for name in names]


def local_volumes(*nodes):
    return [a_volume(f"pv-{node}", storageClassName="local", nodeAffinity=on_hosts(node)) for node in nodes]


HEAD = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def run(objects, *plugins, config=b""):
    simulation, _ = prepare(Options(config=HEAD + config, plugins=plugins))
    simulation.load(objects)
    simulation.run()
    return simulation, {record.pod.name: record.node for record in simulation.records.values()}


def test_each_pod_gets_its_own_volume():
    pods = [using(f"p{at}", f"c{at}") for at in range(3)]
    simulation, placed = run([*hosts(3), LOCAL, *local_volumes("n0", "n2"), *local_claims("c0", "c1", "c2"), *pods])
    assert sorted(placed.values()) == ["", "n0", "n2"]
    volumes = simulation.scheduler.snapshot.objects(PersistentVolume)
    assert {name: volumes[f"pv-{node}"].spec.claim_ref.name for name, node in placed.items() if node} == {
        name: f"c{name[1:]}" for name, node in placed.items() if node
    }
    left = next(record for record in simulation.records.values() if not record.node)
    assert left.message.startswith("0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.")


def test_pods_that_share_a_claim_run_on_one_node():
    pods = [using(f"p{at}", "shared") for at in range(4)]
    for kind, objects in {
        "found": [LOCAL, *local_volumes("n1", "n3"), *local_claims("shared")],
        "made": [a_class("made", allowedTopologies=[ON_ANY_HOST]), a_claim("shared", storageClassName="made")],
    }.items():
        simulation, placed = run([*hosts(5), *objects, *pods])
        assert len(set(placed.values())) == 1, kind
        assert set(placed.values()) != {""}, kind
    claim = simulation.scheduler.snapshot.objects(PersistentVolumeClaim)["default/shared"]
    assert claim.metadata.annotations[SELECTED_NODE] in placed.values()


class Doorkeeper:
    """Reject the pod called ``first`` in Permit."""

    name = "Doorkeeper"

    def permit(self, state, pod, node):
        return Hold.because("not you") if pod.name == "first" else None


def test_a_volume_planned_for_a_rejected_pod_goes_to_another():
    config = b"profiles:\n- plugins:\n    multiPoint:\n      enabled: [{name: Doorkeeper}]\n"
    objects = [*hosts(2), LOCAL, *local_volumes("n1"), *local_claims("one", "two")]
    _, placed = run([*objects, using("first", "one"), using("second", "two")], Doorkeeper, config=config)
    assert placed == {"first": "", "second": "n1"}
