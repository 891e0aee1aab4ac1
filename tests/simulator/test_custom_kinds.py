"""Test objects of the kinds that plugins declare: read from dumps, looked up, and awaited."""

import json

import pytest

import moorage
from moorage.api.custom_objects import read_custom
from moorage.basis.inputs.files import InputFile
from moorage.core.engine.facts import Seen
from moorage.errors import InputError
from moorage.framework.effects import Amend
from moorage.framework.events import Action, ClusterEvent, Wake
from moorage.framework.verdicts import Hold
from moorage.simulator.cluster_reader import read_sources
from moorage.simulator.simulate import kinds_named, prepare
from moorage.testing.builders import a_node, a_pod

FOOS = "foos.v1.example.com"
HEAD = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
ENABLED = HEAD + b"profiles: [{plugins: {multiPoint: {enabled: [{name: NeedsFoo}]}}}]\n"


class NeedsFoo:
    name = "NeedsFoo"

    def attach(self, handle):
        self.handle = handle

    def pre_enqueue(self, pod):
        held = self.handle.snapshot.custom(FOOS).get(f"{pod.namespace}/{pod.name}")
        return None if held is not None else Hold.because("there is no foo for it")

    def wakes_on(self):
        yield Wake(ClusterEvent(FOOS, Action.ADD), when=lambda pod, old, new: new.name == pod.name)


OPTIONS = moorage.Options(config=ENABLED, plugins=(NeedsFoo,))


def document(kind="Foo", name="a", version="example.com/v1", **metadata):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": {"n": 1}}


def definition(plural, kind, scope, group="example.com"):
    spec = {"group": group, "names": {"kind": kind, "plural": plural}, "scope": scope}
    return {**document("CustomResourceDefinition", f"{plural}.{group}", "apiextensions.k8s.io/v1"), "spec": spec}


def cluster_of(*documents, custom=(FOOS,)):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}).encode()
    return read_sources([InputFile("dump.json", text)], custom=custom)


def found(cluster):
    return [(obj.resource, obj.namespace, obj.name) for obj in cluster.custom]


READ = {  # objects of the dump, declared kinds, objects read
    "plural guessed from the kind": ([document(namespace="x")], [FOOS], [(FOOS, "x", "a")]),
    "no kind declared": ([document()], [], []),
    "another kind of the group": ([document("Bar")], [FOOS], []),
    "another version": ([document(version="example.com/v2")], [FOOS], []),
    "another group": ([document(version="other.com/v1")], [FOOS], []),
    "two kinds": (
        [document("Bar"), document()], [FOOS, "bars.v1.example.com"], [("bars.v1.example.com", "", "a"), (FOOS, "", "a")],
    ),
    "an irregular plural, definition follows": (
        [document("Ox"), definition("oxen", "Ox", "Cluster")], ["oxen.v1.example.com"], [("oxen.v1.example.com", "", "a")],
    ),
    "an irregular plural without a definition": ([document("Ox")], ["oxen.v1.example.com"], []),
    "namespaced without a namespace": ([document(), definition("foos", "Foo", "Namespaced")], [FOOS], [(FOOS, "default", "a")]),
    "cluster-scoped with a namespace": (
        [document(namespace="x"), definition("foos", "Foo", "Cluster")], [FOOS], [(FOOS, "", "a")],
    ),
    "a built-in kind that scheduling does not use": (
        [document("ConfigMap", version="v1", namespace="x")], ["configmaps.v1."], [("configmaps.v1.", "x", "a")],
    ),
    "an invalid kind name": ([document()], ["foos.v1"], []),
}  # fmt: skip


@pytest.mark.parametrize(("documents", "named", "expected"), READ.values(), ids=READ)
def test_which_objects_are_read(documents, named, expected):
    assert found(cluster_of(*documents, custom=named)) == expected


def test_a_kind_that_scheduling_uses_may_be_declared_too():
    service = {**document("Service", version="v1", namespace="x"), "spec": {"selector": {"a": "b"}}}
    cluster = cluster_of(service, custom=["services.v1."])
    assert [one.metadata.name for one in cluster.services] == ["a"]
    assert cluster.custom[0].get("spec", "selector") == {"a": "b"}


def test_the_report_lists_them():
    cluster = cluster_of(
        document(namespace="x"), document(namespace="x"), document(name="b", namespace="x"), document("Bar"),
        document(version="example.com/v2"), definition("foos", "Foo", "Namespaced"),
    )  # fmt: skip
    assert ("Foo", 2) in cluster.report.read
    assert cluster.report.lines() == [
        "1 Bar example.com/v1: unknown kind",
        "1 CustomResourceDefinition apiextensions.k8s.io/v1: scheduling does not read it",
        f"1 Foo example.com/v2: this version of the API is not read; a plugin names {FOOS}",
        "1 object given more than once, identically: Foo x/a (dump.json: items[0] and dump.json: items[1])",
        "1 namespace not in the input, assumed without labels: x",
    ]


def test_an_object_gets_a_stable_uid():
    (foo,) = cluster_of(document(namespace="x")).custom
    assert foo.metadata.uid
    assert foo.document["metadata"]["uid"] == foo.metadata.uid
    assert cluster_of(document(namespace="x")).custom == (foo,)
    (given,) = cluster_of(document(namespace="x", uid="u", resourceVersion="4")).custom
    assert (given.metadata.uid, given.metadata.resource_version) == ("u", "4")


def test_list_items_inherit_apiversion_and_kind():
    items = [{"metadata": {"name": "a"}, "spec": {"n": 1}}]
    text = json.dumps({"apiVersion": "example.com/v1", "kind": "FooList", "items": items}).encode()
    (foo,) = read_sources([InputFile("dump.json", text)], custom=[FOOS]).custom
    assert (foo.get("apiVersion"), foo.get("kind"), foo.get("spec")) == ("example.com/v1", "Foo", {"n": 1})


FAULTS = {
    "no name": ([{"apiVersion": "example.com/v1", "kind": "Foo"}], r"items\[0\]: Foo: metadata.name: Required value"),
    "no metadata": ([document(labels=3)], r"items\[0\]: Foo a: metadata.labels: expected"),
    "two objects of one name": (
        [document(), document(labels={"a": "b"})],
        r"items\[1\]: Foo a is also at dump.json: items\[0\], and",
    ),
    "an invalid definition": (
        [{**definition("a", "A", "Cluster"), "spec": 3}],
        r"CustomResourceDefinition a.example.com: spec",
    ),
}


@pytest.mark.parametrize(("documents", "message"), FAULTS.values(), ids=FAULTS)
def test_errors_name_the_position(documents, message):
    with pytest.raises(InputError, match=message):
        cluster_of(*documents)


def test_the_number_of_reported_errors_is_bounded():
    with pytest.raises(InputError) as caught:
        cluster_of(*(document(name=f"a{at}", labels=3) for at in range(100)))
    *shown, last = str(caught.value).splitlines()
    assert (len(shown), last) == (20, "and maybe more; these are the first")


def test_yaml_documents_are_read_too():
    text = b"apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: a, managedFields: []}\nspec: {count: 1}\n"
    (foo,) = read_sources([InputFile("a.yaml", text)], custom=[FOOS]).custom
    assert (foo.get("spec", "count"), "managedFields" in foo.document["metadata"]) == (1, False)


# -- in a run -----------------------------------------------------------------------------------------------------------

NODE = a_node("n1", allocatable={"cpu": "2", "memory": "4Gi", "pods": 10})


def test_the_declared_kinds_follow_from_the_options():
    assert kinds_named(OPTIONS) == (FOOS,)
    assert kinds_named(moorage.Options()) == ()
    assert kinds_named(moorage.Options(plugins=(NeedsFoo,))) == (), "it is not enabled"


def test_a_plugin_finds_them():
    held = read_custom(document(name="with", namespace="default"), FOOS, "test")
    run = moorage.simulate([held, NODE, a_pod("with").pod, a_pod("without").pod], OPTIONS)
    assert {pod.name: pod.node or pod.message for pod in run.pods}["with"] == "n1"
    assert [pod.name for pod in run.in_state("Pending")] == ["without"]


def test_an_object_added_later_wakes_its_pod():
    simulation, _ = prepare(OPTIONS)
    simulation.load([NODE, a_pod("p").pod, a_pod("q").pod])
    simulation.at(5.0, Seen(read_custom(document(name="p", namespace="default"), FOOS, "test")))
    simulation.run()
    assert {one.pod.name: one.placed_s for one in simulation.records.values()} == {"p": 5.0, "q": None}


class Counting(NeedsFoo):
    """Record on its Foo which pods it bound."""

    name = "Counting"

    def pre_enqueue(self, pod):
        return None

    def pre_bind(self, state, pod, node):
        held = self.handle.snapshot.custom(FOOS)["default/ledger"]
        yield Amend(held, lambda now: now.having(status={"pods": [*now.get("status", "pods", default=[]), pod.name]}))


def test_effects_change_them():
    ledger = read_custom(document(name="ledger", namespace="default"), FOOS, "test")
    simulation, _ = prepare(moorage.Options(config=ENABLED.replace(b"NeedsFoo", b"Counting"), plugins=(Counting,)))
    simulation.load([ledger, NODE, a_pod("p").pod, a_pod("q").pod])
    simulation.run()
    (held,) = simulation.scheduler.snapshot.custom(FOOS).values()
    assert held.get("status", "pods") == ["p", "q"]
    assert ledger.get("status") is None


def test_an_invalid_kind_name_is_reported():
    class Careless(NeedsFoo):
        name = "Careless"

        def pre_enqueue(self, pod):
            return None

        def wakes_on(self):
            yield Wake(ClusterEvent("foos.v1", Action.ADD))

    config = ENABLED.replace(b"NeedsFoo", b"Careless")
    run = moorage.simulate([NODE], moorage.Options(config=config, plugins=(Careless,)))
    texts = [note.text for note in run.notes]
    assert texts == ["a plugin names the invalid kind foos.v1; use the form plural.version.group"]
