"""Nominations made here outlive updates that do not know of them yet."""

from __future__ import annotations

import msgspec
import pytest

from moorage.core.queue.nominator import Nominator
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_pod


def a_pod_nominated_to(node, name="p"):
    pod = a_pod(name).pod
    return PodInfo(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node)))


NOMINATE = {  # the API says, the scheduler says, it stands as
    "by the scheduler": ("", "n1", "n1"),
    "by the scheduler, elsewhere than the API says": ("n2", "n1", "n1"),
    "by the API": ("n2", None, "n2"),
    "not nominated": ("", None, None),
    "taken back": ("n2", "", None),
}


@pytest.mark.parametrize(("said", "node", "stands"), NOMINATE.values(), ids=NOMINATE)
def test_the_schedulers_nomination_overrides_the_api(said, node, stands):
    nominator = Nominator({})
    nominator.nominate(a_pod_nominated_to("elsewhere"), None)
    nominator.nominate(a_pod_nominated_to(said), node)
    assert nominator.node_of("default/p") == stands
    assert nominator.nodes() == (() if stands is None else (stands,))


UPDATES = {  # kept here, old version, new version, kept after
    "neither version knows": ("n1", "", "", "n1"),
    "nothing kept, neither version knows": ("", "", "", None),
    "the API catches up": ("n1", "", "n1", "n1"),
    "the API says another": ("n1", "", "n2", "n2"),
    "the API changes it": ("n1", "n1", "n2", "n2"),
    "the API takes it back": ("n1", "n1", "", None),
    "the API says it all along": ("", "n1", "n1", "n1"),
}


@pytest.mark.parametrize(("kept", "old", "new", "after"), UPDATES.values(), ids=UPDATES)
def test_an_update_without_a_nomination_keeps_it(kept, old, new, after):
    nominator = Nominator({})
    nominator.nominate(a_pod_nominated_to(old), kept)
    nominator.update(a_pod_nominated_to(old), a_pod_nominated_to(new))
    assert nominator.node_of("default/p") == after


def test_pods_are_listed_in_nomination_order():
    nominator = Nominator({})
    for name in "abc":
        nominator.nominate(a_pod(name), "n1")
    nominator.nominate(a_pod("a"), "n1")
    assert nominator.on("n1") == ("default/b", "default/c", "default/a")
    nominator.forget("default/c")
    nominator.forget("default/unknown")
    assert nominator.on("n1") == ("default/b", "default/a")
    assert nominator.on("n2") == ()
    assert len(nominator) == 2
