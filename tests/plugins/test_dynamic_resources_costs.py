"""Test the cost limit of device selectors: per attempt, its error messages, and what is cached."""

from __future__ import annotations

from time import process_time

import pytest

from moorage.api.cel import CompiledSelector
from moorage.api.cel.list_attributes import Lists
from moorage.errors import AttemptError
from moorage.plugins.devices.device_counts import count_devices
from moorage.plugins.devices.meter import ATTEMPT_COST, FREE_CHARACTERS, FREE_COST
from moorage.testing.builders import a_cluster, a_node
from moorage.testing.plugin_queries import refusals
from tests.core.engine.driving import Driven, node
from tests.plugins.device_claims import DRIVER, a_claim, a_class, a_slice, attached, exactly, using

NUMBERS = "[" + ",".join(map(str, range(100))) + "]"
ENDLESS = f"{NUMBERS}.all(a, {NUMBERS}.all(b, {NUMBERS}.all(c, a + b + c >= 0)))"
#: Costs some 6,000 for each device.
DEAR = f"lists.range(1000).all(a, a >= 0) && device.attributes['{DRIVER}'].n >= 0"
TEXT = (
    "CEL runtime error: operation cancelled: actual cost limit exceeded: the selectors of a pod may cost 20000 in one attempt"
)


def devices(*names, n=0):
    return [{"name": name, "attributes": {"n": {"int": n + at}}} for at, name in enumerate(names)]


@pytest.fixture
def judged(monkeypatch):
    """Record the limit that each evaluation was given."""
    limits = []
    judge = CompiledSelector.judge
    monkeypatch.setattr(
        CompiledSelector, "judge", lambda self, variables, limit: limits.append(limit) or judge(self, variables, limit)
    )
    return limits


def cluster_with(*claims, device_class=None, nodes=("a", "b"), held=("d0", "d1")):
    cluster = a_cluster(map(a_node, nodes))
    cluster.set_object(device_class or a_class())
    for name in nodes:
        cluster.set_object(a_slice(name, devices(*held)))
    for claim in claims:
        cluster.set_object(claim)
    return cluster


def attempt(cluster, plugin, *claims):
    """Return why each node is rejected, or the error that ends the attempt."""
    try:
        found = refusals(plugin, using("p", *claims), cluster.snapshot)
    except AttemptError as error:
        return str(error)
    return {name: status.message for name, status in found.items()}


SAYS = {  # where the selector is
    "in a request": (exactly("r0", cel=ENDLESS), "", "request r0: selector #0: "),
    "in an alternative": (
        {"name": "r0", "firstAvailable": [{"name": "big", **exactly(cel=ENDLESS)["exactly"]}]},
        "",
        "request r0/big: selector #0: ",
    ),
    "in a class": (exactly("r0"), ENDLESS, "request r0: class gpu: selector #0: "),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "of_class", "where"), SAYS.values(), ids=SAYS)
def test_the_error_names_claim_request_and_selector(request_, of_class, where):
    cluster = cluster_with(a_claim("c", request_), device_class=a_class("gpu", of_class))
    error_text = attempt(cluster, attached(cluster), "c")
    assert error_text.startswith(f'running "DynamicResources" filter plugin: claim default/c, {where}{TEXT}')


def test_a_selector_that_exceeds_the_limit_is_not_evaluated_again(judged):
    expression = f"{NUMBERS[:20]}0].all(a, lists.range(3000).all(b, a + b >= 0))"
    assert len(expression) < FREE_CHARACTERS
    cluster = cluster_with(a_claim("c", exactly(cel=expression)), a_claim("same", exactly(cel=expression)))
    plugin = attached(cluster)
    assert len({attempt(cluster, plugin, "c") for _ in range(3)}) == 1
    assert "claim default/same," in attempt(cluster, plugin, "same")
    assert judged == [FREE_COST + ATTEMPT_COST]
    cluster.set_object(a_slice("a", devices("d0", "d1", "d2")))
    assert TEXT in attempt(cluster, plugin, "c")
    assert len(judged) == 1  # the device has not changed
    cluster.set_object(a_slice("a", devices("d0", "d1", n=7)))
    assert TEXT in attempt(cluster, plugin, "c")
    assert len(judged) == 2


def test_a_selector_that_the_remaining_budget_did_not_cover_is_evaluated_in_a_later_attempt(judged):
    """Compiling the expression leaves less than its evaluation costs. Once it is compiled, the budget suffices."""
    expression = f"lists.range(3100).all(a, a >= 0) || device.driver == '{'x' * 3000}'"
    cluster = cluster_with(a_claim("c", exactly(cel=expression)), nodes=["a"], held=["d0"])
    plugin = attached(cluster)
    assert [TEXT in attempt(cluster, plugin, "c") for _ in range(2)] == [True, True]
    assert len(judged) == 1
    cluster.set_object(a_slice("b", []))
    assert attempt(cluster, plugin, "c") == {}


CHANGES = {
    "the claim": lambda cluster: cluster.set_object(a_claim("c", exactly(cel="true"))),
    "the class": lambda cluster: cluster.set_object(a_class("gpu", "true")),
    "the slices": lambda cluster: [cluster.set_object(a_slice(name, devices("d0"))) for name in ("a", "b")],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_failed_selector_is_evaluated_again_after_a_change(change):
    """Four devices exceed the limit of this selector, two do not."""
    of_class = DEAR if change == "the class" else ""
    claim = a_claim("c", exactly(count=2, cel="" if of_class else DEAR, allocationMode="All"))
    cluster = cluster_with(claim, device_class=a_class("gpu", of_class))
    plugin = attached(cluster)
    assert [TEXT in attempt(cluster, plugin, "c") for _ in range(2)] == [True, True]
    CHANGES[change](cluster)
    assert attempt(cluster, plugin, "c") == {}


def test_all_claims_of_a_pod_share_one_budget():
    cluster = cluster_with(*(a_claim(f"c{at}", exactly(cel=f"{DEAR} && {at} == {at}")) for at in range(2)), nodes=["a"])
    assert attempt(cluster, attached(cluster), "c0") == {}
    assert attempt(cluster, attached(cluster), "c1") == {}
    fresh = cluster_with(*(a_claim(f"c{at}", exactly(cel=f"{DEAR} && {at} == {at}")) for at in range(4)), nodes=["a"])
    assert TEXT in attempt(fresh, attached(fresh), "c0", "c1", "c2", "c3")


def test_ordinary_selectors_fit_the_budget_for_any_number_of_devices(judged):
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].n == 7"
    cluster = cluster_with(a_claim("c", exactly(cel=expression)), nodes=[f"n{at}" for at in range(30)], held=["x", "y"])
    assert set(attempt(cluster, attached(cluster), "c").values()) == {"cannot allocate all claims"}
    assert judged == [FREE_COST + ATTEMPT_COST] * 60


def test_an_unchanged_device_is_not_evaluated_again(judged):
    cluster = cluster_with(a_claim("c", exactly(cel=f"device.attributes['{DRIVER}'].n > 7")))
    plugin = attached(cluster)
    attempt(cluster, plugin, "c")
    cluster.set_object(a_slice("a", devices("d0", "d1"), generation=2))
    attempt(cluster, plugin, "c")
    assert len(judged) == 4
    cluster.set_object(a_slice("a", devices("d0", "d1", n=1), generation=3))
    attempt(cluster, plugin, "c")
    assert len(judged) == 6


def test_long_expressions_count_towards_the_budget():
    """Two expressions of ten thousand characters, the API server's maximum, fit into one attempt, and three do not."""
    long = [f"true || device.driver == '{str(at) * 9990}'" for at in range(3)]
    assert all(FREE_CHARACTERS < len(expression) < 10_240 for expression in long)
    requests = [exactly(f"r{at}", cel=expression) for at, expression in enumerate(long)]
    cluster = cluster_with(a_claim("two", *requests[:2]), a_claim("three", *requests), held=["d0", "d1", "d2"])
    plugin = attached(cluster)
    assert attempt(cluster, plugin, "two") == {}
    assert attempt(cluster, plugin, "three") == {}  # two of them are cached
    fresh = attached(cluster_of_three := cluster_with(a_claim("three", *requests), held=["d0", "d1", "d2"]))
    assert "request r2: selector #0: " in attempt(cluster_of_three, fresh, "three")


def test_counting_the_devices_of_a_class_reports_the_error_too():
    cluster = cluster_with(device_class=a_class("gpu", ENDLESS))
    with pytest.raises(AttemptError, match="class gpu: counting its devices on nodes: CEL runtime error: operation cancelled"):
        count_devices(a_class("gpu", ENDLESS), cluster.snapshot.nodes, lists=Lists.UNKNOWN)


def test_an_attempt_that_exceeds_the_limit_is_short_and_other_pods_are_placed():
    run = Driven()
    run.see(*(node(f"n{at}") for at in range(50)), a_class())
    run.see(*(a_slice(f"n{at}", devices("d0", "d1", n=at)) for at in range(50)))
    run.see(a_claim("c", exactly(cel=ENDLESS)), using("asks", "c").pod)
    took = []
    for _ in range(4):
        begun = process_time()
        assert run.step(seconds=20) == ("asks", None)
        took.append(process_time() - begun)
    assert max(took[1:]) < 0.1
    run.see(using("plain").pod)
    assert ("plain", None) not in run.steps()
