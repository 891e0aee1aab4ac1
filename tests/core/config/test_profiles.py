"""Profiles as they run: the release's defaults, arguments, and what is missing here."""

from __future__ import annotations

import pytest

from moorage.api.feature_gates import TODAY, FeatureGates
from moorage.core.config.configuration import Configuration, KubeSchedulerProfile, PluginConfig, PluginRef, Plugins, PluginSet
from moorage.core.config.configuration_loader import load
from moorage.core.config.profiles import catalogue, resolve
from moorage.core.config.release_plugins import CHECKED_WHEN_LOADED, POINTS_1_36, default_plugins
from moorage.errors import ConfigError
from moorage.framework.points import POINTS
from moorage.framework.registry import Registry
from moorage.plugins import BUILTIN, builtin_registry

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
REGISTRY = builtin_registry()


def profiles_of(body, gates="", release=TODAY):
    opened = FeatureGates.parse(gates, release)
    return resolve(load((HEADER + body).encode(), "test", REGISTRY, opened), REGISTRY, opened)


@pytest.mark.parametrize("cls", [cls for cls in BUILTIN if cls.name in POINTS_1_36], ids=lambda cls: cls.name)
def test_a_built_in_plugin_runs_where_the_release_runs_it(cls):
    points = REGISTRY.points()[cls.name]
    assert set(points) == {point for point in POINTS_1_36[cls.name] if point in POINTS}


@pytest.mark.parametrize("name", sorted(CHECKED_WHEN_LOADED & set(REGISTRY)))
def test_a_plugin_whose_arguments_are_checked_has_some(name):
    assert REGISTRY.args_type(name) is not None


@pytest.mark.parametrize(
    ("release", "gates", "behind"),
    [
        (TODAY, "", "DefaultBinder NodeDeclaredFeatures"),
        (
            "1.36",
            (
                "NodeDeclaredFeatures=false,InPlacePodLevelResourcesVerticalScaling=false,ExtendWebSocketsToKubelet=false,"
                "InPlacePodVerticalScalingInitContainers=false,RestartAllContainersOnContainerExits=false"
            ),
            "ImageLocality DefaultBinder",
        ),
        (TODAY, "GenericWorkload=true", "NodeDeclaredFeatures GangScheduling"),
        ("1.36", "GenericWorkload=true,GangScheduling=true", "NodeDeclaredFeatures GangScheduling"),
        (TODAY, "GenericWorkload=true,TopologyAwareWorkloadScheduling=true", "TopologyPlacementGenerator PodGroupPodsCount"),
    ],
)
def test_the_default_plugins_depend_on_the_gates(release, gates, behind):
    names = [plugin.name for plugin in default_plugins(FeatureGates.parse(gates, release))]
    assert " ".join(names[-2:]) == behind
    assert names.index("DynamicResources") + 1 == names.index("DefaultPreemption")


def test_pod_groups_get_their_permit():
    (profile,) = profiles_of("", "GenericWorkload=true")
    assert profile.points["permit"] == ("GangScheduling",)
    assert profile.points["preEnqueue"][-1] == "GangScheduling"


def test_what_is_not_registered_is_named():
    gates = FeatureGates()
    nothing = Registry()
    (profile,) = resolve(load(HEADER.encode(), "test", nothing, gates), nothing, gates)
    assert set(profile.missing) == set(POINTS_1_36) - {"GangScheduling", "PodGroupPodsCount", "TopologyPlacementGenerator"}
    assert profile.args == {}
    assert profile.points == profiles_of("")[0].points


def test_a_profile_percentage_overrides_the_global_one():
    found = profiles_of(
        "percentageOfNodesToScore: 7\nprofiles: [{schedulerName: a}, {schedulerName: b, percentageOfNodesToScore: 0}]"
    )
    assert [(profile.scheduler_name, profile.percentage_of_nodes_to_score) for profile in found] == [("a", 7), ("b", 0)]


def test_plugins_that_run_have_arguments_and_others_have_none():
    (profile,) = profiles_of("profiles: [{plugins: {multiPoint: {disabled: [{name: NodeResourcesBalancedAllocation}]}}}]")
    assert "NodeResourcesBalancedAllocation" not in profile.args
    assert "NodeName" not in profile.args
    assert profile.args["NodeAffinity"] == REGISTRY.args_type("NodeAffinity")()
    assert profile.args["VolumeBinding"].bind_timeout_seconds == 600
    assert profile.args["DynamicResources"].filter_timeout == 10.0


def test_arguments_given_are_the_ones_used():
    (profile,) = profiles_of("profiles: [{pluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: 5}}]}]")
    assert profile.args["VolumeBinding"].bind_timeout_seconds == 5


FIT_IGNORES = "profiles: [{schedulerName: a, pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [x.y/own]}}]}]\n"
EXTENDER = "extenders: [{managedResources: [{name: x.y/z, ignoredByScheduler: true}, {name: x.y/counted}]}]\n"


def test_resources_of_extenders_are_ignored_instead_of_the_plugins_own():
    assert profiles_of(FIT_IGNORES)[0].args["NodeResourcesFit"].ignored_resources == ("x.y/own",)
    assert profiles_of(FIT_IGNORES + EXTENDER)[0].args["NodeResourcesFit"].ignored_resources == ("x.y/z",)
    assert profiles_of(EXTENDER)[0].args["NodeResourcesFit"].ignored_resources == ("x.y/z",)


NO_FIT = "profiles: [{schedulerName: a, plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}%s}%s}]\n"


def test_resources_of_extenders_need_the_plugin_that_would_count_them():
    with pytest.raises(ConfigError, match=r"profiles\[0\].pluginConfig: Required value: can't find NodeResourcesFitArgs"):
        profiles_of(EXTENDER + NO_FIT % ("", ""))
    profiles_of(EXTENDER + NO_FIT % ("", ", pluginConfig: [{name: NodeResourcesFit}]"))
    profiles_of(EXTENDER + NO_FIT % (", filter: {enabled: [{name: NodeResourcesFit}]}", ""))
    profiles_of(NO_FIT % ("", ""))


def test_late_validated_arguments_of_unused_plugins_are_not_validated():
    """kube-scheduler looks at the arguments of NodeResourcesFit when it builds the plugin."""
    bad = ", pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: ['-']}}]"
    profiles_of(NO_FIT % ("", bad))
    with pytest.raises(ConfigError, match=r"profiles\[0\].pluginConfig\[0\].args.ignoredResources\[0\]"):
        profiles_of(NO_FIT % (", score: {enabled: [{name: NodeResourcesFit}]}", bad))


def refused(*profiles):
    """What ``resolve`` reports about profiles that were not validated before."""
    with pytest.raises(ConfigError) as caught:
        resolve(Configuration(profiles=profiles), Registry([Older, Newer, *BUILTIN]), FeatureGates())
    return [fault.detail for fault in caught.value.faults]


class Older:
    name = "Older"

    def sort_key(self, queued):
        return 0


class Newer(Older):
    name = "Newer"


def sorted_by(scheduler_name, plugin, **config):
    sort = PluginSet(enabled=(PluginRef(name=plugin),), disabled=(PluginRef(name="*"),))
    configs = tuple(PluginConfig(name=name, args=args) for name, args in config.items())
    return KubeSchedulerProfile(scheduler_name=scheduler_name, plugins=Plugins(queue_sort=sort), plugin_config=configs)


def test_profiles_built_in_code_are_validated_together():
    assert refused(sorted_by("a", "Older"), sorted_by("b", "Newer")) == [
        'different queue sort plugins for profile "b": "Newer", first: "Older"'
    ]
    assert refused(sorted_by("a", "Older", Older=1), sorted_by("b", "Older", Older=2)) == [
        'different queue sort plugin args for profile "b"'
    ]
    assert refused(sorted_by("a", "Older"), sorted_by("a", "Older")) == ['duplicate profile with scheduler name "a"']
    twice = (PluginConfig(name="X"), PluginConfig(name="X"))
    assert refused(KubeSchedulerProfile(scheduler_name="a", plugin_config=twice)) == ["repeated config for plugin X"]


def test_the_catalogue_holds_the_release_and_what_is_registered():
    found = catalogue(Registry([Older]))
    assert found["Older"] == ("queueSort",)
    assert found["VolumeBinding"] == POINTS_1_36["VolumeBinding"]


# what is written → what it means; upstream fills these in before it checks anything
MEANS_THE_SAME = [
    ("NodeResourcesBalancedAllocation", "{resources: []}", "{resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}"),
    ("NodeResourcesBalancedAllocation", "{resources: [{name: x.y/z, weight: 0}]}", "{resources: [{name: x.y/z, weight: 1}]}"),
    ("NodeResourcesFit", "{scoringStrategy: null}", "{scoringStrategy: {type: LeastAllocated, resources: []}}"),
    (
        "NodeResourcesFit",
        "{scoringStrategy: {type: MostAllocated}}",
        "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 0}, {name: memory}]}}",
    ),
    ("NodeAffinity", "{addedAffinity: null}", "{}"),
    ("PodTopologySpread", '{defaultingType: "", defaultConstraints: null}', "{defaultingType: System}"),
    ("InterPodAffinity", "{hardPodAffinityWeight: null}", "{hardPodAffinityWeight: 1}"),
    (
        "DefaultPreemption",
        "{minCandidateNodesAbsolute: null}",
        "{minCandidateNodesPercentage: 10, minCandidateNodesAbsolute: 100}",
    ),
    ("VolumeBinding", "{bindTimeoutSeconds: null, shape: null}", "{bindTimeoutSeconds: 600}"),
    ("DynamicResources", "{filterTimeout: null}", "{filterTimeout: 10s, bindingTimeout: 600s}"),
]


@pytest.mark.parametrize(("plugin", "written", "meant"), MEANS_THE_SAME)
def test_arguments_left_empty_mean_the_default(plugin, written, meant):
    body = "profiles: [{pluginConfig: [{name: %s, args: %s}]}]"
    (first,), (second,) = profiles_of(body % (plugin, written)), profiles_of(body % (plugin, meant))
    assert first.args[plugin] == second.args[plugin]
    assert isinstance(first.args[plugin], REGISTRY.args_type(plugin))
