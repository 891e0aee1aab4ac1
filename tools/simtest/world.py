"""The cluster around the schedulers: nodes, the clients that create and delete pods, and kubelets that end them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tools.simtest.device_world import DEVICE_CLAIMS, Gadgets
from tools.simtest.storage_world import CLAIMS, VOLUMES, Disks
from tools.simtest.virtual_api import VirtualApi

__all__ = ["World"]

Document = dict[str, Any]

PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
_CLASSES = {"low": 0, "middle": 100, "high": 1000, "polite": 500}
_APPS = ("web", "db", "batch")


class World:
    """All clients of the API except the schedulers. ``end_after_s``: how long pods take to stop."""

    def __init__(self, api: VirtualApi, rng: random.Random, *, end_after_s: float = 3.0) -> None:
        self.api, self.rng, self.end_after_s = api, rng, end_after_s
        self._serial = 0
        self._ending: set[str] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.disks: Disks | None = None
        self.gadgets: Gadgets | None = None
        for name, value in _CLASSES.items():
            policy = {"preemptionPolicy": "Never"} if name == "polite" else {}
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
            api.do("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {**body, **policy})
        api.store.follow(lambda kind, change: self._kubelet(kind.kind, change))

    # -- kubelets -------------------------------------------------------------------------------------------------------

    def _kubelet(self, kind: str, change: Any) -> None:
        if kind != "Pod" or change.gone:
            return
        pod = change.after.document()
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp") and uid not in self._ending:
            self._ending.add(uid)
            self._soon(self._end(name, uid))

    async def _end(self, name: str, uid: str) -> None:
        await asyncio.sleep(self.end_after_s)
        self._ending.discard(uid)
        self.delete_pod(name, uid=uid, grace=0)

    def look_again(self) -> None:
        """Resume the actions that the lost writes would have triggered."""
        for what in self.furniture():
            what.look_again()
        there = {node["metadata"]["name"] for node in self.nodes()}
        for pod in self.pods():
            name, uid, node = pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
            if pod["metadata"].get("deletionTimestamp") and uid not in self._ending:
                self._ending.add(uid)
                self._soon(self._end(name, uid))
            elif node and node not in there:
                self._soon(self._collect(node))

    def furnish(self, what: Disks | Gadgets) -> None:
        """Add storage or devices, with their controller."""
        if isinstance(what, Disks):
            self.disks = what
        else:
            self.gadgets = what
        self._soon(what.run())

    def furniture(self) -> list[Disks | Gadgets]:
        """Return the parts of the world that provide volumes and devices."""
        return [what for what in (self.disks, self.gadgets) if what is not None]

    def holdings(self) -> list[str]:
        """Return the API paths of the volumes and devices of this world."""
        volumes = [VOLUMES, CLAIMS] if self.disks is not None else []
        return volumes + ([DEVICE_CLAIMS] if self.gadgets is not None else [])

    def _soon(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # -- nodes ----------------------------------------------------------------------------------------------------------

    def node(self, name: str, cpu: int = 4, zone: str = "a", *, pods: int = 8, **spec: Any) -> Document | None:
        """Create a node, or resize it."""
        amounts = {"cpu": str(cpu), "memory": f"{cpu * 2}Gi", "pods": str(pods)}
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
        held = self.api.do("GET", f"{NODES}/{name}")
        status = {"allocatable": amounts, "capacity": amounts}
        if held is not None:
            return self.write_node({**held, "spec": {**held.get("spec", {}), **spec}}, status)
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": status,
        }
        made: Document | None = self.api.do("POST", NODES, body)
        return made

    def write_node(self, node: Document, status: Document | None = None) -> Document | None:
        path = f"{NODES}/{node['metadata']['name']}"
        written: Document | None = self.api.do("PUT", path, {key: value for key, value in node.items() if key != "status"})
        if status is not None and written is not None:
            written = self.api.do("PUT", f"{path}/status", {**written, "status": status})
        return written

    def touch_node(self, name: str) -> None:
        """Change a label of a node that no plugin reads."""
        held = self.api.do("GET", f"{NODES}/{name}")
        if held is not None:
            labels = {**held["metadata"].get("labels", {}), "beat": str(self.rng.randrange(10**6))}
            self.write_node({**held, "metadata": {**held["metadata"], "labels": labels}})

    def delete_node(self, name: str) -> None:
        """Delete a node; its pods are garbage collected some time later."""
        self.api.do("DELETE", f"{NODES}/{name}")
        self._soon(self._collect(name))

    async def _collect(self, node: str) -> None:
        await asyncio.sleep(10)
        if self.api.do("GET", f"{NODES}/{node}") is None:
            for pod in self.pods():
                if pod["spec"].get("nodeName") == node:
                    self.delete_pod(pod["metadata"]["name"], grace=0)

    def nodes(self) -> list[Document]:
        return self.api.items(NODES)

    # -- pods -----------------------------------------------------------------------------------------------------------

    def pods(self) -> list[Document]:
        return self.api.items("/api/v1/pods")

    def pod(self, name: str = "", cpu: str = "1", *, actor: str = "world", **spec: Any) -> Document | None:
        """Create a pod; without a name, it gets a number."""
        if not name:
            self._serial += 1
            name = f"p{self._serial}"
        labels = {"app": spec.pop("app", "web")}
        requests = {"requests": {"cpu": cpu, "memory": spec.pop("memory", "256Mi")}}
        container = {"name": "c", "image": "i", "resources": requests, **spec.pop("container", {})}
        body = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"containers": [container], **spec},
        }  # fmt: skip
        made: Document | None = self.api.do("POST", PODS, body, actor=actor)
        return made

    def any_pod(self) -> Document | None:
        """Create a pod of a random kind."""
        rng = self.rng
        spec: Document = {"app": rng.choice(_APPS), "priorityClassName": rng.choice(["low", "low", "middle", "high", "polite"])}
        app = {"labelSelector": {"matchLabels": {"app": spec["app"]}}}
        kind = rng.randrange(12)
        if kind == 0:
            spec["container"] = {"ports": [{"containerPort": 80, "hostPort": rng.choice([80, 81])}]}
        elif kind == 1:
            near = {"topologyKey": "kubernetes.io/hostname", **app}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
        elif kind == 2:
            spec["nodeSelector"] = {"topology.kubernetes.io/zone": rng.choice(["a", "b"])}
        elif kind == 3:
            key = {"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 2}
            spec["topologySpreadConstraints"] = [{**key, **app}]
        elif kind == 4:
            spec["tolerations"] = [{"key": "broken", "operator": "Exists"}]
        elif kind == 5:
            spec["schedulingGates"] = [{"name": "wait"}]
        elif kind == 6:
            near = {"topologyKey": "topology.kubernetes.io/zone", **app}
            spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
        holds = {key: value for what in self.furniture() for key, value in what.any_use().items()}
        return self.pod("", rng.choice(["250m", "500m", "1", "1", "2", "3"]), **spec, **holds)

    def crowd(self) -> None:
        """Fill every node with small pods, and create two pods that need more than is left."""
        for node in self.nodes():
            cpu_milli = 1000 * int(node["status"]["allocatable"]["cpu"])
            for _ in range(6):
                on = {"nodeName": node["metadata"]["name"], "priorityClassName": self.rng.choice(["low", "middle", "high"])}
                self.pod("", f"{cpu_milli // 6}m", actor="other", memory="16Mi", **on)
        for _ in range(2):
            self.pod("", "1", priorityClassName="low")

    def gang(self, size: int, least: int, cpu: str = "1", **spec: Any) -> str:
        """Create a gang: a pod group of ``size`` pods with minCount ``least``. Return its name."""
        self._serial += 1
        name = f"g{self._serial}"
        policy: Document = {"schedulingPolicy": {"gang": {"minCount": least}}}
        if "priorityClassName" in spec:  # 1.37 refuses a group whose pods have another priority than it
            policy["priorityClassName"] = spec["priorityClassName"]
        body = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": policy}
        self.api.do("POST", GROUPS, body)
        for number in range(size):
            self.pod(f"{name}-{number}", cpu, schedulingGroup={"podGroupName": name}, **spec)
        return name

    def any_gang(self) -> None:
        """Create a gang of random size."""
        size = self.rng.randrange(2, 5)
        least = self.rng.choice([size, size, size - 1])
        self.gang(size, least, self.rng.choice(["500m", "1", "1", "2"]), priorityClassName=self.rng.choice(["low", "middle"]))

    def delete_pod(self, name: str, *, uid: str = "", grace: int | None = None) -> None:
        options: Document = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        self.api.do("DELETE", f"{PODS}/{name}", options)

    def recreate_pod(self, name: str) -> None:
        """Delete a pod at once and create another one with its name."""
        held = self.api.do("GET", f"{PODS}/{name}")
        if held is None:
            return
        self.delete_pod(name, grace=0)
        spec = {key: value for key, value in held["spec"].items() if key not in {"nodeName", "priority", "preemptionPolicy"}}
        metadata = {"name": name, "namespace": "default", "labels": held["metadata"].get("labels", {})}
        self.api.do("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def change_pod(self, name: str, **metadata: Any) -> None:
        """Change labels or annotations of a pod."""
        patch = {"metadata": metadata}
        self.api.do("PATCH", f"{PODS}/{name}", patch, media_type="application/merge-patch+json")

    def ungate(self, name: str) -> None:
        held = self.api.do("GET", f"{PODS}/{name}")
        if held is not None and held["spec"].pop("schedulingGates", None):
            self.api.do("PUT", f"{PODS}/{name}", held)

    def bind(self, name: str, node: str) -> None:
        """Bind a pod, as another scheduler would."""
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self.api.do("POST", f"{PODS}/{name}/binding", body, actor="other")

    def finish(self, name: str) -> None:
        """Let a pod succeed."""
        patch = {"status": {"phase": "Succeeded"}}
        self.api.do("PATCH", f"{PODS}/{name}/status", patch, media_type="application/merge-patch+json")
