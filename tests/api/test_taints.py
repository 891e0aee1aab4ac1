from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.core import Taint, Toleration
from moorage.api.node_selectors import find_untolerated, tolerance, tolerates


def toleration(key="", operator="", value="", effect=""):
    return Toleration(key=key, operator=operator, value=value, effect=effect)


TAINT = Taint(key="k", value="v", effect="NoSchedule")
TOLERATES = {
    "same key, value and effect": (toleration("k", "Equal", "v", "NoSchedule"), True),
    "no operator means Equal": (toleration("k", "", "v", "NoSchedule"), True),
    "any effect": (toleration("k", "Equal", "v"), True),
    "other effect": (toleration("k", "Equal", "v", "NoExecute"), False),
    "other value": (toleration("k", "Equal", "w"), False),
    "other key": (toleration("j", "Equal", "v"), False),
    "exists": (toleration("k", "Exists"), True),
    "Exists ignores the value": (toleration("k", "Exists", "w"), True),
    "Exists for every key": (toleration("", "Exists"), True),
    "Exists for every key, other effect": (toleration("", "Exists", "", "NoExecute"), False),
    "no key, Equal with a value": (toleration("", "Equal", "v"), True),
    "no key, no operator": (toleration(), False),
    "unknown operator": (toleration("k", "Foo", "v"), False),
    "greater": (toleration("k", "Gt", "1"), False),
}


@pytest.mark.parametrize(("given_toleration", "covered"), TOLERATES.values(), ids=TOLERATES)
def test_tolerates(given_toleration, covered):
    assert tolerates(given_toleration, TAINT) is covered
    assert tolerates(given_toleration, TAINT, numeric=True) is covered


NUMERIC = {  # operator, toleration's value, taint's value
    "taint above": ("Gt", "5", "6", True), "taint equal": ("Gt", "5", "5", False), "taint below": ("Lt", "5", "4", True),
    "negative": ("Lt", "-1", "-2", True), "zero": ("Gt", "-1", "0", True),
    "leading zero": ("Gt", "05", "6", False), "leading zero in the taint": ("Gt", "5", "06", False),
    "plus": ("Gt", "+5", "6", False), "minus zero": ("Gt", "-0", "6", False), "empty": ("Gt", "", "6", False),
    "word": ("Lt", "five", "4", False), "beyond 64 bits": ("Lt", "9223372036854775808", "4", False),
    "largest": ("Lt", "9223372036854775807", "4", True), "newline": ("Gt", "5\n", "6", False),
    "non-ASCII digits": ("Gt", "5", "\u0666", False),
}  # fmt: skip


@pytest.mark.parametrize(("operator", "bound", "value", "covered"), NUMERIC.values(), ids=NUMERIC)
def test_compares_numbers_when_the_gate_is_on(operator, bound, value, covered):
    taint = Taint(key="k", value=value, effect="NoSchedule")
    assert tolerates(toleration("k", operator, bound), taint, numeric=True) is covered
    assert tolerates(toleration("k", operator, bound), taint) is False


def taint(key, effect="NoSchedule"):
    return Taint(key=key, value="", effect=effect)


FOUND = {
    "no taints": ([], [], None, None),
    "no tolerations": ([taint("a"), taint("b")], [], None, "a"),
    "the first untolerated": ([taint("a"), taint("b")], [toleration("a", "Exists")], None, "b"),
    "all tolerated": ([taint("a"), taint("b")], [toleration("b"), toleration("a")], None, None),
    "effects that are not considered": ([taint("a", "PreferNoSchedule")], [], {"NoSchedule", "NoExecute"}, None),
    "effects that are considered": (
        [taint("a", "PreferNoSchedule"), taint("b", "NoExecute")],
        [],
        {"NoSchedule", "NoExecute"},
        "b",
    ),
}


@pytest.mark.parametrize(("taints", "tolerations", "effects", "key"), FOUND.values(), ids=FOUND)
def test_finds_the_first_untolerated(taints, tolerations, effects, key):
    found = find_untolerated(taints, tolerations, effects)
    assert (found.key if found else None) == key
    assert find_untolerated(iter(taints), iter(tolerations), effects) == found


def test_finds_by_number_when_the_gate_is_on():
    taints = [Taint(key="k", value="6", effect="NoSchedule")]
    assert find_untolerated(taints, [toleration("k", "Gt", "5")]) == taints[0]
    assert find_untolerated(taints, [toleration("k", "Gt", "5")], numeric=True) is None


few = st.sampled_from(["", "a", "1"])
effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
tolerations = st.builds(
    Toleration,
    key=few,
    operator=st.sampled_from(["", "Equal", "Exists", "Lt"]),
    value=few,
    effect=st.one_of(st.just(""), effects),
)
taints = st.builds(Taint, key=few.filter(bool), value=few, effect=effects)


@given(st.lists(taints), st.lists(tolerations), tolerations)
def test_more_tolerations_never_leave_more_taints(taints, tolerations, more):
    before = find_untolerated(taints, tolerations)
    after = find_untolerated(taints, [*tolerations, more])
    assert after is None or taints.index(after) >= taints.index(before)


@given(taints, st.lists(tolerations, max_size=5), st.booleans())
def test_many_tolerations_are_looked_up_with_the_same_result(taint, tolerations, numeric):
    others = (Toleration(key="other", value=str(at), effect="NoExecute") for at in range(40))
    plain = any(tolerates(one, taint, numeric=numeric) for one in tolerations)
    assert tolerance((*tolerations, *others), numeric)(taint) is plain
