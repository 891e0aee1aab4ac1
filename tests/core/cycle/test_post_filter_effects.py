"""What PostFilter plugins want done is done, whichever of them helps in the end."""

from __future__ import annotations

import pytest

from moorage.api.core import Service
from moorage.core.cycle.cycle import Cycle
from moorage.framework.effects import Write
from moorage.framework.points import PostFilterResult
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import Code, Hold
from moorage.testing.builders import a_cluster, a_node, a_pod

FIRST, SECOND = Write(Service(), "first"), Write(Service(), "second")


class Refuses:
    name = "Refuses"

    def pre_filter(self, pod, snapshot):
        return Hold.because("no")


class Helper:
    def __init__(self, name, code, effect):
        self.name = name
        self._result = PostFilterResult(code, (name,), effects=(effect,))

    def post_filter(self, pod, attempt):
        return self._result


@pytest.mark.parametrize("code", [Code.SUCCESS, Code.UNSCHEDULABLE, Code.UNRESOLVABLE])
def test_effects_of_all_post_filter_plugins_are_applied(code):
    plugins = {p.name: p for p in (Refuses(), Helper("A", Code.UNSCHEDULABLE, FIRST), Helper("B", code, SECOND))}
    profile = make_profile("default-scheduler", plugins, {"preFilter": ["Refuses"], "postFilter": ["A", "B"]}, {})
    outcome = Cycle().decide(profile, a_pod(), a_cluster([a_node()]).snapshot).post_filter
    assert outcome is not None
    assert (outcome.code, outcome.effects) == (code, (FIRST, SECOND))
