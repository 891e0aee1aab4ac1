"""The controllers of ``up`` and the expansion of ``simulate`` create the same pods for the same workload."""

import json

import pytest
import yaml

from moorage.api.core import Pod
from moorage.api.decode import decode
from moorage.api.documents.object_fields import REPLICA_SETS
from moorage.basis.inputs.files import InputFile
from moorage.rules.workloads.deployment import Deployments
from moorage.rules.workloads.job import Jobs
from moorage.rules.workloads.missing_pods import (
    free_indexes,
    indexed_base,
    ordinal_of,
    parse_indexes,
    revision_number,
    wanted_active,
)
from moorage.rules.workloads.replica_set import ReplicaSets
from moorage.rules.workloads.stateful_set import StatefulSets
from moorage.simulator.cluster_reader import read_sources
from moorage.simulator.workloads import expand

WORKLOADS = """
apps/v1 ReplicaSet: {replicas: 4}
apps/v1 Deployment: {replicas: 3}
apps/v1 StatefulSet:
  replicas: 3
  ordinals: {start: 2}
  podManagementPolicy: Parallel
  volumeClaimTemplates:
  - metadata: {name: data, labels: {of: a}}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
batch/v1 Job: {completions: 5, parallelism: 3}
"batch/v1 Job ": {completions: 4, parallelism: 3, completionMode: Indexed}
"""
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def workload(kind: str, spec: dict, name: str) -> dict:
    version, kind = kind.split()
    jobs = kind == "Job"
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never" if jobs else "Always"}}
    selector = {} if jobs else {"selector": {"matchLabels": {"app": "a"}}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {**spec, **selector, "template": template}}


def shape(pod: Pod) -> tuple:
    """Return what both sides decide: the name without a random suffix, the owner, the labels, the claims of volumes."""
    owner = pod.metadata.owner_references[0]
    labels = {name: value for name, value in pod.labels.items() if not name.endswith(("-hash", "-uid"))}
    claims = [one.persistent_volume_claim.claim_name for one in pod.spec.volumes if one.persistent_volume_claim]
    name = pod.name if owner.kind == "StatefulSet" else pod.name[:-5]
    mark = pod.labels.get("pod-template-hash", "")
    return name.removesuffix(f"{mark}-") if mark else name, owner.kind, sorted(labels.items()), claims


@pytest.mark.parametrize("name", ["a", "n" * 44])
@pytest.mark.parametrize(("kind", "spec"), yaml.safe_load(WORKLOADS).items())
def test_both_create_the_same_pods(lab, kind, spec, name):
    document = workload(kind, spec, name)
    cluster = lab(Deployments(), ReplicaSets(REPLICA_SETS), StatefulSets(), Jobs())
    cluster.apply(document)
    cluster.settle()
    live = [decode(pod, Pod, "pod") for pod in cluster.all("pods")]
    simulated = expand(read_sources([InputFile("w.json", json.dumps(document).encode())])).pods
    assert sorted(map(shape, live)) == sorted(map(shape, simulated))
    assert len(live) == spec.get("replicas", 3)


ORDINALS = {"a-0": 0, "a-17": 17, "a-01": None, "a-": None, "b-0": None, "a-b-0": None, "a--1": None, "a-+1": None}


@pytest.mark.parametrize(("pod", "ordinal"), ORDINALS.items())
def test_ordinals(pod, ordinal):
    assert ordinal_of("a", pod) == ordinal


WANTED = [  # parallelism, completions, succeeded, failed indexes, active → active pods
    (3, 10, 0, 0, 0, 3),
    (3, 10, 8, 0, 2, 2),
    (3, 10, 5, 4, 0, 1),
    (3, 10, 5, 5, 0, 0),
    (3, None, 0, 0, 1, 3),
    (3, None, 1, 0, 2, 2),
    (0, 10, 0, 0, 0, 0),
]


@pytest.mark.parametrize(("parallelism", "completions", "succeeded", "failed", "active", "wanted"), WANTED)
def test_wanted_pods_of_a_job(parallelism, completions, succeeded, failed, active, wanted):
    assert wanted_active(parallelism, completions, succeeded=succeeded, failed_indexes=failed, active=active) == wanted


def test_free_indexes_are_neither_done_nor_failed_nor_busy():
    assert list(free_indexes(9, parse_indexes("0-2", 9), "4", {5, None})) == [3, 6, 7, 8]


@pytest.mark.parametrize("name", ["a", "n" * 55, "n" * 63])
def test_an_indexed_name_leaves_room_for_its_suffix(name):
    base = indexed_base(name, 12)
    assert base.endswith("-12-")
    assert len(base) <= 58
    assert base.startswith(name[:54])


REVISIONS = {"7": 7, "": 0, "seven": 0, "9" * 30: 0, " 7": 0}


@pytest.mark.parametrize(("text", "number"), REVISIONS.items())
def test_revisions(text, number):
    assert revision_number({"deployment.kubernetes.io/revision": text}) == number
