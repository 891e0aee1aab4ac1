"""Small clusters with queues in virtual time, for tests."""

from moorage.laboratory.cluster_objects import read_given
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.job_kinds import KINDS, QUEUE_KINDS
from moorage.simulator.kueue.batch_jobs import queued_cluster
from moorage.simulator.simulate import Options, prepare

API = "kueue.x-k8s.io/v1beta2"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
FLAVOR = {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "default"}}


def node(name="n1", cpu=8):
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": 110}
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": amounts}}


def queue(name, quota, cohort="all", resource="cpu", **spec):
    """Return a ClusterQueue with quota for one resource, and its LocalQueue."""
    quota = {"name": resource, "nominalQuota": quota}
    group = {"coveredResources": [resource], "flavors": [{"name": "default", "resources": [quota]}]}
    spec = {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": [group], **spec}
    local = {"metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": name}}
    return [
        {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": API, "kind": "LocalQueue", **local},
    ]


def meta(name, to, minutes=None, at=None, **labels):
    notes = {"moorage.dev/duration": f"{minutes}m"} if minutes is not None else {}
    if at is not None:
        notes["moorage.dev/arrival"] = f"{at}m"
    return {
        "name": name,
        "namespace": "team",
        "labels": {"kueue.x-k8s.io/queue-name": to, **labels},
        "annotations": notes,
    }


def template(cpu=1, **more):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [container], **more}}


def job(name, to, pods=1, minutes=None, at=None, cpu=1, notes=(), labels=(), **spec):
    made = meta(name, to, minutes, at, **dict(labels))
    made["annotations"].update(dict(notes))
    spec = {"parallelism": pods, **spec, "template": template(cpu, restartPolicy="Never")}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": made, "spec": spec}


def read(*documents):
    given = list(_flat(documents))
    flavors = [] if any(one["kind"] == "ResourceFlavor" and one["metadata"]["name"] == "default" for one in given) else [FLAVOR]
    cluster = read_given([NAMESPACE, *flavors, *given], custom=KINDS)
    return cluster, [one.document for one in cluster.custom if one.resource in QUEUE_KINDS]


def run(*documents):
    """Return the report on queues after a run, and the run."""
    found = queued_cluster(*read(*documents))
    prepared = prepare(Options())
    found.attach(prepared[0])
    _, whole = simulate_cluster(found.cluster, Options(), prepared=prepared, titles=found.titles)
    return found.report(whole.ended_s), whole


def _flat(documents):
    for one in documents:
        yield from one if isinstance(one, list) else [one]
