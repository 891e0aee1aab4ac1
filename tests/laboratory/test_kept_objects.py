"""Objects that are kept between commands come back as they were, and copies share their parts."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from moorage.api.pod_decoding import PodDecoder
from moorage.laboratory.dump.kept_objects import KEPT_KINDS, pack, unpack
from moorage.simulator.cluster_input import SLOTS
from moorage.state.pod_info import PodInfo, infos_of
from tests.laboratory.random_world import World


@pytest.mark.parametrize("seed", range(8))
def test_objects_come_back_as_they_were(seed):
    given = World(seed).cluster().input()
    pods = [pod.replace(spec=replace(pod.spec, node_name=f"n{at % 3}" if at % 2 else "")) for at, pod in enumerate(given.pods)]
    for slot in KEPT_KINDS:
        objects = pods if slot == "pods" else list(getattr(given, slot))
        assert unpack(slot, pack(slot, objects)) == objects
    assert KEPT_KINDS.keys() <= SLOTS


@pytest.mark.parametrize("cut", [1, 4])
def test_indexes_of_another_length_are_refused(cut):
    pods = [PodDecoder().decode(a_copy(f"p{at}", f"n{at % 2}", 0)) for at in range(4)]
    packed = msgspec.msgpack.decode(pack("pods", pods))
    names = packed[1][3]
    assert len(names[1]) == 16  # two nodes, four pods
    names[1] = names[1][cut:]
    with pytest.raises(IndexError, match="another length"):
        unpack("pods", msgspec.msgpack.encode(packed))


def a_copy(name, node, second, pending=()):
    """A pod of a template, with what a kubelet reports since that second."""
    times = {"status": "True", "lastTransitionTime": f"2026-11-22T10:00:{second:02}Z"}
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    reported = {**container, "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "3"}}}
    return json.dumps({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"}},
        "spec": {"containers": [container], "nodeName": node},
        "status": {"conditions": [{"type": "Ready", **times}, *pending], "containerStatuses": [reported] if node else []},
    }).encode()  # fmt: skip


def test_copies_share_their_parts_and_what_is_derived_from_them():
    read = PodDecoder().decode
    pods = unpack("pods", pack("pods", [read(a_copy("a", "n1", 1)), read(a_copy("b", "n2", 2)), read(a_copy("c", "", 3))]))
    assert [one.spec.node_name for one in pods] == ["n1", "n2", ""]
    assert len({id(one.spec.containers) for one in pods}) == len({id(one.metadata.labels) for one in pods}) == 1
    infos = infos_of(pods)
    assert infos[1].needs is infos[0].needs
    assert [info.requests["cpu"] for info in infos] == [3000, 3000, 2000]


def test_a_pod_whose_resize_does_not_fit_shares_no_requests():
    infeasible = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    read = PodDecoder().decode
    texts = [a_copy("a", "n1", 1), a_copy("b", "n2", 2, [infeasible])]
    lower = [text.replace(b'"cpu": "2"', b'"cpu": "9"') for text in texts]
    infos = infos_of(unpack("pods", pack("pods", map(read, lower))))
    assert [info.requests["cpu"] for info in infos] == [9000, 3000]
    assert [info.needs for info in infos] == [PodInfo(info.pod).needs for info in infos]


@pytest.mark.parametrize("amounts", [("1", "2", "2"), ("", "2", "2"), ("1", "", "")])
def test_copies_whose_devices_take_something_else_of_the_node_share_no_requests(amounts):
    pods = []
    for at, amount in enumerate(amounts):
        given = json.loads(a_copy(f"p{at}", "", 0))
        if amount:
            claimed = {"resourceClaimName": "c", "containers": ["c"], "resources": {"cpu": amount}}
            given["status"]["nodeAllocatableResourceClaimStatuses"] = [claimed]
        pods.append(json.dumps(given).encode())
    infos = infos_of(unpack("pods", pack("pods", map(PodDecoder().decode, pods))))
    assert [info.requests["cpu"] for info in infos] == [2000 + 1000 * int(amount or 0) for amount in amounts]
