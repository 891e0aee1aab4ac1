"""Build device claims, slices and classes, and drive a pod through the plugin's extension points."""

from __future__ import annotations

import msgspec

from moorage.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from moorage.api.feature_gates import FeatureGates
from moorage.framework.effects import Amend, Call, Delete, Write
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals

DRIVER = "gpu.example.com"
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "default/p", "controller": True}
TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "t"}

GPU = "example.com/gpu"


class Scheduler:
    """The part of a scheduler that the plugin uses."""

    def __init__(self, cluster, now=0.0, gates=""):
        self.snapshot = cluster.snapshot
        self.gates = FeatureGates.parse(gates)
        self.unix_s = now


def attached(cluster, now=0.0, gates=""):
    plugin = DynamicResources()
    plugin.attach(Scheduler(cluster, now, gates))
    return plugin


def a_class(name="gpu", expression="", **spec):
    selectors = [{"cel": {"expression": expression}}] if expression else []
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}, DeviceClass)


def a_slice(node, devices, name="", generation=1, count=1, **spec):
    pool = {"name": spec.pop("pool", node), "generation": generation, "resourceSliceCount": count}
    devices = [device if isinstance(device, dict) else {"name": device} for device in devices]
    where = {} if spec.keys() & {"allNodes", "nodeSelector", "sharedCounters"} else {"nodeName": node}
    document = {"driver": spec.pop("driver", DRIVER), "pool": pool, "devices": devices, **where, **spec}
    return msgspec.convert({"metadata": {"name": name or f"slice-{node}"}, "spec": document}, ResourceSlice)


def exactly(name="r0", device_class="gpu", **request):
    expression = request.pop("cel", "")
    selectors = {"selectors": [{"cel": {"expression": expression}}]} if expression else {}
    return {"name": name, "exactly": {"deviceClassName": device_class, **selectors, **request}}


def a_claim(name="c", *requests, status=None, metadata=None, constraints=()):
    devices = {"requests": list(requests or (exactly(),)), "constraints": list(constraints)}
    named = {"name": name, "namespace": "default", "uid": f"uid-{name}", **(metadata or {})}
    return msgspec.convert({"metadata": named, "spec": {"devices": devices}, "status": status or {}}, ResourceClaim)


def allocated(*devices, users=(), selector=None, conditions=(), **allocation):
    results = [{"request": "r0", "driver": DRIVER, "pool": pool, "device": name, **dict(conditions)} for pool, name in devices]
    whole = {"devices": {"results": results}, **allocation}
    if selector is not None:
        whole["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [only(selector)]}]}
    return {"allocation": whole, "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in users]}


def only(node):
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def using(name="p", *claims, **more):
    uses = [{"name": f"use-{claim}", "resourceClaimName": claim} for claim in claims]
    return a_pod(name, resourceClaims=uses, **more)


def asking(count, name="p"):
    """Return a pod that requests an extended resource backed by devices."""
    return a_pod(name, containers=[{"name": "main", "resources": {"requests": {GPU: count}}}])


def with_devices(*objects, nodes=("a", "b")):
    cluster = a_cluster([a_node(name) if isinstance(name, str) else name for name in nodes])
    for obj in (a_class(), *objects):
        cluster.set_object(obj)
    return cluster


def why_not(cluster, pod, plugin=None):
    return {node: status.message for node, status in refusals(plugin or DynamicResources(), pod, cluster.snapshot).items()}


def carry_out(cluster, effects):
    """Apply the effects that concern claims."""
    for effect in effects:
        if isinstance(effect, Call):
            effect.stand_in()
        elif isinstance(effect, Delete):
            cluster.remove_object(effect.obj)
        elif isinstance(effect, Write):
            cluster.set_object(effect.obj)
            if effect.made is not None:
                effect.made(effect.obj)
        elif isinstance(effect, Amend) and isinstance(effect.obj, ResourceClaim):
            held = cluster.objects(ResourceClaim).get(effect.obj.key)
            if held is not None or not effect.or_gone:
                cluster.set_object(effect.change(held))
        if isinstance(effect, Write | Amend) and effect.settled is not None:
            effect.settled()


def allocate(plugin, cluster, pod, node):
    """Run a pod from PreFilter to the writes of PreBind."""
    wanted = plugin.pre_filter(pod, cluster.snapshot)
    assert plugin.reserve(wanted, pod, node) is None
    effects = plugin.pre_bind(wanted, pod, node)
    carry_out(cluster, effects)
    return effects
