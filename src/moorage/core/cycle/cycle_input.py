"""What a scheduling cycle decides on."""

from __future__ import annotations

from msgspec import Struct

from moorage.core.cycle.search import EVERYWHERE, SearchScope
from moorage.core.preemption.filter_input import FilterInput
from moorage.core.preemption.what_if import Nominated
from moorage.framework.post_filter import PreFiltered
from moorage.framework.profile import Profile
from moorage.state.view import PodInfo, Snapshot


class CycleInput(Struct, frozen=True):
    """A pod, the profile that decides, the cluster as it is, the pods nominated to its nodes, and which nodes are searched.

    If ``nominated`` is a ``MappingProxyType`` over a mapping that never changes, failures are cached.
    """

    profile: Profile
    pod: PodInfo
    snapshot: Snapshot
    nominated: Nominated
    scope: SearchScope = EVERYWHERE

    def filtering(self, found: PreFiltered) -> FilterInput:
        """Return what Filter is asked after PreFilter answered ``found``."""
        return FilterInput(self.profile, found, self.pod)
