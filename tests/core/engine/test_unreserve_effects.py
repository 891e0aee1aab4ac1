"""What Unreserve wants done to the world is done before the pod is tried again, and whatever becomes of the pod meanwhile."""

from __future__ import annotations

import pytest

from moorage.core.queue import QueuePlace
from moorage.framework.effects import Call
from moorage.framework.verdicts import Hold, Wait
from tests.core.engine.driving import Driven, Phase, bound, dying, node, pod


class Leaves:
    """Writes something down in PreBind, and takes it back in Unreserve."""

    name = "Leaves"
    notes: list
    refuses_at = ""

    def reserve(self, state, pod, node):
        return Hold.because("not today") if self.refuses_at == "reserve" else None

    def permit(self, state, pod, node):
        return Hold.because("not today") if self.refuses_at == "permit" else None

    def pre_bind(self, state, pod, node):
        yield Call(run=None, stand_in=lambda: self.notes.append(f"+{pod.name}"))

    def unreserve(self, state, pod, node):
        yield Call(run=None, stand_in=lambda: self.notes.append(f"-{pod.name}"))


def leaves(refuses_at=""):
    return type("Leaves", (Leaves,), {"notes": [], "refuses_at": refuses_at})


def failed_bind():
    """A pod whose binding has failed, with what is to be undone under way."""
    driven = Driven(leaves())
    driven.see(node(), pod("p", uid="u"))
    assert driven.step() == ("p", "n")
    driven.done(driven.only_work(Phase.PRE_BIND))
    driven.done(driven.only_work(Phase.BIND), "connection refused")
    return driven, driven.only_work(Phase.UNRESERVE)


def test_a_pod_waits_until_its_unreserve_effects_are_done():
    driven, undoing = failed_bind()
    assert [effect for effect in undoing.effects if isinstance(effect, Call)]
    assert driven.on("n") == []
    assert driven.step(60) is None
    assert driven.place("u") is None
    driven.done(undoing)
    assert driven.step() is None
    assert driven.step(60) == ("p", "n")


def test_a_failed_unreserve_effect_ends_the_wait_and_is_reported():
    driven, undoing = failed_bind()
    driven.done(undoing, "connection refused")
    assert [str(fault) for fault in driven.faults] == ["undoing the reservation of default/p: connection refused"]
    assert driven.step(60) == ("p", "n")


@pytest.mark.parametrize("refuses_at", ["reserve", "permit"])
def test_a_rejection_after_node_selection_is_unreserved(refuses_at):
    driven = Driven(leaves(refuses_at))
    driven.see(node(), pod("p", uid="u"))
    assert driven.step() == ("p", None)
    assert driven.place("u") is QueuePlace.IN_FLIGHT  # in flight still: what happens meanwhile is not missed
    driven.done(driven.only_work(Phase.UNRESERVE))
    driven.see(node("m"))
    assert driven.step(60) == ("p", None)


def test_a_deleted_pod_is_unreserved_and_not_requeued():
    driven, undoing = failed_bind()
    driven.see(dying(pod("p", uid="u")))
    driven.gone(pod("p", uid="u"))
    assert driven.engine.is_wanted(undoing.ticket)
    driven.done(undoing)
    assert driven.step(60) is None
    assert driven.place("u") is None
    driven.check_settled()


def test_a_pod_bound_meanwhile_is_not_requeued():
    driven, undoing = failed_bind()
    driven.see(bound(pod("p", uid="u"), "n"))
    driven.done(undoing)
    assert driven.step(60) is None
    assert driven.on("n") == ["p"]
    driven.check_settled()


def test_the_newest_pod_version_is_requeued():
    driven, undoing = failed_bind()
    driven.see(pod("p", "2", uid="u"))
    driven.done(undoing)
    assert driven.step(60) == ("p", "n")
    assert driven.engine.cluster.pod("u").needs.requests["cpu"] == 2000


def test_a_pod_deleted_in_permit_is_unreserved():
    plugin = leaves()
    plugin.permit = lambda self, state, pod, node: Wait(60)
    driven = Driven(plugin)
    driven.see(node(), pod("p", uid="u"))
    assert driven.step() == ("p", "n")
    driven.gone(pod("p", uid="u"))
    driven.done(driven.only_work(Phase.UNRESERVE))
    driven.check_settled()
