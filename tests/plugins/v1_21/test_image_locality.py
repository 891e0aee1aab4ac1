"""Test ImageLocality in 1.21: a node's image state keeps the node count of its last update, and only container images count."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.plugins.earlier.image_locality import ImageLocalityV121
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores

MIB = 1024 * 1024


def image(size, *names):
    return {"names": list(names), "sizeBytes": size}


def running(*images, **spec):
    return a_pod(containers=[{"name": f"c{at}", "image": name} for at, name in enumerate(images)], **spec)


def holding(*on_nodes):
    """Return a cluster of nodes n0, n1 …, each with images of these sizes (MiB) by name."""
    nodes = [
        a_node(f"n{at}", images=[image(int(size * MIB), name) for name, size in held.items()])
        for at, held in enumerate(on_nodes)
    ]
    return a_cluster(nodes)


def scores(pod, cluster):
    return list(final_scores(ImageLocalityV121(), pod, cluster.snapshot).values())


def mapped(sum_mib, containers=1):
    most = 1000 * containers
    return int(100 * (min(max(sum_mib, 23), most) - 23) // (most - 23))


CASES = {  # images on the nodes in order of their updates, images of the pod's containers, scores
    "no node has it": ([{}, {}], ["x:1"], [0, 0]),
    "one of two": ([{"x:1": 250}, {}], ["x:1"], [mapped(125), 0]),
    "both: only the last updated knows of both": ([{"x:1": 250}, {"x:1": 250}], ["x:1"], [mapped(125), mapped(250)]),
    "of three": ([{"x:1": 900}] * 3, ["x:1"], [mapped(300), mapped(600), mapped(900)]),
    "two images": ([{"x:1": 500, "y:1": 500}, {"y:1": 500}], ["x:1", "y:1"], [mapped(500, 2), mapped(500, 2)]),
    "the same image twice": ([{"x:1": 500}, {}], ["x:1", "x:1"], [mapped(500, 2), 0]),
    "small images score 0": ([{"x:1": 23}], ["x:1"], [0]),
    "large images are capped": ([{"x:1": 5000}], ["x:1"], [100]),
    "no tag means latest": ([{"x:latest": 500}], ["x"], [mapped(500)]),
    "another tag": ([{"x:2": 500}], ["x:1"], [0]),
}


@pytest.mark.parametrize(("held", "images", "expected"), CASES.values(), ids=CASES)
def test_scores(held, images, expected):
    assert scores(running(*images), holding(*held)) == expected


def test_init_containers_and_volumes_do_not_count():
    pod = running("x:1", initContainers=[{"name": "i", "image": "y:1"}], volumes=[{"name": "v", "image": {"reference": "z:1"}}])
    assert scores(pod, holding({"x:1": 500, "y:1": 500, "z:1": 500})) == [mapped(500)]
    assert scores(pod, holding({"y:1": 500, "z:1": 500})) == [0]


def test_an_updated_node_is_counted_again():
    cluster, pod = holding({"x:1": 500}, {"x:1": 500}), running("x:1")
    assert scores(pod, cluster) == [mapped(250), mapped(500)]
    cluster.set_node(a_node("n0", {"touched": ""}, images=[image(500 * MIB, "x:1")]))
    assert scores(pod, cluster) == [mapped(500), mapped(500)]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["x:1", "y:1"]), st.just(400)), min_size=1, max_size=5))
def test_agrees_with_a_reference_implementation(nodes):
    expected = []
    for at, held in enumerate(nodes):
        known = {name: sum(name in other for other in nodes[: at + 1]) for name in held}
        total = sum(int(400 * MIB * (count / len(nodes))) for count in known.values())
        expected.append(int(100 * (min(max(total, 23 * MIB), 2000 * MIB) - 23 * MIB) // (1977 * MIB)))
    assert scores(running("x:1", "y:1"), holding(*nodes)) == expected


def test_satisfies_the_plugin_contract():
    check_plugin(ImageLocalityV121())
