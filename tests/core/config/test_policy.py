"""Policy documents: what predicates and priorities come to, and why a Policy is refused."""

from __future__ import annotations

import json

import pytest

from moorage.basis.inputs.scheduler_config import ConfigSource
from moorage.core.config.scheduler_document import load_any
from moorage.errors import ConfigError

RULES = ConfigSource()


def load(emulate=None, rules=RULES, **body):
    return load_any(json.dumps({"apiVersion": "v1", "kind": "Policy", **body}).encode(), "test", rules, emulate)


def resolved(**body):
    return load(**body).profiles[0]


def priorities(*names, **arguments):
    return [{"name": name, "weight": at + 1} for at, name in enumerate(names)] + [
        {"name": name, "weight": 1, "argument": argument} for name, argument in arguments.items()
    ]


def predicates(*names, **arguments):
    return [{"name": name} for name in names] + [{"name": n, "argument": argument} for n, argument in arguments.items()]


PRESENCE = {"labelsPresence": {"labels": ["a", "b"], "presence": True}}
ABSENCE = {"labelsPresence": {"labels": ["c"], "presence": False}}
TOGETHER = {"serviceAffinity": {"labels": ["zone"]}}
APART = {"serviceAntiAffinity": {"label": "rack"}}
PREFERRED = {"labelPreference": {"label": "d", "presence": True}}
SHAPE = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
RATIO = {"requestedToCapacityRatioArguments": {"shape": SHAPE, "resources": [{"name": "cpu", "weight": 2}]}}


def test_an_empty_policy_runs_the_defaults():
    found = resolved()
    assert list(found.points["filter"]) == [
        "NodeUnschedulable", "NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity", "VolumeRestrictions",
        "TaintToleration", "EBSLimits", "GCEPDLimits", "NodeVolumeLimits", "AzureDiskLimits", "VolumeBinding", "VolumeZone",
        "PodTopologySpread", "InterPodAffinity",
    ]  # fmt: skip
    assert found.weights == {
        "NodeResourcesBalancedAllocation": 1,
        "PodTopologySpread": 2,
        "ImageLocality": 1,
        "InterPodAffinity": 1,
        "NodeResourcesLeastAllocated": 1,
        "NodeAffinity": 1,
        "NodePreferAvoidPods": 10000,
        "TaintToleration": 1,
    }
    assert found.args["PodTopologySpread"].defaulting_type == "System"


def test_empty_lists_keep_mandatory_plugins():
    found = resolved(predicates=[], priorities=[])
    assert found.points["filter"] == ("NodeUnschedulable", "TaintToleration")
    assert "score" not in found.points
    assert {point: found.points[point] for point in ("queueSort", "postFilter", "bind")} == {
        "queueSort": ("PrioritySort",),
        "postFilter": ("DefaultPreemption",),
        "bind": ("DefaultBinder",),
    }


def test_predicates_run_in_their_own_order():
    found = resolved(predicates=predicates("MatchInterPodAffinity", "HostName", "PodFitsPorts", "PodFitsResources"))
    assert found.points["filter"] == (
        "NodeUnschedulable", "NodeName", "NodePorts", "NodeResourcesFit", "TaintToleration", "InterPodAffinity",
    )  # fmt: skip
    assert found.points["preFilter"] == ("NodePorts", "NodeResourcesFit", "InterPodAffinity")


def test_general_predicates_expand_to_four():
    found = resolved(predicates=predicates("GeneralPredicates", "HostName"))
    assert found.points["filter"] == (
        "NodeUnschedulable", "NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity", "TaintToleration",
    )  # fmt: skip


def test_arguments_of_one_kind_configure_one_plugin():
    found = resolved(
        predicates=predicates(One=PRESENCE, Other=ABSENCE, Third=TOGETHER),
        priorities=priorities(Prefer=PREFERRED, Shun={"labelPreference": {"label": "e"}}, Racks=APART),
    )
    labels, services = found.args["NodeLabel"], found.args["ServiceAffinity"]
    assert (labels.present_labels, labels.absent_labels) == (("a", "b"), ("c",))
    assert (labels.present_labels_preference, labels.absent_labels_preference) == (("d",), ("e",))
    assert (services.affinity_labels, services.anti_affinity_labels_preference) == (("zone",), ("rack",))
    # Each preference counts with the weight that all of them share.
    assert found.weights == {"NodeLabel": 2, "ServiceAffinity": 1}
    assert found.points["filter"] == ("NodeUnschedulable", "TaintToleration", "NodeLabel", "ServiceAffinity")


def test_the_argument_of_a_known_name_is_ignored():
    found = resolved(predicates=predicates(CheckNodeLabelPresence=PRESENCE), priorities=[])
    assert found.args["NodeLabel"].present_labels == ()


def test_a_function_of_utilization():
    found = resolved(priorities=priorities(Packed=RATIO))
    args = found.args["RequestedToCapacityRatio"]
    assert [(point.utilization, point.score) for point in args.shape] == [(0, 0), (100, 10)]
    assert [(one.name, one.weight) for one in args.resources] == [("cpu", 2)]


def test_a_function_without_resources_counts_none():
    found = resolved(priorities=priorities(Packed={"requestedToCapacityRatioArguments": {"shape": SHAPE}}))
    assert found.args["RequestedToCapacityRatio"].resources == ()


SPREADING = {  # priorities → (weight, defaulting type)
    "both": (("SelectorSpreadPriority", "EvenPodsSpreadPriority"), (2, "System")),
    "one": (("SelectorSpreadPriority",), (1, "System")),
    "its old name": (("ServiceSpreadingPriority",), (1, "System")),
    "the other": (("EvenPodsSpreadPriority",), (1, "List")),
}


@pytest.mark.parametrize(("names", "expected"), SPREADING.values(), ids=SPREADING)
def test_spreading_maps_to_one_plugin(names, expected):
    found = resolved(priorities=priorities(*names))
    assert (found.weights["PodTopologySpread"], found.args["PodTopologySpread"].defaulting_type) == expected


def test_spreading_without_the_gate_has_its_own_plugin():
    found = load(
        rules=ConfigSource(feature_gates="DefaultPodTopologySpread=false"), priorities=priorities("SelectorSpreadPriority")
    ).profiles[0]
    assert found.weights == {"SelectorSpread": 1}
    assert found.points["preScore"] == ("SelectorSpread",)


def test_the_equal_priority_is_left_out():
    assert resolved(priorities=priorities("ImageLocalityPriority", "EqualPriority")).weights == {"ImageLocality": 1}


def test_the_affinity_weight_is_set_only_if_the_plugin_scores():
    scoring = {"hardPodAffinitySymmetricWeight": 40, "priorities": priorities("InterPodAffinityPriority")}
    assert resolved(**scoring).args["InterPodAffinity"].hard_pod_affinity_weight == 40
    filtering = {"hardPodAffinitySymmetricWeight": 40, "predicates": predicates("MatchInterPodAffinity"), "priorities": []}
    assert resolved(**filtering).args["InterPodAffinity"].hard_pod_affinity_weight == 1


def test_weights_are_cut_to_32_bits():
    assert resolved(priorities=[{"name": "ImageLocalityPriority", "weight": 2**32 + 5}]).weights == {"ImageLocality": 5}


def test_all_predicates_may_always_be_checked():
    assert not resolved().run_all_filters
    assert resolved(alwaysCheckAllPredicates=True).run_all_filters


def test_extenders_are_read_in_any_case():
    found = load(
        extenders=[
            {"URLPrefix": "http://x", "filterVerb": "f", "enableHttps": True, "HTTPTimeout": 1_500_000_000, "unknown": 1,
             "managedResources": [{"name": "example.com/foo", "ignoredByScheduler": True}]}
        ]
    )  # fmt: skip
    (extender,) = found.configuration.extenders
    assert (extender.url_prefix, extender.enable_https, extender.http_timeout) == ("http://x", True, 1.5)
    assert found.profiles[0].args["NodeResourcesFit"].ignored_resources == ("example.com/foo",)


@pytest.mark.parametrize("release", ["1.19", "1.20", "1.21"])
def test_the_release_may_be_chosen(release):
    found = load(emulate=release)
    assert (found.release, found.heading) == (release, f"rules of Kubernetes {release} (Policy v1, --emulate {release})")
    assert ("SelectorSpread" in found.profiles[0].weights) == (release == "1.19")


def test_the_current_kube_scheduler_has_no_policy():
    with pytest.raises(ConfigError, match='no kind "Policy" is registered for version "v1"'):
        load(emulate="1.36")


REFUSED = {  # body → field, words
    "unknown predicate": ({"predicates": predicates("Nope")}, "predicates[0].name", 'predicate type not found for "Nope"'),
    "unknown priority": ({"priorities": priorities("Nope")}, "priorities[0].name", 'priority type not found for "Nope"'),
    "weight 0": ({"priorities": [{"name": "ImageLocalityPriority", "weight": 0}]}, "priorities[0].weight",
                 "priority ImageLocalityPriority should have a positive weight applied to it or it has overflown"),
    "no weight": ({"priorities": [{"name": "ImageLocalityPriority"}]}, "priorities[0].weight", "should have a positive weight"),
    "negative weight": ({"priorities": [{"name": "ImageLocalityPriority", "weight": -1}]}, "priorities[0].weight",
                        "should have a positive weight"),
    "overflowing weight": ({"priorities": [{"name": "ImageLocalityPriority", "weight": (2**63 - 1) // 10}]},
                           "priorities[0].weight", "or it has overflown"),
    "weight beyond 64 bits": ({"priorities": [{"name": "ImageLocalityPriority", "weight": 2**63}]}, "priorities[0].weight",
                              "cannot unmarshal number 9223372036854775808"),
    "a weight that is negative once cut to 32 bits": (
        {"priorities": [*priorities("ImageLocalityPriority"), {"name": "TaintTolerationPriority", "weight": 3 * 10**9}]},
        "priorities[1].weight", "total score of Score plugins could overflow",
    ),
    "weights that are negative once added up": (
        {"priorities": [{"name": name, "weight": 1_500_000_000, "argument": PREFERRED} for name in ("One", "Two")]},
        "priorities[0].weight", "total score of Score plugins could overflow",
    ),
    "labels that conflict": (
        {"predicates": predicates(One={"labelsPresence": {"labels": ["c", "a"], "presence": True}}, Other=ABSENCE)},
        "predicates[0].argument.labelsPresence.labels[0]", "conflict with predicates[1].argument.labelsPresence.labels[0]",
    ),
    "preferences that conflict": (
        {"priorities": priorities(One=PREFERRED, Two={"labelPreference": {"label": "d"}})},
        "priorities[0].argument.labelPreference.label", "conflict with priorities[1].argument.labelPreference.label",
    ),
    "argument of the wrong type": ({"predicates": predicates(One={"labelsPresence": {"labels": "a"}})},
                                   "predicates[0].argument.labelsPresence.labels", "of type []string"),
    "no argument in it": ({"predicates": predicates(One={})}, "predicates[0].argument", "exactly 1 predicate argument"),
    "two arguments": ({"priorities": priorities(One={**PREFERRED, **APART})}, "priorities[0].argument",
                      "exactly 1 priority argument is required, numArgs: 2"),
    "priority without argument": ({"priorities": priorities(One={})}, "priorities[0].argument", "no priority arguments set"),
    "different weights": ({"priorities": [*priorities(One=PREFERRED), {"name": "Two", "weight": 9, "argument": PREFERRED}]},
                          "priorities[1].weight", 'LabelPreference priority "Two" has a different weight with "One"'),
    "two functions": ({"priorities": priorities(One=RATIO, Two=RATIO)}, "priorities[1]",
                      'priority "Two" redeclares custom priority "RequestedToCapacityRatio", from: "One"'),
    "a bad function": ({"priorities": priorities(One={"requestedToCapacityRatioArguments": {"shape": SHAPE[::-1]}})},
                       "priorities[0].argument.requestedToCapacityRatioArguments.shape[1].utilization", "increasing order"),
    "a name that needs an argument": ({"priorities": priorities("NodeLabel")}, "priorities[0].argument",
                                      "priority NodeLabel needs the argument labelPreference"),
    "affinity weight": (
        {"hardPodAffinitySymmetricWeight": 101}, "hardPodAffinitySymmetricWeight", "not in valid range [0-100]"
    ),
    "unknown field": ({"predicate": []}, "predicate", 'unknown field "predicate"'),
    "two binders": ({"extenders": [{"bindVerb": "a"}, {"bindVerb": "b"}]}, "extenders", "only one extender can implement bind"),
    "extender weight": ({"extenders": [{"prioritizeVerb": "a"}]}, "extenders[0].weight", "must have a positive weight"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_policy_is_rejected_with_the_path(body, field, words):
    with pytest.raises(ConfigError) as caught:
        load(**body)
    told = {fault.field: fault.body for fault in caught.value.faults}
    assert list(told) == [field], told
    assert words in told[field]


def test_all_faults_of_a_policy_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        load(predicates=predicates("Nope"), priorities=priorities("Nope"), hardPodAffinitySymmetricWeight=-1)
    assert [fault.field for fault in caught.value.faults] == [
        "predicates[0].name", "priorities[0].name", "hardPodAffinitySymmetricWeight",
    ]  # fmt: skip
