"""The digest of an answer is that of the state that was asked about, no matter when it is read."""

from __future__ import annotations

import pickle

import pytest

from moorage.report.answer import LateText
from tests.laboratory.random_world import World


@pytest.mark.parametrize("seed", range(4))
def test_a_digest_that_is_read_later_is_that_of_the_state_that_was_asked_about(seed):
    world = World(seed)
    cluster = world.cluster()
    world.act(cluster)
    before = cluster.fork().digest()
    found = cluster.explain(cluster.simulation.pods_in_order()[-1], probes=0)
    world.act(cluster)
    cluster.schedule()
    cluster.run(cluster.now_s + 50)
    assert cluster.digest() != before
    assert found.to_dict()["input"]["digest"] == before


def test_explanations_do_not_compute_the_digest():
    cluster = World(1).cluster()
    pod = cluster.simulation.pods_in_order()[-1]
    first, second = cluster.explain(pod), cluster.explain(pod, probes=0)
    assert first.request.digest is second.request.digest
    assert not first.request.digest.is_known
    assert second.to_dict()["input"]["digest"] == cluster.digest()
    assert first.request.digest.is_known


def test_one_digest_at_a_time_waits_to_be_read():
    cluster = World(1).cluster()
    pod = cluster.simulation.pods_in_order()[-1]
    first = cluster.explain(pod, probes=0)
    cluster.remove("node/n1")
    second = cluster.explain(pod, probes=0)
    assert [one.request.digest.is_known for one in (first, second)] == [True, False]


def test_a_late_text_is_made_once_and_equal_to_a_text():
    calls = []
    late = LateText(lambda: calls.append(1) or "abc")
    assert not calls
    assert (str(late), late == "abc", late == LateText(lambda: "abc"), late == "x", late == 1) == (
        "abc",
        True,
        True,
        False,
        False,
    )
    assert (hash(late), repr(late), pickle.loads(pickle.dumps(late))) == (hash("abc"), repr("abc"), "abc")
    assert calls == [1]
