"""What the scheduler says of pod groups, as it gets to an API server: conditions merged by type, and nothing else touched."""

import asyncio
import json
import random
import time

import pytest
from msgspec.structs import replace

from moorage.api.decode import decode
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import ObjectMeta
from moorage.api.pod_groups import Condition, PodGroup, PodGroupStatus
from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity
from moorage.basis.client.rest import Rest
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import serving
from moorage.errors import ClusterError
from moorage.live.runtime.status_writer import StatusWriter
from moorage.live.server.api_cluster import ApiCluster
from moorage.rules.store.store import Store

VERSION = "scheduling.k8s.io/v1alpha2"
GROUPS = f"/apis/{VERSION}/namespaces/default/podgroups"
FIRST, SECOND = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def with_a_group(test):
    """Run a test with a client of a server that has the group ``g``, and the runtime's cluster on that server."""

    async def main():
        store = Store(time.time, random.Random(5), b"k", gates=FeatureGates.parse("GenericWorkload=true", "1.36"))
        guard, made = Authenticator({"t": User("admin", ("system:masters",))}), {"apiVersion": VERSION, "kind": "PodGroup"}
        made |= {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        async with (
            serving(store, guard) as port,
            Rest(Endpoint(f"http://127.0.0.1:{port}", FixedCredentials(Identity("t"))), qps=0) as rest,
        ):
            await rest.send("POST", GROUPS, json.dumps(made).encode())
            await test(rest, ApiCluster(rest, "default-scheduler", "here"))

    asyncio.run(main())


async def the_group(rest):
    return decode(await rest.send("GET", f"{GROUPS}/g"), PodGroup, "")


def scheduled(status, when, **more):
    return Condition(type="PodGroupScheduled", status=status, last_transition_time=when, **more)


def test_conditions_are_added_and_updated_by_type():
    async def test(rest, cluster):
        new = await the_group(rest)
        waits = scheduled("False", FIRST, reason="Unschedulable", message="0/3", observed_generation=2)
        await cluster.patch_group(new, waits)
        held = await the_group(rest)
        assert held.status.conditions == (waits,)
        mark = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", last_transition_time=FIRST)
        await cluster.patch_group(held, mark)
        # What is known here lacks the mark by now; it stays. The text and the generation go.
        await cluster.patch_group(held, scheduled("True", SECOND, reason="Scheduled"))
        conditions = {one.type: one for one in (await the_group(rest)).status.conditions}
        assert conditions == {
            "PodGroupScheduled": scheduled("True", SECOND, reason="Scheduled"), "DisruptionTarget": mark,
        }  # fmt: skip
        assert (await the_group(rest)).spec.scheduling_policy.gang.min_count == 2

    with_a_group(test)


def test_a_deleted_group_is_reported_as_not_found():
    async def test(rest, cluster):
        new = await the_group(rest)
        await rest.send("DELETE", f"{GROUPS}/g")
        await rest.send("PUT", f"{GROUPS}/g", json.dumps(
            {**json.loads(await rest.send("GET", f"{GROUPS}/g")), "metadata": {"name": "g", "finalizers": []}}
        ).encode())  # fmt: skip
        with pytest.raises(ClusterError) as refused:
            await cluster.patch_group(new, scheduled("True", FIRST, reason="Scheduled"))
        assert refused.value.status == 404

    with_a_group(test)


class Slow:
    """A cluster that takes conditions of groups one at a time, when the test says so."""

    def __init__(self):
        self.taken = []
        self.gate = asyncio.Event()

    async def patch_group(self, group, condition):
        await self.gate.wait()
        if (group.key, condition.reason, condition.last_transition_time) not in self.taken:
            self.taken.append((group.key, condition.reason, condition.last_transition_time))
        conditions = (condition,)
        return replace(group, status=PodGroupStatus(conditions=conditions))


SAID = {  # what is said in turn of a group that waits, and what is sent
    "an unsent condition is replaced": (["SchedulerError", "Unschedulable"], [("a/g", "Unschedulable", FIRST)]),
    "a group that is scheduled stays so": (["Scheduled", "Unschedulable"], [("a/g", "Scheduled", SECOND)]),
    "a group that waited is scheduled": (["SchedulerError", "Scheduled"], [("a/g", "Scheduled", SECOND)]),
}


@pytest.mark.parametrize(("reasons", "sent"), SAID.values(), ids=SAID)
def test_conditions_that_are_not_sent_yet(reasons, sent):
    """A status that is what it was has been so since then, although the group that is read here does not show all."""

    async def test():
        cluster = Slow()
        teller = StatusWriter(cluster, asyncio.get_running_loop().time, lambda: SECOND, [].append)
        held = scheduled("False", FIRST, reason="Waiting")
        group = PodGroup(metadata=ObjectMeta(name="g", namespace="a", uid="u"), status=PodGroupStatus(conditions=(held,)))
        for reason in reasons:
            status = "True" if reason == "Scheduled" else "False"
            teller.say_of_group(group, Condition(type="PodGroupScheduled", status=status, reason=reason))
        running = asyncio.create_task(teller.run())
        cluster.gate.set()
        for _ in range(10):
            await asyncio.sleep(0)
        teller.say_of_group(group, Condition(type="PodGroupScheduled", status="False", reason="Unschedulable"))
        for _ in range(10):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert cluster.taken == sent

    asyncio.run(test())
