"""DeviceTaintRules: taints that an administrator adds to devices of any slice, with the gate of 1.37."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.devices import DeviceTaintRule
from moorage.core.queue.cluster_events import object_events
from moorage.framework.events import Action, ClusterEvent, Resource
from moorage.plugins.dynamic_resources import DynamicResources
from tests.core.engine.driving import Driven, node
from tests.plugins.device_claims import DRIVER, a_claim, a_class, a_slice, attached, exactly, using, why_not, with_devices

GATES = "DRADeviceTaintRules=true"
SPENT = "cannot allocate all claims"


def a_rule(name="r", effect="NoSchedule", **selector):
    taint = {"key": "broken", "value": "yes", "effect": effect}
    which = {} if selector.pop("none", False) else {"deviceSelector": selector}
    return msgspec.convert({"metadata": {"name": name}, "spec": {**which, "taint": taint}}, DeviceTaintRule)


def refusing(cluster, *, tolerations=(), gates=GATES):
    """Return the nodes that have no device for a pod with one claim."""
    claim = a_claim("c", exactly(tolerations=list(tolerations)))
    cluster.set_object(claim)
    told = why_not(cluster, using("p", "c"), attached(cluster, gates=gates))
    assert set(told.values()) <= {SPENT}
    return "".join(sorted(told))


def two_nodes(*rules):
    """Node a with a device x of one driver, node b with devices x and y of another."""
    return with_devices(a_slice("a", ["x"]), a_slice("b", ["x", "y"], driver="tpu.example.com"), *rules)


#: What the rules select → the nodes without a device left. The first rows are those of upstream's test of the tracker.
SELECTED = {
    "no rule": ([], ""),
    "every device": ([a_rule()], "ab"),
    "every device, without a selector": ([a_rule(none=True)], "ab"),
    "those of a driver": ([a_rule(driver=DRIVER)], "a"),
    "those of a pool": ([a_rule(pool="b")], "b"),
    "those of a name": ([a_rule(device="x")], "a"),
    "driver, pool and name": ([a_rule(driver=DRIVER, pool="a", device="x")], "a"),
    "a driver that no slice has": ([a_rule(driver="none.example.com")], ""),
    "the pool of another driver": ([a_rule(driver=DRIVER, pool="b")], ""),
    "each device by a rule of its own": ([a_rule("r", pool="b", device="x"), a_rule("s", pool="b", device="y")], "b"),
    "a taint that only informs": ([a_rule(effect="None")], ""),
    "a taint that evicts, too": ([a_rule(effect="NoExecute")], "ab"),
}


@pytest.mark.parametrize(("rules", "expected"), SELECTED.values(), ids=SELECTED)
def test_which_devices_a_rule_taints(rules, expected):
    assert refusing(two_nodes(*rules)) == expected


def test_a_request_may_tolerate_the_taint():
    cluster = two_nodes(a_rule())
    assert refusing(cluster, tolerations=[{"key": "broken", "operator": "Exists"}]) == ""
    assert refusing(cluster, tolerations=[{"key": "broken", "value": "no"}]) == "ab"


def test_rules_add_to_the_taints_of_the_slice():
    own = {"name": "x", "taints": [{"key": "own", "effect": "NoSchedule"}]}
    cluster = with_devices(a_slice("a", [own]), a_rule(), nodes=["a"])
    both = [{"key": "own", "operator": "Exists"}, {"key": "broken", "operator": "Exists"}]
    assert [refusing(cluster, tolerations=some) for some in ([], both[:1], both[1:], both)] == ["a", "a", "a", ""]


def test_rules_do_not_count_while_the_gate_is_closed():
    cluster = two_nodes(a_rule())
    assert refusing(cluster, gates="DRADeviceTaintRules=false") == ""
    assert refusing(cluster) == "ab"
    assert refusing(cluster, gates="DRADeviceTaints=false,DRADeviceTaintRules=false") == ""


def test_changes_of_rules_and_slices_count():
    cluster = two_nodes()
    for change, expected in (
        (a_rule("r", pool="a"), "a"), (a_rule("r", pool="b"), "b"), (a_rule("s", pool="a"), "ab"),
        (a_slice("a", ["x", "z"]), "ab"), (a_rule("s", pool="a", device="x"), "b"),
    ):  # fmt: skip
        cluster.set_object(change)
        assert refusing(cluster) == expected
    cluster.remove_object(a_rule("r"))
    assert refusing(cluster) == ""


#: A rule before and after a change, and whether that updates a slice: the taints of a device differ.
CHANGES = {
    "a new rule": (None, a_rule(), True),
    "a deleted rule": (a_rule(), None, True),
    "other devices": (a_rule(), a_rule(pool="a"), True),
    "another effect": (a_rule(), a_rule(effect="NoExecute"), True),
    "the same devices, said otherwise": (a_rule(pool="a"), a_rule(driver=DRIVER, pool="a", device="x"), False),
    "labels of the rule": (a_rule(), a_rule("other"), False),
    "a rule for no device that there is": (None, a_rule(pool="c"), False),
    "a rule that still selects none": (a_rule(pool="c"), a_rule(device="z"), False),
}


@pytest.mark.parametrize(("old", "new", "wakes"), CHANGES.values(), ids=CHANGES)
def test_a_rule_wakes_what_the_slices_wake_whose_taints_it_changes(old, new, wakes):
    slices = (a_slice("a", ["x"]), a_slice("b", ["x", "y"], driver="tpu.example.com"))
    events = object_events(old, new, slices)
    assert events == ((ClusterEvent(Resource.RESOURCE_SLICE, Action.UPDATE_OTHER),) if wakes else ())
    assert all(any(wake.event.covers(event) for wake in DynamicResources().wakes_on()) for event in events)


@pytest.mark.parametrize(("gate", "pool", "again"), [("true", "a", True), ("true", "c", False), ("false", "a", False)])
def test_a_waiting_pod_is_tried_again_if_a_rule_changes_taints(gate, pool, again):
    run = Driven(gates=f"DRADeviceTaintRules={gate}")
    run.see(node("a"), a_class(), a_slice("a", ["x"]), a_claim("c", exactly(count=2)), using("p", "c").pod)
    assert run.steps() == [("p", None)]
    run.see(a_rule(pool=pool))
    assert run.steps(60.0) == ([("p", None)] if again else [])


names = st.sampled_from("xyz")
rules = st.builds(
    lambda name, **which: a_rule(name, **{field: value for field, value in which.items() if value is not None}),
    st.sampled_from("rs"), driver=st.none() | st.just(DRIVER), pool=st.none() | st.sampled_from("ab"), device=st.none() | names,
)  # fmt: skip
slices = st.builds(a_slice, st.sampled_from("ab"), st.lists(names, min_size=1, max_size=2, unique=True))


@settings(max_examples=20, deadline=None)
@given(changes=st.lists(rules | slices | st.sampled_from("rs"), min_size=1, max_size=8))
def test_an_index_that_follows_changes_says_what_a_new_one_says(changes):
    cluster = two_nodes()
    now = {}
    for change in changes:
        if isinstance(change, str):
            now.pop(("DeviceTaintRule", change), None)
            cluster.remove_object(a_rule(change))
        else:
            now[type(change).__name__, change.name] = change
            cluster.set_object(change)
        assert refusing(cluster) == refusing(two_nodes(*now.values()))
