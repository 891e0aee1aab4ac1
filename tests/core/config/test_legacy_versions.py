"""Documents of earlier versions: what they resolve to, and why they are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from moorage.api.releases import TODAY, find_release
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.config.absent_plugins import SUCCESSORS
from moorage.core.config.convert import convert
from moorage.core.config.release_plugins import POINTS_1_21, PROVIDERS
from moorage.core.config.scheduler_document import from_provider, load_any, load_default
from moorage.core.config.show import as_document
from moorage.errors import ConfigError, InputError
from moorage.framework.profile import points_of
from moorage.plugins import BUILTIN, builtin_registry
from moorage.plugins.shared.releases import PLUGINS_1_21

BUILTIN_NAMES = {plugin.name for plugin in BUILTIN}
GROUP = "kubescheduler.config.k8s.io"
RULES = ConfigSource()


def text_of(version, **body):
    return json.dumps({"apiVersion": f"{GROUP}/{version}", "kind": "KubeSchedulerConfiguration", **body}).encode()


def load(version, emulate=None, rules=RULES, **body):
    return load_any(text_of(version, **body), "test", rules, emulate)


def profile(version, plugins=None, config=(), **more):
    return load(version, profiles=[{"plugins": plugins or {}, "pluginConfig": list(config)}], **more).profiles[0]


def enabled(*names, disabled=(), **weights):
    refs = [{"name": name, "weight": weights[name]} if name in weights else {"name": name} for name in names]
    return {"enabled": refs, "disabled": [{"name": name} for name in disabled]}


def scores(found):
    return dict(zip(found.points["score"], map(found.weights.get, found.points["score"]), strict=True))


DEFAULT_SCORES = {
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "InterPodAffinity": 1,
    "NodeResourcesLeastAllocated": 1,
    "NodeAffinity": 1,
    "NodePreferAvoidPods": 10000,
    "PodTopologySpread": 2,
    "TaintToleration": 1,
}

# -- which release -------------------------------------------------------------------------------------------------------

CHOICE = {  # version, asked to emulate → whose rules run
    "v1": ("v1", None, TODAY),
    "v1, asked for": ("v1", "1.36", "1.36"),
    "v1beta3": ("v1beta3", None, TODAY),
    "v1beta2": ("v1beta2", None, TODAY),
    "v1beta1": ("v1beta1", None, "1.21"),
    "v1beta1, of 1.19": ("v1beta1", "1.19", "1.19"),
    "v1beta1, of 1.20": ("v1beta1", "1.20", "1.20"),
}


@pytest.mark.parametrize(("version", "emulate", "release"), CHOICE.values(), ids=CHOICE)
def test_the_version_or_the_caller_selects_the_release(version, emulate, release):
    found = load(version, emulate)
    assert (found.release, found.gates.release) == (release, release)
    assert release in found.heading
    assert version in found.heading


@pytest.mark.parametrize(("version", "emulate"), [("v1", "1.21"), ("v1beta1", "1.36"), ("v1beta2", "1.21"), ("v1alpha9", None)])
def test_a_release_rejects_unknown_versions(version, emulate):
    with pytest.raises(
        ConfigError, match=f'no kind "KubeSchedulerConfiguration" is registered for version "{GROUP}/{version}"'
    ):
        load(version, emulate)


# -- defaults ------------------------------------------------------------------------------------------------------------


def test_v1beta1_starts_from_the_default_provider():
    found = load("v1beta1").profiles[0]
    assert scores(found) == DEFAULT_SCORES
    assert list(found.points["filter"])[:6] == [
        "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
    ]  # fmt: skip
    assert "preEnqueue" not in found.points


def test_the_default_of_1_19_spreads_by_its_own_plugin():
    found = load_default(RULES, "1.19").profiles[0]
    assert scores(found) == {**DEFAULT_SCORES, "SelectorSpread": 1}
    assert list(found.points["filter"])[:3] == ["NodeUnschedulable", "NodeResourcesFit", "NodeName"]
    assert scores(load_default(RULES, "1.20").profiles[0]) == DEFAULT_SCORES


@pytest.mark.parametrize("emulate", [None, "1.19", "1.20", "1.21"])
def test_the_eight_scores_of_1_19_are_a_profile(emulate):
    text = (Path(__file__).parents[3] / "examples" / "config" / "eight-scores-of-1.19.yaml").read_bytes()
    assert scores(load_any(text, "eight", RULES, emulate).profiles[0]) == {
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "InterPodAffinity": 1,
        "NodeResourcesLeastAllocated": 1,
        "NodeAffinity": 1,
        "NodePreferAvoidPods": 10000,
        "SelectorSpread": 1,
        "TaintToleration": 1,
    }


def test_the_other_provider_packs():
    spread, packed = (from_provider(name, RULES).profiles[0] for name in PROVIDERS)
    assert scores(spread) == DEFAULT_SCORES
    assert list(packed.points["score"]) == [name.replace("Least", "Most") for name in spread.points["score"]]
    assert {**packed.points, "score": ()} == {**spread.points, "score": ()}


@pytest.mark.parametrize(("name", "emulate"), [("NoSuchProvider", None), ("DefaultProvider", "1.36")])
def test_an_unknown_provider_is_rejected(name, emulate):
    with pytest.raises(InputError, match=f'algorithm provider "{name}" is not registered'):
        from_provider(name, RULES, emulate)


def test_gates_of_the_release_change_its_defaults():
    rules = ConfigSource(feature_gates="DefaultPodTopologySpread=false,VolumeCapacityPriority=true")
    found = load("v1beta1", rules=rules).profiles[0]
    assert scores(found) == {**DEFAULT_SCORES, "VolumeBinding": 1, "SelectorSpread": 1}
    assert found.args["PodTopologySpread"].defaulting_type == "List"
    with pytest.raises(ConfigError, match="unrecognized feature gate: DynamicResourceAllocation"):
        load("v1beta1", rules=ConfigSource(feature_gates="DynamicResourceAllocation=true"))


def test_v1beta2_and_v1beta3_have_the_defaults_of_their_releases():
    second, third = load("v1beta2").profiles[0], load("v1beta3").profiles[0]
    assert scores(second) == {
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "InterPodAffinity": 1,
        "NodeResourcesFit": 1,
        "NodeAffinity": 1,
        "PodTopologySpread": 2,
        "TaintToleration": 1,
        "VolumeBinding": 1,
        "DynamicResources": 2,
    }
    assert scores(third) == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }


@pytest.mark.parametrize("version", ["v1beta2", "v1beta3"])
def test_a_beta_runs_the_plugins_of_the_release_that_reads_it(version):
    found, today = load(version).profiles[0], load("v1").profiles[0]
    assert {point: set(names) for point, names in found.points.items()} == {
        point: set(names) for point, names in today.points.items()
    }
    assert found.points["postFilter"] == today.points["postFilter"], "claims are released before pods are evicted"
    assert found.points["preEnqueue"] == today.points["preEnqueue"]
    assert found.points["filter"] == today.points["filter"]


@pytest.mark.parametrize(
    ("version", "release"), [("v1beta3", "1.29"), ("v1beta3", "1.36"), ("v1beta2", "1.28"), ("v1", "1.24")]
)
def test_a_release_that_cannot_read_a_version_names_what_can(version, release):
    with pytest.raises(ConfigError) as refused:
        load_source(replace(RULES, config=text_of(version), emulate=release))
    (fault,) = refused.value.faults
    last = {"v1beta3": "1.28", "v1beta2": "1.27", "v1": TODAY}[version]
    assert f"{release} does not read it; " in fault.detail
    assert f"--emulate {last} does" in fault.detail
    assert ('"moorage config convert" writes it as v1' in fault.detail) is (version != "v1")


@pytest.mark.parametrize("version", ["v1beta2", "v1beta3", "v1"])
@pytest.mark.parametrize("name", sorted(SUCCESSORS))
def test_a_plugin_that_ended_is_refused_with_its_successor(version, name):
    with pytest.raises(ConfigError) as refused:
        profile(version, {"score": enabled(name)})
    assert SUCCESSORS[name] in refused.value.faults[0].detail
    assert name in refused.value.faults[0].body


def test_a_plugin_that_came_later_names_its_release():
    with pytest.raises(ConfigError, match=r"GangScheduling.* does not exist; it came with 1[.]35, which --emulate 1[.]35 "):
        load("v1", find_release("1.34").name, profiles=[{"plugins": {"multiPoint": enabled("GangScheduling")}}])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Coscheduling", "is it one of yours? --plugins MODULE:CLASS or FILE.py:CLASS loads it"),
        ("NodeResourceTopologyMatch", "is it one of yours? --plugins MODULE:CLASS or FILE.py:CLASS loads it"),
        ("FitLimitResources", "is it one of yours? --plugins MODULE:CLASS or FILE.py:CLASS loads it"),
        ("TaintTolerations", 'did you mean "TaintToleration"?'),
        ("nodeName", 'did you mean "NodeName"?'),
        ("PodTopolgySpread", 'did you mean "PodTopologySpread"?'),
    ],
)
def test_only_a_near_name_is_suggested(name, words):
    with pytest.raises(ConfigError) as refused:
        profile("v1", {"multiPoint": enabled(name)})
    assert refused.value.faults[0].detail.endswith(f"does not exist; {words}")


# -- a profile's own sets ------------------------------------------------------------------------------------------------


def test_v1beta1_appends_enabled_plugins_to_the_defaults():
    plugins = {"score": enabled("NodeLabel", "ImageLocality", disabled=["ImageLocality"], NodeLabel=3, ImageLocality=7)}
    assert scores(profile("v1beta1", plugins)) == {
        **{name: weight for name, weight in DEFAULT_SCORES.items() if name != "ImageLocality"},
        "NodeLabel": 3,
        "ImageLocality": 7,
    }


def test_v1beta1_disables_all_defaults():
    assert scores(profile("v1beta1", {"score": enabled("NodeLabel", disabled=["*"])})) == {"NodeLabel": 1}


def test_v1beta2_keeps_the_place_of_a_default_that_is_enabled_again():
    found = scores(profile("v1beta2", {"score": enabled("ImageLocality", ImageLocality=7)}))
    assert list(found)[1:3] == ["NodeResourcesBalancedAllocation", "ImageLocality"]
    assert found["ImageLocality"] == 7


def test_v1beta3_has_multi_point():
    found = profile("v1beta3", {"multiPoint": enabled("NodeAffinity", disabled=["ImageLocality"], NodeAffinity=4)})
    assert "ImageLocality" not in found.points["score"]
    assert found.weights["NodeAffinity"] == 4


def test_multi_point_of_v1beta2_has_no_effect():
    given = {"multiPoint": enabled("NodeLabel", "Missing", disabled=["*"], NodeLabel=4)}
    found, defaults = load("v1beta2", profiles=[{"plugins": given}]), load("v1beta2")
    assert found.profiles == defaults.profiles
    assert found.unused == {"profiles[0].plugins.multiPoint": "v1beta2 ignores it, as kube-scheduler does"}
    assert defaults.unused == {}


def test_v1beta2_weighs_what_score_lists():
    plugins = {"filter": enabled("NodeVolumeLimits", NodeVolumeLimits=-1), "score": enabled("VolumeBinding", VolumeBinding=5)}
    assert profile("v1beta2", plugins).weights["VolumeBinding"] == 5
    first = "DynamicResources"
    with pytest.raises(ConfigError, match="total score of Score plugins could overflow"):
        profile("v1beta2", {"score": enabled(first, **{first: -1})})


def test_the_last_point_that_names_a_plugin_sets_its_weight():
    """As upstream worked weights out: PreBind comes after Score, and its entry has no weight."""
    plugins = {"score": enabled("VolumeBinding", VolumeBinding=5)}
    assert profile("v1beta1", plugins).weights["VolumeBinding"] == 1


def test_args_are_decoded_and_completed():
    config = [
        {"name": "NodeResourcesLeastAllocated", "args": {"resources": []}},
        {"name": "NodeLabel", "args": {"presentLabels": ["a"]}},
        {"name": "PodTopologySpread", "args": {"defaultConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}},
    ]  # fmt: skip
    found = profile("v1beta1", {"filter": enabled("NodeLabel")}, config)
    assert [one.name for one in found.args["NodeResourcesLeastAllocated"].resources] == ["cpu", "memory"]
    assert found.args["NodeLabel"].present_labels == ("a",)
    assert found.args["PodTopologySpread"].defaulting_type == "List"


# -- what is refused -----------------------------------------------------------------------------------------------------

SHAPE = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
REFUSED = {  # version, plugins, pluginConfig, more → field, words
    "unknown plugin": ("v1beta1", {"filter": enabled("Nope")}, [], {}, "profiles[0].plugins.filter.enabled[0]",
                       'FilterPlugin "Nope" does not exist'),
    "plugin of another point": ("v1beta1", {"filter": enabled("ImageLocality")}, [], {},
                                "profiles[0].plugins.filter.enabled[0]", "does not extend FilterPlugin"),
    "a plugin of today": ("v1beta1", {"filter": enabled("DynamicResources")}, [], {},
                          "profiles[0].plugins.filter.enabled[0]", 'FilterPlugin "DynamicResources" does not exist'),
    "twice": ("v1beta1", {"score": enabled("NodeLabel", "NodeLabel")}, [], {}, "profiles[0].plugins.score.enabled[1]",
              'plugin "NodeLabel" already registered as "ScorePlugin"'),
    "a default again": ("v1beta1", {"score": enabled("ImageLocality")}, [], {}, "profiles[0].plugins.score.enabled[0]",
                        'plugin "ImageLocality" already registered as "ScorePlugin"'),
    "negative weight": ("v1beta1", {"score": enabled("NodeLabel", NodeLabel=-1)}, [], {},
                        "profiles[0].plugins.score.enabled[0].weight", "could overflow"),
    "weight beyond 32 bits": ("v1beta1", {"score": enabled("NodeLabel", NodeLabel=2**31)}, [], {},
                              "profiles[0].plugins.score.enabled[0].weight", "of type int32"),
    "no bind": ("v1beta1", {"bind": enabled(disabled=["*"])}, [], {}, "profiles[0].plugins.bind", "at least one bind plugin"),
    "no sort": ("v1beta1", {"queueSort": enabled(disabled=["*"])}, [], {}, "profiles[0].plugins.queueSort",
                "one queue sort plugin required"),
    "multiPoint": ("v1beta1", {"multiPoint": enabled("NodeLabel")}, [], {}, "profiles[0].plugins.multiPoint",
                   'unknown field "profiles[0].plugins.multiPoint"'),
    "a field of today": ("v1beta1", {}, [], {"delayCacheUntilActive": True}, "delayCacheUntilActive", "unknown field"),
    "wrong type": ("v1beta1", {"score": {"enabled": "all"}}, [], {}, "profiles[0].plugins.score.enabled",
                   "of type []v1beta1.Plugin"),
    "weight of a resource": ("v1beta1", {}, [
        {"name": "NodeResourcesLeastAllocated", "args": {"resources": [{"name": "cpu"}]}}], {},
        "profiles[0].pluginConfig[0].args.resources[0].weight", "resource weight of cpu not in valid range (0, 100]"),
    "no shape": ("v1beta1", {"score": enabled("RequestedToCapacityRatio")}, [
        {"name": "RequestedToCapacityRatio", "args": {}}], {}, "profiles[0].pluginConfig[0].args.shape", "at least one point"),
    "labels that conflict": ("v1beta1", {"filter": enabled("NodeLabel")}, [
        {"name": "NodeLabel", "args": {"presentLabels": ["a", "b"], "absentLabels": ["b"]}}], {},
        "profiles[0].pluginConfig[0].args.presentLabels[1]", "conflict with absentLabels[0]"),
    "args of today": ("v1beta1", {}, [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {}}}], {},
                      "profiles[0].pluginConfig[0].args.scoringStrategy", "unknown field"),
    "args of another version": ("v1beta1", {}, [
        {"name": "NodeResourcesFit", "args": {"apiVersion": f"{GROUP}/v1", "kind": "NodeResourcesFitArgs"}}], {},
        "profiles[0].pluginConfig[0].args.apiVersion", f'registered for version "{GROUP}/v1"'),
    "removed in v1beta2": ("v1beta2", {"score": enabled("NodeLabel")}, [], {}, "profiles[0].plugins.score.enabled[0]",
                           f'was removed in version "{GROUP}/v1beta2"'),
    "address": ("v1beta2", {}, [], {"healthzBindAddress": "here"}, "healthzBindAddress", "must be a valid socket address"),
    "in-tree limits under v1": ("v1", {"filter": enabled("EBSLimits")}, [], {}, "profiles[0].plugins.filter.enabled[0]",
                                "was invalid in version"),
}  # fmt: skip


@pytest.mark.parametrize(("version", "plugins", "config", "more", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_document_is_rejected_with_the_path(version, plugins, config, more, field, words):
    with pytest.raises(ConfigError) as caught:
        profile(version, plugins, config, **more)
    told = {fault.field: fault.body for fault in caught.value.faults}
    assert field in told, told
    assert words in told[field]


def test_an_address_that_v1beta1_cannot_parse_is_ignored():
    assert load("v1beta1", healthzBindAddress="here").unused.keys() == {"healthzBindAddress"}


def test_arguments_of_a_plugin_that_ended_are_kept_and_not_read():
    found = load("v1", profiles=[{"pluginConfig": [{"name": "NodeLabel", "args": {"presentLabels": 7}}]}])
    assert "NodeLabel" not in found.profiles[0].args


def test_the_table_of_the_release_is_what_its_configuration_knows():
    assert set(PLUGINS_1_21) <= set(POINTS_1_21)
    assert set(PLUGINS_1_21) - set(BUILTIN_NAMES) <= set(SUCCESSORS)
    for name, cls in PLUGINS_1_21.items():
        assert cls.name == name
        assert set(POINTS_1_21[name]) <= set(points_of(cls)), name


# -- written out ---------------------------------------------------------------------------------------------------------

WRITTEN = {
    "v1beta1": lambda: load("v1beta1"),
    "v1beta1 of 1.19": lambda: load("v1beta1", "1.19"),
    "v1beta2": lambda: load("v1beta2", percentageOfNodesToScore=30),
    "v1beta3": lambda: load("v1beta3"),
    "provider": lambda: from_provider("ClusterAutoscalerProvider", RULES),
}


@pytest.mark.parametrize("make", WRITTEN.values(), ids=WRITTEN)
def test_a_shown_configuration_loads_to_the_same_profiles(make):
    found = make()
    written = as_document(found.configuration, found.profiles, found.version)
    emulate = found.release if found.gates.emulated.legacy_flags else None
    again = load_any(msgspec.json.encode(written), "again", RULES, emulate)
    assert again.profiles == found.profiles
    assert as_document(again.configuration, again.profiles, again.version) == written


@pytest.mark.parametrize("make", WRITTEN.values(), ids=WRITTEN)
def test_a_converted_document_is_a_valid_v1(make):
    given = make()
    converted = convert(given, builtin_registry())
    (again,) = load_any(msgspec.json.encode(converted.document), "again", RULES, TODAY).profiles
    assert not again.missing
    assert "PrioritySort" in again.points["queueSort"]
    assert {"SchedulingGates", "DynamicResources"} <= set(again.points["preEnqueue"])
    assert again.points["postFilter"] == ("DynamicResources", "DefaultPreemption")
    if given.release == TODAY:
        assert (again, converted.notes) == (given.profiles[0], [])
    else:
        assert "profiles[0]: SchedulingGates is a default plugin of 1.37, which 1." in "\n".join(converted.notes)


def test_a_converted_profile_without_defaults_does_without_the_later_ones():
    off = {
        point: {"disabled": [{"name": "*"}]} for point in ("preFilter", "filter", "postFilter", "score", "reserve", "preBind")
    }
    converted = convert(load("v1beta1", profiles=[{"plugins": off}]), builtin_registry())
    (again,) = load_any(msgspec.json.encode(converted.document), "again", RULES, TODAY).profiles
    assert again.points["preEnqueue"] == ("SchedulingGates", "DynamicResources")
    assert not {"filter", "score", "reserve"} & again.points.keys()


def test_conversion_keeps_equivalents_and_reports_the_rest():
    config = [
        {"name": "RequestedToCapacityRatio", "args": {"shape": SHAPE, "resources": [{"name": "cpu", "weight": 3}]}},
        {"name": "NodeLabel", "args": {"presentLabels": ["a"], "absentLabels": ["b"], "presentLabelsPreference": ["c"]}},
        {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 7}},
    ]
    plugins = {
        "filter": enabled("NodeLabel"),
        "score": enabled("RequestedToCapacityRatio", "NodeLabel", disabled=["NodeResourcesLeastAllocated"], NodeLabel=2),
    }
    given = load("v1beta1", profiles=[{"plugins": plugins, "pluginConfig": config}], metricsBindAddress="0.0.0.0:1")
    converted = convert(given, builtin_registry())
    args = {one["name"]: one["args"] for one in converted.document["profiles"][0]["pluginConfig"]}
    assert args["NodeResourcesFit"]["scoringStrategy"] == {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "cpu", "weight": 3}],
        "requestedToCapacityRatio": {"shape": SHAPE},
    }
    (term,) = args["NodeAffinity"]["addedAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"}]
    assert args["InterPodAffinity"]["hardPodAffinityWeight"] == 7
    told = "\n".join(converted.notes)
    for words in (
        "metricsBindAddress has no equivalent",
        "RequestedToCapacityRatio is the scoring strategy RequestedToCapacityRatio of NodeResourcesFit now",
        "NodeLabel's preferences (c) have no equivalent",
        "NodePreferAvoidPods (weight 10000) has no equivalent",
        "AzureDiskLimits, EBSLimits, GCEPDLimits: such disks are CSI volumes now",
        "NodeResourcesBalancedAllocation scores otherwise today",
    ):
        assert words in told


def test_of_several_scores_by_resources_one_is_kept():
    found = load("v1beta1", profiles=[{"plugins": {"score": enabled("NodeResourcesMostAllocated")}}])
    converted = convert(found, builtin_registry())
    assert any("NodeResourcesMostAllocated has no equivalent beside NodeResourcesLeastAllocated" in n for n in converted.notes)


MOVED = {  # the lock → what the note says of replicas that stand for it
    "endpointsleases": "endpointsleases is leases now; replicas that hold both see it",
    "configmaps": "configmaps is leases now; stop the others first, as they do not see it",
}


@pytest.mark.parametrize(("lock", "note"), MOVED.items(), ids=MOVED)
def test_conversion_selects_a_lease_lock(lock, note):
    converted = convert(load("v1beta1", leaderElection={"resourceLock": lock}), builtin_registry())
    assert converted.document["leaderElection"]["resourceLock"] == "leases"
    assert f"leaderElection.resourceLock: {note}" in converted.notes


def test_conversion_reports_scores_by_storage():
    rules = ConfigSource(feature_gates="VolumeCapacityPriority=true")
    converted = convert(load("v1beta1", rules=rules), builtin_registry())
    assert any(note.startswith("profiles[0]: VolumeBinding scores otherwise today") for note in converted.notes)
    assert not any("VolumeBinding" in note for note in convert(load("v1beta1"), builtin_registry()).notes)
