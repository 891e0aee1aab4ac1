"""``--emulate auto``: the release of a dump, of the output of ``kubectl version``, and of a live API server."""

from __future__ import annotations

import asyncio
import io
import json
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from moorage.errors import InputError
from moorage.interfaces.cli.live import up as up_module
from moorage.interfaces.cli.live.release_flags import ReleaseCommand
from moorage.interfaces.cli.live.run import run
from moorage.interfaces.cli.pflag import FlagError
from moorage.laboratory.dump.dump_file import DumpWriter
from moorage.laboratory.dump.live_dump import Pages

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "4", "pods": "9"}, "nodeInfo": {"kubeletVersion": "v1.33.3"}},
}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
LIST = {"apiVersion": "v1", "kind": "List", "items": [NODE, POD]}


@pytest.fixture
def server():
    """An API server that answers only /version; its version can be changed."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            status = 200 if self.path == "/version" else 404
            body = json.dumps({"major": "1", "gitVersion": self.server.version}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    opened = HTTPServer(("127.0.0.1", 0), Answers)
    opened.version = "v1.34.1"
    Thread(target=opened.serve_forever, args=(0.01,), daemon=True).start()
    yield opened
    opened.shutdown()
    opened.server_close()


def era_of(*flags):
    """Return the release that ``moorage run`` takes the flags of."""
    assert isinstance(run, ReleaseCommand)
    return run.make_context("run", list(flags)).params["era"]


@pytest.mark.parametrize(
    ("version", "release", "told"),
    [
        ("v1.34.1", "1.34.1", ""),
        ("v1.33.9-eks-113cf36", "1.33.3", "note: the API server reports 1.33.9; 1.33.3 is the nearest release that is known\n"),
        ("v1.21.14", "1.21", "note: the API server reports 1.21.14; 1.21 is the nearest release that is known\n"),
    ],
)
def test_run_takes_the_release_of_the_api_server(server, capsys, version, release, told):
    server.version = version
    era = era_of("--emulate=auto", "--master", f"http://127.0.0.1:{server.server_port}")
    assert (era.release, era.asked) == (release, release)
    assert capsys.readouterr().err == told


def test_run_has_the_flags_of_the_live_release(server):
    master = f"--master=http://127.0.0.1:{server.server_port}"
    with pytest.raises(FlagError, match=r"not a flag of 1\.34\.1, which --emulate chose, but of 1\.37"):
        era_of("--emulate=auto", master, "--tls-curve-preferences=4588")


def test_run_reads_the_kubeconfig_of_the_configuration(server, tmp_path):
    clusters = [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}]
    contexts = [{"name": "c", "context": {"cluster": "c", "user": ""}}]
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "clusters": clusters, "contexts": contexts, "current-context": "c"}
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    connection = {"kubeconfig": str(tmp_path / "kubeconfig")}
    (tmp_path / "config.yaml").write_text(json.dumps({**config, "clientConnection": connection}))
    era = era_of("--emulate", "auto", "--config", str(tmp_path / "config.yaml"))
    assert era.release == "1.34.1"
    assert b"clientConnection" in era.config


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("v1.99.0", "--emulate auto: release 1.99.0 is not known; the nearest is "),
        ("unknown", "reports no version; name the release"),
    ],
)
def test_run_refuses_a_release_that_is_not_known(server, version, told):
    server.version = version
    with pytest.raises(InputError, match=told):
        era_of("--emulate=auto", "--master", f"http://127.0.0.1:{server.server_port}")


def test_help_needs_no_cluster():
    assert run.make_context("run", ["--emulate=auto", "--version"]).params["era"].asked is None


def test_an_api_server_that_does_not_answer_is_an_error():
    with pytest.raises(InputError, match="--emulate auto: "):
        era_of("--emulate=auto", "--master=http://127.0.0.1:1")


JSON_OF_KUBECTL = json.dumps({"clientVersion": {"gitVersion": "v1.30.0"}, "serverVersion": {"gitVersion": "v1.34.1"}})
WRITTEN = {  # how kubectl version writes it → the name of the file
    JSON_OF_KUBECTL: "version.json",
    "clientVersion:\n  gitVersion: v1.30.0\nserverVersion:\n  gitVersion: v1.34.1\n": "version.yaml",
    "Client Version: v1.30.0\nKustomize Version: v5.7.1\nServer Version: v1.34.1\n": "version.yaml",
}


@pytest.mark.parametrize("text", WRITTEN)
def test_the_output_of_kubectl_version_beats_the_kubelets(moorage, tmp_path, text):
    (tmp_path / "cluster.json").write_text(json.dumps(LIST))
    (tmp_path / WRITTEN[text]).write_text(text)
    ran = moorage("simulate", "-f", tmp_path, "--emulate", "auto")
    assert ran.status == 0
    assert "(kube-scheduler 1.34.1 semantics" in ran.out


def written_dump(version):
    """Return a dump as ``moorage dump`` writes it, of a cluster with this version."""
    return b"".join(DumpWriter().parts("https://here", "", (), version)).replace(
        b"\n]}", b",\n" + json.dumps(NODE).encode() + b"\n]}"
    )


def test_a_dump_keeps_the_version_of_the_api_server(moorage):
    assert (
        "(kube-scheduler 1.34.1 semantics"
        in moorage("simulate", "-f", "-", "--emulate", "auto", "--allow-unknown", stdin=written_dump("v1.34.1")).out
    )


def test_a_live_cluster_says_its_version():
    async def get(path, params):
        del params
        return b'{"gitVersion": "v1.34.1"}' if path == "/version" else b'{"apiVersion": "v1", "kind": "NodeList", "items": []}'

    pages = Pages()
    asyncio.run(pages.read(get))
    found = pages.cluster("https://here", datetime(2026, 1, 1, tzinfo=UTC))
    assert found.report.server_version == "v1.34.1"


@pytest.mark.parametrize(("paths", "stdin"), [(("dump",), False), (("-",), True)])
def test_up_takes_the_release_of_the_files(tmp_path, monkeypatch, capsys, paths, stdin):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dump").write_bytes(written_dump("v1.34.1"))
    given = {"paths": paths, "recursive": False}
    release, rest = up_module._release_of_files(given, io.BytesIO(written_dump("v1.34.1") if stdin else b"unread"))
    assert release == "1.34.1"
    assert rest.read() == (written_dump("v1.34.1") if stdin else b"unread"), "the files are read once more, to be stored"
    assert "emulating kube-scheduler 1.34.1\n" in capsys.readouterr().err


def test_up_needs_files_for_it(moorage, tmp_path):
    ran = moorage("up", "--home", tmp_path, "--emulate", "auto")
    assert ran.status == 1
    assert "--emulate auto needs the nodes of a cluster: give -f PATH" in ran.err
