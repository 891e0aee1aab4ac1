"""Pods get equal class numbers exactly if every signature agrees; kept classes follow what signatures read."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from moorage.api.core import Service
from moorage.api.devices import DeviceClass
from moorage.core.cycle.pod_signatures import Signer
from moorage.framework.answer_forms import Idle
from moorage.framework.profile import Step, reuse_of
from moorage.framework.reuse import Reuse
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_cluster, a_node, a_pod


class Colors:
    name = "Colors"
    signature_reads = ()

    def __init__(self):
        self.signed = 0
        self.reuse = Reuse(signature=self.signature, signature_reads=self.signature_reads)

    def signature(self, pod):
        self.signed += 1
        return {"color": pod.labels.get("color")}


class Classes(Colors):
    name = "Classes"
    signature_reads = (DeviceClass,)

    def signature(self, pod):
        self.signed += 1
        return {}


class Names(Colors):
    name = "Names"
    signature_reads = None

    def signature(self, pod):
        return {"name": pod.name}


def step_of(plugin):
    return Step(plugin.name, plugin, plugin.signature, reuse=reuse_of(plugin))


def signer(*plugins):
    return Signer([step_of(plugin) for plugin in plugins], frozenset())


SNAPSHOT = a_cluster([a_node()]).snapshot


def test_copies_are_signed_once():
    plugin = Colors()
    one = signer(plugin)
    keys = [one.sign(a_pod(f"p{i}", {"color": color}), SNAPSHOT).signed.key for i, color in enumerate(["red", "blue", "red"])]
    assert keys[0] == keys[2] != keys[1]
    assert plugin.signed == 2


class Ours(Colors):
    """A plugin of ours, which signs no names of claims."""

    __module__ = "moorage.plugins.colors"


@pytest.mark.parametrize(("plugin", "signed"), [(Ours(), 1), (Colors(), 2)], ids=["ours", "custom"])
def test_pods_that_name_different_claims_are_signed_once_by_our_own_plugins(plugin, signed):
    one = signer(plugin)
    for name in "ab":
        one.sign(a_pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}]), SNAPSHOT)
    assert plugin.signed == signed


class ReadsLabels(Ours):
    """A plugin of ours that says so."""

    __module__ = "moorage.plugins.colors"

    def __init__(self):
        super().__init__()
        self.reuse = Reuse(signature=self.signature, signature_reads=(), signature_reads_metadata=True)


@pytest.mark.parametrize(
    ("plugin", "signed"), [(Ours(), 3), (ReadsLabels(), 4), (Colors(), 4)], ids=["ours", "ours, by labels", "custom"]
)
def test_pods_that_share_a_spec_are_signed_once_by_our_own_plugins_unless_they_read_more(plugin, signed):
    one, first = signer(plugin), a_pod("a", {"job": "a"})
    one.sign(first, SNAPSHOT)
    for name, space in (("b", first.namespace), ("c", "elsewhere")):
        metadata = replace(first.pod.metadata, name=name, uid=name, labels={"job": name}, namespace=space)
        one.sign(PodInfo(replace(first.pod, metadata=metadata)), SNAPSHOT)
    one.sign(a_pod("d", {"job": "d"}, nodeSelector={"a": "b"}), SNAPSHOT)
    assert plugin.signed == signed


def test_different_shapes_may_share_one_class():
    one = signer(Colors())
    first, other = (one.sign(a_pod(**spec), SNAPSHOT).signed for spec in ({"nodeSelector": {"a": "b"}}, {}))
    assert (first.key, first.rows) == (other.key, other.rows)


def test_a_change_of_an_object_that_signatures_read_signs_pods_again():
    cluster, plugin = a_cluster([a_node()]), Classes()
    one = signer(plugin)
    one.sign(a_pod("a"), cluster.snapshot)
    cluster.set_object(msgspec.convert({"metadata": {"name": "gpu"}}, DeviceClass))
    one.sign(a_pod("b"), cluster.snapshot)
    one.sign(a_pod("c"), cluster.snapshot)
    assert plugin.signed == 2


def test_a_plugin_that_declares_no_kinds_signs_every_pod():
    one = signer(Colors(), Names())
    assert one.sign(a_pod("a"), SNAPSHOT).signed.key != one.sign(a_pod("b"), SNAPSHOT).signed.key


def test_a_plugin_that_signs_a_pod_none_runs_for_it():
    class Shy(Colors):
        name = "Shy"

        def signature(self, pod):
            return None

    assert signer(Colors(), Shy()).sign(a_pod(), SNAPSHOT).signed.asked == {"Shy"}


def test_shapes_omit_the_name_and_nothing_that_plugins_read():
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
    """Reads other pods, and is idle while no service exists."""

    name = "Neighbours"

    def __init__(self):
        super().__init__()
        self.looked = 0
        self.reuse = Reuse(signature=self.signature, signature_reads=(), idle=self.idle)

    def pre_filter(self, pod, snapshot): ...

    def pre_score(self, pod, snapshot, feasible): ...

    def idle(self, pod, snapshot):
        self.looked += 1
        return Idle(not snapshot.objects(Service), [snapshot.changes_of(Service)])


def test_an_idle_plugin_does_not_run_until_a_log_that_it_names_moves():
    cluster, plugin = a_cluster([a_node()]), Neighbours()
    one = Signer([step_of(plugin)], frozenset([plugin.name]))
    idle = [one.sign(a_pod(name), cluster.snapshot).signed for name in "ab"]
    cluster.set_object(msgspec.convert({"metadata": {"name": "web"}}, Service))
    busy = [one.sign(a_pod(name), cluster.snapshot).signed for name in "cd"]
    assert [signed.asked for signed in (*idle, *busy)] == [set(), set(), {"Neighbours"}, {"Neighbours"}]
    assert plugin.looked == 2
    assert len({signed.key for signed in (*idle, *busy)}) == 2
