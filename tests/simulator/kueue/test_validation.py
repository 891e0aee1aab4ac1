"""What Kueue's API refuses, in its words."""

import pytest

from moorage.basis.inputs.components import Component
from moorage.errors import InputError
from moorage.simulator.kueue.batch_jobs import queued_cluster
from moorage.simulator.kueue.settings import read_settings
from moorage.simulator.kueue.validation import with_defaults
from tests.simulator.kueue.timing import API, job, meta, node, queue, read, template

QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"


def cluster_queue(resources=None, covered=("cpu",), flavors=("default",), **spec):
    quotas = resources or [{"name": "cpu", "nominalQuota": 4}]
    group = {"coveredResources": list(covered), "flavors": [{"name": name, "resources": quotas} for name in flavors]}
    spec = {"cohortName": "all", "resourceGroups": [group], **spec}
    return {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": "a"}, "spec": spec}


def cpu(**quota):
    return [{"name": "cpu", "nominalQuota": 4, **quota}]


def flavor(**spec):
    return {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": spec}


def topology(*levels):
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    return {"apiVersion": API, "kind": "Topology", "metadata": {"name": "t"}, "spec": spec}


def workload(requests=(), count=2, **more):
    container = {"name": "c", "resources": {"requests": dict(requests)}}
    pod_set = {"name": "main", "count": count, "template": {"spec": {"containers": [container]}}, **more}
    return {"apiVersion": API, "kind": "Workload", "metadata": {"name": "w"}, "spec": {"podSets": [pod_set]}}


SET = "spec.podSets[0]"
REFUSED = {
    "a topology without labels of nodes": (
        flavor(topologyName="t", nodeLabels={}),
        "spec: Invalid value: at least one nodeLabel is required when topology is set",
    ),
    "a taint twice": (
        flavor(nodeTaints=[{"key": "a", "effect": "NoSchedule"}] * 2),
        'spec.nodeTaints[1]: Duplicate value: {"key":"a","effect":"NoSchedule"}: taints must be unique by key and effect pair',
    ),
    "the key of a taint": (
        flavor(nodeTaints=[{"key": "a b", "effect": "NoSchedule"}]),
        'spec.nodeTaints[0].key: Invalid value: "a b": name part must consist of alphanumeric characters',
    ),
    "the key of a toleration": (
        flavor(tolerations=[{"key": "-", "operator": "Exists"}]),
        'spec.tolerations[0].key: Invalid value: "-": name part must consist of alphanumeric characters',
    ),
    "a label of nodes": (
        flavor(nodeLabels={"a": "b c"}), 'spec.nodeLabels: Invalid value: "b c": a valid label must be an empty string or'
    ),
    "an effect of a taint": (
        flavor(nodeTaints=[{"key": "a", "effect": "Never"}]),
        "spec.nodeTaints: Invalid value: supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
    ),
    "a toleration without a key": (
        flavor(tolerations=[{"operator": "Equal"}]),
        "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
    ),
    "a toleration for a time": (
        flavor(tolerations=[{"key": "a", "tolerationSeconds": 3, "effect": "NoSchedule"}]),
        "effect must be 'NoExecute' when 'tolerationSeconds' is set",
    ),
    "an operator": (
        flavor(tolerations=[{"key": "a", "operator": "In"}]), "supported toleration values: 'Equal'(default), 'Exists'"
    ),
    "a value of Exists": (
        flavor(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        "a value must be empty when 'operator' is 'Exists'",
    ),
    "an effect of a toleration": (
        flavor(tolerations=[{"key": "a", "effect": "Never"}]), "spec.tolerations: Invalid value: supported taint effect values"
    ),
    "no level": (topology(), "spec.levels: Invalid value: 0: spec.levels in body should have at least 1 items"),
    "many levels": (topology(*map(str, range(17))), "spec.levels: Too many: 17: must have at most 16 items"),
    "a level twice": (topology("a", "a"), "spec.levels: Invalid value: must be unique"),
    "hosts above": (
        topology("kubernetes.io/hostname", "a"),
        "spec.levels: Invalid value: the kubernetes.io/hostname label can only be used at the lowest level of topology",
    ),
    "least pods": (workload(minCount=3), f"{SET}: Invalid value: minCount should be positive and less or equal to count"),
    "a negative request": (
        workload({"cpu": "-1"}),
        f'{SET}.template.spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ),
    "a request for pods": (
        workload({"pods": "1"}), 'resources.requests[pods]: Invalid value: "pods": the key is reserved for internal kueue use'
    ),
    "a slice without size": (
        workload(topologyRequest={"podSetSliceRequiredTopology": "rack"}),
        f"{SET}.topologyRequest.podSetSliceSize: Required value: must be set when podSetSliceRequiredTopology is specified",
    ),
    "an empty slice": (
        workload(topologyRequest={"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0}),
        f"{SET}.topologyRequest.podSetSliceSize: Invalid value: 0: must be greater than 0",
    ),
    "a size without a slice": (
        workload(topologyRequest={"podSetSliceSize": 2}),
        f"{SET}.topologyRequest.podSetSliceSize: Forbidden: may not be set when podSetSliceRequiredTopology is not specified",
    ),
    "an empty layer": (
        workload(topologyRequest={"podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 0}]}),
        f"{SET}.topologyRequest.podsetSliceRequiredTopologyConstraints[0].size: Invalid value: 0: must be greater than 0",
    ),
    "a negative quota": (
        cluster_queue(cpu(nominalQuota=-1)), f'{QUOTA}.nominalQuota: Invalid value: "-1": must be greater than or equal to 0'
    ),
    "a negative limit": (cluster_queue(cpu(borrowingLimit="-2")), f'{QUOTA}.borrowingLimit: Invalid value: "-2": must be'),
    "no quantity": (cluster_queue(cpu(nominalQuota="many")), f"{QUOTA}.nominalQuota: "),
    "a limit without a cohort": (
        cluster_queue(cpu(borrowingLimit=2), cohortName=""),
        f'{QUOTA}.borrowingLimit: Invalid value: "2": must be nil when cohort is empty',
    ),
    "lending more than there is": (
        cluster_queue(cpu(lendingLimit=5)),
        f'{QUOTA}.lendingLimit: Invalid value: "5": must be less than or equal to the nominalQuota',
    ),
    "a flavor twice": (
        cluster_queue(flavors=("gold", "gold")), 'spec.resourceGroups[0].flavors[1].name: Duplicate value: "gold"'
    ),
    "a resource twice": (
        cluster_queue([*cpu(), *cpu()], ("cpu", "cpu")), 'spec.resourceGroups[0].coveredResources[1]: Duplicate value: "cpu"'
    ),
    "the name of a resource": (
        cluster_queue(cpu(name="a b"), ("a b",)), 'resourceGroups[0].coveredResources[0]: Invalid value: "a b": name part must'
    ),
    "another resource": (
        cluster_queue(cpu(name="memory")), f'{QUOTA}.name: Invalid value: "memory": must match the name in coveredResources'
    ),
    "too few resources": (
        cluster_queue(covered=("cpu", "memory")),
        "spec.resourceGroups[0]: Invalid value: flavors must have the same number of resources as the coveredResources",
    ),
    "too many flavors": (
        cluster_queue(flavors=map(str, range(257))),
        "Invalid value: 257: total number of flavors across all resourceGroups must be ≤ 256, got 257",
    ),
    "a strategy": (
        cluster_queue(queueingStrategy="LIFO"),
        'spec.queueingStrategy: Unsupported value: "LIFO": supported values: "StrictFIFO", "BestEffortFIFO"',
    ),
    "borrowing without reclaiming": (
        cluster_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        "spec.preemption: Invalid value: reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
    ),
    "a preference": (
        cluster_queue(flavorFungibility={"preference": "PreemptionOverBorrowing"}),
        'preference "PreemptionOverBorrowing" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor',
    ),
    "a check of another flavor": (
        cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "x", "onFlavors": ["gold"]}]}),
        'admissionChecks[0].onFlavors[0]: Unsupported value: "gold": supported values: "default"',
    ),
    "a negative weight": (
        cluster_queue(fairSharing={"weight": "-1"}), 'spec.fairSharing: Invalid value: "-1": must be greater than or equal to 0'
    ),
    "next to no weight": (
        cluster_queue(fairSharing={"weight": "1n"}), 'spec.fairSharing: Invalid value: "1n": When not 0, weight must be > 10e-9'
    ),
    "a limit of a cohort without a parent": (
        {"kind": "Cohort", "metadata": {"name": "c"}, "spec": {"resourceGroups": cluster_queue(cpu(lendingLimit=1))["spec"][
            "resourceGroups"
        ]}},
        f'Cohort c: {QUOTA}.lendingLimit: Invalid value: "1": must be nil when parent is empty',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("document", "says"), REFUSED.values(), ids=REFUSED)
def test_refuses(document, says):
    with pytest.raises(InputError) as refused:
        with_defaults([document])
    assert says in str(refused.value)


def of_kind(kind, spec, **more):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": "x", "namespace": "team"}, "spec": spec, **more}


def configuration(**fields):
    return {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "metadata": {"name": "k"}, **fields}


def job_set(**replicated):
    made = {"name": "w", "template": {"spec": {"template": template()}}, **replicated}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta("js", "a"),
        "spec": {"replicatedJobs": [made]},
    }


MALFORMED = {
    "no flavors": (
        of_kind("ClusterQueue", {"resourceGroups": [{"coveredResources": ["cpu"]}]}),
        "ClusterQueue x: spec.resourceGroups[0].flavors: Required value",
    ),
    "a text for a list": (
        of_kind("ClusterQueue", {"resourceGroups": "x"}),
        'spec.resourceGroups in body must be of type array: "string"',
    ),
    "an operator": (
        of_kind("ClusterQueue", {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Foo"}]}}),
        'spec.namespaceSelector.matchExpressions[0].operator: Invalid value: "Foo": not a valid selector operator',
    ),
    "a number for a text": (
        of_kind("ResourceFlavor", {"nodeTaints": [{"key": 5}]}),
        'spec.nodeTaints[0].key in body must be of type string: "integer"',
    ),
    "a level without a label": (
        of_kind("Topology", {"levels": [{}]}),
        "spec.levels[0].nodeLabel: Required value",
    ),
    "a priority": (of_kind("WorkloadPriorityClass", {}, value="x"), 'value in body must be of type integer: "string"'),
    "a count": (of_kind("Workload", {"podSets": [{"count": -5}]}), "spec.podSets[0].count"),
    "a gate that there is not": (
        configuration(featureGates={"PartialAdmision": False}),
        "featureGates: unrecognized feature gate: PartialAdmision; did you mean PartialAdmission?",
    ),
    "a strategy of a transformation": (
        configuration(resources={"transformations": [{"input": "cpu", "strategy": "Drop"}]}),
        'resources.transformations[0].strategy: Unsupported value: "Drop": supported values: "Retain", "Replace"',
    ),
    "a transformation twice": (
        configuration(resources={"transformations": [{"input": "cpu"}, {"input": "cpu"}]}),
        'resources.transformations[1].input: Duplicate value: "cpu"',
    ),
    "what two settings exclude": (
        configuration(resources={"quotaCheckStrategy": "IgnoreUndeclared", "excludeResourcePrefixes": ["x"]}),
        "excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared",
    ),
    "a limit of retries": (
        configuration(waitForPodsReady={"requeuingStrategy": {"backoffLimitCount": "x"}}),
        'waitForPodsReady.requeuingStrategy.backoffLimitCount in body must be of type integer: "string"',
    ),
    "negative retries": (
        configuration(waitForPodsReady={"requeuingStrategy": {"backoffLimitCount": -1, "timestamp": "Never"}}),
        "waitForPodsReady.requeuingStrategy.backoffLimitCount: Invalid value: -1: must be greater than or equal to 0",
    ),
    "strategies of preemption": (
        configuration(fairSharing={"preemptionStrategies": ["LessThanInitialShare", "LessThanOrEqualToFinalShare"]}),
        'fairSharing.preemptionStrategies: Unsupported value: ["LessThanInitialShare","LessThanOrEqualToFinalShare"]: ',
    ),
    "replicas": (job_set(replicas="x"), "JobSet team/js: spec.replicatedJobs: replicas: 'x' is no count"),
    "negative replicas": (job_set(replicas=-3), "-3 is no count; use a whole number of at least 0"),
}


@pytest.mark.parametrize(("document", "says"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_objects_are_named_with_the_field(document, says):
    with pytest.raises(InputError) as refused:
        queued_cluster(*read(node(), queue("a", 4), document))
    assert says in str(refused.value)


def test_all_faults_are_named_at_once():
    with pytest.raises(InputError) as refused:
        with_defaults([cluster_queue(cpu(nominalQuota=-1), queueingStrategy="LIFO"), cluster_queue(cpu(lendingLimit=9))])
    assert str(refused.value).count(": spec.") == 3
    assert len(str(refused.value).splitlines()) == 3


def test_what_kueue_takes():
    with_defaults([cluster_queue(cpu(borrowingLimit=0, lendingLimit=4)), cluster_queue(cpu(nominalQuota="9" * 30))])


def test_a_queue_with_a_missing_check_is_inactive():
    found = queued_cluster(*read(node(), queue("a", 4, admissionChecks=["gone"]), job("one", "a")))
    assert found.objects.faults == {"a": "references missing AdmissionCheck(s): gone"}
    assert not found.fresh().objects.queues["a"].active


def test_a_gate_of_which_only_the_default_is_simulated_is_noted():
    settings = read_settings([configuration(featureGates={"ConcurrentAdmission": True, "PartialAdmission": False})])
    assert settings.notes == ("Kueue's gate ConcurrentAdmission=true is not simulated; decisions follow false",)
    assert "PartialAdmission" not in settings.gates


def component(image, *arguments):
    return Component("kueue", image, ("/manager", *arguments), {})


SCAN = "FlavorFungibilityPreserveScanProgress"
RELEASES = {  # image, arguments → notes, whether a search for flavors goes on where it stopped
    "the release that is followed": ("registry.k8s.io/kueue/kueue:v0.17.0", (), 0, False),
    "a later one": ("registry.k8s.io/kueue/kueue:v0.19.1", (), 0, True),
    "an earlier one": ("registry.k8s.io/kueue/kueue:v0.12.3", (), 1, False),
    "a tag without a version": ("example.com:5000/kueue:main", (), 0, False),
    "a digest": ("example.com/kueue@sha256:00ff", (), 0, False),
    "gates on the command line": ("kueue:v0.19.0", (f"--feature-gates={SCAN}=false,MultiKueue=true",), 0, False),
    "gates as two arguments": ("kueue:v0.17.1", ("--feature-gates", f"{SCAN}=true"), 0, True),
}


@pytest.mark.parametrize(("image", "arguments", "notes", "goes_on"), RELEASES.values(), ids=RELEASES)
def test_decisions_follow_the_release_and_gates_that_run(image, arguments, notes, goes_on):
    settings = read_settings([], component(image, *arguments))
    assert (len(settings.notes), SCAN in settings.gates) == (notes, goes_on)
