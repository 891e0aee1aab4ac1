"""Pod groups under the same whims: the engine keeps all its promises where pods are placed in groups, too.

The world is that of ``test_machine_against_invariants``; here its pods belong to groups, whose objects come and go.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from msgspec.structs import replace

from moorage.api.core import PodSchedulingGroup
from moorage.engine.facts import Gone, Phase, Seen
from tests.engine.test_machine_against_invariants import World
from tests.engine.test_pod_groups import gang

GROUP_OF = {"a": "g", "b": "g", "c": "g", "d": "h", "e": "h"}


class GroupedWorld(World):
    """Three pods of one group, two of another, and some by themselves."""

    gates = "GenericWorkload=true,GangScheduling=true"

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

    @rule(name=st.sampled_from(["g", "h"]), least=st.sampled_from([None, 1, 2, 3]), there=st.sampled_from([True, True, False]))
    def change_group(self, name, least, there):
        self.tell(Seen(gang(name, least)) if there else Gone(gang(name)))

    def nominate(self, work):
        if work.phase is not Phase.GROUP_STATUS:
            super().nominate(work)


TestGroups = pytest.mark.slow(GroupedWorld.TestCase)
TestGroups.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
