"""What surrounds the scheduler is in a log: custom kinds, settings of components, and config maps that they read, by name."""

import asyncio
import json
import random
import time

import pytest

from moorage.basis.change_recorder import ChangeRecorder, LogClock, ObjectEncoder
from moorage.basis.inputs.components import COMPANION_KINDS
from moorage.basis.recording.log_reader import ClusterLog, objects_at
from moorage.basis.recording.log_writer import LogWriter
from moorage.errors import ClusterError
from moorage.laboratory.recording.redacted_log import RedactingEncoder
from moorage.live.recording.companion_watches import find_companions
from moorage.live.recording.decision_comparison import Shadow
from moorage.live.recording.recorder_loop import RecorderLoop
from moorage.rules.store.store import Store
from moorage.simulator.cluster_reader import read
from tests.live.server.test_on_embedded_server import a_scheduler, create, live_on, make_node, until

SECRET = "hunter2-hunter2"
CONFIG = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true\n"
DEPLOYMENTS, MAPS = "/apis/apps/v1/namespaces/{}/deployments", "/api/v1/namespaces/{}/configmaps"


def definition(plural, kind, scope):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "spec": {
            "group": "kueue.x-k8s.io", "scope": scope, "versions": [version],
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
        }
    }  # fmt: skip


def running(image, config_map, args=()):
    mounted = [{"name": "config", "configMap": {"name": config_map}}]
    container = {"name": "c", "image": image, "args": list(args), "env": [{"name": "PASSWORD", "value": SECRET}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], "volumes": mounted}}
    return {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}


async def a_cluster(rest):
    for plural, kind, scope in (("clusterqueues", "ClusterQueue", "Cluster"), ("workloads", "Workload", "Namespaced")):
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        version = "apiextensions.k8s.io/v1"
        name = f"{plural}.kueue.x-k8s.io"
        await create(rest, path, "CustomResourceDefinition", name, version, **definition(plural, kind, scope))
    await make_node(rest, "n0")
    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
    await create(rest, path, "ClusterQueue", "westerly", "kueue.x-k8s.io/v1beta2", spec={"queueingStrategy": "StrictFIFO"})
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
    await create(rest, path, "Workload", "w", "kueue.x-k8s.io/v1beta2", spec={"active": False})
    flags = ["--feature-gates=TopologyAwareScheduling=true", f"--kubeconfig={SECRET}"]
    for name, image in (("manager", "registry.k8s.io/kueue/kueue:v0.17.0"), ("shop", "nginx")):
        fields = running(image, f"{name}-config", flags)
        await create(rest, DEPLOYMENTS.format("default"), "Deployment", name, "apps/v1", **fields)
        await create(rest, MAPS.format("default"), "ConfigMap", f"{name}-config", data={"a.yaml": CONFIG, "b": SECRET})
    await create(rest, MAPS.format("kube-system"), "ConfigMap", "cluster-autoscaler-status", data={"status": "nodeGroups: []"})


async def log_after(directory, encoder, then=None, get=lambda rest: rest.get):
    """Record a cluster until all is listed, and once more after ``then``; return the log's last state and its path."""
    reports = []
    async with live_on(Store(time.time, random.Random(5), b"k"), reports=reports, leads=False) as rest:
        await a_cluster(rest)
        companions = await find_companions(get(rest))
        writer = LogWriter(directory)
        recorder = ChangeRecorder(writer, LogClock(time.time_ns, time.monotonic, writer.last_at), encoder)
        about = {"server": "here", "forbidden": list(companions.forbidden)}
        loop = RecorderLoop(recorder, Shadow(a_scheduler(), {}), rest, about, companions=companions)
        task = asyncio.create_task(loop.run())

        async def has_started():
            return recorder.has_started

        try:
            await until(has_started, reports)
            if then is not None:
                await then(rest, loop)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            loop.close()
    log = ClusterLog(directory)
    return log.state_at(log.span()[1])


def bodies(state):
    return {(kind, key): json.loads(body) for (kind, key), (_, body) in state.objects.items()}


@pytest.mark.slow
def test_they_are_recorded_as_a_dump_has_them(tmp_path):
    state = asyncio.run(log_after(tmp_path / "log", ObjectEncoder()))
    found = bodies(state)
    assert found["clusterqueues.kueue.x-k8s.io", "westerly"]["spec"] == {"queueingStrategy": "StrictFIFO"}
    assert found["workloads.kueue.x-k8s.io", "default/w"]["spec"] == {"active": False}
    component = found["deployments.moorage.dev", "default/manager"]
    assert (component["kind"], component["arguments"]) == ("Component", ["--feature-gates=TopologyAwareScheduling=true"])
    maps = {key: one["data"] for (kind, key), one in found.items() if kind.startswith("configmaps")}
    assert maps == {
        "default/manager-config": {"a.yaml": CONFIG}, "kube-system/cluster-autoscaler-status": {"status": "nodeGroups: []"},
    }  # fmt: skip
    assert ("deployments.moorage.dev", "default/shop") not in found
    assert SECRET not in json.dumps(list(found.values()))
    log = ClusterLog(tmp_path / "log")
    path = tmp_path / "as-dump.json"
    path.write_bytes(objects_at(log, log.span()[1]))
    cluster = read([str(path)], custom=COMPANION_KINDS)
    assert sorted(one.name for one in cluster.custom) == ["configuration", "w", "westerly"]
    assert [one.version for one in cluster.components] == [(0, 17, 0)]


@pytest.mark.slow
def test_what_changes_is_recorded(tmp_path):
    async def then(rest, loop):
        loop._config_maps._names.clear()
        path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/westerly"
        await rest.send("PATCH", path, b'{"spec":{"stopPolicy":"Hold"}}', content_type="application/merge-patch+json")
        await rest.send("DELETE", f"{DEPLOYMENTS.format('default')}/manager", b"{}")

        async def changed():
            return loop.recorder.counts["deleted"] >= 1 and loop.recorder.counts["put"] >= 1

        await until(changed, [])

    found = bodies(asyncio.run(log_after(tmp_path / "log", ObjectEncoder(), then)))
    assert found["clusterqueues.kueue.x-k8s.io", "westerly"]["spec"]["stopPolicy"] == "Hold"
    assert ("deployments.moorage.dev", "default/manager") not in found


@pytest.mark.slow
def test_a_redacted_log_has_them_without_names(tmp_path):
    state = asyncio.run(log_after(tmp_path / "log", RedactingEncoder(b"0123456789abcdef")))
    text = b"".join(body for _, body in state.objects.values())
    for word in (b"westerly", b"manager", b"hunter2"):
        assert word not in text
    kinds = {json.loads(body)["kind"] for _, body in state.objects.values()}
    assert {"ClusterQueue", "Workload", "Component", "Configuration"} <= kinds


@pytest.mark.slow
def test_what_may_not_be_read_is_left_out_and_named(tmp_path):
    def narrow(rest):
        async def get(path, params):
            if "workloads" in path or "cronjobs" in path or "configmaps" in path:
                raise ClusterError("forbidden", 403)
            return await rest.get(path, params)

        return get

    state = asyncio.run(log_after(tmp_path / "log", ObjectEncoder(), get=narrow))
    assert state.marks["started"].facts["forbidden"] == ["cronjobs", "workloads"]
    found = bodies(state)
    assert ("clusterqueues.kueue.x-k8s.io", "westerly") in found
    assert not any(kind.startswith("workloads.kueue") for kind, _ in found)
    log = ClusterLog(tmp_path / "log")
    record = json.loads(objects_at(log, log.span()[1]))["items"][0]
    assert record["notRead"] == [{"kind": "cronjobs", "why": "forbidden"}, {"kind": "workloads", "why": "forbidden"}]
