"""Configurations of 1.22 to 1.35: the default profile of each release, and what each refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from unittest import mock

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import RELEASES, find_release
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.config.api_versions import v1_of
from moorage.core.config.configuration_loader import default_configuration, load
from moorage.core.config.convert import convert
from moorage.core.config.profiles import resolve
from moorage.core.config.show import as_document, as_table, listed
from moorage.errors import ConfigError, InputError
from moorage.plugins import builtin_registry
from moorage.plugins.earlier.resource_scores import NodeResourcesLeastAllocatedV122

FILTERS = (
    "NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions {}VolumeBinding VolumeZone PodTopologySpread InterPodAffinity"
)
DISKS = "EBSLimits GCEPDLimits NodeVolumeLimits AzureDiskLimits "
SCORES = {
    "TaintToleration": 3, "NodeAffinity": 2, "NodeResourcesFit": 1, "VolumeBinding": 1, "PodTopologySpread": 2,
    "InterPodAffinity": 2, "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1,
}  # fmt: skip
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def of(version):
    gates = FeatureGates(release=find_release(version).name)
    return gates, builtin_registry(gates.release), v1_of(gates.emulated)


def default_profile(version):
    gates, registry, rules = of(version)
    (profile,) = resolve(default_configuration(), registry, gates, rules)
    return profile


@pytest.mark.parametrize(
    ("version", "pre_enqueue", "limits", "devices"),
    [
        ("1.28", "SchedulingGates", DISKS, False),
        ("1.29", "SchedulingGates", DISKS, False),
        ("1.30", "SchedulingGates", DISKS, False),
        ("1.31", "SchedulingGates", "NodeVolumeLimits ", False),
        ("1.32", "SchedulingGates DefaultPreemption", "NodeVolumeLimits ", False),
        ("1.33", "SchedulingGates DefaultPreemption", "NodeVolumeLimits ", False),
        ("1.34", "SchedulingGates DynamicResources DefaultPreemption", "NodeVolumeLimits ", True),
        ("1.35", "SchedulingGates DynamicResources DefaultPreemption", "NodeVolumeLimits ", True),
    ],
)
def test_the_default_profile_is_the_release_s(version, pre_enqueue, limits, devices):
    profile = default_profile(version)
    last = " DynamicResources" if devices else ""
    filters = FILTERS.format(limits) + last
    assert " ".join(profile.points["preEnqueue"]) == pre_enqueue
    assert " ".join(profile.points["preFilter"]) == filters
    assert " ".join(profile.points["filter"]) == f"NodeUnschedulable NodeName TaintToleration {filters}"
    assert " ".join(profile.points["postFilter"]) == f"{last} DefaultPreemption".strip()
    assert profile.weights == SCORES | ({"DynamicResources": 2} if version == "1.35" else {})


STRATEGY = (
    HEAD
    + """
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: LeastAllocated, requestedToCapacityRatio: {shape: %s}}}
"""
)
GOOD, BAD = "[{utilization: 0, score: 1}]", "[{utilization: 0, score: 11}]"
AT = "profiles[0].pluginConfig[0].args"
RATIO = f"{AT}.scoringStrategy"
ENABLED = HEAD + "profiles: [{plugins: {multiPoint: {enabled: [{name: %s}]}}}]"
FILTER = HEAD + "profiles: [{plugins: {filter: {enabled: [{name: %s}]}}}]"
SCORE = FILTER.replace("filter", "score")
UNSORTED = "[{utilization: 9, score: 1}, {utilization: 1, score: 1}]"
ARGS = HEAD + "profiles: [{pluginConfig: [{name: DynamicResources, args: {%s}}]}]"
TWO_SORTS = HEAD + "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {disabled: [{name: '*'}]}}}]"
PLACEMENTS = HEAD + "profiles: [{plugins: {placementScore: {disabled: [{name: '*'}]}}}]"
#: A document → the newest release with the older answer, and its faulty fields; likewise of the next release.
REFUSED = {
    "a shape that the type does not use": (STRATEGY % GOOD, ("1.35", []), ("1.36", [f"{RATIO}.requestedToCapacityRatio"])),
    "a wrong shape": (STRATEGY % BAD, ("1.35", [f"{RATIO}.shape[0].score"]), ("1.36", None)),
    "a plugin that came later": (ENABLED % "PodGroupPodsCount", ("1.35", None), ("1.36", [])),
    "NodeDeclaredFeatures": (ENABLED % "GangScheduling", ("1.34", None), ("1.35", [])),
    "points of placements": (PLACEMENTS, ("1.35", None), ("1.36", [])),
    "bindingTimeout": (ARGS % "bindingTimeout: 1m", ("1.34", None), ("1.36", [])),
    "bindingTimeout with its gate off": (ARGS % "bindingTimeout: 1m", ("1.35", [f"{AT}.bindingTimeout"]), ("1.36", [])),
    "filterTimeout": (ARGS % "filterTimeout: -1s", ("1.33", []), ("1.34", [f"{AT}.filterTimeout"])),
    "disk limits": (ENABLED % "CinderLimits", ("1.31", []), ("1.32", ["profiles[0].plugins.multiPoint.enabled[0]"])),
    "SelectorSpread": (ENABLED % "SelectorSpread", ("1.28", []), ("1.29", None)),
    "SelectorSpread as score": (SCORE % "SelectorSpread", ("1.28", ["profiles[0].plugins.score.enabled[0]"]), ("1.29", None)),
    "disk limits as filters": (FILTER % "EBSLimits", ("1.30", []), ("1.31", ["profiles[0].plugins.filter.enabled[0]"])),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_rejection_starts_or_ends_with_a_release(what):
    text, *answers = REFUSED[what]
    for version, expected in answers:
        gates, registry, _ = of(version)
        try:
            load(text.encode(), "config.yaml", registry, gates)
            fields = []
        except ConfigError as error:
            fields = sorted({fault.field for fault in error.faults})
        assert fields == expected or (expected is None and fields), (version, fields)


def test_the_text_for_unlike_queue_sorts_is_the_release_s():
    for version, text in (
        ("1.29", "has to match for all profiles"),
        ("1.33", "queueSort must be the same for all profiles"),
        ("1.34", ": must be the same for all profiles"),
    ):
        gates, registry, _ = of(version)
        with pytest.raises(ConfigError, match=text):
            load(TWO_SORTS.encode(), "config.yaml", registry, gates)


@pytest.mark.parametrize(("version", "words"), [("1.33", "utilization values must be"), ("1.34", "values must be")])
def test_the_text_for_an_unsorted_shape_is_the_release_s(version, words):
    gates, registry, _ = of(version)
    with pytest.raises(ConfigError) as refused:
        load((STRATEGY % UNSORTED).encode(), "config.yaml", registry, gates)
    assert [fault.detail for fault in refused.value.faults] == [f"{words} sorted in increasing order"]


def converted(version, text):
    rules = ConfigSource(text.encode(), "config.yaml", emulate=version)
    return convert(load_source(rules), builtin_registry())


def test_an_upgrade_reports_the_changed_rules():
    found = converted("1.34.1", HEAD)
    told = [note.partition(": ")[2] for note in found.notes]
    assert told == [
        "NodeDeclaredFeatures is a default plugin of 1.37, which 1.34 does not have, and is added",
        "DynamicResources scores in the default profile of 1.37, with weight 2, and not in this profile",
        "DefaultPreemption evicts pods that have not started in the reverse of the order in which they came",
        "ImageLocality counts image volumes",
        "ImageLocality divides by the number of image volumes too",
        "NodeResourcesBalancedAllocation scores by how much the pod changes the balance, so 75 where it changes nothing",
        "NodeVolumeLimits counts Portworx volumes for their CSI driver on every node with a CSINode",
        "TaintToleration does not name the taint in its reason",
        "DynamicResources takes different devices for one request",
        "DynamicResources releases the counters of devices that it refuses",
        "DynamicResources names the device whose selector fails, and gives no reason if it can free no claim",
    ]


@pytest.mark.parametrize("version", ["1.25", "1.26", "1.27", "1.28", "1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35"])
def test_an_upgraded_document_is_valid_in_1_36(version):
    found = converted(version, STRATEGY % GOOD)
    gates, registry, rules = of("1.36")
    loaded = load(json.dumps(found.document).encode(), "config.json", registry, gates)
    (profile,) = resolve(loaded, registry, gates, rules)
    assert any("requestedToCapacityRatio has no effect with type LeastAllocated" in note for note in found.notes)
    assert "DefaultPreemption" in profile.points["preEnqueue"], "it holds back pods whose victims are being evicted"


@pytest.mark.parametrize(("version", "reads"), [("1.28", True), ("1.29", False)])
def test_v1beta3_ends_with_1_28(version, reads):
    points = "{multiPoint: {enabled: [{name: SelectorSpread}]}, preEnqueue: {disabled: [{name: Mine}]}}"
    text = HEAD.replace("/v1", "/v1beta3") + f"profiles: [{{plugins: {points}}}]"
    source = ConfigSource(text.encode(), "config.yaml", emulate=find_release(version).name)
    if not reads:
        with pytest.raises(ConfigError, match="v1beta3"):
            load_source(source)
        return
    (profile,) = load_source(source).profiles
    assert "SelectorSpread" in profile.points["score"]
    assert profile.points["preEnqueue"] == ("SchedulingGates",)


@pytest.mark.parametrize(
    ("version", "reads"),
    [
        ("1.22", True),
        ("1.23", True),
        ("1.24", True),
        ("1.25", True),
        ("1.26", True),
        ("1.27", True),
        ("1.28", False),
    ],
)
def test_v1beta2_ends_with_1_27(version, reads):
    source = ConfigSource(HEAD.replace("/v1", "/v1beta2").encode(), "config.yaml", emulate=find_release(version).name)
    if not reads:
        with pytest.raises(ConfigError, match="v1beta2"):
            load_source(source)
        return
    (profile,) = load_source(source).profiles
    assert profile.weights["NodeAffinity"] == 1
    assert profile.points.get("preEnqueue", ()) == (("SchedulingGates",) if version == "1.27" else ())


@pytest.mark.parametrize("basis", ["", ", by its source, not compared"])
def test_a_release_that_was_not_compared_says_so(basis):
    older = replace(RELEASES["1.27.16"], basis=basis)
    with mock.patch.dict(RELEASES, {older.name: older}):
        loaded = load_source(ConfigSource(HEAD.encode(), "config.yaml", emulate=older.name))
    assert loaded.heading.startswith(f"rules of Kubernetes 1.27.16{basis} (")


@pytest.mark.parametrize(("version", "lacks"), [("1.27", ""), ("1.26", " VolumeZone"), ("1.25", " VolumeZone")])
def test_volume_limits_have_no_pre_filter_up_to_1_27(version, lacks):
    loaded = load_source(ConfigSource(HEAD.encode(), "c.yaml", emulate=version))
    (profile,) = as_document(loaded.configuration, loaded.profiles, loaded.version)["profiles"]
    pre_filters, filters = ([one["name"] for one in profile["plugins"][point]["enabled"]] for point in ("preFilter", "filter"))
    assert pre_filters == FILTERS.format("").replace(lacks, "").split()
    assert loaded.profiles[0].points.get("preEnqueue", ()) == (() if lacks else ("SchedulingGates",))
    assert filters == ["NodeUnschedulable", "NodeName", "TaintToleration", *FILTERS.format(DISKS).split()]
    assert as_table(loaded.profiles, version=loaded.version).count("Limits") == len(DISKS.split())


@pytest.mark.parametrize(("version", "known"), [("1.26", False), ("1.27", True)])
def test_ignored_terms_of_placed_pods_begin_with_1_27(version, known):
    args = "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {ignorePreferredTermsOfExistingPods: true}}]}]"
    source = ConfigSource((HEAD + args).encode(), "c.yaml", emulate=version)
    if known:
        assert load_source(source).release == "1.27.16"
    else:
        with pytest.raises(ConfigError, match="ignorePreferredTermsOfExistingPods"):
            load_source(source)


@pytest.mark.parametrize(("version", "known"), [("1.26", True), ("1.27", False)])
def test_other_locks_than_leases_end_with_1_26(version, known):
    source = ConfigSource((HEAD + "leaderElection: {resourceLock: endpointsleases}").encode(), "c.yaml", emulate=version)
    if known:
        assert load_source(source).configuration.leader_election.resource_lock == "endpointsleases"
    else:
        with pytest.raises(ConfigError, match='resourceLock value must be "leases"'):
            load_source(source)


@pytest.mark.parametrize(
    ("field", "since"),
    [
        ("delayCacheUntilActive: true", "1.28"),
        ("profiles: [{percentageOfNodesToScore: 50}]", "1.26"),
        ("profiles: [{plugins: {preEnqueue: {disabled: [{name: Mine}]}}}]", "1.26"),
        ("profiles: [{plugins: {multiPoint: {enabled: [{name: SchedulingGates}]}}}]", "1.26"),
    ],
)
def test_later_fields_are_refused(field, since):
    for version in ("1.25", "1.26", "1.27", "1.28"):
        source = ConfigSource((HEAD + field).encode(), "c.yaml", emulate=version)
        if version >= since:
            load_source(source)
        else:
            with pytest.raises(ConfigError):
                load_source(source)


def test_1_24_reads_v1beta3_and_names_other_paths_of_a_strategy():
    with pytest.raises(ConfigError, match="v1"):
        load_source(ConfigSource(HEAD.encode(), "c.yaml", emulate="1.24"))
    beta = (STRATEGY % BAD).replace("/v1", "/v1beta3")
    for version, path in (("1.24", f"{AT}.shape"), ("1.25", f"{AT}.scoringStrategy.shape")):
        with pytest.raises(ConfigError) as error:
            load_source(ConfigSource(beta.encode(), "c.yaml", emulate=version))
        assert f"{path}[0].score" in str(error.value)
    (profile,) = load_source(ConfigSource(emulate="1.24")).profiles
    assert profile.weights == SCORES


@pytest.mark.parametrize("version", ["v1beta2", "v1beta3"])
def test_without_its_gate_1_23_spreads_pods_by_selector_spread(version):
    source = ConfigSource(HEAD.replace("/v1", f"/{version}").encode(), "c.yaml", emulate="1.23.5")
    for gates, there in (("", False), ("DefaultPodTopologySpread=false", True)):
        (profile,) = load_source(replace(source, feature_gates=gates)).profiles
        assert ("SelectorSpread" in profile.points["score"]) is there
        assert ("SelectorSpread" in profile.points["preScore"]) is there
        assert (profile.weights.get("SelectorSpread") == 1) is there


@pytest.mark.parametrize("release", ["1.22.6", "1.23.5", "1.24.17", "1.25.16", "1.26.15", "1.27.16"])
def test_volume_binding_joins_the_scores_of_v1beta2_with_its_gate(release):
    for version in sorted(RELEASES[release].documents & {"v1beta2", "v1beta3"}):
        source = ConfigSource(HEAD.replace("/v1", f"/{version}").encode(), "c.yaml", emulate=release)
        (closed,) = load_source(source).profiles
        (opened,) = load_source(replace(source, feature_gates="VolumeCapacityPriority=true")).profiles
        assert ("VolumeBinding" in closed.points["score"]) is (version == "v1beta3")
        assert opened.points["score"] == (*closed.points["score"], *(["VolumeBinding"] if version == "v1beta2" else []))
        assert opened.weights["VolumeBinding"] == 1


@pytest.mark.parametrize("release", ["1.26", "1.27"])
@pytest.mark.parametrize("version", ["v1beta2", "v1beta3"])
def test_pre_enqueue_of_a_beta_has_no_effect(version, release):
    own = "profiles: [{plugins: {preEnqueue: {enabled: [{name: Missing}], disabled: [{name: SchedulingGates}]}}}]\n"
    head, name = HEAD.replace("/v1", f"/{version}"), find_release(release).name
    found, defaults = (load_source(ConfigSource(text.encode(), "c.yaml", emulate=name)) for text in (head + own, head))
    assert found.profiles == defaults.profiles
    with pytest.raises(ConfigError, match="preEnqueue"):
        load_source(ConfigSource((head + own).encode(), "c.yaml", emulate="1.25.16"))


@pytest.mark.parametrize(("release", "newest"), [("1.22.6", "v1beta2"), ("1.24.17", "v1beta3"), ("1.25.16", "v1")])
def test_a_version_that_a_release_does_not_read_is_refused_with_its_newest(release, newest):
    source = ConfigSource(HEAD.replace("/v1", "/v1beta9").encode(), "c.yaml", emulate=release)
    with pytest.raises(ConfigError, match=f"write apiVersion: kubescheduler.config.k8s.io/{newest} and kind"):
        load_source(source)


def test_v1beta2_validates_queue_sort_with_its_default():
    head, own = HEAD.replace("/v1", "/v1beta2"), "profiles: [{plugins: {queueSort: {enabled: [{name: DefaultBinder}]}}}]\n"
    with pytest.raises(ConfigError, match="only one queue sort plugin can be enabled"):
        load_source(ConfigSource((head + own).encode(), "c.yaml", emulate="1.26.15"))


def test_v1beta2_has_the_new_points_of_1_27():
    source = ConfigSource(HEAD.replace("/v1", "/v1beta2").encode(), "c.yaml")
    before, after = (load_source(replace(source, emulate=release)) for release in ("1.26.15", "1.27.16"))
    points = [
        {point: listed(one.profiles[0], point, one.version) for point in ("preFilter", "preScore")} for one in (before, after)
    ]
    assert points[1]["preFilter"] == [*points[0]["preFilter"][:-1], "VolumeZone", "NodeAffinity"]
    assert points[1]["preScore"] == [*points[0]["preScore"], "NodeResourcesFit", "NodeResourcesBalancedAllocation"]


def test_up_to_1_23_plugins_of_a_point_run_before_those_of_multi_point():
    own = "profiles: [{plugins: {filter: {enabled: [{name: CinderLimits}, {name: NodeAffinity}]}}}]\n"
    text = HEAD.replace("/v1", "/v1beta3") + own
    for version, first in (("1.23", ("CinderLimits", "NodeAffinity")), ("1.24", ("NodeAffinity", "NodeUnschedulable"))):
        (profile,) = load_source(ConfigSource(text.encode(), "c.yaml", emulate=version)).profiles
        assert profile.points["filter"][:2] == first
        assert (profile.points["filter"][-1] == "CinderLimits") is (version == "1.24")


def test_1_22_reads_v1beta2_without_multi_point_and_runs_its_defaults():
    head = HEAD.replace("/v1", "/v1beta2")
    weights = {**dict.fromkeys(SCORES.keys() - {"VolumeBinding"}, 1), "PodTopologySpread": 2}
    for source in (ConfigSource(emulate="1.22"), ConfigSource(head.encode(), "c.yaml", emulate="1.22")):
        (profile,) = load_source(source).profiles
        assert profile.weights == weights
        assert profile.points["filter"][:2] == ("NodeUnschedulable", "NodeName")
    text = head + "profiles: [{plugins: {multiPoint: {enabled: [{name: NodeName}]}}}]\n"
    with pytest.raises(ConfigError, match="multiPoint"):
        load_source(ConfigSource(text.encode(), "c.yaml", emulate="1.22"))
    with pytest.raises(ConfigError, match="no kind"):
        load_source(ConfigSource(head.replace("beta2", "beta3").encode(), "c.yaml", emulate="1.22"))


OLD = HEAD.replace("/v1", "/v1beta1")
SAME_SCORE = "profiles: [{plugins: {score: {enabled: [{name: NodeResourcesFit}]%s}}}]\n"


def test_1_22_reads_v1beta1_with_its_own_rules():
    (profile,) = load_source(ConfigSource(OLD.encode(), "c.yaml", emulate="1.22.6")).profiles
    assert "VolumeRestrictions" in profile.points["preFilter"]
    assert (profile.weights["NodePreferAvoidPods"], profile.weights["NodeResourcesLeastAllocated"]) == (10000, 1)
    assert type(builtin_registry("1.22.6").build("NodeResourcesLeastAllocated", None)) is NodeResourcesLeastAllocatedV122


@pytest.mark.parametrize(
    ("release", "path"), [("1.21", "absentLabels[0]"), ("1.22.6", "profiles[0].pluginConfig[0].args.absentLabels[0]")]
)
def test_labels_that_conflict_are_named_with_the_path_of_the_release(release, path):
    args = "args: {presentLabels: [a, b], absentLabels: [b]}"
    labels = (
        f"profiles: [{{plugins: {{filter: {{enabled: [{{name: NodeLabel}}]}}}}, pluginConfig: [{{name: NodeLabel, {args}}}]}}]"
    )
    with pytest.raises(ConfigError) as error:
        load_source(ConfigSource((OLD + labels).encode(), "c.yaml", emulate=release))
    (fault,) = error.value.faults
    assert (fault.field, fault.detail) == ("profiles[0].pluginConfig[0].args.presentLabels[1]", f"conflict with {path}")


def test_in_v1beta1_of_1_22_node_resources_fit_does_not_score_beside_what_it_replaces():
    with pytest.raises(ConfigError) as error:
        load_source(ConfigSource((OLD + SAME_SCORE % "").encode(), "c.yaml", emulate="1.22.6"))
    (fault,) = error.value.faults
    assert fault.field == "profiles[0].plugins.score.enabled[8]"
    assert fault.detail.startswith('was conflict with ["NodeResourcesLeastAllocated"] in version')
    alone = SAME_SCORE % ", disabled: [{name: NodeResourcesLeastAllocated}]"
    (profile,) = load_source(ConfigSource((OLD + alone).encode(), "c.yaml", emulate="1.22.6")).profiles
    assert profile.weights["NodeResourcesFit"] == 1


def test_default_constraints_of_v1beta1_need_no_type():
    constraint = "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}"
    text = f"profiles: [{{pluginConfig: [{{name: PodTopologySpread, args: {{defaultConstraints: [{constraint}]}}}}]}}]\n"
    (profile,) = load_source(ConfigSource((OLD + text).encode(), "c.yaml", emulate="1.22.6")).profiles
    assert profile.args["PodTopologySpread"].defaulting_type == "List"
    with pytest.raises(ConfigError, match="defaultingType"):
        load_source(ConfigSource((HEAD.replace("/v1", "/v1beta2") + text).encode(), "c.yaml", emulate="1.22.6"))


ADDRESSES = {  # in v1beta2 of 1.22
    "x:y": ["must be between 1 and 65535, inclusive", "must be a valid IP address"],
    "1.2.3.4:99999": ["must be between 1 and 65535, inclusive"],
    "abc": ["must be a valid socket address format"],
    ":8080": [],
    "1.2.3.4": [],
}


@pytest.mark.parametrize(("address", "faults"), ADDRESSES.items())
def test_1_22_checks_addresses_of_v1beta2_as_those_of_v1beta1(address, faults):
    text = HEAD.replace("/v1", "/v1beta2") + f"healthzBindAddress: '{address}'\n"
    found = []
    try:
        load_source(ConfigSource(text.encode(), "c.yaml", emulate="1.22.6"))
    except ConfigError as error:
        found = error.faults
    assert len(found) == len(faults)
    assert all(fault.detail.startswith(start) for fault, start in zip(found, faults, strict=True))


def test_1_22_reads_a_policy_and_has_no_algorithm_provider():
    policy = b'{"kind": "Policy", "apiVersion": "v1", "priorities": [{"name": "MostRequestedPriority", "weight": 3}]}'
    loaded = load_source(ConfigSource(policy, "policy.json", emulate="1.22.6"))
    assert loaded.heading == "rules of Kubernetes 1.22.6 (Policy v1, --emulate 1.22.6)"
    assert loaded.profiles[0].weights == {"NodeResourcesMostAllocated": 3}
    with pytest.raises(InputError, match=r"1\.22\.6 has none"):
        load_source(ConfigSource(emulate="1.22.6", provider="DefaultProvider"))
    with pytest.raises(ConfigError, match="no kind"):
        load_source(ConfigSource(policy, "policy.json", emulate="1.23.5"))
