"""Which pods a term means: namespaces by name and by label, and what becomes of terms that cannot be parsed."""

from __future__ import annotations

import pytest

from moorage.testing.builders import a_pod

WEB = {"matchLabels": {"app": "web"}}
TEAM_A = {"matchLabels": {"team": "a"}}
BAD = {"matchExpressions": [{"key": "app", "operator": "Like"}]}

# the term, of a pod in "default"; the other pod's namespace; that namespace's labels; does the term select it?
CASES = {
    "own namespace when none is named": ({"labelSelector": WEB}, "default", {}, True),
    "not another when none is named": ({"labelSelector": WEB}, "other", {}, False),
    "a named namespace": ({"labelSelector": WEB, "namespaces": ["other"]}, "other", {}, True),
    "named means not its own": ({"labelSelector": WEB, "namespaces": ["other"]}, "default", {}, False),
    "by the namespace's labels": ({"labelSelector": WEB, "namespaceSelector": TEAM_A}, "other", {"team": "a"}, True),
    "by other labels": ({"labelSelector": WEB, "namespaceSelector": TEAM_A}, "other", {"team": "b"}, False),
    "a selector means not its own": ({"labelSelector": WEB, "namespaceSelector": TEAM_A}, "default", {}, False),
    "named or by labels": ({"labelSelector": WEB, "namespaces": ["x"], "namespaceSelector": TEAM_A}, "x", {}, True),
    "an empty selector: all namespaces": ({"labelSelector": WEB, "namespaceSelector": {}}, "unheard-of", {}, True),
    "no label selector: no pods": ({}, "default", {}, False),
    "an empty label selector: all pods": ({"labelSelector": {}}, "default", {}, True),
}


def pod_with(**kinds):
    required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    weighed = [{"weight": 5, "podAffinityTerm": term} for term in kinds.get("preferred", [])]
    return a_pod(
        affinity={
            "podAffinity": {required: kinds.get("required", []), preferred: weighed},
            "podAntiAffinity": {required: kinds.get("anti", [])},
        }
    )


@pytest.mark.parametrize(("term", "namespace", "labels", "selected"), CASES.values(), ids=CASES)
def test_terms_match_pods(term, namespace, labels, selected):
    (compiled,) = pod_with(required=[{**term, "topologyKey": "zone"}]).required_affinity
    assert compiled.matches(a_pod("other", {"app": "web"}, namespace=namespace), labels) is selected


def test_a_malformed_term_makes_its_kind_empty_with_a_reason():
    pod = pod_with(required=[{"labelSelector": WEB}, {"labelSelector": BAD}], anti=[{"labelSelector": WEB}])
    assert pod.required_affinity == ()
    assert len(pod.required_anti_affinity) == 1
    assert pod.affinity_fault == 'requiredAffinityTerms: "Like" is not a valid label selector operator'


def test_several_faults_are_reported_together():
    pod = pod_with(required=[{"labelSelector": BAD}], preferred=[{"labelSelector": WEB, "namespaceSelector": BAD}])
    wrong = '"Like" is not a valid label selector operator'
    assert pod.affinity_fault == f"[requiredAffinityTerms: {wrong}, preferredAffinityTerms: {wrong}]"
    assert pod.preferred_affinity == ()


def test_pods_without_terms_have_no_fault():
    assert a_pod().affinity_fault == ""
    assert pod_with().affinity_fault == ""
