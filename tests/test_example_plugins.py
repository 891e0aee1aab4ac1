"""Every plugin of the examples under ``moorage simulate``, ``moorage up`` and ``moorage run``: they place the same pods."""

import ast
import asyncio
import json
import os
import random
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from moorage.basis.client.kubeconfig import ClientEnvironment, read_kubeconfig
from moorage.basis.client.rest import Rest
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.interfaces.cli.live.store_loader import fill
from moorage.interfaces.cli.main import main
from moorage.rules.store.store import Store
from tests.interfaces.cli.test_run import running

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*/run.py"))


def plugins_beside(script):
    """Yield ``module:Class`` of each class beside a program that has a name for configurations."""
    for module in sorted(set(script.parent.glob("*.py")) - {script}):
        for node in ast.parse(module.read_text("utf-8")).body:
            named = isinstance(node, ast.ClassDef) and any(
                isinstance(line, ast.Assign) and line.targets[0].id == "name" for line in node.body
            )
            if named:
                yield f"examples.{script.parent.name}.{module.stem}:{node.name}"


PLUGINS = {script.parent.name: list(plugins_beside(script)) for script in SCRIPTS}
#: What plugins name and the embedded server does not serve, with what is then said of it.
UNSERVED = {"release-gate": "releases.v1.example.com is not served by this cluster; plugins see no objects of it"}


def node(name, cpu, **more):
    amounts = {"cpu": str(cpu), "memory": "8Gi", "pods": "10", **more}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"topology.kubernetes.io/zone": name[0], "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"u-{name}", "labels": labels},
        "status": status,
    }


def pod(name, labels=None, **requests):
    metadata = {"name": name, "namespace": "default", "uid": f"u-{name}", "labels": labels or {}}
    spec = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", **requests}, "limits": requests}}]
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def group(size):
    return {"example.com/group": "red", "example.com/group-size": str(size)}


WORLD = [
    node("a1", 2), node("b1", 1), node("b2", 4, **{"nvidia.com/gpu": "2"}),
    pod("free-1"), pod("free-2"), pod("free-3"), pod("gpu", **{"nvidia.com/gpu": "1"}),
    pod("held", {"release": "spring"}), pod("red-1", group(2)), pod("red-2", group(2)),
    pod("too-large", cpu="9"),
]  # fmt: skip
PODS = sorted(one["metadata"]["name"] for one in WORLD if one["kind"] == "Pod")


@pytest.fixture(params=[one for plugins in PLUGINS.values() for one in plugins])
def plugin(request, tmp_path):
    """One plugin, the flags that enable it, and a file with the world."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(tmp_path / "kubeconfig")},
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": request.param.rpartition(":")[2]}]}}}],
    }  # fmt: skip
    config, world = tmp_path / "config.yaml", tmp_path / "world.json"
    config.write_text(yaml.safe_dump(configuration))
    world.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": WORLD}))
    return request.param, ["--config", str(config), "--plugins", request.param], world


def simulated(flags, world, capsys):
    """Return where ``moorage simulate`` puts each pod; "" for nowhere."""
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "-f", str(world), "-o", "json", *flags])
    said = capsys.readouterr()
    assert ended.value.code in {0, 2}, said.err
    return {one["name"]: one.get("node", "") for one in json.loads(said.out)["pods"]}


def environment(**more):
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), **more}


def outcomes(pods):
    """Return where pods are, once each has a node or was refused one; None before that."""
    tried = [
        pod["spec"].get("nodeName")
        or any(condition["type"] == "PodScheduled" for condition in pod["status"].get("conditions", ()))
        for pod in pods
    ]
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods} if all(tried) else None


async def placed(rest):
    async with asyncio.timeout(60):
        while True:
            listed = json.loads(await rest.get("/api/v1/namespaces/default/pods"))["items"]
            found = outcomes(listed)
            if found is not None:
                return found
            await asyncio.sleep(0.1)


@asynccontextmanager
async def up(home, *flags):
    """Start a cluster, and yield a client of it and what it says on standard error."""
    program = [sys.executable, "-m", "moorage", "up", "--port=0", *flags]
    said = []
    process = await asyncio.create_subprocess_exec(
        *program, cwd=ROOT, env=environment(MOORAGE_HOME=str(home)), stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            while not (await process.stdout.readline()).startswith(b"Ctrl-C"):
                assert not process.stdout.at_eof(), (await process.stderr.read()).decode()
        around = ClientEnvironment({}, time.monotonic, lambda: None, warn=said.append)
        config = read_kubeconfig([home / "kubeconfig"], must_exist=True, warn=said.append)
        async with Rest(config.endpoint(around), qps=0) as rest:
            yield rest, said
    finally:
        process.terminate()
        _, err = await process.communicate()
        said += [line for line in err.decode().splitlines() if not line.startswith("Still ")]


def test_each_program_of_the_examples_has_a_plugin():
    # The plugins of fgd are moorage.plugins.gpu_sharing; the others simulate, or learn with built-in ones.
    assert {folder for folder, plugins in PLUGINS.items() if not plugins} == {
        "cluster-autoscaler",
        "fgd",
        "karpenter",
        "learn-openb",
        "learn-weights",
        "over-time",
        "three-teams",
        "waiting-line",
        "incidents",
    }


@pytest.mark.slow
def test_the_same_file_runs_everywhere(plugin, tmp_path, capsys, monkeypatch):
    name, flags, world = plugin
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    expected = simulated(flags, world, capsys)
    assert sorted(expected) == PODS
    assert sum(map(bool, expected.values())) >= 5

    async def under_up():
        async with up(tmp_path / "home", "-f", str(world), *flags) as (rest, said):
            found = await placed(rest)
        return found, said

    async def under_run():
        store = Store(time.time, random.Random(5), b"k")
        bootstrap_cluster(store)
        fill(store, [str(world)])
        async with running(tmp_path, "--secure-port=0", "--leader-elect=false", *flags, kubeconfig="", store=store) as cluster:
            return await placed(cluster.rest), cluster.said

    found, said = asyncio.run(under_up())
    folder = name.split(".")[1]
    assert (found, said) == (expected, [UNSERVED[folder]] if folder in UNSERVED else [])
    found, said = asyncio.run(under_run())
    told = [line for line in said if "until the kind is served" in line]
    assert (found, len(told)) == (expected, folder in UNSERVED)
