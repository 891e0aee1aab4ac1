"""``moorage run`` as 1.19 to 1.23 were started, on the embedded API server: policies, locks, and ports without TLS."""

import asyncio
import json
import signal

import pytest
from aiohttp import ClientSession

from moorage.api.releases import find_release
from moorage.interfaces.cli.live.release_flags import FLAGS, Era
from moorage.interfaces.cli.pflag import read_flags
from moorage.live.server.election_locks import ANNOTATION
from tests.interfaces.cli.test_run import running, scheduler
from tests.ports import reserve_port

CORE, LEASES = "/api/v1/namespaces/kube-system", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LABELS = {
    "apiVersion": "v1", "kind": "Policy",
    "predicates": [{"name": "ssd", "argument": {"labelsPresence": {"labels": ["disk"], "presence": True}}}],
    "priorities": [{"name": "LeastRequestedPriority", "weight": 1}],
}  # fmt: skip
SPREAD = {"apiVersion": "v1", "kind": "Policy", "priorities": [{"name": "SelectorSpreadPriority", "weight": 1}]}
V1BETA1 = {"apiVersion": "kubescheduler.config.k8s.io/v1beta1", "kind": "KubeSchedulerConfiguration"}


async def ask(port, path, method="GET"):
    async with ClientSession() as session, session.request(method, f"http://127.0.0.1:{port}{path}", data="5") as answer:
        return answer.status, await answer.text()


async def is_closed(port):
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def node(world, name, **labels):
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }
    await world.rest.send("POST", "/api/v1/nodes", json.dumps({**body, "status": {"allocatable": amounts}}).encode())


async def pod(world, name, scheduler_name="default-scheduler", **labels):
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": scheduler_name}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    await world.rest.send("POST", "/api/v1/namespaces/default/pods", json.dumps(body).encode())


async def where(world, name):
    found = json.loads(await world.rest.get(f"/api/v1/namespaces/default/pods/{name}"))
    return found["spec"].get("nodeName")


async def annotated(world, plural, name):
    found = json.loads(await world.rest.get(f"{CORE}/{plural}/{name}"))
    return json.loads(found["metadata"]["annotations"][ANNOTATION])


@pytest.mark.slow
def test_a_policy_of_a_file_runs_as_1_21_was_started(tmp_path):
    """One profile of another name, NodeLabel as a predicate, the lock named and of both kinds, one port without TLS."""
    port = reserve_port()
    (tmp_path / "policy.json").write_text(json.dumps(LABELS))
    flags = [
        f"--policy-config-file={tmp_path / 'policy.json'}", "--scheduler-name=theirs", "--secure-port=0", "-v=2",
        f"--port={port}", "--address=127.0.0.1", "--leader-elect-resource-lock=configmapsleases", "--lock-object-name=mine",
    ]  # fmt: skip

    async def main():
        async with running(tmp_path, *flags) as world:
            await node(world, "plain")
            await node(world, "ssd", disk="ssd")
            await pod(world, "p", "theirs")
            await pod(world, "other")
            await world.until("Successfully bound pod to node")
            paths = ("/healthz", "/metrics", "/metrics/resources", "/configz", "/readyz", "/flagz", "/debug/pprof/cmdline")
            answers = {path: await ask(port, path) for path in paths}
            answers["verbosity"] = await ask(port, "/debug/flags/v", "PUT")
            answers["reset"] = await ask(port, "/metrics", "DELETE")
            answers["check"] = await ask(port, "/healthz/leaderElection")
            locks = await annotated(world, "configmaps", "mine"), json.loads(await world.rest.get(f"{LEASES}/mine"))
            events = json.loads(await world.rest.get(f"{CORE}/events"))["items"]
            placed = await where(world, "p"), await where(world, "other")
            return answers, locks, events, placed, await world.end(), "".join(world.said)

    answers, (annotation, lease), events, placed, status, said = asyncio.run(main())
    assert placed == ("ssd", None)
    assert answers["/healthz"] == answers["check"] == (200, "ok")
    assert [answers[path][0] for path in ("/metrics", "/metrics/resources", "/configz", "/debug/pprof/cmdline")] == [200] * 4
    assert [answers[what][0] for what in ("/readyz", "/flagz", "verbosity", "reset")] == [404, 404, 404, 405]
    metrics = answers["/metrics"][1]
    assert 'scheduler_e2e_scheduling_duration_seconds_count{profile="theirs",result="scheduled"} 1.0' in metrics
    assert 'scheduler_scheduler_cache_size{type="nodes"} 2.0' in metrics
    assert 'minor="21"' in metrics
    for later in ("scheduling_attempt_duration", "sli_duration", "unschedulable_pods", "feature_enabled", 'queue="gated"'):
        assert later not in metrics
    shown = json.loads(answers["/configz"][1])["componentconfig"]
    assert (shown["apiVersion"], shown["healthzBindAddress"]) == (V1BETA1["apiVersion"], f"127.0.0.1:{port}")
    assert annotation["holderIdentity"] == lease["spec"]["holderIdentity"] != ""
    about = {event["involvedObject"]["kind"]: event["source"]["component"] for event in events}
    assert about == {"ConfigMap": "theirs", "Lease": "theirs"}
    assert status == 0
    assert "Flag --policy-config-file has been deprecated, configure plugins in the profiles of --config instead." in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_policy_of_a_config_map_beside_a_file_runs_as_1_19_was_started(tmp_path):
    """SelectorSpread spreads, health and metrics have a port each, and the lock is what 1.19 stands for."""
    healthz, metrics = reserve_port(), reserve_port()
    config = {
        **V1BETA1, "clientConnection": {"kubeconfig": str(tmp_path / "kubeconfig")},
        "healthzBindAddress": f"127.0.0.1:{healthz}", "metricsBindAddress": f"127.0.0.1:{metrics}",
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    flags = ["--emulate=1.19", f"--config={tmp_path / 'config.yaml'}", "--policy-configmap=policy", "--secure-port=0", "-v=2"]

    async def main():
        async with running(tmp_path, "--emulate=1.19", "--policy-configmap=missing", "--port=0", "--secure-port=0") as world:
            none = (await world.until("couldn't get policy config map"))[0]
            status = await world.process.wait()
            data = {"policy.cfg": json.dumps(SPREAD)}
            await world.create(f"{CORE}/configmaps", "ConfigMap", "policy", data=data)
            for name in ("n1", "n2", "n3"):
                await node(world, name)
            await world.create("/api/v1/namespaces/default/services", "Service", "web", spec={
                "selector": {"app": "web"}, "ports": [{"port": 80}],
            })  # fmt: skip
            async with scheduler(*flags, rest=world.rest) as other:
                for i in range(3):
                    await pod(other, f"web-{i}", app="web")
                    await other.until("Successfully bound pod to node", i + 1)
                places = {await where(other, f"web-{i}") for i in range(3)}
                answers = [await ask(port, path) for port in (healthz, metrics) for path in ("/healthz", "/metrics")]
                resources = await ask(metrics, "/metrics/resources")
                lock = await annotated(other, "endpoints", "kube-scheduler")
                lease = json.loads(await other.rest.get(f"{LEASES}/kube-scheduler"))
                return none, status, places, answers, resources, lock, lease, await other.end(), other.said

    none, status, places, answers, resources, lock, lease, ended, said = asyncio.run(main())
    assert "couldn't get policy config map kube-system/missing: " in none
    assert 'configmaps \\"missing\\" not found' in none
    assert status == 1
    assert places == {"n1", "n2", "n3"}
    assert [code for code, _ in answers] == [200, 404, 404, 200]
    assert resources[0] == 404, "1.19 had no such page"
    assert lock["holderIdentity"] == lease["spec"]["holderIdentity"] != ""
    assert ended == 0
    assert sum("not served" in line for line in said) == 0


@pytest.mark.slow
def test_a_policy_of_a_config_map_runs_as_1_22_was_started(tmp_path):
    """The Policy in the place of a file's profile, a name of the lock beside the file, and one port without TLS."""
    port = reserve_port()
    config = {
        **V1BETA1, "clientConnection": {"kubeconfig": str(tmp_path / "kubeconfig")}, "profiles": [{"schedulerName": "other"}],
        "healthzBindAddress": f"127.0.0.1:{port}", "metricsBindAddress": f"127.0.0.1:{port}",
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    flags = [
        "--emulate=1.22", f"--config={tmp_path / 'config.yaml'}", "--policy-configmap=policy", "--secure-port=0", "-v=2",
        "--leader-elect-resource-name=mine",
    ]  # fmt: skip

    async def main():
        async with running(tmp_path, "--version") as world:
            data = {"policy.cfg": json.dumps(LABELS)}
            await world.create(f"{CORE}/configmaps", "ConfigMap", "policy", data=data)
            await node(world, "plain")
            await node(world, "ssd", disk="ssd")
            async with scheduler(*flags, rest=world.rest) as other:
                await pod(other, "p")
                await other.until("Successfully bound pod to node")
                answers = {
                    path: (await ask(port, path))[0] for path in ("/healthz", "/metrics", "/metrics/resources", "/readyz")
                }
                lease = json.loads(await other.rest.get(f"{LEASES}/mine"))
                return await where(other, "p"), answers, lease, await other.end()

    place, answers, lease, status = asyncio.run(main())
    assert place == "ssd"
    assert answers == {"/healthz": 200, "/metrics": 200, "/metrics/resources": 200, "/readyz": 404}
    assert lease["spec"]["holderIdentity"]
    assert status == 0


@pytest.mark.slow
def test_the_lock_has_the_name_of_the_deprecated_flags_of_1_23(tmp_path):
    lock = ["--lock-object-name=mine", "--lock-object-namespace=default"]

    async def main():
        async with running(tmp_path, "--emulate=1.23", *lock, "--port=0", "--logtostderr=true", "--secure-port=0") as world:
            await world.until("Successfully acquired lease")
            lease = json.loads(await world.rest.get(f"{LEASES.replace('kube-system', 'default')}/mine"))
            return lease["spec"]["holderIdentity"], await world.end()

    holder, status = asyncio.run(main())
    assert holder
    assert status == 0


READ = ["get", "list", "watch"]


def rule(verbs, group, *resources, **more):
    return {"verbs": verbs, "apiGroups": [group], "resources": list(resources), **more}


#: The roles system:kube-scheduler and system:volume-scheduler as 1.20 had them.
ROLE = [
    rule(["create", "patch", "update"], "", "events"), rule(["create", "patch", "update"], "events.k8s.io", "events"),
    rule(["create"], "coordination.k8s.io", "leases"), rule(["create"], "", "endpoints", "pods/binding"),
    rule(["get", "update"], "coordination.k8s.io", "leases", resourceNames=["kube-scheduler"]),
    rule(["get", "update"], "", "endpoints", resourceNames=["kube-scheduler"]),
    rule(READ, "", "nodes", "services", "replicationcontrollers"), rule([*READ, "delete"], "", "pods"),
    rule(["patch", "update"], "", "pods/status"), rule(READ, "apps", "replicasets", "statefulsets"),
    rule(READ, "policy", "poddisruptionbudgets"), rule(READ, "storage.k8s.io", "csinodes", "storageclasses"),
    rule([*READ, "patch", "update"], "", "persistentvolumes", "persistentvolumeclaims"),
]  # fmt: skip


async def with_role(world, folder):
    """Return a kubeconfig of an account that has the role of that time and nothing else."""
    root = "/apis/rbac.authorization.k8s.io/v1"
    await world.create(f"{root}/clusterroles", "ClusterRole", "then", "rbac.authorization.k8s.io/v1", rules=ROLE)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "then"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}
    await world.create(
        f"{root}/clusterrolebindings", "ClusterRoleBinding", "then", "rbac.authorization.k8s.io/v1",
        roleRef=reference, subjects=[subject],
    )  # fmt: skip
    theirs = folder / "theirs"
    theirs.write_text((folder / "kubeconfig").read_text().replace("admin-token", "reader-token"))
    theirs.chmod(0o600)
    return f"--kubeconfig={theirs}"


@pytest.mark.slow
def test_the_role_of_that_time_will_do_and_a_second_replica_waits_for_the_annotation(tmp_path):
    """Nothing is asked for that the role did not grant, and nothing listens at the port that is turned off."""
    lock = ["--leader-elect-resource-lock=endpointsleases", "--leader-elect-retry-period=300ms"]
    flags = ["--emulate=1.20", "--port=0", "--secure-port=0", *lock, "-v=4"]

    async def main():
        async with running(tmp_path, "--version") as world:
            kubeconfig = await with_role(world, tmp_path)
            async with scheduler(kubeconfig, *flags, rest=world.rest) as leader:
                await node(leader, "n1")
                await pod(leader, "p")
                await leader.until("Successfully bound pod to node")
                first = await annotated(leader, "endpoints", "kube-scheduler")
                closed = await is_closed(10251)
                async with scheduler(kubeconfig, *flags, rest=world.rest) as standby:
                    await standby.until("Lease is held by and has not yet expired")
                    await leader.end()
                    await standby.until("Successfully acquired lease")
                    second = await annotated(standby, "endpoints", "kube-scheduler")
                    return first, second, closed, await standby.end(signal.SIGINT), "".join([*leader.said, *standby.said])

    first, second, closed, status, said = asyncio.run(main())
    assert closed
    assert first["holderIdentity"] != second["holderIdentity"]
    assert (second["leaderTransitions"], status) == (first["leaderTransitions"] + 1, 0)
    assert "forbidden" not in said


@pytest.mark.parametrize(
    ("release", "flag"),
    [
        ("1.35", "tls-curve-preferences"),
        ("1.34", "min-compatibility-version"),
        ("1.31", "requestheader-uid-headers"),
        ("1.30", "emulated-version"),
        ("1.29", "log-text-split-stream"),
        ("1.28", "allow-metric-labels-manifest"),
    ],
)
def test_a_release_has_no_later_flags(release, flag):
    era = Era(find_release(release).name, "--emulate")
    newer = Era(find_release(f"1.{era.emulated.minor + 1}").name, "--emulate")
    assert flag not in {one.name for one in era.flags}
    assert flag in {one.name for one in newer.flags}
    given = read_flags(era.flags, ["--v=2"])[0]
    assert {one.name for one in FLAGS} <= era.completed(given).values.keys()
