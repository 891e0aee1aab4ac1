"""Plugins that name kinds of their own: what is followed, whom it wakes, and what can be looked up."""

import pytest

from moorage.api.custom_objects import read_custom
from moorage.core.engine.facts import Gone, Seen
from moorage.core.queue import QueuePlace, object_events
from moorage.errors import StateError
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.registry import named_kinds
from moorage.framework.verdicts import Hold
from moorage.state.cluster import ClusterState, Snapshot
from tests.core.engine.driving import Driven, node, pod

FOOS = "foos.v1.example.com"


def foo(name="a", uid="u", version="1", **spec):
    return read_custom({"metadata": {"name": name, "uid": uid, "resourceVersion": version}, "spec": spec}, FOOS, "test")


class Refusing:
    """Says no until a Foo is open; ``told`` is what its hint was asked."""

    name = "Refusing"

    def __init__(self):
        self.told = []
        Refusing.latest = self

    def pre_filter(self, pod, snapshot):
        held = snapshot.custom(FOOS).get("a")
        return None if held is not None and held.get("spec", "open") else Hold.because("no foo is open")

    def wakes_on(self):
        yield Wake(ClusterEvent(FOOS, Action.ADD | Action.UPDATE), when=self.opens)
        yield Wake(ClusterEvent("foos.v1", Action.ADD))

    def opens(self, pod, old, new):
        self.told.append((pod.name, old, new))
        return new.get("spec", "open") is True


def driven():
    run = Driven(Refusing)
    run.see(node("n1"), pod("p", uid="p"))
    assert run.step() == ("p", None)
    return run


def test_events_of_a_custom_kind_run_the_hint_and_wake_the_pod():
    run = driven()
    shut, opened = foo(), foo(version="2", open=True)
    run.see(shut)
    assert run.place("p") is QueuePlace.UNSCHEDULABLE
    run.see(opened)
    assert run.place("p") is not QueuePlace.UNSCHEDULABLE
    assert Refusing.latest.told == [("p", None, shut), ("p", shut, opened)]
    assert run.step(10.0) == ("p", "n1")


def test_an_unregistered_action_wakes_no_pod():
    run = driven()
    run.see(foo(name="b"))
    run.engine.observe(Gone(foo(name="b")), run.now)
    assert run.place("p") is QueuePlace.UNSCHEDULABLE
    assert [new.name for _, _, new in Refusing.latest.told] == ["b"]


def test_objects_of_different_custom_kinds_are_kept_separate():
    run = driven()
    bar = read_custom({"metadata": {"name": "a"}, "spec": {"open": True}}, "bars.v1.example.com", "test")
    run.engine.observe(Seen(bar), run.now)
    assert run.place("p") is QueuePlace.UNSCHEDULABLE
    assert not Refusing.latest.told
    assert run.engine.snapshot.custom(FOOS) == {}


def test_an_unregistered_kind_cannot_be_looked_up():
    with pytest.raises(StateError, match=r"bars\.v1\.example\.com: no plugin names this kind .*\(foos\.v1\.example\.com\)"):
        driven().engine.snapshot.custom("bars.v1.example.com")


def test_without_a_scheduler_any_kind_can_be_looked_up():
    cluster = ClusterState()
    cluster.set_object(foo())
    assert list(Snapshot(cluster).custom(FOOS)) == ["a"]


def test_custom_kinds_of_all_plugins_are_collected():
    run = driven()
    assert run.engine.named_kinds == named_kinds(run.engine.profiles.values())
    assert [str(kind) for kind in run.engine.named_kinds.kinds] == [FOOS]
    assert run.engine.named_kinds.unusable == ("foos.v1",)


def test_built_in_plugins_register_no_custom_kind():
    run = Driven()
    assert run.engine.named_kinds == ((), ())
    with pytest.raises(StateError, match=r"\(none are\)"):
        run.engine.snapshot.custom(FOOS)


EVENTS = {  # old, new, the event as logs and metrics call it
    "made": (None, foo(), "foos.v1.example.comAdd"),
    "changed": (foo(), foo(version="2"), "foos.v1.example.comUpdate"),
    "gone": (foo(), None, "foos.v1.example.comDelete"),
}


@pytest.mark.parametrize(("old", "new", "label"), EVENTS.values(), ids=EVENTS)
def test_events_have_the_names_that_kube_scheduler_gives_them(old, new, label):
    (event,) = object_events(old, new)
    assert str(event) == label
    assert ClusterEvent(FOOS, Action.ALL).covers(event)
    assert ClusterEvent(Resource.ANY, Action.ALL).covers(event)
    assert not ClusterEvent("bars.v1.example.com", Action.ALL).covers(event)
    assert not ClusterEvent(Resource.NODE, Action.ALL).covers(event)
