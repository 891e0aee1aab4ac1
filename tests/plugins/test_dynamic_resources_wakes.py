"""Test over random single changes that every change which lets a rejected pod with claims fit also wakes it.

Devices freed by the deletion of a slice wake no pod, as in kube-scheduler: a driver that withdraws devices lets none
fit. A claim is deallocated before it is deleted; after a gap, a list may show the deletion alone, which wakes pods here.
"""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Node
from moorage.api.devices import ResourceClaim
from moorage.core.queue import node_events, object_events
from moorage.core.queue.cluster_events import pod_changes
from moorage.errors import MoorageError
from moorage.testing.builders import a_node, a_pod
from moorage.testing.plugin_queries import refusals
from tests.plugins.device_claims import DRIVER, GPU, TEMPLATE, a_claim, a_class, a_slice, allocated, attached, with_devices

OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "default/p", "controller": True}]}


def some_node(draw, name):
    own = draw.choice([{}, {}, {GPU: "1"}])
    return a_node(name, draw.choice([{}, {"rack": "r1"}, {"rack": "r2"}]), allocatable={"pods": 10, **own})


def some_slice(draw, name):
    devices = [
        {"name": f"d{at}", "attributes": {"fast": {"bool": draw.random() < 0.5}}} for at in range(draw.choice([0, 1, 1, 1, 2]))
    ]
    count = draw.choice([1, 1, 1, 2])
    if draw.random() < 0.6:
        return a_slice(name, devices, count=count)
    rack = {"key": "rack", "operator": "In", "values": ["r1"]}
    return a_slice(name, devices, count=count, nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [rack]}]})


def some_class(draw, name):
    expression = draw.choice(["", f'device.attributes["{DRIVER}"].fast'])
    return a_class(name, expression, **draw.choice([{}, {"extendedResourceName": GPU}]))


def some_claim(draw, name):
    device = (draw.choice("ab"), draw.choice(["d0", "d0", "d0", "d1"]))
    status = draw.choice([{}, allocated(device, users=["x"], selector=draw.choice([None, "a", "b"]))])
    metadata = dict(OWNED) if name == "own" and draw.random() < 0.9 else {}
    if draw.random() < 0.1:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return a_claim(name, status=status, metadata=metadata)


def some_pod(draw, uses, requests):
    generated = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "own"}]}
    status = generated if uses == [TEMPLATE] and draw.random() < 0.7 else {}
    return a_pod("p", resourceClaims=uses, status=status, containers=[{"name": "m", "resources": {"requests": requests}}])


MAKE = {
    **dict.fromkeys(["c", "own", "other"], some_claim),
    **dict.fromkeys(["slice-a", "slice-b"], lambda draw, name: some_slice(draw, name[-1])),
    "gpu": some_class,
    **dict.fromkeys(["a", "b"], some_node),
}  # fmt: skip
KINDS_OF_PODS = [
    ([{"name": "c", "resourceClaimName": "c"}], {}),
    ([TEMPLATE], {}),
    ([], {GPU: "1"}),
    ([{"name": "c", "resourceClaimName": "c"}], {GPU: "1"}),
]


def put(cluster, obj):
    return cluster.set_node(obj) if isinstance(obj, Node) else cluster.set_object(obj)


def is_refused(plugin, pod, cluster):
    """Return the nodes that the plugin rejects; None after an error, for then the pod is retried anyway."""
    every = frozenset(cluster.table.row_of)
    if plugin.pre_enqueue(pod) is not None:
        return every
    try:
        refused = refusals(plugin, pod, cluster.snapshot)
    except MoorageError:
        return None
    return None if any(status.code.name == "ERROR" for status in refused.values()) else frozenset(refused)


class World:
    """A cluster that changes one object at a time, with a pending pod."""

    def __init__(self, seed, kind):
        self.draw = random.Random(seed)
        self.uses, self.requests = KINDS_OF_PODS[kind]
        self.cluster = with_devices(nodes=())
        self.cluster.remove_object(a_class())
        self.plugin = attached(self.cluster)
        self.pod = some_pod(self.draw, self.uses, self.requests)

    def change(self):
        """Apply a random change. Return its description, its events, and the object before and after; None if invalid."""
        what = self.draw.choice([*MAKE, "pod", "gone"])
        if what == "gone":
            gone = self.cluster.remove_object(a_claim(self.draw.choice(["c", "own", "other"])))
            return None if gone is None else (what, object_events(gone, None), gone, None)
        if what == "pod":
            old, self.pod = self.pod, some_pod(self.draw, self.uses, self.requests)
            return what, pod_changes(old, self.pod), old, self.pod
        new = MAKE[what](self.draw, what)
        if isinstance(new, ResourceClaim) and not may_become(self.cluster.objects(ResourceClaim).get(new.key), new):
            return None
        old = put(self.cluster, new)
        return what, node_events(old, new) if isinstance(new, Node) else object_events(old, new), old, new

    def refused(self):
        return is_refused(self.plugin, self.pod, self.cluster)


def walk(seed, kind, steps=60):
    """Yield each change that let the pod fit, after checking that it wakes the pod."""
    world = World(seed, kind)
    for _ in range(steps):
        before, every = world.refused(), frozenset(world.cluster.table.row_of)
        changed = world.change()
        after = world.refused()
        if changed is None or before is None or after is None:
            continue
        what, events, old, new = changed
        if (frozenset(world.cluster.table.row_of) - after) <= (every - before):
            continue
        waking = [wake for wake in world.plugin.wakes_on() for one in events if wake.event.covers(one)]
        assert any(wake.when is None or wake.when(world.pod, old, new) for wake in waking), (what, events, old, new)
        yield what


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_a_change_that_lets_the_pod_fit_wakes_it(seed, kind):
    list(walk(seed, kind))


@pytest.mark.slow
def test_every_kind_of_change_sometimes_helps():
    """Guard against a vacuous property above."""
    helped = Counter(what for seed in range(40) for what in walk(seed, seed % 4))
    assert set(helped) == {*MAKE, "pod", "gone"}, helped


def may_become(old, new):
    """The API server rejects changes of an allocation's devices; deletions and owners are final."""
    if old is None:
        return True
    one, other = old.status.allocation, new.status.allocation
    revived = old.metadata.deletion_timestamp is not None and new.metadata.deletion_timestamp is None
    is_another = old.metadata.owner_references != new.metadata.owner_references
    return not revived and not is_another and (one is None or other is None or one == other)


def test_classes_and_slices_wake_on_every_change():
    """They are not compared: most changes may matter, and kube-scheduler does not compare them either."""
    plugin = attached(with_devices())
    for obj in (a_class(), a_slice("a", ["d"])):
        (happened,) = object_events(obj, msgspec.structs.replace(obj))
        assert any(wake.when is None and wake.event.covers(happened) for wake in plugin.wakes_on())
