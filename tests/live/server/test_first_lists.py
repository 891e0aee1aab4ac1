"""Clusters with more placed pods than one turn of the loop takes in: nothing is bound on half a picture.

One node of 100 CPUs, full of small pods, and one pod that asks for a tenth of it. A part of the list leaves room for that.
"""

import asyncio
import random
import time

import pytest

from moorage.api.documents.served_kinds import served
from moorage.basis.serving.certificate_authority import make_authority
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.interfaces.cli.live.embedded_cluster import Embedded
from moorage.rules.store.store import Store
from tests.interfaces.cli.test_run import running
from tests.live.server.test_on_embedded_server import a_scheduler

NODES, PODS = served("nodes"), served("pods")
#: 22m each. The loop used to try pods when it had taken in some 3,000.
COUNT = 4500


def crowd(store):
    """Found a cluster, and make the node, the pods on it, and the one that waits."""
    bootstrap_cluster(store)
    amounts = {"cpu": "100", "memory": "1000Gi", "pods": str(2 * COUNT)}
    node = {"metadata": {"name": "n1"}, "status": {"allocatable": amounts, "capacity": amounts}}
    store.create(NODES, "", {"apiVersion": "v1", "kind": "Node", **node})
    for at in range(COUNT):
        make_pod(store, f"p{at:05}", f"{100_000 // COUNT}m", nodeName="n1")
    make_pod(store, "a-tenth", "10")


def make_pod(store, name, cpu, **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}
    store.create(PODS, "default", pod)


async def outcome(store):
    """Return the node of the pod that waits once it has one, or why it has none."""
    async with asyncio.timeout(60):
        while True:
            pod = store.find(PODS, "default", "a-tenth").document()
            if pod["spec"].get("nodeName"):
                return pod["spec"]["nodeName"]
            for condition in pod["status"].get("conditions", ()):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return condition["message"].partition(",")[0]
            await asyncio.sleep(0.05)


FULL = (
    "0/1 nodes are available: 1 Insufficient cpu. "
    "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
)


@pytest.mark.slow
def test_up_completes_all_lists_before_the_first_bind(tmp_path):
    async def main():
        store = Store(time.time, random.Random(1), b"k")
        crowd(store)
        authority = make_authority(tmp_path / "pki")
        cluster = Embedded(store, authority, tmp_path / "kubeconfig", (), a_scheduler(), 0, print)
        task = asyncio.create_task(cluster.run())
        try:
            return await outcome(store)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    assert asyncio.run(main()) == FULL


@pytest.mark.slow
def test_run_without_a_lease_completes_all_lists_before_the_first_bind(tmp_path):
    async def main():
        store = Store(time.time, random.Random(5), b"k")
        crowd(store)
        async with running(tmp_path, "--leader-elect=false", "--secure-port=0", store=store):
            return await outcome(store)

    assert asyncio.run(main()) == FULL
