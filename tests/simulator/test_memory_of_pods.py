"""What a simulation holds of each pod: copies share all that is the same."""

import gc
import tracemalloc

import msgspec
import pytest

from moorage.api.pod_decoding import PodDecoder
from moorage.simulator.outcome_collector import collect
from moorage.simulator.simulate import Options, prepare
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_node, a_pod

PODS = 2000


def pods(first, number, **spec):
    read = PodDecoder().decode
    container = {"name": "c", "resources": {"requests": {"cpu": "1m"}}}
    text = msgspec.json.encode(a_pod("NAME", {"app": "web"}, uid="UID", containers=[container], **spec).pod)
    return [
        read(text.replace(b"NAME", b"web-%d" % at).replace(b"UID", b"uid-%032d" % at)) for at in range(first, first + number)
    ]


@pytest.mark.parametrize("spec", [{}, {"nodeSelector": {"disk": "none"}}], ids=["placed", "pending"])
def test_a_pod_takes_less_than_1600_bytes(spec):
    simulation, _ = prepare(Options())
    simulation.load([a_node(f"n{at}", allocatable={"cpu": "64", "memory": "64Gi", "pods": 1000}) for at in range(3)])
    simulation.load(pods(0, 10, **spec))
    simulation.run()
    gc.freeze()  # what is there before is not collected again
    tracemalloc.start()
    try:
        simulation.load(pods(10, PODS + 10, **spec))
        simulation.run()
        run = collect(simulation, "1.36")
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert {pod.state for pod in run.pods} == ({"Pending"} if spec else {"Placed"})
    assert len({id(pod.message) for pod in run.pods}) <= 2
    assert taken / PODS < 1600


def test_copies_share_their_derived_data_but_not_volumes_that_matter():
    one, other = (PodInfo(pod) for pod in pods(0, 2))
    other.share(one)
    assert one.needs is other.needs
    assert other.__dict__ is one.__dict__
    volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]
    one, other = (PodInfo(pod) for pod in pods(0, 2, volumes=volumes))
    assert one.volumes is not None
    other.share(one)
    assert [claim.name for claim in other.volumes.claims] == ["web-1-v"]
    assert [claim.name for claim in one.volumes.claims] == ["web-0-v"]
