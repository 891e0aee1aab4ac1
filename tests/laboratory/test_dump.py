"""A dump as a file: what is in it, what never is, and that it reads as the live cluster does."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.basis.inputs.files import InputFile
from moorage.errors import ClusterError
from moorage.interfaces.cli.main import main
from moorage.interfaces.cli.questions.dump import write_parts
from moorage.laboratory.dump.dump_file import DumpWriter
from moorage.laboratory.dump.live_dump import Pages, fetch
from moorage.simulator.cluster_input import UnreadKind
from moorage.simulator.cluster_reader import read, read_sources
from tests.interfaces.cli.test_simulate_output import violations
from tests.laboratory.test_live_dump import NODE, THEN
from tests.laboratory.test_live_dump import Server as OldServer
from tests.live.server.test_embedded_start import PODS, a_scheduler, a_store, make_node, starting, until

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/dump.schema.json").read_text("utf-8"))


class Server(OldServer):
    """Names the API version of each list as a server does."""

    async def get(self, path, params):
        page = json.loads(await super().get(path, params))
        _, _, group, version, *_ = path.split("/") if path.startswith("/apis/") else ["", "", "", "v1"]
        return json.dumps({**page, "apiVersion": f"{group}/{version}" if group else version}).encode()


SECRET = "hunter2-hunter2"
NOISE = {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET}, "managedFields": [{"manager": SECRET}]}
CONTAINER = {
    "name": "c", "image": "i:1", "args": [SECRET], "command": [SECRET], "env": [{"name": "PASSWORD", "value": SECRET}],
    "resources": {"requests": {"cpu": "500m"}}, "livenessProbe": {"exec": {"command": [SECRET]}},
}  # fmt: skip
CLAIM = {"metadata": {"name": "data", **NOISE}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
SPEC = {
    "restartPolicy": "Never",
    "containers": [CONTAINER],
    "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": CLAIM}}],
}
TEMPLATE = {"metadata": {"labels": {"app": "web"}, **NOISE}, "spec": {**SPEC, "restartPolicy": "Always"}}
RUNS_ONCE = {**TEMPLATE, "spec": SPEC}
SELECTOR = {"matchLabels": {"app": "web"}}


def named(name, **spec):
    return {
        "metadata": {"name": name, "namespace": "a", "uid": name, "creationTimestamp": "2025-01-01T00:00:00Z", **NOISE},
        "spec": spec,
    }


DEFAULT_CLASS = {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
LISTS = {
    "/api/v1/nodes": ("Node", [[NODE]]),
    "/api/v1/pods": ("Pod", [[named("p0", nodeName="n1", **SPEC)], [named("p1", **SPEC)]]),
    "/apis/apps/v1/deployments": ("Deployment", [[named("web", selector=SELECTOR, template=TEMPLATE, replicas=2)]]),
    "/apis/apps/v1/statefulsets": (
        "StatefulSet", [[named("db", selector=SELECTOR, template=TEMPLATE, volumeClaimTemplates=[CLAIM])]],
    ),
    "/apis/batch/v1/cronjobs": (
        "CronJob", [[named("c", schedule="* * * * *", jobTemplate={"metadata": NOISE, "spec": {"template": RUNS_ONCE}})]],
    ),
    "/apis/storage.k8s.io/v1/storageclasses": ("StorageClass", [[{"metadata": DEFAULT_CLASS, "provisioner": "p"}]]),
}  # fmt: skip


def dumped(server, **kept):
    writer = DumpWriter(**kept)
    missing = asyncio.run(fetch(server.get, writer.take))
    return writer, b"".join(writer.parts("https://here", "2026-01-02T03:04:05+00:00", missing))


def test_what_scheduling_does_not_read_is_not_in_it():
    _, data = dumped(Server(LISTS))
    assert SECRET.encode() not in data
    assert b"managedFields" not in data
    assert b"is-default-class" in data
    assert SECRET.encode() in dumped(Server(LISTS), kept=["kubectl.kubernetes.io/last-applied-configuration"])[1]


def faults(data):
    """Return what breaks the schema in a dump, or in a redacted file, which has no record."""
    document = json.loads(data)
    records = [one for one in document["items"] if one["kind"] == "DumpRecord"]
    broken = list(violations(document, SCHEMA, root=SCHEMA))
    return [*broken, *(fault for one in records for fault in violations(one, SCHEMA["$defs"]["DumpRecord"], root=SCHEMA))]


def test_dumps_and_redacted_files_keep_to_their_schema(tmp_path, capsys):
    _, data = dumped(Server(LISTS, ["/api/v1/services"]))
    assert json.loads(data)["items"][0]["kind"] == "DumpRecord"
    assert faults(data) == []
    for spoilt in (data.replace(b'"forbidden"', b'"lost"'), data.replace(b'"takenAt"', b'"taken"'), b'{"items":[]}'):
        assert faults(spoilt) != []
    (tmp_path / "dump.json").write_bytes(data)
    with pytest.raises(SystemExit) as ended:
        main(["redact", "-f", str(tmp_path / "dump.json"), "--key", str(tmp_path / "key"), "-q"])
    redacted = capsys.readouterr().out
    assert (ended.value.code, faults(redacted)) == (0, [])
    assert {one["kind"] for one in json.loads(redacted)["items"]} >= {"Node", "Pod", "Deployment"}


def test_it_reads_as_the_live_cluster_does():
    server = Server(LISTS, ["/api/v1/services"])
    _, data = dumped(server)
    found = read_sources([InputFile("dump", data)])
    live = server.read()
    assert found.report.taken_at == "2026-01-02T03:04:05+00:00" == live.report.taken_at
    assert found.report.notes == live.report.notes
    assert "services were not read: forbidden" in found.report.notes

    def bare(cluster):
        pods = tuple(
            pod.replace(metadata=pod.metadata.replace(annotations={}), spec=pod.spec.replace(volumes=()))
            for pod in cluster.pods
        )
        return replace(cluster, pods=pods, deployments=(), stateful_sets=(), cron_jobs=(), report=live.report)

    assert bare(found) == bare(live)
    assert found.deployments[0].spec.template.metadata.labels == {"app": "web"}
    assert len(found.stateful_sets[0].spec.volume_claim_templates) == 1


def test_other_versions_of_a_kind_are_tried():
    older = "/apis/resource.k8s.io/v1beta2/deviceclasses"
    server = Server({**LISTS, older: ("DeviceClass", [[{"metadata": {"name": "gpu"}}]])})
    assert [one.name for one in server.read().device_classes] == ["gpu"]


def test_a_list_that_expires_is_begun_again():
    server, refused = Server(LISTS), []

    async def get(path, params):
        if "continue" in params and not refused:
            refused.append(path)
            raise ClusterError("expired", 410, "Expired")
        return await server.get(path, params)

    pages = Pages()
    asyncio.run(pages.read(get))
    found = pages.cluster("https://here", THEN)
    assert refused == ["/api/v1/pods"]
    assert [pod.name for pod in found.pods] == ["p0", "p1"]


def test_a_file_is_written_as_a_whole(tmp_path):
    path = tmp_path / "dump.json.gz"

    def broken():
        yield b"half"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_parts(str(path), broken())
    assert list(tmp_path.iterdir()) == []
    write_parts(str(path), [b"{", b"}"])
    assert gzip.decompress(path.read_bytes()) == b"{}"
    assert path.stat().st_mode & 0o077 == 0


def test_what_could_not_be_read_is_recorded():
    writer = DumpWriter()
    data = b"".join(writer.parts("https://here", "2026-01-02T03:04:05+00:00", [UnreadKind("services", "forbidden")]))
    (record,) = json.loads(data)["items"]
    assert record["notRead"] == [{"kind": "services", "why": "forbidden"}]


@pytest.mark.slow
def test_an_embedded_cluster_is_dumped(tmp_path, capsys):
    path = tmp_path / "dump.json.gz"

    def dump():
        with pytest.raises(SystemExit) as ended:
            main(["dump", "--kubeconfig", str(tmp_path / "kubeconfig"), "-o", str(path)])
        return ended.value.code

    async def run():
        store = a_store()
        make_node(store)
        spec = {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": SECRET}]}]}
        store.create(PODS, "default", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
        async with starting(store, tmp_path, a_scheduler()):
            await until(lambda: store.find(PODS, "default", "p").document()["spec"].get("nodeName"))
            return await asyncio.to_thread(dump)

    assert asyncio.run(run()) == 0
    assert "1 node and 1 pod\n" in capsys.readouterr().err
    assert SECRET.encode() not in gzip.decompress(path.read_bytes())
    cluster = read([str(path)])
    assert [pod.spec.node_name for pod in cluster.pods] == ["n1"]
    assert cluster.report.taken_at
