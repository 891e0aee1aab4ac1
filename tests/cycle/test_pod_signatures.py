"""Pods get the same class number just when every signature agrees, and what was remembered follows what signatures hang on."""

from __future__ import annotations

import msgspec

from moorage.api.core import Service
from moorage.api.devices import DeviceClass
from moorage.cycle.pod_signatures import Signer, signs_by
from moorage.framework.profile import Step
from moorage.testing.builders import a_cluster, a_node, a_pod


class Colors:
    name = "Colors"
    signs_by = ()

    def __init__(self):
        self.signed = 0

    def sign(self, pod):
        self.signed += 1
        return {"color": pod.labels.get("color")}


class Classes(Colors):
    name = "Classes"
    signs_by = (DeviceClass,)

    def sign(self, pod):
        self.signed += 1
        return {}


class Names(Colors):
    name = "Names"

    def sign(self, pod):
        return {"name": pod.name}


def signer(*plugins):
    return Signer([Step(plugin.name, plugin, plugin.sign) for plugin in plugins], frozenset())


SNAPSHOT = a_cluster([a_node()]).snapshot


def test_copies_are_signed_once():
    plugin = Colors()
    one = signer(plugin)
    keys = [one.sign(a_pod(f"p{i}", {"color": color}), SNAPSHOT).key for i, color in enumerate(["red", "blue", "red"])]
    assert keys[0] == keys[2] != keys[1]
    assert plugin.signed == 2


def test_different_shapes_may_be_of_one_class():
    one = signer(Colors())
    assert one.sign(a_pod(nodeSelector={"a": "b"}), SNAPSHOT) == one.sign(a_pod(), SNAPSHOT)


def test_objects_that_signatures_hang_on_make_them_signed_anew():
    cluster, plugin = a_cluster([a_node()]), Classes()
    one = signer(plugin)
    one.sign(a_pod("a"), cluster.snapshot)
    cluster.set_object(msgspec.convert({"metadata": {"name": "gpu"}}, DeviceClass))
    one.sign(a_pod("b"), cluster.snapshot)
    one.sign(a_pod("c"), cluster.snapshot)
    assert plugin.signed == 2


def test_who_overrides_sign_alone_signs_every_pod():
    assert signs_by(Names()) is None
    one = signer(Colors(), Names())
    assert one.sign(a_pod("a"), SNAPSHOT).key != one.sign(a_pod("b"), SNAPSHOT).key


def test_a_plugin_that_will_not_sign_is_asked():
    class Shy(Colors):
        name = "Shy"
        signs_by = ()

        def sign(self, pod):
            return None

    assert signer(Colors(), Shy()).sign(a_pod(), SNAPSHOT).asked == {"Shy"}


def test_shapes_leave_out_the_name_and_nothing_that_rules_read():
    same = a_pod("a", {"x": "y"}).shape() == a_pod("b", {"x": "y"}).shape()
    others = {
        a_pod("a").shape(),
        a_pod("a", namespace="other").shape(),
        a_pod("a", {"x": "y"}).shape(),
        a_pod("a", nodeName="n").shape(),
        a_pod("a", status={"nominatedNodeName": "n"}).shape(),
        a_pod("a", metadata={"ownerReferences": [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]}).shape(),
        a_pod("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}).shape(),
    }
    assert same
    assert len(others) == 7


class Neighbours(Colors):
    """Looks at other pods, and says that it has nothing to say while no service exists."""

    name = "Neighbours"

    def __init__(self):
        super().__init__()
        self.looked = 0

    def pre_filter(self, pod, snapshot): ...

    def pre_score(self, pod, snapshot, feasible): ...

    def idle(self, pod, snapshot):
        self.looked += 1
        return not snapshot.objects(Service)

    def idle_until(self, snapshot):
        return [snapshot.changes_of(Service)]


def test_an_idle_plugin_is_not_asked_until_something_changes_that_it_named():
    cluster, plugin = a_cluster([a_node()]), Neighbours()
    one = Signer([Step(plugin.name, plugin, plugin.sign)], frozenset([plugin.name]))
    idle = [one.sign(a_pod(name), cluster.snapshot) for name in "ab"]
    cluster.set_object(msgspec.convert({"metadata": {"name": "web"}}, Service))
    busy = [one.sign(a_pod(name), cluster.snapshot) for name in "cd"]
    assert [signed.asked for signed in (*idle, *busy)] == [set(), set(), {"Neighbours"}, {"Neighbours"}]
    assert plugin.looked == 2
    assert len({signed.key for signed in (*idle, *busy)}) == 2


def test_who_overrides_what_idle_speaks_for_is_asked():
    class Busier(Neighbours):
        def pre_score(self, pod, snapshot, feasible):
            return 1

    one = Signer([Step("Busier", Busier(), Busier().sign)], frozenset(["Busier"]))
    assert one.sign(a_pod(), SNAPSHOT).asked == {"Busier"}
