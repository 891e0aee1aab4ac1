"""Pod groups under the same whims: the engine keeps all its promises where pods are placed in groups, too.

The world is that of ``test_machine_against_invariants``; here its pods belong to groups, whose objects come and go.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from msgspec.structs import replace

from moorage.api.core import PodSchedulingGroup
from moorage.api.pod_groups import PodGroup
from moorage.api.releases import find_release
from moorage.core.engine.facts import Gone, Phase, Seen
from moorage.core.queue import QueuePlace
from moorage.state.pod_groups import group_key
from tests.core.engine.test_machine_against_invariants import World
from tests.core.engine.test_pod_groups import gang

GROUP_OF = {"a": "g", "b": "g", "c": "g", "d": "h", "e": "h"}


class GroupedWorld(World):
    """Three pods of one group, two of another, and some by themselves."""

    gates = "GenericWorkload=true,GangScheduling=true"
    release = "1.36"

    @initialize(
        seed=st.integers(0, 1000),
        sizes=st.lists(st.integers(1, 3), max_size=3),
        pods=st.integers(0, 6),
        least=st.integers(1, 3),
    )
    def begin(self, seed, sizes, pods, least):
        super().begin(seed, sizes, pods)
        for group in (gang("g", least), gang("h", 2)):
            self.tell(Seen(group))

    def may_be_gated(self, pod):
        return super().may_be_gated(pod) or pod.spec.scheduling_group is not None

    def new_pod(self, name, cpu, priority, scheduler, gated):
        pod = super().new_pod(name, cpu, priority, scheduler, gated)
        group = GROUP_OF.get(name)
        if group is None:
            return pod
        return replace(pod, spec=replace(pod.spec, scheduling_group=PodSchedulingGroup(pod_group_name=group)))

    @invariant()
    def sleeping_members_are_known(self):
        if not hasattr(self, "engine"):
            return
        queue = self.engine.queue
        places = {QueuePlace.BACKOFF, QueuePlace.UNSCHEDULABLE, QueuePlace.GATED}
        for name in set(GROUP_OF.values()):
            waiting = {
                uid for uid, one in queue._pods.items() if one.place in places and group_key(one.pod) == f"default/{name}"
            }
            assert set(queue.asleep_in(f"default/{name}")) == waiting

    def evict(self, work, error):
        """Victims of a group as a whole matter less than the group, whatever its pods do."""
        for effect in work.effects:
            if effect.group is not None:
                assert effect.victim.priority < effect.group.priority or effect.victim.spec.scheduling_group is not None
        if any(effect.group is not None for effect in work.effects):
            for effect in work.effects:
                pod = self.pods.get(effect.victim.name)
                if error is None and pod is not None and pod.metadata.uid == effect.victim.uid:
                    self.delete_with_grace(pod.name, late=False)
            return error
        return super().evict(work, error)

    @rule(name=st.sampled_from(["g", "h"]), least=st.sampled_from([None, 1, 2, 3]), there=st.sampled_from([True, True, False]))
    def change_group(self, name, least, there):
        self.tell(Seen(gang(name, least)) if there else Gone(gang(name)))

    def nominate(self, work):
        if work.phase is not Phase.GROUP_STATUS:
            super().nominate(work)


class PreemptingWorld(GroupedWorld):
    """The same, where room is made for groups as a whole, and one of them is disrupted as a whole."""

    gates = "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true,TopologyAwareWorkloadScheduling=true"

    def tell(self, fact):
        if not hasattr(fact, "obj") or not isinstance(fact.obj, PodGroup):
            super().tell(fact)
            return
        priority, mode = (5, None) if fact.obj.name == "g" else (9, "PodGroup")
        spec = replace(fact.obj.spec, priority=priority, disruption_mode=mode)
        self.engine.observe(type(fact)(replace(fact.obj, spec=spec)), self.now)


class WorldOfGroupsAsOne(PreemptingWorld):
    """The same as 1.37 does it: each group waits in the queue as one, and is tried and preempts as one."""

    release = find_release("1.37").name
    gates = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"

    @invariant()
    def a_group_waits_in_one_place(self):
        if not hasattr(self, "engine"):
            return
        places = {}
        for line in self.engine.queue.pending():
            if line.pod.spec.scheduling_group is not None and line.place is not QueuePlace.IN_FLIGHT:
                places.setdefault(group_key(line.pod), set()).add(line.place)
        assert all(len(place) == 1 for place in places.values())
        groups = self.engine.queue._groups
        assert groups.keys() == places.keys()
        assert not any(group.trying or group.returned for group in groups.values())


TestGroups = pytest.mark.slow(GroupedWorld.TestCase)
TestPreemption = pytest.mark.slow(PreemptingWorld.TestCase)
TestGroupsAsOne = pytest.mark.slow(WorldOfGroupsAsOne.TestCase)
TestGroups.settings = TestPreemption.settings = TestGroupsAsOne.settings = settings(
    max_examples=16, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
