"""Pods are preempted while their PreBind writes and waits, and writes are slow: nothing that was made is left behind.

What PreBind makes, Unreserve deletes. A request that was sent when its pod was preempted may be carried out seconds later, and
what undoes it must not overtake it.
"""

import asyncio
import random

import pytest

from moorage.api.devices import ResourceClaim
from moorage.api.meta import ObjectMeta
from moorage.framework.effects import Call, Delete, Write
from tools.simtest.recording import WriteRecord
from tools.simtest.stage import on_stage


def claim_of(pod):
    return ResourceClaim(metadata=ObjectMeta(name=f"of-{pod.uid}", namespace=pod.pod.namespace))


def claiming():
    """Return a plugin that makes a claim for each pod in PreBind and then takes its time; and when it was broken off."""
    broken_off = []

    async def prepare():
        try:
            await asyncio.sleep(3.0)
        except asyncio.CancelledError:
            broken_off.append(asyncio.get_running_loop().time())
            raise

    class Claiming:
        name = "Claiming"

        def reserve(self, state, pod, node):
            return None

        def unreserve(self, state, pod, node):
            return [Delete(claim_of(pod))]

        def pre_bind(self, state, pod, node):
            return [Write(claim_of(pod)), Call(prepare, lambda: None)]

    return Claiming, broken_off


ROUNDS = 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_objects_created_for_a_preempted_pod_are_deleted(seed):
    """Small pods come to a node, and sooner or later a large one that wants all of it."""
    plugin, broken_off = claiming()
    rng = random.Random(seed)

    async def main(stage):
        stage.spoil("POST resourceclaims", share=0.7, hold_s=2.0, arrives=True)
        for at in range(ROUNDS):
            stage.world.node(f"n{at}", cpu=2)
            here = {"nodeSelector": {"kubernetes.io/hostname": f"n{at}"}}
            for name in ("a", "b"):
                stage.world.pod(f"low-{at}{name}", priorityClassName="low", **here)
            await asyncio.sleep(rng.uniform(0.1, 2.8))
            stage.world.pod(f"high-{at}", cpu="2", priorityClassName="high", **here)
            await stage.placed(f"high-{at}")
            assert not stage.requests("DELETE", f"/pods/low-{at}a")
        await asyncio.sleep(5)
        return [entry for entry in stage.recording.entries if isinstance(entry, WriteRecord)]

    written = on_stage(main, plugin, seed=seed, settle_s=10.0)
    claims = {one.key.rpartition("/of-")[2]: one.change for one in written if one.kind == "ResourceClaim"}
    left = {uid for uid, change in claims.items() if change != "DELETED"}
    assert left == {one.uid for one in written if one.kind == "Pod" and one.document["spec"].get("nodeName")}
    assert len(left) == ROUNDS
    assert 0 < len(broken_off) < 2 * ROUNDS  # the others had a request in flight
