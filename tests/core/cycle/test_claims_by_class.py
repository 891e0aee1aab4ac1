"""Pods with claims, decided from cached verdicts: compared with the full path, with random events between any two."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from moorage.api.core import Service
from moorage.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from moorage.api.storage import PersistentVolumeClaim
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Gone, Seen
from moorage.simulator.simulate import Options, prepare
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_node, a_pod
from moorage.testing.storage import a_claim, a_class, a_volume, on_hosts


def named(kind, name, space="", **parts):
    metadata = {"name": name, "uid": name, **({"namespace": space} if space else {})}
    return msgspec.convert({"metadata": metadata, **parts}, kind)


class World:
    def __init__(self, seed, share_of_devices):
        self.random, self.number, self.share_of_devices = Random(seed), 0, share_of_devices
        self.made, _ = prepare(Options())
        self.plain = Cycle(by_class=False)
        nodes = [self.node(at) for at in range(9)]
        self.made.load([named(DeviceClass, "gpu", spec={}), *nodes, *(self.devices(at) for at in range(7))])
        self.made.load([a_class("local", provisioner="kubernetes.io/no-provisioner"), *(self.volume(at) for at in range(12))])
        self.run()

    def volume(self, at):
        size = self.random.choice(["1Gi", "2Gi", "3Gi"])
        return a_volume(f"v{at}", size=size, storageClassName="local", nodeAffinity=on_hosts(f"n{at % 9}"))

    def node(self, at):
        labels = {"kubernetes.io/hostname": f"n{at}", "topology.kubernetes.io/zone": self.random.choice("abc")}
        return a_node(f"n{at}", labels, allocatable={"cpu": self.random.choice([2, 4]), "memory": "8Gi", "pods": 5})

    def devices(self, at):
        pool = {"name": f"n{at}", "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"d{number}"} for number in range(self.random.choice([1, 2, 3]))]
        return named(ResourceSlice, f"s{at}", spec={"driver": "d", "nodeName": f"n{at}", "pool": pool, "devices": devices})

    def run(self):
        for _ in self.made.steps():
            pass

    def pod(self):
        self.number += 1
        name, random = f"p{self.number}", self.random
        exactly = {"deviceClassName": "gpu", "count": random.choice([1, 1, 2])}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        container = {"name": "c", "resources": {"requests": {"cpu": random.choice(["100m", "900m"])}}}
        claims = [{"name": "x", "resourceClaimName": name}] if random.random() < self.share_of_devices else []
        disks = [f"{name}-{at}" for at in range(random.choice([0, 1, 1, 2]))] if self.share_of_devices < 0.5 else []
        volumes = [{"name": disk, "persistentVolumeClaim": {"claimName": disk}} for disk in disks]
        pod = a_pod(name, {"app": random.choice("xy")}, containers=[container], resourceClaims=claims, volumes=volumes).pod
        self.made.load([named(ResourceClaim, name, "default", spec=spec)])
        self.made.load([a_claim(disk, size=random.choice(["1Gi", "2Gi"]), storageClassName="local") for disk in disks])
        self.compare(pod)
        self.made.load([pod])
        self.run()

    def compare(self, pod):
        scheduler = self.made.scheduler
        profile = next(iter(scheduler.profiles.values()))
        one, two = (
            cycle.decide(profile, PodInfo(pod), scheduler.snapshot, scheduler.queue.nominated)
            for cycle in (scheduler.cycle, self.plain)
        )
        assert (one.node, one.feasible, one.message) == (two.node, two.feasible, two.message)

    def happen(self):
        at, bound = self.random.randrange(10), [pod for pod in self.made.pods_in_order() if pod.spec.node_name]
        kind = self.random.choice(["gone", "gone", "node", "slice", "service", "lost"])
        if kind == "gone" and bound:
            self.made.tell([Gone(self.random.choice(bound))])
        elif kind == "node":
            self.made.tell([Seen(self.node(at))])
        elif kind == "slice":
            self.made.tell([self.random.choice([Seen, Seen, Gone])(self.devices(at))])
        elif kind == "service":
            self.made.tell([Seen(named(Service, "s", "default", spec={"selector": {"app": self.random.choice("xy")}}))])
        elif kind == "lost" and self.random.random() < 0.3:
            self.made.tell([Gone(self.node(at))])
        self.run()


@pytest.mark.parametrize("seed", range(3))
def test_pods_with_claims_are_decided_as_on_the_full_path(seed):
    world = World(seed, share_of_devices=0.8)
    for _ in range(25):
        world.pod()
        if world.random.random() < 0.6:
            world.happen()
    assert (
        sum(claim.status.allocation is not None for claim in world.made.scheduler.cluster.objects(ResourceClaim).values()) > 5
    )


@pytest.mark.parametrize("seed", range(3))
def test_pods_with_volumes_are_decided_as_on_the_full_path(seed):
    world = World(seed, share_of_devices=0.2)
    for _ in range(25):
        world.pod()
        if world.random.random() < 0.6:
            world.happen()
    claims = world.made.scheduler.cluster.objects(PersistentVolumeClaim).values()
    assert sum(bool(claim.spec.volume_name) for claim in claims) > 5
