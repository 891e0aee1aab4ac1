"""Daemon sets: which nodes have a pod, and how a new template gets there."""

import pytest

from moorage.rules.workloads.daemon_set import DaemonSets

AGENT = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: "agent:1"}]}
"""


@pytest.fixture
def cluster(lab):
    made = lab(DaemonSets(), nodes=4)
    made.apply(AGENT)
    made.settle()
    yield made
    assert made.reports == []


def places(cluster):
    return sorted(pod["spec"]["nodeName"] for pod in cluster.all("pods"))


def image(n, **annotations):
    def change(held):
        held["spec"]["template"]["spec"]["containers"][0]["image"] = f"agent:{n}"
        if annotations:
            held["spec"]["template"]["metadata"]["annotations"] = {
                f"moorage.dev/{k}-seconds": v for k, v in annotations.items()
            }

    return change


def images(cluster):
    return sorted(
        pod["spec"]["containers"][0]["image"] for pod in cluster.all("pods") if not pod["metadata"].get("deletionTimestamp")
    )


def test_each_node_has_one(cluster):
    assert places(cluster) == ["n1", "n2", "n3", "n4"]
    assert cluster.counts("daemonsets", "agent") == {
        "currentNumberScheduled": 4, "numberMisscheduled": 0, "desiredNumberScheduled": 4, "numberReady": 4,
        "updatedNumberScheduled": 4, "numberAvailable": 4, "observedGeneration": 1,
    }  # fmt: skip
    pod = cluster.all("pods")[0]
    assert {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"][
        "tolerations"
    ]
    (revision,) = cluster.all("controllerrevisions")
    assert revision["metadata"]["name"] == f"agent-{pod['metadata']['labels']['controller-revision-hash']}"


def test_pods_follow_created_and_deleted_nodes(cluster):
    cluster.add_node("n5")
    cluster.settle()
    assert places(cluster) == ["n1", "n2", "n3", "n4", "n5"]
    cluster.delete("nodes", "n2")
    cluster.settle()
    assert [pod["spec"]["nodeName"] for pod in cluster.all("pods") if not pod["metadata"].get("deletionTimestamp")] != []
    ending = [pod["spec"]["nodeName"] for pod in cluster.all("pods") if pod["metadata"].get("deletionTimestamp")]
    assert ending == ["n2"]


WHERE = {
    "a label is asked for": (
        lambda node: node["metadata"].update(labels={"disk": "ssd"}),
        {"nodeSelector": {"disk": "ssd"}},
        ["n1"],
    ),
    "a taint keeps it away": (
        lambda node: node.setdefault("spec", {}).update(taints=[{"key": "k", "effect": "NoSchedule"}]),
        {},
        ["n2", "n3", "n4"],
    ),
    "cordoned nodes have one, too": (
        lambda node: node.setdefault("spec", {}).update(
            taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
        ),
        {},
        ["n1", "n2", "n3", "n4"],
    ),
}


@pytest.mark.parametrize(("change", "spec", "expected"), WHERE.values(), ids=WHERE)
def test_the_nodes_of_a_daemon_set(lab, change, spec, expected):
    made = lab(DaemonSets(), nodes=4)
    made.edit("nodes", "n1", change)
    made.apply(AGENT.replace("spec: {containers", f"spec: {{nodeSelector: {spec.get('nodeSelector', {})}, containers"))
    made.settle()
    assert places(made) == expected


def test_a_later_taint_evicts_only_with_no_execute(cluster):
    def taint(effect):
        return lambda node: node.setdefault("spec", {}).update(taints=[{"key": "k", "effect": effect}])

    cluster.edit("nodes", "n1", taint("NoSchedule"))
    cluster.settle()
    assert "n1" in places(cluster)
    assert cluster.counts("daemonsets", "agent")["numberMisscheduled"] == 1
    cluster.edit("nodes", "n1", taint("NoExecute"))
    cluster.settle()
    assert places(cluster) == ["n2", "n3", "n4"]


def test_a_rollout_replaces_pods_node_by_node(cluster):
    cluster.edit("daemonsets", "agent", image(2, ready="5"))
    cluster.advance(1)
    assert images(cluster) == ["agent:1", "agent:1", "agent:1", "agent:2"]
    cluster.advance(5)
    assert images(cluster).count("agent:2") == 2
    cluster.advance(30)
    assert images(cluster) == ["agent:2"] * 4
    assert sorted(one["revision"] for one in cluster.all("controllerrevisions")) == [1, 2]


def test_surging_keeps_the_old_pod_until_the_new_one_is_available(cluster):
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    cluster.patch("daemonsets", "agent", updateStrategy=strategy)
    cluster.edit("daemonsets", "agent", image(2, ready="5"))
    cluster.advance(2)
    assert images(cluster) == ["agent:1"] * 4 + ["agent:2"]
    cluster.advance(60)
    assert images(cluster) == ["agent:2"] * 4


def test_on_delete_waits_for_the_deletion(cluster):
    cluster.patch("daemonsets", "agent", updateStrategy={"type": "OnDelete"})
    cluster.edit("daemonsets", "agent", image(2))
    cluster.advance(10)
    assert images(cluster) == ["agent:1"] * 4
    cluster.delete("pods", cluster.names("pods")[0])
    cluster.settle()
    assert images(cluster) == ["agent:1"] * 3 + ["agent:2"]


def test_a_rollback_reuses_the_existing_revision(cluster):
    for n in (2, 1):
        cluster.edit("daemonsets", "agent", image(n))
        cluster.advance(60)
    assert images(cluster) == ["agent:1"] * 4
    assert sorted(one["revision"] for one in cluster.all("controllerrevisions")) == [2, 3]


def test_history_is_kept_to_its_limit(cluster):
    cluster.patch("daemonsets", "agent", revisionHistoryLimit=1)
    for n in range(2, 6):
        cluster.edit("daemonsets", "agent", image(n))
        cluster.advance(60)
    assert sorted(one["revision"] for one in cluster.all("controllerrevisions")) == [4, 5]


def test_failed_pods_are_replaced_with_backoff(cluster):
    def fail(pod):
        pod["status"]["phase"] = "Failed"

    for waited in (0, 1, 2):
        name = next(pod["metadata"]["name"] for pod in cluster.all("pods") if pod["spec"]["nodeName"] == "n1")
        cluster.edit("pods", name, fail, subresource="status")
        cluster.settle()
        if waited:
            assert name in cluster.names("pods")
            cluster.advance(waited)
        assert name not in cluster.names("pods")
    assert places(cluster) == ["n1", "n2", "n3", "n4"]


def test_revisions_have_their_owners_annotations_and_their_fields_in_order(cluster):
    cluster.edit("daemonsets", "agent", lambda held: held["metadata"].update(annotations={"team": "a"}))
    cluster.edit("daemonsets", "agent", image(2))
    cluster.settle()
    revision = max(cluster.all("controllerrevisions"), key=lambda one: one["revision"])
    assert revision["metadata"]["annotations"]["team"] == "a"
    template = revision["data"]["spec"]["template"]
    assert list(template) == sorted(template)
    assert list(template["spec"]["containers"][0]) == sorted(template["spec"]["containers"][0])
