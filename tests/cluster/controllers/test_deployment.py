"""Deployments: what a rollout does step by step, and what it says of itself."""

import pytest

from moorage.api.documents.object_fields import REPLICA_SETS, bounds
from moorage.rules.workloads.deployment import Deployments
from moorage.rules.workloads.replica_set import ReplicaSets

SHOP = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, annotations: {team: blue}}
spec:
  replicas: 4
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: c, image: "shop:1"}]}
"""


def with_spec(more):
    return SHOP.replace("replicas: 4", more.replace(", ", "\n  ", 1))


def image(n):
    def change(document):
        document["spec"]["template"]["spec"]["containers"][0]["image"] = f"shop:{n}"

    return change


@pytest.fixture
def empty(lab):
    made = lab(Deployments(), ReplicaSets(REPLICA_SETS))
    yield made
    assert made.reports == []


@pytest.fixture
def cluster(empty):
    empty.apply(SHOP)
    empty.settle()
    return empty


def sizes(cluster):
    """Return the sizes of the replica sets by revision."""
    mark = "deployment.kubernetes.io/revision"
    return {one["metadata"]["annotations"][mark]: one["spec"]["replicas"] for one in cluster.all("replicasets")}


def progress(cluster):
    return cluster.condition("deployments", "shop", "Progressing")


def is_ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def test_a_new_deployment_becomes_available(cluster):
    assert len(cluster.all("pods")) == 4
    (made,) = cluster.all("replicasets")
    mark = made["metadata"]["labels"]["pod-template-hash"]
    assert made["metadata"]["name"] == f"shop-{mark}"
    assert made["metadata"]["annotations"] == {
        "team": "blue", "deployment.kubernetes.io/revision": "1", "deployment.kubernetes.io/desired-replicas": "4",
        "deployment.kubernetes.io/max-replicas": "5",
    }  # fmt: skip
    assert cluster.counts("deployments", "shop") == {
        "observedGeneration": 1, "replicas": 4, "updatedReplicas": 4, "readyReplicas": 4, "availableReplicas": 4,
        "terminatingReplicas": 0,
    }  # fmt: skip
    assert progress(cluster) == ("True", "NewReplicaSetAvailable")
    assert cluster.condition("deployments", "shop", "Available") == ("True", "MinimumReplicasAvailable")
    assert cluster.get("deployments", "shop")["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"


def test_a_rollout_respects_max_surge_and_max_unavailable(empty):
    empty.apply(with_spec("replicas: 10, strategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 3}}"))
    empty.settle()

    def change(document):
        image(2)(document)
        document["spec"]["template"]["metadata"]["annotations"] = {"moorage.dev/ready-seconds": "5"}

    empty.edit("deployments", "shop", change)
    seen = []
    for _ in range(60):
        empty.advance(1)
        pods = [pod for pod in empty.all("pods") if not pod["metadata"].get("deletionTimestamp")]
        seen.append((len(pods), sum(map(is_ready, pods))))
    assert max(total for total, _ in seen) == 12
    assert min(ready for _, ready in seen) == 7
    assert sizes(empty) == {"1": 0, "2": 10}
    assert progress(empty) == ("True", "NewReplicaSetAvailable")


def test_recreate_waits_for_the_deletion_of_old_pods(empty):
    stop = 'metadata: {labels: {app: shop}, annotations: {moorage.dev/stop-seconds: "10"}}'
    manifest = with_spec("replicas: 4, strategy: {type: Recreate}").replace("metadata: {labels: {app: shop}}", stop)
    empty.apply(manifest)
    empty.settle()
    empty.edit("deployments", "shop", image(2))
    empty.advance(5)
    assert sizes(empty) == {"1": 0}
    assert all(pod["metadata"].get("deletionTimestamp") for pod in empty.all("pods"))
    empty.advance(6)
    assert sizes(empty) == {"1": 0, "2": 4}
    assert len(empty.all("pods")) == 4


def test_a_rollback_gives_the_old_replica_set_the_next_revision(cluster):
    cluster.edit("deployments", "shop", image(2))
    cluster.settle()
    assert sizes(cluster) == {"1": 0, "2": 4}
    cluster.edit("deployments", "shop", image(1))
    cluster.settle()
    assert sizes(cluster) == {"3": 4, "2": 0}
    (back,) = [one for one in cluster.all("replicasets") if one["spec"]["replicas"]]
    assert back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"
    assert cluster.get("deployments", "shop")["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"


def test_history_is_kept_to_its_limit(cluster):
    cluster.patch("deployments", "shop", revisionHistoryLimit=2)
    for n in range(2, 7):
        cluster.edit("deployments", "shop", image(n))
        cluster.settle()
    assert sizes(cluster) == {"4": 0, "5": 0, "6": 4}


def test_a_paused_deployment_rolls_nothing_out_and_still_scales(cluster):
    cluster.patch("deployments", "shop", paused=True)
    cluster.edit("deployments", "shop", image(2))
    cluster.settle()
    assert sizes(cluster) == {"1": 4}
    assert progress(cluster) == ("Unknown", "DeploymentPaused")
    cluster.patch("deployments", "shop", replicas=6)
    cluster.settle()
    assert sizes(cluster) == {"1": 6}
    cluster.patch("deployments", "shop", paused=False)
    cluster.settle()
    assert sizes(cluster) == {"1": 0, "2": 6}
    assert progress(cluster) == ("True", "NewReplicaSetAvailable")


def test_scaling_in_the_middle_of_a_rollout_is_shared(empty):
    empty.apply(with_spec("replicas: 10, strategy: {rollingUpdate: {maxSurge: 3, maxUnavailable: 2}}"))
    empty.settle()
    empty.schedules = False
    empty.edit("deployments", "shop", image(2))
    empty.settle()
    assert sizes(empty) == {"1": 8, "2": 5}
    empty.patch("deployments", "shop", replicas=15)
    empty.settle()
    assert sizes(empty) == {"1": 11, "2": 7}
    mark = "deployment.kubernetes.io/max-replicas"
    assert {one["metadata"]["annotations"][mark] for one in empty.all("replicasets")} == {"18"}


def test_a_stalled_rollout_is_reported_after_its_progress_deadline(empty):
    empty.schedules = False
    empty.apply(with_spec("replicas: 4, progressDeadlineSeconds: 30"))
    empty.advance(29)
    assert progress(empty)[0] == "True"
    assert empty.condition("deployments", "shop", "Available") == ("False", "MinimumReplicasUnavailable")
    empty.advance(4)
    assert progress(empty) == ("False", "ProgressDeadlineExceeded")
    empty.schedules = True
    empty.settle()
    assert progress(empty) == ("True", "NewReplicaSetAvailable")


def test_a_name_collision_gives_another_name(cluster):
    (held,) = cluster.all("replicasets")
    cluster.delete("deployments", "shop")
    cluster.edit("replicasets", held["metadata"]["name"], lambda one: one["metadata"].update(ownerReferences=[], labels={}))
    cluster.settle()
    cluster.apply(SHOP)
    cluster.settle()
    assert cluster.counts("deployments", "shop")["collisionCount"] == 1
    assert len(cluster.all("replicasets")) == 2
    assert cluster.counts("deployments", "shop")["availableReplicas"] == 4


RANK = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: rank}, value: 5}"


def test_rejected_pods_set_a_condition_until_admitted(lab):
    made = lab(Deployments(), ReplicaSets(REPLICA_SETS))
    made.apply(SHOP.replace("spec: {containers", "spec: {priorityClassName: rank, containers"))
    made.advance(30)
    assert made.all("pods") == []
    assert made.manager.looks["replicaset-controller"] < 40, "it waits longer and longer"
    (held,) = made.names("replicasets")
    assert made.condition("replicasets", held, "ReplicaFailure") == ("True", "FailedCreate")
    assert made.condition("deployments", "shop", "ReplicaFailure") == ("True", "FailedCreate")
    assert "no PriorityClass with name rank was found" in made.reports[-1]
    assert [one["reason"] for one in made.all("events") if one["type"] == "Warning"] != []
    made.apply(RANK)
    made.advance(60)
    assert len(made.all("pods")) == 4
    assert made.condition("replicasets", held, "ReplicaFailure") is None
    assert made.condition("deployments", "shop", "ReplicaFailure") is None


def test_rollouts_write_events(cluster):
    cluster.edit("deployments", "shop", image(2))
    cluster.settle()
    texts = [one["message"] for one in cluster.all("events") if one["reason"] == "ScalingReplicaSet"]
    old, new = (one["metadata"]["name"] for one in sorted(cluster.all("replicasets"), key=lambda one: one["spec"]["replicas"]))
    assert f"Scaled up replica set {old} from 0 to 4" in texts
    assert f"Scaled up replica set {new} from 0 to 1" in texts
    assert any(text.startswith(f"Scaled down replica set {old} from ") and text.endswith(" to 0") for text in texts)


BOUNDS = {
    "surge rounds up, unavailable down": ({"maxSurge": "25%", "maxUnavailable": "25%"}, 10, (3, 2)),
    "never both zero": ({"maxSurge": "0%", "maxUnavailable": "1%"}, 2, (0, 1)),
    "numbers": ({"maxSurge": 1, "maxUnavailable": 0}, 2, (1, 0)),
}


@pytest.mark.parametrize(("rolling", "wanted", "expected"), BOUNDS.values(), ids=BOUNDS)
def test_bounds(rolling, wanted, expected):
    assert bounds(rolling, wanted) == expected


def test_a_replica_set_reused_by_a_rollback_equals_the_others(cluster):
    """No empty field is written: a comparison of replica sets would see a difference."""
    cluster.edit("deployments", "shop", image(2))
    cluster.advance(30)
    cluster.edit("deployments", "shop", image(1))
    cluster.advance(30)
    assert sizes(cluster) == {"2": 0, "3": 4}
    assert all("minReadySeconds" not in one["spec"] for one in cluster.all("replicasets"))
