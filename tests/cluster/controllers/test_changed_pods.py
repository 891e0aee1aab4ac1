"""A kubelet reports which generation of a pod it has seen, and starts containers with another image again."""

import pytest

from moorage.cluster.controllers.nodes.kubelets import Kubelets

POD = """
apiVersion: v1
kind: Pod
metadata: {name: gull}
spec: {nodeName: n1, containers: [{name: c, image: one}, {name: d, image: two}]}
"""


@pytest.fixture
def cluster(lab):
    made = lab(nodes=1)
    made.apply(POD)
    made.settle()
    return made


def status(cluster):
    return cluster.get("pods", "gull")["status"]


def test_the_status_names_the_generation(cluster):
    assert cluster.get("pods", "gull")["metadata"]["generation"] == status(cluster)["observedGeneration"] == 1
    version = cluster.get("pods", "gull")["metadata"]["resourceVersion"]
    cluster.advance(60)
    assert cluster.get("pods", "gull")["metadata"]["resourceVersion"] == version, "it is written once"


def test_a_container_with_another_image_is_started_again(cluster):
    cluster.advance(10)
    cluster.edit("pods", "gull", lambda pod: pod["spec"]["containers"][0].update(image="other"))
    cluster.settle()
    found = status(cluster)
    assert found["observedGeneration"] == 2
    first, second = found["containerStatuses"]
    assert (first["image"], first["restartCount"], second["image"], second["restartCount"]) == ("other", 1, "two", 0)
    assert first["lastState"]["terminated"]["exitCode"] == 143
    assert "running" in first["state"]
    assert first["ready"]


def test_a_deleted_pod_is_seen_ending(lab):
    cluster = lab(nodes=1)
    cluster.manager.close()
    cluster.manager = type(cluster.manager)(cluster.store, [Kubelets(stop_s=1.2)], cluster.reports.append)
    cluster.apply(POD)
    cluster.settle()
    cluster.delete("pods", "gull")
    cluster.settle()
    metadata = cluster.get("pods", "gull")["metadata"]
    assert metadata["deletionTimestamp"]
    assert metadata["generation"] == 2
    cluster.advance(2)
    assert cluster.get("pods", "gull") is None


def test_a_pod_may_stop_at_once(lab):
    cluster = lab(nodes=1)
    cluster.manager.close()
    cluster.manager = type(cluster.manager)(cluster.store, [Kubelets(stop_s=1.2)], cluster.reports.append)
    cluster.apply(POD.replace("{name: gull}", '{name: gull, annotations: {moorage.dev/stop-seconds: "0"}}'))
    cluster.settle()
    cluster.delete("pods", "gull")
    cluster.settle()
    assert cluster.get("pods", "gull") is None
