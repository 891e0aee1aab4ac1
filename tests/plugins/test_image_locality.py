"""Test that images on a node raise its score, by size and by how few other nodes have them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.plugins.image_locality import ImageLocality, image_scores, images_of_pod, normalized_image_name
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import final_scores

MIB = 1024 * 1024

NAMES = {
    "web": "web:latest",
    "web:1": "web:1",
    "registry:5000/web": "registry:5000/web:latest",
    "registry:5000/web:1": "registry:5000/web:1",
    "web@sha256:0123": "web@sha256:0123",
    "": ":latest",
}


@pytest.mark.parametrize(("name", "normal"), NAMES.items(), ids=NAMES)
def test_a_name_without_a_tag_means_latest(name, normal):
    assert normalized_image_name(name) == normal


def image(size, *names):
    return {"names": names, "sizeBytes": size}


def running(*images, init=(), volumes=()):
    return a_pod(
        containers=[{"name": f"c{i}", "image": name} for i, name in enumerate(images)],
        initContainers=[{"name": f"i{i}", "image": name} for i, name in enumerate(init)],
        volumes=[{"name": f"v{i}", "image": {"reference": name}} for i, name in enumerate(volumes)],
    )


NODES = [
    a_node("small", images=[image(30 * MIB, "small:1"), image(400 * MIB, "common:1", "common@sha256:1")]),
    a_node("large", images=[image(2200 * MIB, "large:latest"), image(400 * MIB, "common:1")]),
    a_node("none"),
    a_node("other", images=[image(9000 * MIB, "other:1")]),
]

# pod → score on each of NODES. An image on one node of four counts a quarter, on two a half.
CASES = {
    "no image present": (running("absent:1"), [0, 0, 0, 0]),
    "below the threshold": (running("small:1"), [0, 0, 0, 0]),
    "on one node": (running("large"), [0, (550 - 23) * 100 // (1000 - 23), 0, 0]),
    "on two nodes": (running("common:1"), [(200 - 23) * 100 // 977, (200 - 23) * 100 // 977, 0, 0]),
    "above the upper threshold": (running("other:1"), [0, 0, 0, 100]),
    "two containers": (running("large:latest", "common:1"), [177 * 100 // 1977, (750 - 23) * 100 // 1977, 0, 0]),
    "the same image twice": (running("large", "large"), [0, (1100 - 23) * 100 // 1977, 0, 0]),
    "init containers count": (running("absent", init=["large"]), [0, (550 - 23) * 100 // 1977, 0, 0]),
    "image volumes do not count as containers": (running("absent", volumes=["large"]), [0, (550 - 23) * 100 // 977, 0, 0]),
    "another tag": (running("large:2"), [0, 0, 0, 0]),
}


@pytest.mark.parametrize(("pod", "scores"), CASES.values(), ids=CASES)
def test_scores(pod, scores):
    assert list(final_scores(ImageLocality(), pod, a_cluster(NODES).snapshot).values()) == scores


def test_the_scaled_size_is_truncated_to_bytes():
    nodes = [a_node("a", images=[image(100_000_001, "x:1")]), a_node("b"), a_node("c")]
    everywhere = a_cluster(nodes).snapshot.nodes
    # a third of it, less 23 MiB, over 977 MiB: in float64 as in Go, then truncated
    expected = 100 * (int(100_000_001 * (1 / 3)) - 23 * MIB) // (977 * MIB)
    assert image_scores(everywhere, images_of_pod(running("x:1"))).tolist() == [expected, 0, 0]


def test_the_first_report_sets_an_images_size():
    cluster = a_cluster([a_node("a", images=[image(600 * MIB, "x:1")]), a_node("b", images=[image(900 * MIB, "x:1")])])
    assert set(final_scores(ImageLocality(), running("x:1"), cluster.snapshot).values()) == {(600 - 23) * 100 // 977}


def test_scores_follow_nodes_and_images():
    plugin, pod = ImageLocality(), running("x:1")
    cluster = a_cluster([a_node("a", images=[image(600 * MIB, "x:1")])])
    assert final_scores(plugin, pod, cluster.snapshot) == {"a": 577 * 100 // 977}
    cluster.set_node(a_node("b"))
    assert final_scores(plugin, pod, cluster.snapshot) == {"a": 277 * 100 // 977, "b": 0}
    cluster.set_node(a_node("b", images=[image(600 * MIB, "x:1")]))
    assert final_scores(plugin, pod, cluster.snapshot) == {"a": 577 * 100 // 977, "b": 577 * 100 // 977}
    cluster.set_node(a_node("a"))
    assert final_scores(plugin, pod, cluster.snapshot) == {"a": 0, "b": 277 * 100 // 977}
    cluster.remove_node("a")
    assert final_scores(plugin, pod, cluster.snapshot) == {"b": 577 * 100 // 977}


def reference_score(images, held, holders_of, nodes):
    """Return one node's score for containers that use ``images``."""
    total = sum(int(float(size) * (holders_of[name] / nodes)) for name in images for size in [held.get(name)] if size)
    most = 1000 * MIB * len(images)
    return 100 * (min(max(total, 23 * MIB), most) - 23 * MIB) // (most - 23 * MIB)


SIZES = {"a:1": 90 * MIB + 1, "b:1": 700 * MIB + 7, "c:1": 5000 * MIB}
names = st.sampled_from([*SIZES, "d:1"])


@settings(max_examples=30)
@given(
    st.lists(names, min_size=1, max_size=3),
    st.lists(st.sets(st.sampled_from(sorted(SIZES))), min_size=1, max_size=5),
    st.data(),
)
def test_agrees_with_a_reference_implementation(asked, held, data):
    nodes = a_cluster(
        a_node(f"n{i}", images=[image(SIZES[name], name) for name in sorted(on_it)]) for i, on_it in enumerate(held)
    ).snapshot.nodes
    holders_of = {name: sum(name in on_it for on_it in held) for name in SIZES}
    part = [f"n{i}" for i in range(len(held)) if data.draw(st.booleans())] or ["n0"]
    expected = {
        f"n{i}": reference_score(asked, {name: SIZES[name] for name in on_it}, holders_of, len(held))
        for i, on_it in enumerate(held)
        if f"n{i}" in part
    }
    assert final_scores(ImageLocality(), running(*asked), nodes.only(nodes.named(part))) == expected
