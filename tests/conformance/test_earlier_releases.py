"""Decisions of kube-scheduler before 1.36, recorded: each release's answers, and what happens without one of its rules.

``tests/data/conformance/releases`` has a selection of scenarios for each release: one of each family, and two for each rule.
``make recordings`` compares all that lie in the folder beside the project.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest

from moorage import plugins
from moorage.api import feature_gates
from moorage.api.releases import CURRENT, EARLIER, RELEASES, WHOLE
from moorage.core.cycle.cycle import Cycle
from moorage.plugins.shared.releases import VARIANTS
from tests.conformance.test_recorded import BUNDLED, disagreements, shared_recordings
from tools.recordings.answers import answer
from tools.recordings.comparing import differing, documents
from tools.recordings.scenarios import load_scenario

FOLDER = BUNDLED / "releases"
NEWEST_FIRST = [CURRENT, *EARLIER]
RECORDED = sorted(path.name.removesuffix(".jsonl.gz").removeprefix("v") for path in FOLDER.glob("*.jsonl.gz"))
#: Rules without a mutant here, by the reason.
ELSEWHERE = {
    "test_release_rules has a cluster": {
        ("DynamicResources", "1.33"),
        ("DynamicResources", "1.34"),
        ("DynamicResources", "1.35"),
        ("DynamicResources", "1.35.4"),
        ("DynamicResources", "1.36.2"),
        ("EBSLimits", "1.29"),
        ("EBSLimits", "1.31"),
        ("ImageLocality", "1.28"),
        ("ImageLocality", "1.35"),
        ("NodeResourcesFit", "1.29"),
        ("NodeResourcesFit", "1.31"),
        ("NodeResourcesFit", "1.34"),
        ("NodeVolumeLimits", "1.31"),
        ("NodeVolumeLimits", "1.35"),
        ("VolumeBinding", "1.28"),
        ("VolumeBinding", "1.33"),
        ("VolumeRestrictions", "1.28"),
        ("VolumeZone", "1.28"),
    },
    "test_changes_of_releases has a change": {
        ("InterPodAffinity", "1.35"),
        ("NodePorts", "1.32"),
        ("NodeResourcesFit", "1.32"),
        ("NodeVolumeLimits", "1.32"),
        ("PodTopologySpread", "1.35"),
    },
    "the same rule as that of EBSLimits": {
        *((name, at) for name in ("AzureDiskLimits", "CinderLimits", "GCEPDLimits") for at in ("1.29", "1.31")),
    },
    "test_rules_alone has a recording": {
        ("NodeResourcesBalancedAllocation", "1.34"),
        ("NodeResourcesFit", "1.35"),
        ("NodeVolumeLimits", "1.29"),
    },
    "the same fault as in 1.35.4": {("DynamicResources", "1.36.0")},
    "test_default_preemption tests it": {("DefaultPreemption", "1.22")},
    "test_found has a configuration": {("GangScheduling", "1.35")},
}
#: Rules that the recordings here of a release do not exercise, though those of other releases do: test_rules_alone has another.
UNSEEN = {("1.33.3", "DefaultPreemption")}


def newer_rule(release, plugin):
    """Return the variant that replaced the release's rule of a plugin; "" for the newest rule."""
    newer = reversed(NEWEST_FIRST[: NEWEST_FIRST.index(release)])
    held = release.variants[plugin]
    return next(ended for one in newer if (ended := one.variants.get(plugin, "")) != held)


def mutated(release):
    """Return the rules of a release that its recordings must exercise."""
    elsewhere = set().union(*ELSEWHERE.values())
    return {rule for rule in release.variants.items() if rule not in elsewhere and (release.name, rule[0]) not in UNSEEN}


def without(release):
    """Yield what rule is replaced by the newer one, and the release with the newer rule."""
    for plugin, ended in release.variants.items():
        if (plugin, ended) in mutated(release):
            variants = {**release.variants, plugin: newer_rule(release, plugin)}
            held = {name: last for name, last in variants.items() if last}
            yield f"{plugin} up to {ended}", replace(release, variants=held)
    if not release.names_nodes_left_out and release.tells_of_post_filter:
        yield "nodes left out are not named", replace(release, names_nodes_left_out=True)
    if not release.tells_of_post_filter:
        yield "PostFilter is quoted", replace(release, tells_of_post_filter=True)
    if not release.quotes_pre_filter:
        yield "reasons of PreFilter are counted", replace(release, quotes_pre_filter=True)
    if not release.gates.get("PodLevelResources", CURRENT.gates["PodLevelResources"]).default:
        yield "pod-level resources", with_gate(release, "PodLevelResources")
    if "DynamicResources" in release.lacks:
        return
    if "score" in release.lacks_points.get("DynamicResources", "") and release.gates["DynamicResourceAllocation"].default:
        yield "DynamicResources does not score", replace(release, lacks_points={})
    elif not release.gates["DynamicResourceAllocation"].default:
        yield "DynamicResources is off", with_gate(release, "DynamicResourceAllocation")
    if not release.gates.get("DRADeviceTaints", CURRENT.gates["DRADeviceTaints"]).default and "devices" in families(release):
        yield "taints of devices", with_gate(release, "DRADeviceTaints")


def with_gate(release, gate):
    closed = {name: value for name, value in release.fixed_gates.items() if name != gate}
    return replace(release, gates={**release.gates, gate: CURRENT.gates[gate]._replace(needs=())}, fixed_gates=closed)


def families(release):
    return {document["family"] for document in recorded(release.name)}


def recorded(name):
    return documents(FOLDER / f"v{name}.jsonl.gz")


def is_ours(document):
    results = {result["pod"]: result for result in answer(document)["results"]}
    return not any(differing(wanted, results.get(wanted["pod"], {})) for wanted in document["expected"]["results"])


MUTANTS = [(name, rule) for name in RECORDED for rule, _ in without(RELEASES[name])]


def test_recordings_of_all_minor_releases_that_were_compared_are_held():
    compared = {release.series for release in EARLIER if not release.basis}
    # ``test_recorded`` has those of 1.36 and later.
    assert {RELEASES[name].series for name in RECORDED} == compared - {one.series for one in WHOLE}


def test_every_rule_has_a_mutant_or_a_reason():
    mutants = set().union(*(mutated(RELEASES[name]) for name in RECORDED))
    later = set(CURRENT.variants.items())  # test_rules_of_1_37 has those
    assert mutants.isdisjoint(set().union(*ELSEWHERE.values()))
    assert mutants.union(*ELSEWHERE.values()) == VARIANTS.keys() - later


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_decision_is_ours(name):
    assert list(disagreements(FOLDER / f"v{name}.jsonl.gz")) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rule"), MUTANTS, ids=lambda part: part.replace(" ", "-"))
def test_recordings_differ_under_the_newer_rule(name, rule):
    changed = dict(without(RELEASES[name]))[rule]
    with mock.patch.dict(RELEASES, {name: changed}), nothing_resolved():
        assert not all(is_ours(document) for document in recorded(name))


@contextmanager
def nothing_resolved():
    """Resolve plugins, gates and the default configuration again, which a process otherwise does once for each release."""
    resolved = (feature_gates._opened_by_default, plugins._built_in)
    for once in resolved:
        once.cache_clear()
    with mock.patch("moorage.basis.inputs.scheduler_config._DEFAULTS", {}):
        yield
    for once in resolved:
        once.cache_clear()


@pytest.mark.skipif("MOORAGE_RECORDINGS" not in os.environ, reason="compares all recordings; make recordings runs it")
@pytest.mark.parametrize("name", RECORDED)
def test_all_recordings_beside_the_project_agree(name):
    folder = shared_recordings()
    if folder is None:
        pytest.skip("no recordings beside the project (../shared/conformance)")
    paths = sorted((folder / f"v{name}").glob("*.jsonl.gz"))
    if not paths:
        pytest.skip(f"no recordings of {name} beside the project")
    assert [line for path in paths for line in disagreements(path)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_deciding_by_class_stays_among_the_recorded_best(name):
    """Each pod is decided twice, so that the second decision comes from what the first one cached."""
    for document in recorded(name):
        scenario, cycle = load_scenario(document), Cycle(nominated_first=False)
        best = {result["pod"]: result.get("best", [None]) for result in document["expected"]["results"]}
        for pod in scenario.pending:
            profile = scenario.profiles[pod.spec.scheduler_name]
            for _ in range(2):
                decision = cycle.decide(profile, pod, scenario.cluster.snapshot, scenario.nominated)
                assert decision.node in best[pod.key], (document["name"], pod.key)
