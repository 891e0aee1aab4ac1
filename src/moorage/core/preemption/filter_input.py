"""What Filter is asked: a pod of a profile, with what PreFilter answered for it."""

from __future__ import annotations

from msgspec import Struct

from moorage.framework.post_filter import PreFiltered
from moorage.framework.profile import Profile
from moorage.state.view import PodInfo


class FilterInput(Struct, frozen=True):
    """The plugins of ``profile`` judge ``pod`` with the states that they left in ``found``."""

    profile: Profile
    found: PreFiltered
    pod: PodInfo
