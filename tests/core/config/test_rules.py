"""Every rule that kube-scheduler 1.36 refuses a configuration by: one document each, the field it names and its words.

The numbers are those of our own list of rules; ``test_every_rule_has_a_document`` holds that none is left out.
"""

from __future__ import annotations

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import find_release
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.config.configuration import LeaderElection, PluginRef, Plugins, PluginSet
from moorage.core.config.configuration_loader import load
from moorage.core.config.plugin_sets import ReadProfile, expand
from moorage.core.config.release_plugins import POINTS_1_36, default_plugins
from moorage.core.config.validation import leader_election_faults
from moorage.errors import ConfigError
from moorage.plugins import builtin_registry

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
REGISTRY = builtin_registry()


def profile(body):
    """One profile named a."""
    return "profiles:\n- schedulerName: a\n" + "\n".join(f"  {line}" for line in body.splitlines())


def args(plugin, body):
    """The arguments of one plugin, in flow style."""
    return profile(f"pluginConfig:\n- name: {plugin}\n  args: {body}")


def plugins(body):
    return profile(f"plugins: {body}")


def faults_of(body, gates=""):
    with pytest.raises(ConfigError) as caught:
        load((HEADER + body).encode(), "test", REGISTRY, FeatureGates.parse(gates))
    return [(fault.field, fault.body) for fault in caught.value.faults]


ARGS = "profiles[0].pluginConfig[0].args"
PLUGINS = "profiles[0].plugins"
REMOVED = 'was invalid in version "v1" (KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'
NO_LEASE = "leaderElection: {leaseDuration: -1s, renewDeadline: -2s, retryPeriod: -3s}"
SCORING = "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [%s]}}}"
SPREAD = "{defaultingType: List, defaultConstraints: [%s]}"
GOOD_SPREAD = "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway"
TWO_SORTED_ALIKE = """
profiles:
- {schedulerName: a, plugins: &sort {queueSort: {enabled: [{name: PrioritySort}]}}}
- {schedulerName: b, plugins: *sort, pluginConfig: [{name: PrioritySort, args: {a: 1}}]}
"""
EXTENDER = "extenders:\n- urlPrefix: http://127.0.0.1:1/\n  "

# rule: (document, field, what the fault says)
RULES = {
    "1 burst": ("clientConnection: {burst: -1}", "clientConnection.burst", "Invalid value: -1: must be non-negative"),
    "2 lease duration": (NO_LEASE, "leaderElection.leaseDuration", 'Invalid value: "-1s": must be greater than zero'),
    "3 renew deadline": (NO_LEASE, "leaderElection.renewDeadline", 'Invalid value: "-2s": must be greater than zero'),
    "4 retry period": (NO_LEASE, "leaderElection.retryPeriod", 'Invalid value: "-3s": must be greater than zero'),
    "5 lease outlives renewal": (
        "leaderElection: {leaseDuration: 10s, renewDeadline: 1m30s}",
        "leaderElection.leaseDuration",
        'Invalid value: "1m30s": must be greater than `RenewDeadline`',
    ),
    "9 lock": (
        "leaderElection: {resourceLock: configmaps}",
        "leaderElection.resourceLock",
        'Invalid value: "configmaps": resourceLock value must be "leases"',
    ),
    "10 parallelism": ("parallelism: 0", "parallelism", "Invalid value: 0: should be an integer value greater than zero"),
    "12 profile has a name": ("profiles: [{schedulerName: a}, {}]", "profiles[1].schedulerName", "Required value"),
    "12 a lone profile's empty name": ('profiles: [{schedulerName: ""}]', "profiles[0].schedulerName", "Required value"),
    "13 names are unique": (
        "profiles: [{schedulerName: a}, {schedulerName: b}, {schedulerName: a}]",
        "profiles[2].schedulerName",
        'Duplicate value: "a"',
    ),
    "14 percentage": (
        "percentageOfNodesToScore: 101",
        "percentageOfNodesToScore",
        "Invalid value: 101: not in valid range [0-100]",
    ),
    "14 percentage of a profile": (
        profile("percentageOfNodesToScore: -1"),
        "profiles[0].percentageOfNodesToScore",
        "Invalid value: -1: not in valid range [0-100]",
    ),
    **{
        f"15 {name} is gone": (plugins(f"{{filter: {{enabled: [{{name: {name}}}]}}}}"), f"{PLUGINS}.filter.enabled[0]", REMOVED)
        for name in ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
    },
    "15 arguments of what is gone": (args("EBSLimits", "{}"), "profiles[0].pluginConfig[0]", REMOVED),
    "16 configured once": (
        profile("pluginConfig: [{name: NodeName}, {name: NodeName}]"),
        "profiles[0].pluginConfig[1]",
        'Duplicate value: "NodeName"',
    ),
    "17 arguments of another plugin": (
        args("NodeAffinity", "{kind: InterPodAffinityArgs}"),
        f"{ARGS}.kind",
        "args for plugin NodeAffinity were not of type NodeAffinityArgs, got InterPodAffinityArgs",
    ),
    "17 arguments of another version": (
        args("NodeAffinity", "{apiVersion: v1}"),
        f"{ARGS}.apiVersion",
        'no kind "NodeAffinityArgs" is registered for version "v1"',
    ),
    "18 one queue sort": (
        plugins("{queueSort: {enabled: [{name: PrioritySort}, {name: PrioritySort}]}}"),
        f"{PLUGINS}.queueSort.Enabled",
        "Invalid value: 2: only one queue sort plugin can be enabled",
    ),
    "19 the same queue sort": (
        "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: PrioritySort}]}}}]",
        "profiles[1].plugins.queueSort",
        'Invalid value: {"enabled":[{"name":"PrioritySort"}]}: must be the same for all profiles',
    ),
    "20 the same queue sort arguments": (
        TWO_SORTED_ALIKE,
        "profiles[1].pluginConfig.args",
        'Invalid value: {"a":1}: queueSort must be the same for all profiles',
    ),
    "20 arguments of no plugin where no queue sort is named": (
        "profiles: [{schedulerName: a, pluginConfig: [{args: {a: 1}}]}, {schedulerName: b, pluginConfig: [{args: {a: 1}}]}]",
        "profiles[1].pluginConfig.args",
        'Invalid value: {"a":1}: queueSort must be the same for all profiles',
    ),
    "21 initial backoff": (
        "podInitialBackoffSeconds: 0",
        "podInitialBackoffSeconds",
        "Invalid value: 0: must be greater than 0",
    ),
    "22 longest backoff": (
        "podMaxBackoffSeconds: 0",
        "podMaxBackoffSeconds",
        "Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds",
    ),
    "23 extender weight": (
        EXTENDER + "prioritizeVerb: p",
        "extenders[0].weight",
        "Invalid value: 0: must have a positive weight applied to it",
    ),
    "24 one extender binds": (
        "extenders: [{bindVerb: b}, {}, {bindVerb: b}]",
        "extenders",
        'Invalid value: "found 2 extenders implementing bind": only one extender can implement bind',
    ),
    "25 managed resource is a name": (
        EXTENDER + "managedResources: [{name: 'a b/c'}]",
        "extenders[0].managedResources[0].name",
        'Invalid value: "a b/c": prefix part a lowercase RFC 1123 subdomain must consist of',
    ),
    "25 managed resource is extended": (
        EXTENDER + "managedResources: [{name: memory}]",
        "extenders[0].managedResources[0].name",
        'Invalid value: "memory": is an invalid extended resource name',
    ),
    "26 one manager a resource": (
        "extenders: [{managedResources: [{name: a.b/c}]}, {managedResources: [{name: a.b/c}]}]",
        "extenders[1].managedResources[0].name",
        'Invalid value: "a.b/c": duplicate extender managed resource name',
    ),
    "27 preemption percentage": (
        args("DefaultPreemption", "{minCandidateNodesPercentage: 101}"),
        f"{ARGS}.minCandidateNodesPercentage",
        "Invalid value: 101: not in valid range [0, 100]",
    ),
    "28 preemption number": (
        args("DefaultPreemption", "{minCandidateNodesAbsolute: -1}"),
        f"{ARGS}.minCandidateNodesAbsolute",
        "Invalid value: -1: not in valid range [0, inf)",
    ),
    "29 preemption looks somewhere": (
        args("DefaultPreemption", "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}"),
        f"{ARGS}.minCandidateNodesPercentage",
        "Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute",
    ),
    "30 hard affinity weight": (
        args("InterPodAffinity", "{hardPodAffinityWeight: 101}"),
        f"{ARGS}.hardPodAffinityWeight",
        "Invalid value: 101: not in valid range [0, 100]",
    ),
    "31 required added affinity": (
        args(
            "NodeAffinity",
            "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
            "{nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: Exists}]}]}}}",
        ),
        f"{ARGS}.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].operator",
        'Unsupported value: "Exists": supported values: "In", "NotIn"',
    ),
    "31 preferred added affinity": (
        args(
            "NodeAffinity",
            "{addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: "
            "[{weight: 1, preference: {matchExpressions: [{key: a, operator: Is}]}}]}}",
        ),
        f"{ARGS}.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].matchExpressions[0].operator",
        'Unsupported value: "Is"',
    ),
    "32 balanced once": (
        args("NodeResourcesBalancedAllocation", "{resources: [{name: cpu}, {name: cpu}]}"),
        f"{ARGS}.resources[1].name",
        'Duplicate value: "cpu"',
    ),
    "33 balanced weight": (
        args("NodeResourcesBalancedAllocation", "{resources: [{name: cpu, weight: 2}]}"),
        f"{ARGS}.resources[0].weight",
        "Invalid value: 2: must be 1",
    ),
    "34 ignored resource": (
        args("NodeResourcesFit", "{ignoredResources: [ok, '-']}"),
        f"{ARGS}.ignoredResources[1]",
        'Invalid value: "-": name part must consist of',
    ),
    "35 ignored group has no slash": (
        args("NodeResourcesFit", "{ignoredResourceGroups: [a/b]}"),
        f"{ARGS}.ignoredResourceGroups[0]",
        "Invalid value: \"a/b\": resource group name can't contain '/'",
    ),
    "35 ignored group": (
        args("NodeResourcesFit", "{ignoredResourceGroups: ['-']}"),
        f"{ARGS}.ignoredResourceGroups[0]",
        'Invalid value: "-": name part must consist of',
    ),
    "37 strategy": (
        args("NodeResourcesFit", "{scoringStrategy: {type: leastAllocated}}"),
        f"{ARGS}.scoringStrategy.type",
        'Unsupported value: "leastAllocated": supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"',
    ),
    "38 resource weight": (
        args("NodeResourcesFit", "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: -1}]}}"),
        f"{ARGS}.scoringStrategy.resources[0].weight",
        "Invalid value: -1: resource weight of cpu not in valid range (0, 100]",
    ),
    "39 ratio for its strategy": (
        args("NodeResourcesFit", "{scoringStrategy: {type: RequestedToCapacityRatio}}"),
        f"{ARGS}.scoringStrategy.requestedToCapacityRatio",
        "Required value: must be specified when type is RequestedToCapacityRatio",
    ),
    "39 ratio for no other": (
        args("NodeResourcesFit", "{scoringStrategy: {type: LeastAllocated, requestedToCapacityRatio: {}}}"),
        f"{ARGS}.scoringStrategy.requestedToCapacityRatio",
        "Forbidden: must be nil when type is not RequestedToCapacityRatio",
    ),
    "40 a shape has points": (
        args("NodeResourcesFit", SCORING % ""),
        f"{ARGS}.scoringStrategy.requestedToCapacityRatio.shape",
        "Required value: at least one point must be specified",
    ),
    "40 a shape rises": (
        args("NodeResourcesFit", SCORING % "{utilization: 9, score: 1}, {utilization: 8, score: 1}"),
        f"{ARGS}.scoringStrategy.requestedToCapacityRatio.shape[1].utilization",
        "Invalid value: 8: values must be sorted in increasing order",
    ),
    "40 utilization is a percentage": (
        args("NodeResourcesFit", SCORING % "{utilization: 101, score: 1}"),
        f"{ARGS}.scoringStrategy.requestedToCapacityRatio.shape[0].utilization",
        "Invalid value: 101: not in valid range [0, 100]",
    ),
    "40 shape scores": (
        args("NodeResourcesFit", SCORING % "{utilization: 1, score: -1}"),
        f"{ARGS}.scoringStrategy.requestedToCapacityRatio.shape[0].score",
        "Invalid value: -1: not in valid range [0, 10]",
    ),
    "41 defaulting": (
        args("PodTopologySpread", "{defaultingType: Mine}"),
        f"{ARGS}.defaultingType",
        'Unsupported value: "Mine": supported values: "System", "List"',
    ),
    "42 system defaulting": (
        args("PodTopologySpread", f"{{defaultConstraints: [{GOOD_SPREAD}}}]}}"),
        f"{ARGS}.defaultingType",
        'Invalid value: "System": when .defaultConstraints are not empty',
    ),
    "43 skew": (
        args("PodTopologySpread", SPREAD % "{topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}"),
        f"{ARGS}.defaultConstraints[0].maxSkew",
        "Invalid value: 0: not in valid range (0, inf)",
    ),
    "43 skew that takes more than 32 bits": (
        args("PodTopologySpread", SPREAD % "{maxSkew: 2147483648, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}"),
        f"{ARGS}.defaultConstraints[0].maxSkew",
        "cannot unmarshal number 2147483648 into Go struct field TopologySpreadConstraint.defaultConstraints.maxSkew",
    ),
    "44 a topology key": (
        args("PodTopologySpread", SPREAD % "{maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}"),
        f"{ARGS}.defaultConstraints[0].topologyKey",
        "Required value: can not be empty",
    ),
    "44 topology key is a label": (
        args("PodTopologySpread", SPREAD % "{maxSkew: 1, topologyKey: a b, whenUnsatisfiable: ScheduleAnyway}"),
        f"{ARGS}.defaultConstraints[0].topologyKey",
        'Invalid value: "a b": name part must consist of',
    ),
    "45 what if not": (
        args("PodTopologySpread", SPREAD % "{maxSkew: 1, topologyKey: zone}"),
        f"{ARGS}.defaultConstraints[0].whenUnsatisfiable",
        "Required value: can not be empty",
    ),
    "45 what else if not": (
        args("PodTopologySpread", SPREAD % "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Never}"),
        f"{ARGS}.defaultConstraints[0].whenUnsatisfiable",
        'Unsupported value: "Never": supported values: "DoNotSchedule", "ScheduleAnyway"',
    ),
    "46 no selector": (
        args("PodTopologySpread", SPREAD % f"{GOOD_SPREAD}, labelSelector: {{}}}}"),
        f"{ARGS}.defaultConstraints[0].labelSelector",
        "Forbidden: constraint must not define a selector, as they deduced for each pod",
    ),
    "47 a constraint once": (
        args("PodTopologySpread", SPREAD % f"{GOOD_SPREAD}}}, {GOOD_SPREAD}}}"),
        f"{ARGS}.defaultConstraints[1]",
        'Duplicate value: "{zone, ScheduleAnyway}"',
    ),
    "48 volume timeout": (
        args("VolumeBinding", "{bindTimeoutSeconds: -1}"),
        f"{ARGS}.bindTimeoutSeconds",
        "Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
    ),
    "50 filter timeout": (
        args("DynamicResources", "{filterTimeout: -1ms}"),
        f"{ARGS}.filterTimeout",
        'Invalid value: "-1ms": must be zero or positive',
    ),
    "51 binding timeout": (
        args("DynamicResources", "{bindingTimeout: 999ms}"),
        f"{ARGS}.bindingTimeout",
        'Invalid value: "999ms": must be at least 1 second',
    ),
    "52 unknown plugin": (
        plugins("{preBind: {enabled: [{name: 'No\\npe'}]}}").replace("'", '"'),
        f"{PLUGINS}.preBind.enabled[0]",
        'PreBindPlugin "No\\npe" does not exist',
    ),
    "52 unknown plugin at many points": (
        plugins("{multiPoint: {enabled: [{name: NodeName}, {name: Nope}]}}"),
        f"{PLUGINS}.multiPoint.enabled[1]",
        'plugin "Nope" does not exist',
    ),
    "53 another point": (
        plugins("{postBind: {enabled: [{name: NodeName}]}}"),
        f"{PLUGINS}.postBind.enabled[0]",
        'plugin "NodeName" does not extend PostBindPlugin plugin',
    ),
    "54 twice at a point": (
        plugins("{filter: {enabled: [{name: NodeName}, {name: NodeName}]}}"),
        f"{PLUGINS}.filter.enabled[1]",
        'plugin "NodeName" already registered as "FilterPlugin"',
    ),
    "54 twice at many points": (
        plugins("{multiPoint: {enabled: [{name: NodeAffinity}, {name: NodeAffinity}]}}"),
        f"{PLUGINS}.multiPoint.enabled[1]",
        'plugin "NodeAffinity" already registered as "PreFilterPlugin"',
    ),
    "55 configured twice": (
        profile("pluginConfig: [{name: Mine}, {name: Mine}]"),
        "profiles[0].pluginConfig[1]",
        'Duplicate value: "Mine"',
    ),
    "56 a queue sort": (
        plugins("{multiPoint: {disabled: [{name: PrioritySort}]}}"),
        f"{PLUGINS}.queueSort",
        'only one queue sort plugin required for profile with scheduler name "a", but got 0',
    ),
    "57 a binder": (
        plugins("{multiPoint: {disabled: [{name: DefaultBinder}]}}"),
        f"{PLUGINS}.bind",
        'at least one bind plugin is needed for profile with scheduler name "a"',
    ),
    "59 sum of the weights": (
        plugins("{score: {enabled: [{name: ImageLocality, weight: -1}]}}"),
        f"{PLUGINS}.score",
        'Invalid value: {"ImageLocality":-1}: score plugins: total score of Score plugins could overflow',
    ),
    "60 queue sorts differ": (
        "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {disabled: [{name: '*'}]}}}]",
        "profiles[1].plugins.queueSort",
        "must be the same for all profiles",
    ),
    "61 profiles differ": (
        "profiles: [{schedulerName: b}, {schedulerName: b}]",
        "profiles[1].schedulerName",
        'Duplicate value: "b"',
    ),
}
WITH_GATES = {
    "49 volume shape": (
        "StorageCapacityScoring=false",
        args("VolumeBinding", "{shape: []}"),
        f"{ARGS}.shape",
        "Invalid value: []: unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring",
    ),
    "49 volume shape rises": (
        "",
        args("VolumeBinding", "{shape: [{utilization: 5, score: 1}, {utilization: 5, score: 1}]}"),
        f"{ARGS}.shape[1].utilization",
        "Invalid value: 5: values must be sorted in increasing order",
    ),
    "50 filter timeout and its gate": (
        "DRASchedulerFilterTimeout=false",
        args("DynamicResources", "{filterTimeout: 1s}"),
        f"{ARGS}.filterTimeout",
        "Forbidden: DRASchedulingFilterTimeout feature gate is disabled",
    ),
    "51 binding timeout and its gates": (
        "DRADeviceBindingConditions=false",
        args("DynamicResources", "{bindingTimeout: 1s}"),
        f"{ARGS}.bindingTimeout",
        "Forbidden: DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled",
    ),
}
#: Rules that no document can break, because a default stands in; see the tests below, and elsewhere for what they guard.
UNREACHABLE = {6: "lock is named", 7: "namespace is named", 8: "name is given", 11: "a profile", 36: "strategy", 58: "weight 0"}


@pytest.mark.parametrize(("body", "field", "words"), RULES.values(), ids=RULES)
def test_invalid_gate_settings_are_rejected(body, field, words):
    found = faults_of(body)
    assert any(at == field and words in text for at, text in found), found


@pytest.mark.parametrize(("gates", "body", "field", "words"), WITH_GATES.values(), ids=WITH_GATES)
def test_refuses_with_gates(gates, body, field, words):
    found = faults_of(body, gates)
    assert any(at == field and words in text for at, text in found), found


def test_every_rule_has_a_document():
    numbers = {int(name.split()[0]) for name in (*RULES, *WITH_GATES)} | set(UNREACHABLE) | {62}
    assert numbers == set(range(1, 63))


@pytest.mark.parametrize(
    "body",
    [
        'leaderElection: {resourceLock: "", resourceNamespace: "", resourceName: ""}',
        "profiles: []",
        args("NodeResourcesFit", "{scoringStrategy: null}"),
        plugins("{score: {enabled: [{name: ImageLocality, weight: 0}]}}"),
        "leaderElection: {leaderElect: false, leaseDuration: -1s, resourceLock: endpoints}",
    ],
    ids=["names of the lease", "no profile", "no strategy", "no weight", "no election"],
)
def test_a_value_that_defaulting_fills_is_not_rejected(body):
    load((HEADER + body).encode(), "test", REGISTRY, FeatureGates())


def test_62_one_placement_generator():
    """Only one plugin of the release generates placements, so the second is made up."""
    given = Plugins(
        placement_generate=PluginSet(enabled=(PluginRef(name="Mine"), PluginRef(name="TopologyPlacementGenerator")))
    )
    known = {**POINTS_1_36, "Mine": ("placementGenerate",)}
    found = expand(given, default_plugins(FeatureGates()), ReadProfile(known, "plugins", "a")).faults
    assert [(fault.field, fault.detail) for fault in found] == [
        ("plugins.placementGenerate", 'at most one placement generate plugin is allowed for profile with scheduler name "a"')
    ]


ELECTION = {  # what is wrong with leader election → the fault up to 1.33, and from 1.34 on
    "a short lease": (
        {"lease_duration": 5.0},
        'leaderElection.leaseDuration: Invalid value: "10s": LeaseDuration must be greater than RenewDeadline',
        'leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`',
    ),
    "no lock": (
        {"resource_lock": ""},
        'leaderElection.resourceLock: Invalid value: "": resourceLock is required',
        "leaderElection.resourceLock: Required value",
    ),
    "no name": (
        {"resource_name": ""},
        'leaderElection.resourceName: Invalid value: "": resourceName is required',
        "leaderElection.resourceName: Required value",
    ),
}


@pytest.mark.parametrize(("given", "early", "late"), ELECTION.values(), ids=ELECTION)
@pytest.mark.parametrize(
    ("release", "is_late"), [("1.20", False), ("1.22", False), ("1.33", False), ("1.34", True), ("1.36", True)]
)
def test_faults_of_leader_election_are_those_of_the_release(release, is_late, given, early, late):
    durations = {"lease_duration": 15.0, "renew_deadline": 10.0, "retry_period": 2.0}
    found = leader_election_faults(LeaderElection(**{**durations, **given}), find_release(release))
    assert (late if is_late else early) in [str(fault) for fault in found]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_document_of_1_22_has_the_texts_of_1_22(version):
    head = f"apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\n"
    text = f"{head}leaderElection: {{leaderElect: true, leaseDuration: 5s}}\n"
    with pytest.raises(ConfigError, match="LeaseDuration must be greater than RenewDeadline"):
        load_source(ConfigSource(text.encode(), "c.yaml", emulate="1.22"))


@pytest.mark.parametrize(
    ("release", "equal"), [("1.20", True), ("1.22", True), ("1.25", True), ("1.26", False), ("1.36", False)]
)
def test_up_to_1_25_a_lease_may_last_as_long_as_its_renewal(release, equal):
    names = {"resource_lock": "leases", "resource_name": "s", "resource_namespace": "s"}
    given = LeaderElection(lease_duration=10.0, renew_deadline=10.0, retry_period=2.0, **names)
    assert (not [*leader_election_faults(given, find_release(release))]) is equal
