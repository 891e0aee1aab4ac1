"""A dump of a live cluster: what is asked for, and what is said of what is missing."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest

import moorage
from moorage.errors import ClusterError
from moorage.laboratory.dump.live_dump import Pages
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
        page = {"apiVersion": "v1", "kind": f"{kind}List", "metadata": {"continue": more}, "items": pages[at]}
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
