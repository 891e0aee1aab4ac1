"""A dump of a live cluster: what is asked for, and what is said of what is missing."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest

import moorage
from moorage.errors import ClusterError
from moorage.laboratory.dump.dump_file import DumpWriter
from moorage.laboratory.dump.live_dump import Pages, fetch, served_companions
from moorage.simulator.job_kinds import KINDS
from moorage.simulator.kueue.batch_jobs import read_queues
from moorage.simulator.kueue.settings import read_settings
from tests.live.server.test_embedded_start import PODS, a_scheduler, a_store, make_node, starting, until

NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1", "pods": "5"}}}
THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Server:
    """Serves lists by path; every other path is not found, and those in ``forbidden`` are refused."""

    def __init__(self, lists, forbidden=()):
        self.lists, self.forbidden, self.asked = lists, forbidden, []

    async def get(self, path, params):
        self.asked.append((path, dict(params)))
        if path in self.forbidden:
            raise ClusterError("no", 403, "Forbidden")
        if path not in self.lists:
            raise ClusterError("none", 404, "NotFound")
        kind, pages = self.lists[path]
        at = int(params.get("continue", 0))
        more = str(at + 1) if at + 1 < len(pages) else ""
        version = "/".join(path.split("/")[2:4]) if path.startswith("/apis/") else "v1"
        page = {"apiVersion": version, "kind": f"{kind}List", "metadata": {"continue": more}, "items": pages[at]}
        return json.dumps(page).encode()

    def read(self):
        pages = Pages()
        asyncio.run(pages.read(self.get))
        return pages.cluster("https://here", THEN)


def test_reads_every_page_and_says_what_is_missing():
    pods = [[{"metadata": {"name": f"p{at}", "namespace": "a"}}] for at in range(3)]
    server = Server({"/api/v1/nodes": ("Node", [[NODE]]), "/api/v1/pods": ("Pod", pods)}, ["/api/v1/services"])
    found = server.read()
    assert ([node.name for node in found.nodes], [pod.name for pod in found.pods]) == (["n1"], ["p0", "p1", "p2"])
    assert found.report.notes[0] == "taken from https://here at 2026-01-02T03:04:05+00:00"
    assert {"services were not read: forbidden", "deployments were not read: not served"} <= set(found.report.notes)
    assert ("/apis/storage.k8s.io/v1/csinodes", {"limit": "500"}) in server.asked


RARE = {"podgroups", "compositepodgroups", "devicetaintrules", "resourceclaims", "resourceslices", "deviceclasses"}
REFERS = {
    "no pod refers to one": ({}, set()),
    "a pod of a group": ({"schedulingGroup": {"podGroupName": "g"}}, {"podgroups"}),
    "a pod with a claim": (
        {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},
        {"resourceclaims", "resourceslices", "deviceclasses"},
    ),
}


@pytest.mark.parametrize(("spec", "said"), REFERS.values(), ids=REFERS)
def test_says_that_a_rare_kind_is_not_served_only_where_a_pod_refers_to_it(spec, said):
    pod = {"metadata": {"name": "p", "namespace": "a"}, "spec": spec}
    server = Server({"/api/v1/nodes": ("Node", [[NODE]]), "/api/v1/pods": ("Pod", [[pod]])})
    texts = [text for text in server.read().report.notes if text.endswith(" were not read: not served")]
    kinds = {text.partition(" ")[0] for text in texts}
    assert kinds & RARE == said
    assert {"services", "deployments", "csinodes"} <= kinds


def test_says_that_a_rare_kind_is_forbidden():
    lists = {"/api/v1/nodes": ("Node", [[NODE]]), "/api/v1/pods": ("Pod", [[]])}
    group = "/apis/scheduling.k8s.io"
    server = Server(lists, [f"{group}/{version}/podgroups" for version in ("v1alpha2", "v1alpha3", "v1beta1")])
    assert "podgroups were not read: forbidden" in server.read().report.notes


def test_a_list_whose_pages_always_expire_is_read_at_once():
    class Busy(Server):
        async def get(self, path, params):
            if "continue" in params:
                raise ClusterError("too old", 410, "Expired")
            if params.get("limit") == "0" and path in self.lists:
                kind, pages = self.lists[path]
                self.lists = {**self.lists, path: (kind, [[one for page in pages for one in page]])}
            return await super().get(path, params)

    pods = [[{"metadata": {"name": f"p{at}", "namespace": "a"}}] for at in range(3)]
    server = Busy({"/api/v1/nodes": ("Node", [[NODE]]), "/api/v1/pods": ("Pod", pods)})
    assert [pod.name for pod in server.read().pods] == ["p0", "p1", "p2"]
    assert [params for path, params in server.asked if path == "/api/v1/pods"] == [{"limit": "500"}] * 2 + [{"limit": "0"}]


def test_nodes_and_pods_are_needed():
    with pytest.raises(ClusterError):
        Server({"/api/v1/nodes": ("Node", [[NODE]])}).read()


MANAGER = {"image": "registry.k8s.io/kueue/kueue:v0.17.0", "name": "manager",
           "args": ["--config=/c.yaml", "--feature-gates=PartialAdmission=false", "--zap-log-level=2"]}  # fmt: skip
MOUNTED = {"name": "manager-config", "configMap": {"name": "kueue-manager-config"}}
LABELS = {"app": "kueue"}
DEPLOYED = {
    "metadata": {"name": "kueue-controller-manager", "namespace": "queues"},
    "spec": {
        "replicas": 0, "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [MANAGER], "volumes": [MOUNTED]}},
    },
}  # fmt: skip
QUEUE = {"metadata": {"name": "a"}, "spec": {"namespaceSelector": {}}}
CONFIGURED = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "manageJobsWithoutQueueName": True}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kueue-manager-config", "namespace": "queues"},
              "data": {"controller_manager_config.yaml": json.dumps(CONFIGURED), "other": "secret"}}  # fmt: skip
STATUS = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"status": "nodeGroups: []"},
          "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"}}  # fmt: skip


class QueuedServer(Server):
    """A server with Kueue in an older version, and the config maps that components read."""

    objects = {
        "/apis": {"groups": [{"versions": [{"groupVersion": "kueue.x-k8s.io/v1beta1"}, {"groupVersion": "karpenter.sh/v1"}]}]},
        "/api/v1/namespaces/queues/configmaps/kueue-manager-config": CONFIG_MAP,
        "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status": STATUS,
    }

    async def get(self, path, params):
        if path in self.objects:
            self.asked.append((path, dict(params)))
            return json.dumps(self.objects[path]).encode()
        return await super().get(path, params)


def queued_server():
    lists = {
        "/api/v1/nodes": ("Node", [[NODE]]),
        "/api/v1/pods": ("Pod", [[]]),
        "/apis/apps/v1/deployments": ("Deployment", [[DEPLOYED]]),
    }
    return QueuedServer({**lists, "/apis/kueue.x-k8s.io/v1beta1/clusterqueues": ("ClusterQueue", [[QUEUE]])})


def written(server):
    """Return the objects of a dump."""
    writer = DumpWriter()

    async def read():
        return await fetch(server.get, writer.take, await served_companions(server.get))

    missing = asyncio.run(read())
    return [json.loads(one) for one in writer.items], missing


def test_a_dump_has_the_kinds_of_components_that_are_served_and_their_settings():
    objects, missing = written(queued_server())
    by_kind = {}
    for one in objects:
        by_kind.setdefault(one["kind"], []).append(one)
    assert [one["metadata"]["name"] for one in by_kind["ClusterQueue"]] == ["a"]
    [component] = by_kind["Component"]
    assert component["arguments"] == ["--config=/c.yaml", "--feature-gates=PartialAdmission=false"]
    kept = {one["metadata"]["name"]: list(one["data"]) for one in by_kind["ConfigMap"]}
    assert kept == {"kueue-manager-config": ["controller_manager_config.yaml"], "cluster-autoscaler-status": ["status"]}
    assert "workloads.v1beta1.kueue.x-k8s.io" in {one.kind for one in missing}


def test_a_dump_is_read_back_with_its_queues_and_settings(tmp_path):
    objects, _ = written(queued_server())
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    found = moorage.read(tmp_path / "dump.json", custom=KINDS)
    settings = read_settings(read_queues(found, None), found.components[0])
    assert (settings.jobs.all_jobs, "PartialAdmission" in settings.gates) == (True, False)


def test_config_maps_are_asked_for_by_name_alone():
    server = queued_server()
    server.read()
    asked = [path for path, _ in server.asked if "configmaps" in path]
    assert sorted(asked) == [
        "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-priority-expander",
        "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status",
        "/api/v1/namespaces/queues/configmaps/kueue-manager-config",
    ]


def test_a_live_cluster_with_queues_has_them():
    found = queued_server().read()
    assert [one["kind"] for one in read_queues(found, None)].count("ClusterQueue") == 1
    assert [one.name for one in found.components] == ["kueue"]


@pytest.mark.slow
def test_an_embedded_cluster_is_read(tmp_path):
    async def main():
        store = a_store()
        make_node(store)
        spec = {"containers": [{"name": "c", "image": "i"}]}
        store.create(PODS, "default", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
        async with starting(store, tmp_path, a_scheduler()):
            await until(lambda: store.find(PODS, "default", "p").document()["spec"].get("nodeName"))
            return await asyncio.to_thread(moorage.Cluster.live, kubeconfig=tmp_path / "kubeconfig")

    cluster = asyncio.run(main())
    assert cluster.nodes["name"].tolist() == ["n1"]
    assert cluster.pod("p").spec.node_name == "n1"
    assert any(note.text.startswith("taken from https://") for note in cluster.notes)
