"""A pod's life on a node that pretends, as its status tells it."""

import pytest

from moorage.api.releases import CURRENT

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {%s}}
spec:
  restartPolicy: %s
  containers: [{name: a, image: i}, {name: b, image: j}]
"""


@pytest.fixture
def cluster(lab):
    made = lab(nodes=1)
    yield made
    assert made.reports == []


def run(cluster, policy="Always", **said):
    cluster.apply(POD % (", ".join(f'moorage.dev/{name.replace("_", "-")}: "{value}"' for name, value in said.items()), policy))
    cluster.settle()


def status(cluster):
    return cluster.get("pods", "web")["status"]


def shown(cluster):
    """Return the phase, whether it is ready, and the first container's state and restarts."""
    held = status(cluster)
    ready = [one["status"] for one in held.get("conditions", ()) if one["type"] == "Ready"]
    first = held.get("containerStatuses", [{"state": {"none": {}}, "restartCount": 0}])[0]
    return held["phase"], ready == ["True"], next(iter(first["state"])), first["restartCount"]


UP, DOWN = ("Running", True, "running"), ("Running", False, "waiting")
LIVES = {  # policy, what is said, then what is shown after so many seconds
    "never ends": ("Always", {}, {0: (*UP, 0), 10_000: (*UP, 0)}),
    "takes its time to start": ("Always", {"start_seconds": 30}, {20: ("Pending", False, "none", 0), 31: (*UP, 0)}),
    "takes its time to be ready": ("Always", {"ready_seconds": 30}, {20: ("Running", False, "running", 0), 31: (*UP, 0)}),
    "succeeds": ("Never", {"run_seconds": 30}, {20: (*UP, 0), 31: ("Succeeded", False, "terminated", 0)}),
    "fails": ("Never", {"run_seconds": 30, "exit_code": 3}, {31: ("Failed", False, "terminated", 0)}),
    "succeeds with no failure to try again": ("OnFailure", {"run_seconds": 30}, {31: ("Succeeded", False, "terminated", 0)}),
    "is started again after a failure": (
        "OnFailure",
        {"run_seconds": 30, "exit_code": 1},
        {31: (*DOWN, 0), 41: (*UP, 1), 71: (*DOWN, 1), 89: (*DOWN, 1), 91: (*UP, 2)},
    ),
    "is started again whatever it ends with": ("Always", {"run_seconds": 30}, {31: (*DOWN, 0)}),
    "says nothing that can be read": ("Always", {"run_seconds": "long", "exit_code": "-1"}, {100: (*UP, 0)}),
}


def bare(name="web", **spec):
    spec = {"containers": [{"name": "c", "image": "i"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(("policy", "said", "expected"), LIVES.values(), ids=LIVES)
def test_a_pod(cluster, policy, said, expected):
    run(cluster, policy, **said)
    now = 0
    for after, what in expected.items():
        cluster.advance(after - now)
        now = after
        assert shown(cluster) == what, after


def test_crash_loop_backoff_grows_to_five_minutes(cluster):
    run(cluster, run_seconds=0, exit_code=1)
    cluster.advance(3600)
    held = status(cluster)["containerStatuses"][0]
    assert "back-off 300s restarting failed container=a pod=web" in held["state"]["waiting"]["message"]
    assert held["lastState"]["terminated"]["exitCode"] == 1
    assert held["restartCount"] in range(13, 17)


def test_the_status_has_every_field_that_clients_read(cluster):
    run(cluster)
    held = status(cluster)
    assert {one["type"]: one["status"] for one in held["conditions"]} == {
        "PodScheduled": "True", "PodReadyToStartContainers": "True", "Initialized": "True", "Ready": "True",
        "ContainersReady": "True",
    }  # fmt: skip
    node = cluster.get("nodes", "n1")
    assert held["hostIP"] == node["status"]["addresses"][0]["address"]
    assert held["podIP"].startswith("10.")
    assert held["podIPs"] == [{"ip": held["podIP"]}]
    assert [one["name"] for one in held["containerStatuses"]] == ["a", "b"]
    assert held["containerStatuses"][0]["containerID"] != held["containerStatuses"][1]["containerID"]


def test_init_containers_end_first_and_sidecars_keep_running(cluster):
    cluster.apply("""
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers: [{name: first, image: i}, {name: side, image: i, restartPolicy: Always}]
  containers: [{name: c, image: i}]
""")
    cluster.settle()
    assert [next(iter(one["state"])) for one in status(cluster)["initContainerStatuses"]] == ["terminated", "running"]


def test_a_pod_on_the_hosts_network_has_its_address(cluster):
    cluster.apply(bare(hostNetwork=True))
    cluster.settle()
    assert status(cluster)["podIP"] == status(cluster)["hostIP"]


def test_no_two_pods_have_one_address(cluster):
    cluster.add_node("n2")
    cluster.settle()
    for i in range(200):
        cluster.apply(bare(f"p{i}"))
    cluster.settle()
    assert len({pod["status"]["podIP"] for pod in cluster.all("pods")}) == 200


def test_a_deadline_ends_a_pod(cluster):
    cluster.apply(bare(activeDeadlineSeconds=30))
    cluster.advance(29)
    assert shown(cluster)[0] == "Running"
    cluster.advance(2)
    held = status(cluster)
    assert (held["phase"], held["reason"]) == ("Failed", "DeadlineExceeded")


STOPS = {  # what it says it takes, the grace it gets, gone after
    "at once": (0, None, 0),
    "as long as it says": (10, None, 10),
    "no longer than its grace": (100, 5, 5),
    "no longer than usual": (100, None, 30),
    "without any grace": (100, 0, 0),
}


@pytest.mark.parametrize(("takes", "grace", "gone"), STOPS.values(), ids=STOPS)
def test_a_deleted_pod_terminates(cluster, takes, grace, gone):
    run(cluster, stop_seconds=takes)
    cluster.advance(5)
    cluster.delete("pods", "web", **({} if grace is None else {"gracePeriodSeconds": grace}))
    if gone:
        cluster.advance(gone - 1)
        assert cluster.get("pods", "web")["metadata"]["deletionTimestamp"]
    cluster.advance(1)
    assert cluster.get("pods", "web") is None


def test_an_applied_node_has_a_kubelet(cluster):
    cluster.apply("{apiVersion: v1, kind: Node, metadata: {name: bare}}")
    cluster.settle()
    assert cluster.condition("nodes", "bare", "Ready") == ("True", "KubeletReady")
    assert cluster.get("nodes", "bare")["status"]["nodeInfo"]["kubeletVersion"] == CURRENT.version


def test_declared_node_fields_are_kept(cluster):
    status = {"capacity": {"cpu": "2"}, "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}],
              "conditions": [{"type": "GPUHealthy", "status": "True"}]}  # fmt: skip
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "own"}, "status": status})
    cluster.settle()
    held = cluster.get("nodes", "own")["status"]
    assert held["addresses"] == status["addresses"]
    assert held["allocatable"] == {"cpu": "2"}
    assert cluster.condition("nodes", "own", "GPUHealthy") == ("True", None)


def test_ephemeral_containers_run_until_the_pod_ends(cluster):
    run(cluster, "Never", run_seconds=30)
    looks = {"name": "look", "image": "i"}
    cluster.edit("pods", "web", lambda pod: pod["spec"].update(ephemeralContainers=[looks]), subresource="ephemeralcontainers")
    cluster.advance(1)
    (held,) = status(cluster)["ephemeralContainerStatuses"]
    assert (held["name"], list(held["state"]), held["ready"]) == ("look", ["running"], False)
    assert shown(cluster) == (*UP, 0)
    cluster.advance(30)
    assert shown(cluster)[0] == "Succeeded"
    (held,) = status(cluster)["ephemeralContainerStatuses"]
    assert held["state"]["terminated"]["exitCode"] == 137


# -- pods that a kubelet does not take -----------------------------------------------------------------------------------


def asking(**requests):
    return [{"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}]


def holding(port):
    return [{"name": "c", "image": "i", "ports": [{"containerPort": port, "hostPort": port}]}]


def on_node(zone):
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


REFUSED = {  # what the pod is like, why it is refused
    "too much processor": (
        {"containers": asking(cpu="5")},
        "OutOfcpu", "Node didn't have enough resource: cpu, requested: 5000, used: 4000, capacity: 8000",
    ),
    "too much memory": (
        {"containers": asking(memory="17Gi")},
        "OutOfmemory", f"Node didn't have enough resource: memory, requested: {17 << 30}, used: 0, capacity: {16 << 30}",
    ),
    "a port that is taken": (
        {"containers": holding(80)},
        "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    ),
    "another node is selected": (
        {"nodeSelector": {"zone": "x"}},
        "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    ),
    "another node is required": (
        {"affinity": on_node("x")},
        "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "reason", "why"), REFUSED.values(), ids=REFUSED)
def test_a_pod_with_an_unfit_node_name_is_rejected(cluster, spec, reason, why):
    first = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}, "ports": holding(80)[0]["ports"]}
    cluster.apply(bare("first", nodeName="n1", containers=[first]))
    cluster.settle()
    cluster.apply(bare(nodeName="n1", **spec))
    cluster.settle()
    held = status(cluster)
    assert (held["phase"], held["reason"], held["message"]) == ("Failed", reason, f"Pod was rejected: {why}")
    assert "containerStatuses" not in held
    told = [one for one in cluster.all("events") if one["involvedObject"]["name"] == "web" and one["type"] == "Warning"]
    assert [(one["reason"], one["message"], one["source"]["component"]) for one in told] == [(reason, why, "kubelet")]


def test_a_pod_that_does_not_tolerate_its_node_is_rejected(cluster):
    cluster.edit("nodes", "n1", lambda node: node["spec"].update(taints=[{"key": "k", "effect": "NoExecute"}]))
    cluster.apply(bare(nodeName="n1"))
    cluster.apply(bare("calm", nodeName="n1", tolerations=[{"operator": "Exists"}]))
    cluster.settle()
    assert status(cluster)["reason"] == "TaintToleration"
    assert cluster.get("pods", "calm")["status"]["phase"] == "Running"


def test_a_node_admits_at_most_its_allocatable_pods(cluster):
    for i in range(111):
        cluster.apply(bare(f"p{i:03}", nodeName="n1"))
        cluster.settle()
    assert cluster.get("pods", "p109")["status"]["phase"] == "Running"
    held = cluster.get("pods", "p110")["status"]
    assert held["reason"] == "OutOfpods"
    assert held["message"].endswith("requested: 1, used: 110, capacity: 110")


def test_resources_of_finished_pods_are_free(cluster):
    cluster.apply(bare("short", nodeName="n1", containers=asking(cpu="8"), restartPolicy="Never", activeDeadlineSeconds=5))
    cluster.settle()
    cluster.advance(10)
    cluster.apply(bare(nodeName="n1", containers=asking(cpu="8")))
    cluster.settle()
    assert status(cluster)["phase"] == "Running"


def test_a_resource_unknown_to_the_node_is_not_checked(cluster):
    cluster.apply(bare(nodeName="n1", containers=asking(**{"x.org/gpu": "1"})))
    cluster.settle()
    assert status(cluster)["phase"] == "Running"


# -- what nodes offer and hooks ------------------------------------------------------------------------------------------


def test_added_devices_are_published_and_removed_ones_are_not(cluster):
    cluster.edit("nodes", "n1", lambda node: node["status"]["capacity"].update({"x.org/gpu": "3"}), subresource="status")
    cluster.settle()
    assert cluster.get("nodes", "n1")["status"]["allocatable"]["x.org/gpu"] == "3"
    cluster.edit("nodes", "n1", lambda node: node["status"]["capacity"].pop("x.org/gpu"), subresource="status")
    cluster.settle()
    held = cluster.get("nodes", "n1")["status"]["allocatable"]
    assert "x.org/gpu" not in held
    assert held["cpu"] == "8"


def test_a_sleeping_pre_stop_hook_delays_termination(cluster):
    hook = {"preStop": {"sleep": {"seconds": 20}}}
    cluster.apply(bare(containers=[{"name": "c", "image": "i", "lifecycle": hook}]))
    cluster.settle()
    cluster.delete("pods", "web")
    cluster.advance(18)
    assert cluster.get("pods", "web") is not None
    cluster.advance(4)
    assert cluster.get("pods", "web") is None
