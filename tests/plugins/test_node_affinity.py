"""Test NodeAffinity: required and preferred node affinity, and the profile's added affinity."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.api.selectors import SelectorError
from moorage.errors import PluginError
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import SKIP, Code, Hold, Narrow, Status
from moorage.plugins.node_affinity import NodeAffinity, NodeAffinityArgs
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import final_scores, refusals, wakes

NO = Status(Code.UNRESOLVABLE, "NodeAffinity", ("node(s) didn't match Pod's node affinity/selector",))
ENFORCED = Status(Code.UNRESOLVABLE, "NodeAffinity", ("node(s) didn't match scheduler-enforced node affinity",))
CONFLICT = Status(Code.UNRESOLVABLE, "NodeAffinity", ("pod affinity terms conflict",))

NODES = [
    a_node("a", {"disk": "ssd", "zone": "1", "cores": "8"}),
    a_node("b", {"disk": "ssd", "zone": "2", "cores": "16"}),
    a_node("c", {"disk": "hdd", "zone": "1"}),
    a_node("d", {"zone": "3", "cores": "x"}),
]


def requirement(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


def term(*expressions, fields=()):
    return {"matchExpressions": list(expressions), "matchFields": list(fields)}


def named(*names):
    return term(fields=[requirement("metadata.name", "In", name) for name in names])


def wanting(*terms, labels=None, preferred=(), name="pod"):
    """Return a pod whose affinity has these required terms, or no required affinity if the only one is ``None``."""
    affinity = (
        {} if terms == (None,) else {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    )
    affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": w, "preference": t} for w, t in preferred]
    return a_pod(name, nodeSelector=labels or {}, affinity={"nodeAffinity": affinity})


SSD = term(requirement("disk", "In", "ssd"))
MALFORMED = term(requirement("disk", "In"))

REQUIRED = {  # pod → the nodes rejected
    "nothing asked": (a_pod(), ""),
    "a label": (a_pod(nodeSelector={"disk": "ssd"}), "cd"),
    "two labels": (a_pod(nodeSelector={"disk": "ssd", "zone": "1"}), "bcd"),
    "a term": (wanting(SSD), "cd"),
    "a term and a label": (wanting(SSD, labels={"zone": "2"}), "acd"),
    "either of two terms": (wanting(SSD, term(requirement("zone", "In", "3"))), "c"),
    "both of two expressions": (wanting(term(requirement("disk", "Exists"), requirement("zone", "NotIn", "1"))), "acd"),
    "greater": (wanting(term(requirement("cores", "Gt", "8"))), "acd"),
    "less": (wanting(term(requirement("cores", "Lt", "16"))), "bcd"),
    "no terms": (wanting(), "abcd"),
    "an empty term": (wanting(term()), "abcd"),
    "an empty term next to another": (wanting(term(), SSD), "cd"),
    "a malformed term": (wanting(MALFORMED), "abcd"),
    "a malformed term next to another": (wanting(MALFORMED, SSD), "cd"),
    "a name excluded": (wanting(term(fields=[requirement("metadata.name", "NotIn", "a")])), "a"),
    "a preference rejects no node": (wanting(None, preferred=[(1, SSD)]), ""),
}


@pytest.mark.parametrize(("pod", "refused"), REQUIRED.values(), ids=REQUIRED)
def test_rejects(pod, refused):
    assert refusals(NodeAffinity(), pod, a_cluster(NODES).snapshot) == dict.fromkeys(refused, NO)


NARROWED = {  # pod → the nodes that PreFilter leaves, None for all
    "a name": (wanting(named("a")), {"a"}),
    "the name of no node": (wanting(named("z")), {"z"}),
    "names of several terms": (wanting(named("a"), named("b")), {"a", "b"}),
    "one term contradicts itself": (wanting(named("a", "b"), named("b")), {"b"}),
    "one term without a name": (wanting(named("a"), SSD), None),
    "another name": (wanting(term(fields=[requirement("metadata.name", "NotIn", "a")])), None),
    "labels only": (wanting(SSD), None),
    "no terms": (wanting(), None),
    "a node selector": (a_pod(nodeSelector={"disk": "ssd"}), None),
}


@pytest.mark.parametrize(("pod", "left"), NARROWED.values(), ids=NARROWED)
def test_narrows(pod, left):
    answer = NodeAffinity().pre_filter(pod, a_cluster(NODES).snapshot)
    assert answer == (pod if left is None else Narrow(frozenset(left), pod))


def test_contradictory_terms_reject_the_pod():
    pod = wanting(named("a", "b"), named("c", "d"))
    assert isinstance(NodeAffinity().pre_filter(pod, a_cluster(NODES).snapshot), Hold)
    assert refusals(NodeAffinity(), pod, a_cluster(NODES).snapshot) == dict.fromkeys("abcd", CONFLICT)


def test_skips_pods_without_node_affinity():
    snapshot = a_cluster(NODES).snapshot
    assert NodeAffinity().pre_filter(wanting(None, preferred=[(1, SSD)]), snapshot) is SKIP
    assert added(required=SSD).pre_filter(a_pod(), snapshot) is not SKIP


PREFERRED = {  # preferences → scores, None where the plugin is skipped
    "none": ([], None),
    "one": ([(5, SSD)], [100, 100, 0, 0]),
    "summed": ([(2, SSD), (6, term(requirement("zone", "In", "1")))], [100, 25, 75, 0]),
    "rounded down": ([(1, SSD), (2, term(requirement("zone", "In", "1")))], [100, 33, 66, 0]),
    "no term matches": ([(9, term(requirement("rack", "Exists")))], [0, 0, 0, 0]),
    "an empty term": ([(9, term())], [0, 0, 0, 0]),
    "no weight": ([(0, SSD)], [0, 0, 0, 0]),
    "a weight of zero is not parsed": ([(0, MALFORMED), (1, SSD)], [100, 100, 0, 0]),
    "by name": ([(1, named("d"))], [0, 0, 0, 100]),
}


@pytest.mark.parametrize(("preferred", "scores"), PREFERRED.values(), ids=PREFERRED)
def test_scores(preferred, scores):
    found = final_scores(NodeAffinity(), wanting(None, preferred=preferred), a_cluster(NODES).snapshot)
    assert (found and list(found.values())) == scores


def test_scores_the_same_without_pre_score():
    pod = wanting(SSD, preferred=[(3, SSD), (1, named("a"))])
    assert NodeAffinity().score(pod, a_cluster(NODES).snapshot.nodes).tolist() == [4, 3, 0, 0]


def test_a_malformed_preference_is_an_error_with_its_path():
    pod = wanting(
        None, preferred=[(1, SSD), (1, MALFORMED), (1, term(requirement("cores", "Gt", "x"), requirement("a b", "Exists")))]
    )
    with pytest.raises(PluginError) as failed:
        final_scores(NodeAffinity(), pod, a_cluster(NODES).snapshot)
    assert str(failed.value).removeprefix('running PreScore plugin "NodeAffinity": ') == (
        "[[1].matchExpressions[0].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty, "
        "[2].matchExpressions[0].values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer, "
        '[2].matchExpressions[1].key: Invalid value: "a b": name part must consist of alphanumeric characters, '
        "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
        "'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')]"
    )


# -- added affinity -----------------------------------------------------------------------------------------------------


def args(required=None, preferred=()):
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": w, "preference": t} for w, t in preferred]}
    if required is not None:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [required]}
    return msgspec.convert({"addedAffinity": affinity}, NodeAffinityArgs)


def added(required=None, preferred=()):
    return NodeAffinity(args(required, preferred))


def test_added_affinity_is_checked_first():
    plugin = added(required=term(requirement("zone", "In", "1")))
    snapshot = a_cluster(NODES).snapshot
    assert refusals(plugin, a_pod(), snapshot) == {"b": ENFORCED, "d": ENFORCED}
    assert refusals(plugin, wanting(SSD), snapshot) == {"b": ENFORCED, "c": NO, "d": ENFORCED}


def test_added_preferences_add_to_the_pods_own():
    plugin = added(preferred=[(10, SSD)])
    assert list(final_scores(plugin, a_pod(), a_cluster(NODES).snapshot).values()) == [100, 100, 0, 0]
    pod = wanting(None, preferred=[(10, named("c")), (10, named("b"))])
    assert list(final_scores(plugin, pod, a_cluster(NODES).snapshot).values()) == [50, 100, 50, 0]


def test_faults_of_added_affinity_carry_their_paths():
    wrong = args(required=MALFORMED, preferred=[(1, SSD), (1, term(requirement("zone", "Near", "1")))])
    found = wrong.faults("profiles[0].pluginConfig[0].args", FeatureGates())
    at = "profiles[0].pluginConfig[0].args.addedAffinity"
    assert [fault.field for fault in found] == [
        f"{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values",
        f"{at}.preferredDuringSchedulingIgnoredDuringExecution[1].matchExpressions[0].operator",
    ]
    with pytest.raises(SelectorError, match=r"^\[addedAffinity\.required.*Invalid value: null.*Unsupported value: \"Near\""):
        NodeAffinity(wrong)
    assert args(required=SSD, preferred=[(1, SSD)]).faults("args", FeatureGates()) == []
    assert NodeAffinityArgs().faults("args", FeatureGates()) == []


# -- hints --------------------------------------------------------------------------------------------------------------

SSD_NODE, HDD_NODE = a_node("n", {"disk": "ssd"}), a_node("n", {"disk": "hdd"})
CHANGES = {  # plugin, pod, node before, node after → wakes?
    "a matching node is added": (NodeAffinity(), wanting(SSD), None, SSD_NODE, True),
    "another node is added": (NodeAffinity(), wanting(SSD), None, HDD_NODE, False),
    "a node starts to match": (NodeAffinity(), wanting(SSD), HDD_NODE, SSD_NODE, True),
    "it matched before": (NodeAffinity(), wanting(SSD), SSD_NODE, SSD_NODE, False),
    "a node selector": (NodeAffinity(), a_pod(nodeSelector={"disk": "ssd"}), HDD_NODE, SSD_NODE, True),
    "the old node is unknown": (NodeAffinity(), wanting(MALFORMED), HDD_NODE, HDD_NODE, True),
    "enforced affinity does not match": (
        added(required=term(requirement("zone", "In", "1"))),
        wanting(SSD),
        None,
        SSD_NODE,
        False,
    ),
    "enforced affinity matches": (added(required=SSD), a_pod(), None, SSD_NODE, True),
    # upstream's hint reads only the pod's own affinity and misses this event; ours must not
    "only enforced affinity changed": (added(required=SSD), a_pod(), HDD_NODE, SSD_NODE, True),
    "nothing changed under enforced affinity": (added(required=SSD), a_pod(), SSD_NODE, SSD_NODE, False),
}


@pytest.mark.parametrize(("plugin", "pod", "old", "new", "woken"), CHANGES.values(), ids=CHANGES)
def test_hints(plugin, pod, old, new, woken):
    action = Action.ADD if old is None else Action.UPDATE_NODE_LABEL
    assert wakes(plugin, pod, Resource.NODE, action, old, new) is woken


keys, values = st.sampled_from(["k0", "k1"]), st.sampled_from(["1", "2", "3"])
label_sets = st.dictionaries(keys, values)
expressions = st.one_of(
    st.builds(
        lambda k, o, v: requirement(k, o, *v), keys, st.sampled_from(["In", "NotIn"]), st.sets(values, min_size=1).map(sorted)
    ),
    st.builds(requirement, keys, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(requirement, keys, st.sampled_from(["Gt", "Lt"]), values),
)
terms = st.lists(expressions, min_size=1, max_size=2).map(lambda e: term(*e))
required_terms = st.lists(terms, min_size=1, max_size=2)
weighted_terms = st.lists(st.tuples(st.integers(1, 100), terms), min_size=1, max_size=3)


def holds(expression, labels):
    value, wanted = labels.get(expression["key"]), expression["values"]
    match expression["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value > wanted[0]
        case _:
            return value is not None and value < wanted[0]


def matches(one, labels):
    return all(holds(expression, labels) for expression in one["matchExpressions"])


@pytest.mark.slow
@settings(max_examples=40)
@given(required_terms, label_sets, weighted_terms, st.lists(label_sets, min_size=1, max_size=5), st.data())
def test_agrees_with_a_reference_implementation(required, selector, preferred, label_lists, data):
    labels_of = {f"n{i}": labels for i, labels in enumerate(label_lists)}
    nodes = a_cluster(a_node(name, labels) for name, labels in labels_of.items()).snapshot.nodes
    part = {name: labels for name, labels in labels_of.items() if data.draw(st.booleans())} or labels_of
    view = nodes.only(nodes.named(part))
    pod = wanting(*required, labels=selector, preferred=preferred)
    refused = {
        name
        for name, labels in part.items()
        if not (selector.items() <= labels.items() and any(matches(one, labels) for one in required))
    }
    assert refusals(NodeAffinity(), pod, view) == dict.fromkeys(refused, NO)
    sums = {name: sum(w for w, one in preferred if matches(one, labels)) for name, labels in part.items()}
    most = max(sums.values())
    assert final_scores(NodeAffinity(), pod, view) == {name: 100 * s // most if most else 0 for name, s in sums.items()}


@pytest.mark.slow
@settings(max_examples=40)
@given(required_terms, label_sets, label_sets, label_sets, st.none() | terms)
def test_every_change_that_makes_a_node_match_wakes(required, selector, before, after, enforced):
    pod, plugin = wanting(*required, labels=selector), added(required=enforced) if enforced else NodeAffinity()
    old, new = a_node("n", before), a_node("n", after)
    matches_now = not refusals(plugin, pod, a_cluster([new]).snapshot)
    matched = not refusals(plugin, pod, a_cluster([old]).snapshot)
    assert wakes(plugin, pod, Resource.NODE, Action.UPDATE_NODE_LABEL, old, new) == (matches_now and not matched)
    assert wakes(plugin, pod, Resource.NODE, Action.ADD, None, new) == matches_now
