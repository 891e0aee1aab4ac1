"""Random clusters and random operations on them, each from one seed."""

from __future__ import annotations

import random
from contextlib import suppress

import moorage
from moorage.api.releases import TODAY
from moorage.errors import InputError, StateError

__all__ = ["DeviceWorld", "GroupWorld", "World"]

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


OTHERS = """
apiVersion: v1
kind: Service
metadata: {name: t}
spec: {selector: {app: u}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: b}
spec: {minAvailable: 1, selector: {matchLabels: {app: v}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: late}
provisioner: example.com/disks
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: late}
spec: {storageClassName: late, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: bound, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec: {volumeName: disk, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  claimRef: {namespace: default, name: bound}
  csi: {driver: example.com/disks, volumeHandle: d}
"""


class World:
    """Random objects and operations, from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.made = 0

    def node(self, name: str) -> dict:
        pick = self.random.choice
        labels = {HOST: name, **({ZONE: zone} if (zone := pick(["a", "b", "c", ""])) else {}), "disk": pick(["ssd", "hdd"])}
        images = [
            {"names": [image], "sizeBytes": pick([10, 200]) << 20} for image in self.random.sample(["x:1", "y:1", "z:1"], 2)
        ]
        taints = [{"key": "t", "effect": pick(["NoSchedule", "PreferNoSchedule"])}] if pick([0, 0, 1]) else []
        return {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": pick([False] * 4 + [True])},
            "status": {"allocatable": {"cpu": pick([2, 4]), "memory": "8Gi", "pods": 8}, "images": images},
        }  # fmt: skip

    def pod(self, node: str = "") -> dict:
        self.made += 1
        pick, labels = self.random.choice, {"app": self.random.choice("uvw")}
        selector = {"matchLabels": {"app": pick("uvw")}}
        container = {
            "name": "c",
            "image": pick(["x:1", "y:1", "q"]),
            "resources": {"requests": {"cpu": f"{pick([100, 400, 900])}m"}},
        }
        if pick([0, 0, 1]):
            container["ports"] = [{"containerPort": 80, "hostPort": pick([80, 81])}]
        spec = {"containers": [container], "priority": pick([0, 0, 5, 9]), **({"nodeName": node} if node else {})}
        if pick([0, 1]):
            kind = pick(["podAffinity", "podAntiAffinity"])
            term = {"topologyKey": pick([ZONE, HOST]), "labelSelector": selector}
            hard = pick([0, 0, 1])
            spec["affinity"] = {
                kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
                if hard and kind == "podAntiAffinity"
                else {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": pick([1, 50]), "podAffinityTerm": term}]}
            }
        if pick([0, 1]):
            spec["topologySpreadConstraints"] = [{
                "maxSkew": pick([1, 2]), "topologyKey": pick([ZONE, HOST]), "labelSelector": selector,
                "whenUnsatisfiable": pick(["DoNotSchedule", "ScheduleAnyway"]),
            }]  # fmt: skip
        if pick([0, 0, 1]):
            spec["tolerations"] = [{"operator": "Exists"}]
        if pick([0, 0, 0, 1]):
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": pick(["bound", "late"])}}]
        if pick([0, 0, 0, 0, 1]) and not node:
            spec["schedulingGates"] = [{"name": "g"}]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}
        metadata = {"name": f"p{self.made}-x", "labels": labels, **({"ownerReferences": [owner]} if pick([0, 1]) else {})}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def cluster(self, **options) -> moorage.Cluster:
        nodes = [self.node(f"n{at}") for at in range(9)]
        placed = [self.pod(f"n{self.random.randrange(10)}") for _ in range(16)]
        return moorage.Cluster.from_objects(nodes, placed, [self.pod() for _ in range(8)], OTHERS, **options)

    def act(self, cluster: moorage.Cluster, depth: int = 0) -> None:
        """Make one random operation; those that the cluster refuses change nothing."""
        acts = [
            self.add,
            self.remove,
            self.patch,
            self.schedule,
            self.schedule,
            self.evict,
            self.bind,
            self.service,
            self.run,
            self.nest,
        ]
        with suppress(InputError, StateError):
            self.random.choice(acts)(cluster, depth)

    def add(self, cluster, depth):
        self.made += 1
        cluster.add(*self.random.choice([[self.pod() for _ in range(3)], [self.node(f"m{self.made}")]]))

    def remove(self, cluster, depth):
        kind = self.random.choice(["node", "pod", "pod"])
        cluster.remove(f"{kind}/{self.a(cluster, kind)}")

    def a(self, cluster, kind):
        if kind == "node":
            return self.random.choice(cluster.nodes["name"].tolist())
        return "default/" + self.random.choice(cluster.pods["name"].tolist())

    def patch(self, cluster, depth):
        name = self.a(cluster, "node")
        if self.random.random() < 0.3:
            cluster.apply(self.node(name))
        elif self.random.random() < 0.5:
            cluster.apply(f"node/{name} unschedulable={self.random.choice(['true', 'false'])}")
        else:
            cluster.apply(f"pod/{self.a(cluster, 'pod')} requests.cpu={self.random.choice([50, 800])}m")

    def schedule(self, cluster, depth):
        waiting = [row["name"] for row in cluster.pods if row["state"] == "Pending"]
        some = self.random.sample(waiting, min(3, len(waiting)))
        nodes = self.random.sample(cluster.nodes["name"].tolist(), 4) if self.random.random() < 0.2 else None
        pods = self.random.choice([None, some])
        told = cluster.schedule(pods, nodes=nodes, dry_run=True) if self.random.random() < 0.4 else None
        came = cluster.schedule(pods, nodes=nodes)
        assert told in (None, came)

    def evict(self, cluster, depth):
        cluster.evict(self.a(cluster, "pod"), grace_s=self.random.choice([0, 0, None]))

    def bind(self, cluster, depth):
        cluster.bind(self.a(cluster, "pod"), self.a(cluster, "node"))

    def service(self, cluster, depth):
        if self.random.random() < 0.5:
            cluster.remove(self.random.choice(["service/s", "service/t"]))
        else:
            cluster.apply(
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": "s"},
                    "spec": {"selector": {"app": self.random.choice("uvw")}},
                }
            )

    def run(self, cluster, depth):
        cluster.run(cluster.now_s + self.random.choice([1, 20, 60]))

    def nest(self, cluster, depth):
        if depth < 3:
            with cluster.transaction() as t:
                for _ in range(3):
                    self.act(cluster, depth + 1)
                if self.random.random() < 0.5:
                    t.commit()


DRIVER, DEVICES = "gpu.example.com", "resource.k8s.io/v1"


class DeviceWorld(World):
    """As ``World``, with volumes and devices: objects of theirs come, change and go, and half of the pods need some."""

    def pod(self, node: str = "") -> dict:
        pod = super().pod(node)
        pick, spec = self.random.choice, pod["spec"]
        if pick([0, 1]):
            volume = {
                "name": "v",
                "persistentVolumeClaim": {"claimName": pick(["bound", "late", "now", "stuck", "c0", "c1", "c2"])},
            }
            if pick([0, 0, 1]):
                volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": self.claim("x")["spec"]}}}
            spec["volumes"] = [volume]
        if pick([0, 1]):
            source = pick([{"resourceClaimName": pick(["d0", "d1"])}, {"resourceClaimTemplateName": "t"}])
            spec["resourceClaims"] = [{"name": "d", **source}]
        return pod

    def volume(self, name: str) -> dict:
        pick = self.random.choice
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [pick("abc")]}]}]
        return {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": pick(["1Gi", "2Gi"])}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": pick(["late", "now"]), "csi": {"driver": "example.com/disks", "volumeHandle": name},
                **({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if pick([0, 1]) else {}),
            },
        }  # fmt: skip

    def claim(self, name: str) -> dict:
        pick = self.random.choice
        return {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {
                "storageClassName": pick(["late", "now"]), "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": pick(["1Gi", "2Gi"])}},
            },
        }  # fmt: skip

    def slice(self, node: str) -> dict:
        devices = [{"name": f"d{at}"} for at in range(self.random.choice([0, 1, 3]))]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        return {
            "apiVersion": DEVICES, "kind": "ResourceSlice", "metadata": {"name": node},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices},
        }  # fmt: skip

    def device_claim(self, kind: str, name: str) -> dict:
        exactly = {"deviceClassName": "gpu", "count": self.random.choice([1, 1, 2])}
        spec = {"devices": {"requests": [{"name": "main", "exactly": exactly}]}}
        spec = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
        return {"apiVersion": DEVICES, "kind": kind, "metadata": {"name": name}, "spec": spec}

    def limits(self, node: str) -> dict:
        driver = {"name": "example.com/disks", "nodeID": node, "allocatable": {"count": self.random.choice([1, 2])}}
        return {
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node}, "spec": {"drivers": [driver]},
        }  # fmt: skip

    def stuck(self) -> list[dict]:
        """A claim whose volume cannot be made, because its name is taken: pods that use it wait in PreBind."""
        claim, taken = self.claim("stuck"), self.volume("pvc-stuck")
        claim["metadata"]["uid"], claim["spec"]["storageClassName"] = "stuck", "late"
        taken["spec"]["claimRef"] = {"namespace": "default", "name": "other"}
        return [claim, taken]

    def others(self) -> list[dict]:
        now = {
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "now"},
            "provisioner": "example.com/disks", "volumeBindingMode": "Immediate",
        }  # fmt: skip
        return [
            now,
            {"apiVersion": DEVICES, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
            self.device_claim("ResourceClaimTemplate", "t"),
            *(self.device_claim("ResourceClaim", f"d{at}") for at in range(2)),
            *(self.claim(name) for name in ("now", "c0", "c1", "c2")),
            *self.stuck(),
            *(self.volume(f"v{at}") for at in range(3)),
            *(self.slice(f"n{at}") for at in range(5)),
            *(self.limits(f"n{at}") for at in range(3)),
        ]

    def cluster(self, **options) -> moorage.Cluster:
        nodes = [self.node(f"n{at}") for at in range(9)]
        placed = [self.pod(f"n{self.random.randrange(10)}") for _ in range(10)]
        return moorage.Cluster.from_objects(nodes, placed, [self.pod() for _ in range(10)], OTHERS, self.others(), **options)

    def service(self, cluster, depth):
        """Change an object that volumes or devices depend on, instead of a service."""
        at = self.random.randrange(4)
        made = self.random.choice([
            self.volume(f"v{at}"), self.claim(f"c{at}"), self.slice(f"n{at}"), self.limits(f"n{at}"),
            self.device_claim("ResourceClaim", f"d{at}"), *self.others()[:2],
        ])  # fmt: skip
        name = f"{made['kind'].lower()}/{made['metadata']['name']}"
        if self.random.random() < 0.4:
            cluster.remove(name)
        elif self.random.random() < 0.5:
            cluster.apply(made)
        else:
            cluster.add(made)


GROUPS = "scheduling.k8s.io"


class GroupWorld(DeviceWorld):
    """As ``DeviceWorld``, with pod groups, to which half of the pods belong."""

    version = ""

    def pod(self, node: str = "") -> dict:
        pod = super().pod(node)
        if self.random.random() < 0.5 and not node:
            pod["spec"]["schedulingGroup"] = {"podGroupName": self.random.choice(["g0", "g1", "none"])}
            pod["spec"]["priority"] = 5
        return pod

    def group(self, name: str) -> dict:
        policy = self.random.choice([{"basic": {}}, {"gang": {"minCount": self.random.choice([2, 3])}}])
        spec = {"schedulingPolicy": policy}
        return {"apiVersion": f"{GROUPS}/{self.version}", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}

    def cluster(self, **options) -> moorage.Cluster:
        later = options.get("release", TODAY) == "1.37"
        self.version = "v1beta1" if later else "v1alpha2"
        gates = "GenericWorkload=true" if later else "GenericWorkload=true,GangScheduling=true"
        cluster = super().cluster(feature_gates=gates, **options)
        cluster.add(*(self.group(f"g{at}") for at in range(2)))
        return cluster

    def service(self, cluster, depth):
        if self.random.random() < 0.5:
            super().service(cluster, depth)
        elif self.random.random() < 0.5:
            cluster.remove(self.random.choice(["podgroup/g0", "podgroup/g1"]))
        else:
            cluster.add(self.group(f"g{self.random.randrange(2)}"))
