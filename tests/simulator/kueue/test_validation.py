"""What Kueue's API refuses, in its words."""

import pytest

from moorage.errors import InputError
from moorage.simulator.kueue.batch_jobs import queued_cluster
from moorage.simulator.kueue.validation import refuse_invalid
from tests.simulator.kueue.timing import API, job, meta, node, queue, read, template

QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"


def cluster_queue(resources=None, covered=("cpu",), flavors=("default",), **spec):
    quotas = resources or [{"name": "cpu", "nominalQuota": 4}]
    group = {"coveredResources": list(covered), "flavors": [{"name": name, "resources": quotas} for name in flavors]}
    spec = {"cohortName": "all", "resourceGroups": [group], **spec}
    return {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": "a"}, "spec": spec}


def cpu(**quota):
    return [{"name": "cpu", "nominalQuota": 4, **quota}]


REFUSED = {
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
        refuse_invalid([document])
    assert says in str(refused.value)


def of_kind(kind, spec, **more):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": "x", "namespace": "team"}, "spec": spec, **more}


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
        "missing required field `flavors`",
    ),
    "a text for a list": (
        of_kind("ClusterQueue", {"resourceGroups": "x"}),
        'spec.resourceGroups: expected array, found str "x"',
    ),
    "an operator": (
        of_kind("ClusterQueue", {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Foo"}]}}),
        'ClusterQueue x: spec.namespaceSelector: "Foo" is not a valid label selector operator',
    ),
    "a number for a text": (
        of_kind("ResourceFlavor", {"nodeTaints": [{"key": 5}]}),
        "spec.nodeTaints[0].key: expected str, found int 5",
    ),
    "a level without a label": (
        of_kind("Topology", {"levels": [{}]}),
        "spec.levels[0]: Object missing required field `nodeLabel`",
    ),
    "a priority": (of_kind("WorkloadPriorityClass", {}, value="x"), "value: expected int"),
    "a count": (of_kind("Workload", {"podSets": [{"count": -5}]}), "spec.podSets[0].count"),
    "a limit of retries": (
        {
            **of_kind("Configuration", {}, waitForPodsReady={"requeuingStrategy": {"backoffLimitCount": "x"}}),
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        },
        "waitForPodsReady.requeuingStrategy.backoffLimitCount: expected int",
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
        refuse_invalid([cluster_queue(cpu(nominalQuota=-1), queueingStrategy="LIFO"), cluster_queue(cpu(lendingLimit=9))])
    assert str(refused.value).count(": spec.") == 3


def test_what_kueue_takes():
    refuse_invalid([cluster_queue(cpu(borrowingLimit=0, lendingLimit=4)), cluster_queue(cpu(nominalQuota="9" * 30))])


def test_a_queue_with_a_missing_check_is_inactive():
    found = queued_cluster(*read(node(), queue("a", 4, admissionChecks=["gone"]), job("one", "a")))
    assert found.objects.faults == {"a": "references missing AdmissionCheck(s): gone"}
    assert not found.fresh().objects.queues["a"].active
