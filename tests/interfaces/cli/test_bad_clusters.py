"""``kubectl moorage`` against clusters that refuse, answer nonsense or break off: one error, status 1, nothing written."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from moorage.basis.client import rest
from moorage.interfaces.cli.kubectl import main

NOT_ALLOWED = 'pods is forbidden: User "dev" cannot list resource "pods" in API group "" at the cluster scope'


def status(code, message, reason=""):
    return code, json.dumps({"kind": "Status", "apiVersion": "v1", "message": message, "reason": reason, "code": code}).encode()


def empty(path):
    """Return what a cluster without objects answers."""
    if path.startswith("/version"):
        return 200, b'{"gitVersion":"v1.36.0"}'
    if path.endswith("/kube-system"):
        return 200, b'{"metadata":{"name":"kube-system","uid":"u"}}'
    return 200, b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"5"},"items":[]}'


def only(part, answer):
    return lambda path: answer if part in path else empty(path)


SERVERS = {  # what a server answers, by path → what the error says
    "no rights at all": (lambda _: status(403, NOT_ALLOWED, "Forbidden"), NOT_ALLOWED),
    "no right to list pods": (only("/pods", status(403, NOT_ALLOWED, "Forbidden")), f"GET /api/v1/pods: {NOT_ALLOWED}"),
    "not known": (lambda _: status(401, "Unauthorized", "Unauthorized"), "Unauthorized"),
    "an error": (lambda _: status(500, "etcdserver: request timed out"), "etcdserver: request timed out"),
    "a login page": (lambda _: (200, b"<html>"), "GET /version: the answer is not a version"),
    "a page instead of pods": (only("/pods", (200, b"<html>")), "GET /api/v1/pods: the answer is not a list"),
    "half of a list": (only("/pods", (200, b'{"items":[', 1000)), "GET /api/v1/pods: the response was cut off"),
    "no such pod": (empty, "no pod or workload p among 0 pods of namespace shop"),
}  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    """Serve answers, and return the kubeconfig and the list of requests that would write."""
    ended, servers = threading.Event(), []

    def serve(answers):
        writes = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                answer = answers(self.path)
                if answer is None:
                    ended.wait(10)
                    return
                code, body, *length = answer
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(length[0] if length else len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                writes.append(self.path)

            do_PUT = do_PATCH = do_DELETE = do_POST

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.handle_error = lambda *_: None  # the command hangs up on requests that it needs no more
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        return a_kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_port}"), writes

    yield serve
    ended.set()
    for server in servers:
        server.shutdown()
        server.server_close()


def a_kubeconfig(folder, server):
    path = folder / "config"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
    }))  # fmt: skip
    return path


def failure(monkeypatch, capsys, *args):
    """Run the command, which must fail; return its error, the only thing that it prints."""
    monkeypatch.setattr(sys, "argv", ["kubectl-moorage", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    assert said.err.startswith("error: ")
    assert said.err.count("error: ") == 1
    return said.err


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("MOORAGE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize(("answers", "says"), SERVERS.values(), ids=SERVERS)
def test_a_bad_cluster_is_one_error(cluster, monkeypatch, capsys, answers, says):
    path, writes = cluster(answers)
    assert says in failure(monkeypatch, capsys, "explain", "p", "--kubeconfig", path)
    assert not writes


@pytest.mark.slow
@pytest.mark.parametrize("part", ["/pods", "kube-system"])
def test_a_cluster_that_does_not_answer_is_one_error(cluster, monkeypatch, capsys, part):
    monkeypatch.setattr(rest, "_REQUEST_S", 1.0)
    path, writes = cluster(only(part, None))
    assert "no answer within " in failure(monkeypatch, capsys, "explain", "p", "--kubeconfig", path)
    assert not writes


NOWHERE = {
    "a context that does not exist": (["--context", "nowhere"], "context 'nowhere' does not exist; there are: c"),
    "a kubeconfig that does not exist": (["--kubeconfig", "/nonexistent"], "/nonexistent: no such file"),
    "a server that does not listen": ([], "refused"),
}


@pytest.mark.parametrize(("more", "says"), NOWHERE.values(), ids=NOWHERE)
def test_no_cluster_is_one_error(tmp_path, monkeypatch, capsys, more, says):
    path = a_kubeconfig(tmp_path, "http://127.0.0.1:1")
    assert says in failure(monkeypatch, capsys, "explain", "p", "--kubeconfig", path, *more)
