"""Compare VolumeBinding with a reference implementation, and test that every change that lets a pod fit wakes it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.framework.events import Action
from moorage.plugins.volume_binding import VolumeBinding
from moorage.rules.volumes.bindings import SELECTED_NODE
from moorage.testing.builders import a_pod
from moorage.testing.plugin_queries import refusals, wakes
from moorage.testing.storage import (
    a_bound_claim,
    a_claim,
    a_class,
    a_volume,
    on_hosts,
    on_nodes_labelled,
    standing_on,
)
from tests.plugins.volume_binding_cluster import (
    CLASS,
    HOST,
    LOST,
    MADE,
    NO_ROOM,
    OTHER,
    ROOM,
    UNMATCHED,
    UNREACHABLE,
    VOLUME,
    ZONE,
    cluster_of,
    counting,
    nodes,
    room,
    topology,
)

GI = 2**30
affinities = st.one_of(
    st.none(),
    st.sampled_from(["a", "b"]).map(lambda zone: on_nodes_labelled(ZONE, zone)),
    st.lists(st.sampled_from(["n0", "n1", "n2", "n3", "n4"]), min_size=1, max_size=3).map(lambda names: on_hosts(*names)),
    st.just({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}]}}),
)
volumes = st.lists(
    st.fixed_dictionaries(
        {
            "size": st.sampled_from([1, 2, 3]), "class": st.sampled_from(["made", "local"]), "affinity": affinities,
            "mode": st.sampled_from(["ReadWriteOnce", "ReadWriteMany"]), "for": st.sampled_from([None, None, "c0", "c1", "x"]),
        }
    ),
    max_size=7,
)  # fmt: skip
claims = st.lists(
    st.fixed_dictionaries(
        {
            "size": st.sampled_from([1, 2, 3]), "class": st.sampled_from(["made", "local"]),
            "selected": st.sampled_from([None, None, None, "n0", "n1"]), "bound": st.sampled_from([None, None, 0, 1, 9]),
        }
    ),
    min_size=1, max_size=3,
)  # fmt: skip
rooms = st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.sampled_from(["n0", "n1", "a", "b"])), max_size=4)


def the_cluster(claims, volumes, rooms, allowed, count):
    objects = [counting(), a_class("made", allowedTopologies=[] if allowed is None else topology({ZONE: allowed}))]
    for at, claim in enumerate(claims):
        if claim["bound"] is not None:
            objects.append(a_bound_claim(f"c{at}", f"pv{claim['bound']}", storageClassName=claim["class"]))
            continue
        metadata = {} if claim["selected"] is None else {"annotations": {SELECTED_NODE: claim["selected"]}}
        objects.append(a_claim(f"c{at}", size=f"{claim['size']}Gi", storageClassName=claim["class"], metadata=metadata))
    for at, volume in enumerate(volumes):
        ref = {} if volume["for"] is None else {"claimRef": {"namespace": "default", "name": volume["for"]}}
        near = {} if volume["affinity"] is None else {"nodeAffinity": volume["affinity"]}
        modes = {"accessModes": [volume["mode"]]}
        objects.append(
            a_volume(f"pv{at}", size=f"{volume['size']}Gi", storageClassName=volume["class"], **ref, **near, **modes)
        )
    for at, (size, where) in enumerate(rooms):
        objects.append(room(f"r{at}", size * GI, labels={ZONE if where in "ab" else HOST: where}))
    return cluster_of(*objects, count=count)


def reaches(affinity, node):
    if affinity is None:
        return True
    asked = affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]
    return asked["operator"] == "Exists" or node.labels[asked["key"]] in asked["values"]


def reference_reason(claims, volumes, rooms, allowed, node):
    """Filter one node: bound claims, then those with a selected node, then existing volumes, then provisioning."""
    reasons = []
    lost = False
    for claim in claims:
        if claim["bound"] is not None:
            if claim["bound"] >= len(volumes):
                lost = True
                break
            if not reaches(volumes[claim["bound"]]["affinity"], node):
                reasons.append(UNREACHABLE)
                break
    unbound = [(at, claim) for at, claim in enumerate(claims) if claim["bound"] is None]
    if any(claim["selected"] not in (None, node.name) for _, claim in unbound):
        reasons.append(UNMATCHED)
    else:
        taken, to_provision = set(), [claim for _, claim in unbound if claim["selected"]]
        for at, claim in sorted(unbound, key=lambda one: one[1]["size"]):
            if claim["selected"]:
                continue
            fits = [
                (volume["size"], name, volume) for name, volume in enumerate(volumes)
                if volume["class"] == claim["class"] and volume["size"] >= claim["size"] and name not in taken
            ]  # fmt: skip
            own = [one for one in fits if one[2]["for"] == f"c{at}"]
            free = [one for one in fits if one[2]["for"] is None and one[2]["mode"] == "ReadWriteOnce"]
            near = [
                one for one in (own[:1] or sorted(free, key=lambda o: (o[0], f"pv{o[1]}"))) if reaches(one[2]["affinity"], node)
            ]
            if near:
                taken.add(near[0][1])
            else:
                to_provision.append(claim)
        reasons += provisions(to_provision, rooms, allowed, node)
    return (*reasons, LOST) if lost else tuple(reasons)


def provisions(to_provision, rooms, allowed, node):
    for claim in to_provision:
        if claim["class"] == "local" or node.labels[ZONE] != (allowed or node.labels[ZONE]):
            return [UNMATCHED]
        if not any(size >= claim["size"] and where in node.labels.values() for size, where in rooms):
            return [NO_ROOM]
    return []


@pytest.mark.slow
@settings(max_examples=75)
@given(claims, volumes, rooms, st.sampled_from([None, "a", "b"]), st.sampled_from([1, 2, 5, 9, 17]), st.data())
def test_agrees_with_a_reference_implementation(claims, volumes, rooms, allowed, count, data):
    cluster = the_cluster(claims, volumes, rooms, allowed, count)
    part = {node.name for node in nodes(count) if data.draw(st.booleans())}
    view = cluster.snapshot.nodes.only(cluster.snapshot.nodes.named(part))
    pod = a_pod(volumes=standing_on(*(f"c{at}" for at in range(len(claims)))))
    expected = {
        node.name: reference_reason(claims, volumes, rooms, allowed, node) for node in nodes(count) if node.name in part
    }
    found = refusals(VolumeBinding(), pod, view)
    assert {name: status.reasons for name, status in found.items()} == {name: why for name, why in expected.items() if why}


@pytest.mark.slow
@settings(max_examples=40)
@given(claims, volumes, rooms, st.sampled_from(["volume", "room", "class"]), st.data())
def test_every_change_that_makes_the_pod_fit_wakes(claims, volumes_then, rooms_then, what, data):
    before = the_cluster(claims, volumes_then, rooms_then, "a", 3)
    pod, plugin = a_pod(volumes=standing_on(*(f"c{at}" for at in range(len(claims))))), VolumeBinding()
    then = refusals(plugin, pod, before.snapshot)
    if what == "volume":
        new = a_volume("new", size="3Gi", storageClassName=data.draw(st.sampled_from(["made", "local"])))
        event = (VOLUME, Action.ADD)
    elif what == "room":
        new, event = room("new", 3 * GI, labels={ZONE: data.draw(st.sampled_from("ab"))}), (ROOM, Action.ADD)
    else:
        new, event = MADE, (CLASS, OTHER)
    old = before.set_object(new)
    if then and refusals(plugin, pod, before.snapshot) != then:
        assert wakes(plugin, pod, *event, old, new)
